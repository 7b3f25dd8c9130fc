package policy

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

func TestSavedWeightsLoadBitForBit(t *testing.T) {
	all := architectures()
	all["critic and tower"] = withTower()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			l := newTestLearner(t, m, randomWeights(t, m, 81), Learning{Objective: objective.SFT{}})
			c.VocabSize -= 1 // no token of an image
			step(t, l, randomBatch(c, 82, 6))
			c.VocabSize += 1
			want, err := l.Weights().Flat()
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "model")
			if err := m.Save(dir, l.Weights(), nil); err != nil {
				t.Fatal(err)
			}
			loaded, w, tokenizer, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := w.Flat()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("weights changed on the way through a folder")
			}
			if fmt.Sprint(loaded.Config()) != fmt.Sprint(m.Config()) || w.Version != 0 || tokenizer != nil {
				t.Errorf("loaded %+v, version %d, tokenizer %v; saved %+v without one", loaded.Config(), w.Version,
					tokenizer, m.Config())
			}
			tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			if got, want := logprobs(t, loaded, w, tokens, 1),
				logprobs(t, m, l.Weights(), tokens, 1); !slices.Equal(got, want) {
				t.Errorf("log-probs %v after loading, %v before saving", got, want)
			}
		})
	}
}

func TestAddingAValueHeadChangesNothingElse(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 83).WithVersion(6)
			critic, with, err := m.WithValueHead(w)
			if err != nil {
				t.Fatal(err)
			}
			if !critic.Config().ValueHead || m.Config().ValueHead || with.Version != 6 {
				t.Errorf("%+v of version %d, from %+v", critic.Config(), with.Version, m.Config())
			}
			in := Plain([]int32{3, 1, 4, 1, 5, 9, 2, 6})
			before, err := m.Score(context.Background(), w, in, 1)
			if err != nil {
				t.Fatal(err)
			}
			after, err := critic.Score(context.Background(), with, in, 1)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(after[0].Logprobs, before[0].Logprobs) || before[0].Values != nil ||
				!slices.Equal(after[0].Values, make([]float32, 8)) {
				t.Errorf("scores %+v, were %+v: want the log-probs and values of 0", after[0], before[0])
			}
			again, same, err := critic.WithValueHead(with)
			if err != nil || again != critic || same != with {
				t.Errorf("a model with a value head is given another: %v", err)
			}
			dir := t.TempDir()
			if err := critic.Save(dir, with, nil); err != nil {
				t.Fatal(err)
			}
			if loaded, _, _, err := Load(dir); err != nil || !loaded.Config().ValueHead {
				t.Errorf("the critic loads without its head: %v", err)
			}
		})
	}
}

func TestWeightsOfAnotherShapeAreRefused(t *testing.T) {
	m := newTestModel(t, architectures()["llama"])
	flat, err := randomWeights(t, m, 1).Flat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewWeights(0, flat[1:]); err == nil ||
		!strings.Contains(err.Error(), "20 tensors given, the model has 21") {
		t.Errorf("a tensor too few: %v", err)
	}
	flat[3] = flat[3][1:]
	if _, err := m.NewWeights(0, flat); err == nil || !strings.Contains(err.Error(), m.config.Specs()[3].Name+" has ") {
		t.Errorf("a tensor cut short: %v", err)
	}
}

// stories loads a model with real weights, which are outside the repository.
func stories(t *testing.T) (*Model, *Weights, *hf.Tokenizer) {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "data", "TinyStories-656K")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%v: copy the model folder TinyStories-656K there to run this test", err)
	}
	m, w, tokenizer, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m, w, tokenizer
}

// What PyTorch's transformers 5.23 generates with the same folder in float32.
const storyOpening = "Once upon a time, a little girl named Lily lived in a small house with her mom, dad, and her " +
	"dog, Spot, Spot, loved to play all day. One day, Lily saw a small bird on the ground. She picked it up and " +
	"tried to reach the bird and see what it was.\n" +
	"Lily had an idea. She asked her mom if she could help the bird. Her mom said, \"Okay, let's go"

func TestPretrainedModelContinuesAStory(t *testing.T) {
	m, w, tokenizer := stories(t)
	prompt, err := tokenizer.Encode("Once upon a time")
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{1, 80, 147, 201, 282, 57}; !slices.Equal(prompt, want) {
		t.Errorf("prompt %v, want %v", prompt, want)
	}
	r := generate(t, m, w, [][]int32{prompt}, Sampling{MaxTokens: 70}, 0)[0]
	if text := tokenizer.Decode(r.Tokens); !strings.HasPrefix(strings.TrimSpace(text), storyOpening) {
		t.Errorf("the story goes\n%s\nwant\n%s", text, storyOpening)
	}
}

func TestPretrainedModelScoresAsThePlainComputation(t *testing.T) {
	m, w, tokenizer := stories(t)
	ref, err := newReference(m.Config(), w)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := tokenizer.Encode(storyOpening)
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) < 60 {
		t.Fatalf("the text has %d tokens: want at least 60", len(tokens))
	}
	tokens = tokens[:60]
	want, _ := ref.score(tokens, rollout.IDLists{}, 1)
	worst := 0.0
	for i, l := range logprobs(t, m, w, tokens, 1) {
		worst = max(worst, math.Abs(float64(l)-want[i]))
	}
	t.Logf("largest difference of %d log-probs: %.2g", len(tokens), worst)
	if worst > 1e-3 {
		t.Errorf("log-probs differ by up to %g from the plain computation", worst)
	}
}

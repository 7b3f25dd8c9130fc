package policy

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// architectures are small decoders of every kind that a checkpoint can ask for.
func architectures() map[string]hf.Config {
	llama := hf.Config{ModelType: hf.Llama, VocabSize: 23, HiddenSize: 24, IntermediateSize: 40, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 4, MaxPositionEmbeddings: 64, BOSTokenID: hf.NoToken,
		PadTokenID: hf.NoToken}
	tied, grouped, biased, qwen, wide, scaled := llama, llama, llama, llama, llama, llama
	tied.TieWordEmbeddings = true
	grouped.NumKeyValueHeads, grouped.RopeTheta, grouped.RMSNormEps = 2, 1e6, 1e-5
	biased.NumKeyValueHeads, biased.AttentionBias = 1, true
	qwen.ModelType, qwen.NumKeyValueHeads = hf.Qwen2, 2
	wide.HeadDim = 10
	qwen3 := wide
	qwen3.ModelType, qwen3.NumKeyValueHeads = hf.Qwen3, 2
	biased3 := qwen3
	biased3.AttentionBias = true
	// Of the waves of 6, 29, 135 and 627 positions the first stays, and the second is between the limits.
	scaled.HeadDim = 8
	scaled.RopeTheta = 463
	scaled.RopeScaling = hf.RopeScaling{Factor: 4, LowFreqFactor: 1, HighFreqFactor: 6,
		OriginalMaxPositionEmbeddings: 50}
	return map[string]hf.Config{"llama": llama, "tied": tied, "grouped queries": grouped, "biases": biased,
		"qwen2": qwen, "own head width": wide, "qwen3": qwen3, "qwen3 with biases": biased3, "scaled positions": scaled}
}

// someArchitectures are all of them or, with -short, those that together have everything but an own head width alone.
func someArchitectures() map[string]hf.Config {
	all := architectures()
	if testing.Short() {
		maps.DeleteFunc(all, func(name string, _ hf.Config) bool {
			return name != "tied" && name != "grouped queries" && name != "qwen3 with biases" && name != "scaled positions"
		})
	}
	return all
}

// randomWeights makes every parameter random, norms and biases too, so that none can be ignored unseen.
func randomWeights(t testing.TB, m *Model, seed uint64) *Weights {
	t.Helper()
	rng := rollout.Stream(seed, "test/weights", 0)
	var flat [][]float32
	for _, p := range m.config.Specs() {
		data := make([]float32, size(p.Shape))
		for i := range data {
			data[i] = float32(rng.NormFloat64() * 0.4)
			if len(p.Shape) == 1 {
				data[i]++
			}
		}
		flat = append(flat, data)
	}
	w, err := m.NewWeights(0, flat)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// testModels holds the models of [newTestModel] by configuration, so that tests share compiled programs.
var testModels sync.Map

// newTestModel returns a model that other tests share: it must not be changed.
func newTestModel(t testing.TB, c hf.Config) *Model {
	t.Helper()
	key := fmt.Sprintf("%+v", c)
	if m, ok := testModels.Load(key); ok {
		return m.(*Model)
	}
	m := newOwnModel(t, c)
	testModels.Store(key, m)
	return m
}

// newOwnModel returns a model of the test's own.
func newOwnModel(t testing.TB, c hf.Config) *Model {
	t.Helper()
	m, err := NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func randomTokens(rng *rand.Rand, n, vocab int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = rng.Int32N(int32(vocab))
	}
	return s
}

func near(t *testing.T, what string, got float32, want, tolerance float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > tolerance {
		t.Errorf("%s: got %v, the reference says %v", what, got, want)
	}
}

func TestScoresAgreeWithThePlainComputation(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 1)
			ref, err := newReference(c, w)
			if err != nil {
				t.Fatal(err)
			}
			rng := rollout.Stream(2, "test", 0)
			sequences := [][]int32{randomTokens(rng, 9, c.VocabSize), randomTokens(rng, 2, c.VocabSize),
				randomTokens(rng, 13, c.VocabSize)}
			scores, err := m.Score(context.Background(), w, Plain(sequences...), 0.7)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range sequences {
				logprobs, entropy := ref.score(s, rollout.IDLists{}, 0.7)
				for j := range s {
					near(t, "log-prob", scores[i].Logprobs[j], logprobs[j], 2e-5)
					near(t, "entropy", scores[i].Entropy[j], entropy[j], 2e-5)
				}
			}
		})
	}
}

func TestGeneratedLogprobsAreThoseOfTheScore(t *testing.T) {
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 3)
			rng := rollout.Stream(4, "test", 0)
			prompts := [][]int32{randomTokens(rng, 1, c.VocabSize), randomTokens(rng, 6, c.VocabSize),
				randomTokens(rng, 3, c.VocabSize)}
			rows := generate(t, m, w, prompts, Sampling{Temperature: 1.3, TopP: 0.8, MaxTokens: 11, Stop: []int32{5}},
				0)
			for i, r := range rows {
				if !slices.Equal(r.Tokens[:r.Prompt], prompts[i]) || !r.Done {
					t.Fatalf("row %d: prompt %v became %v, done %v", i, prompts[i], r.Tokens, r.Done)
				}
				scores, err := m.Score(context.Background(), w, []Input{{Tokens: r.Tokens, SamplingMask: r.SamplingMask}}, 1.3)
				if err != nil {
					t.Fatal(err)
				}
				for j, lp := range r.Logprobs {
					want := scores[0].Logprobs[j]
					if j < r.Prompt {
						want = 0
					}
					near(t, "log-prob", lp, float64(want), 2e-5)
				}
				stopped := r.Tokens[len(r.Tokens)-1] == 5
				if r.Truncated == stopped || (r.Truncated && written(r) != 11) {
					t.Errorf("row %d ends with token %d after %d tokens, truncated %v", i, r.Tokens[len(r.Tokens)-1],
						len(r.Logprobs), r.Truncated)
				}
			}
		})
	}
}

func generate(t testing.TB, m *Model, w *Weights, prompts [][]int32, s Sampling, chunk int) []Row {
	t.Helper()
	streams := make([]*rand.Rand, len(prompts))
	for i := range streams {
		streams[i] = rollout.Stream(7, "test/generate", uint64(i))
	}
	g, err := m.Start(Plain(prompts...), streams, s)
	if err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		if done, err = g.Continue(context.Background(), w, chunk); err != nil {
			t.Fatal(err)
		}
	}
	g.Close()
	return g.Rows()
}

func TestABuildThatComputesSlowlyIsToldOnceWithTheRemedy(t *testing.T) {
	for _, c := range []struct {
		simd bool
		arch string
		slow bool
	}{{true, "amd64", false}, {false, "arm64", false}, {false, "amd64", true}} {
		if text := slowBuild(c.simd, c.arch); (text != "") != c.slow ||
			c.slow && !strings.Contains(text, "GOEXPERIMENT=simd go build") {
			t.Errorf("SIMD %v on %s: %q", c.simd, c.arch, text)
		}
	}
	const again = "REPRISE_TEST_TWO_MODELS"
	if os.Getenv(again) != "" {
		for range 2 {
			if _, err := NewModel(architectures()["llama"]); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	two := exec.Command(program, "-test.run", "^"+t.Name()+"$")
	two.Env = append(os.Environ(), again+"=1")
	said, err := two.CombinedOutput()
	want := 0
	if slowBuild(SIMD, runtime.GOARCH) != "" {
		want = 1
	}
	if n := strings.Count(string(said), "GOEXPERIMENT=simd go build"); err != nil || n != want {
		t.Errorf("two models of one process warn %d times, want %d: %v\n%s", n, want, err, said)
	}
}

package policy

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestWhatIsNeverDrawnCountsInTheProbabilitiesAllTheSame(t *testing.T) {
	logits := []float32{1, 3, 2, 0}
	sum := math.E + math.Exp(3) + math.Exp(2) + 1
	for name, c := range map[string]struct {
		sampling Sampling
		drawn    map[int32]bool
	}{
		"greedy":  {Sampling{}, map[int32]bool{2: true}},
		"all":     {Sampling{Temperature: 1}, map[int32]bool{0: true, 2: true, 3: true}},
		"nucleus": {Sampling{Temperature: 1, TopP: 0.6}, map[int32]bool{2: true}}, // of what remains 2 has a share of 0.67
	} {
		s, rng, seen := newSampler(4, c.sampling), rollout.Stream(1, "test/never", 0), map[int32]int{}
		s.never = []int32{1}
		for range 3000 {
			token, logprob, err := s.draw(logits, rng)
			if err != nil {
				t.Fatal(err)
			}
			if want := float64(logits[token]) - math.Log(sum); math.Abs(float64(logprob)-want) > 1e-6 {
				t.Fatalf("%s: token %d has log-prob %v, want %v", name, token, logprob, want)
			}
			seen[token]++
		}
		for token := range int32(4) {
			if (seen[token] > 0) != c.drawn[token] {
				t.Errorf("%s: token %d was drawn %d times", name, token, seen[token])
			}
		}
		// Of what remains, 0, 2 and 3 have e, e^2 and 1: 0 is drawn with probability 0.2447, 734 of 3000 with a deviation of 24.
		if name == "all" && math.Abs(float64(seen[0])-734) > 5*24 {
			t.Errorf("token 0 was drawn %d times", seen[0])
		}
	}
}

func TestAPolicyWithATowerWritesNoImageToken(t *testing.T) {
	c := seeing()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 7)
	rng := rollout.Stream(8, "test", 0)
	var prompts []Input
	for range 40 {
		prompts = append(prompts, randomInput(c, rng, 4, 1))
	}
	streams := make([]*rand.Rand, len(prompts))
	for i := range streams {
		streams[i] = rollout.Stream(9, "test", uint64(i))
	}
	g, err := m.Start(prompts, streams, Sampling{Temperature: 1, MaxTokens: 12})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Continue(context.Background(), w, 0); err != nil {
		t.Fatal(err)
	}
	for i, row := range g.Rows() {
		for k, token := range row.Tokens[row.Prompt:] {
			if int(token) == c.Vision.ImageTokenID {
				t.Fatalf("row %d: token %d is an image's", i, k)
			}
		}
	}
}

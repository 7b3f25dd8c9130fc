package policy

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/objective"
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
		s.suppressed = []int32{1}
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

// What is never drawn may be so much likelier than all else that, beside it, nothing else has a probability that a float64 holds.
func TestWhatIsNeverDrawnLeavesTheOthersTheirProbabilities(t *testing.T) {
	for name, c := range map[string]struct {
		sampling Sampling
		logits   []float32
		drawn    map[int32]bool
	}{
		"greedy":      {Sampling{}, []float32{1000, 0, 1, 0.5}, map[int32]bool{2: true}},
		"far":         {Sampling{Temperature: 1}, []float32{1000, 0, 1, 0.5}, map[int32]bool{1: true, 2: true, 3: true}},
		"cold":        {Sampling{Temperature: 0.01}, []float32{9, 0, 1, 0.5}, map[int32]bool{2: true}},
		"nucleus":     {Sampling{Temperature: 0.01, TopP: 0.9}, []float32{9, 1, 1, 0.5}, map[int32]bool{1: true, 2: true}},
		"impossible":  {Sampling{Temperature: 1}, []float32{float32(math.Inf(-1)), 0, 1, 0.5}, map[int32]bool{1: true, 2: true, 3: true}},
		"frozen":      {Sampling{Temperature: 1e-300}, []float32{9, 0, 1, 0.5}, map[int32]bool{2: true}},
		"none beside": {Sampling{Temperature: 1}, []float32{3, float32(math.Inf(-1)), 1, float32(math.Inf(-1))}, map[int32]bool{2: true}},
	} {
		s, rng, seen := newSampler(4, c.sampling), rollout.Stream(2, "test/never", 0), map[int32]bool{}
		s.suppressed = []int32{0}
		heat := c.sampling.Temperature
		if heat == 0 {
			heat = 1
		}
		for range 300 {
			token, logprob, err := s.draw(c.logits, rng)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[token] = true
			most, sum := max(c.logits[0], c.logits[2]), 0.0
			for _, l := range c.logits {
				sum += math.Exp(float64(l-most) / heat)
			}
			want := max(float64(c.logits[token]-most)/heat-math.Log(sum), -math.MaxFloat32)
			if math.Abs(float64(logprob)-want) > 1e-6*(1+math.Abs(want)) {
				t.Fatalf("%s: token %d has log-prob %v, want %v", name, token, logprob, want)
			}
		}
		if !reflect.DeepEqual(seen, c.drawn) {
			t.Errorf("%s: drew %v, want %v", name, seen, c.drawn)
		}
	}
	s := newSampler(2, Sampling{Temperature: 1})
	s.suppressed = []int32{0}
	if token, _, err := s.draw([]float32{3, float32(math.Inf(-1))}, rollout.Stream(1, "test", 0)); err == nil {
		t.Errorf("drew token %d, where nothing may be drawn", token)
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

// Steps have the masks of earlier turns taken off (rollout.Rollout.Steps), so that an image token which the policy wrote there would
// pass for a patch: it writes none, though it would like to.
func TestStepsOfARolloutShowTheImagesThatTheWholeShows(t *testing.T) {
	c := seeing()
	m := newTestModel(t, c)
	w := fond(t, m, randomWeights(t, m, 10))
	rng, turns := rollout.Stream(11, "test", 0), 5
	prompts := []Input{randomInput(c, rng, 3, 1), randomInput(c, rng, 2, 0)}
	rows := converse(t, m, w, prompts, Sampling{Temperature: 1, MaxTokens: 4}, func(turn, row int) *Input {
		if turn == turns {
			return nil
		}
		in := randomInput(c, rng, 2, (turn+row)%3)
		return &in
	}, 0)
	l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
	for _, row := range rows {
		whole := &rollout.Rollout{Tokens: row.Tokens, Mask: row.Mask, Logprobs: row.Logprobs, Versions: row.Versions, Images: row.Images, Temperature: 1}
		for j, of := range row.Mask {
			switch {
			case of == 1 && row.Mask[j-1] == 0:
				whole.Turns = append(whole.Turns, rollout.Turn{Start: int32(j), End: int32(j + 1)})
			case of == 1:
				whole.Turns[len(whole.Turns)-1].End++
			}
		}
		steps, bad := whole.Steps()
		if bad != nil || len(steps) != turns || len(row.Images) < 3 {
			t.Fatalf("%d steps of %d images, %v: want %d, of several", len(steps), len(row.Images), bad, turns)
		}
		batch := &rollout.Batch{Draws: []rollout.Draw{{Rollout: whole, Weight: 1}}}
		for _, s := range steps {
			batch.Draws = append(batch.Draws, rollout.Draw{Rollout: s, Weight: 1})
		}
		shards := prepared(t, l, []*rollout.Batch{batch})
		p, said := &shards[0][0], firstScores(t, l, shards, w)
		for n, s := range steps {
			for j, of := range s.Mask {
				at := (1+n)*p.length + j
				if p.images.patch[at] != p.images.patch[j] {
					t.Errorf("token %d of step %d has place %d in an image, of the whole %d", j, n, p.images.patch[at], p.images.patch[j])
				}
				if of == 1 {
					want := float64(said.Logprobs[j])
					near(t, "log-prob of a step", said.Logprobs[at], want, 1e-5)
					near(t, "log-prob at generation", row.Logprobs[j], want, 1e-5*(1-want))
				}
			}
		}
	}
}

// fond returns weights with which an image token is, about every second time, far likelier than all else.
func fond(t *testing.T, m *Model, w *Weights) *Weights {
	t.Helper()
	flat, err := w.Flat()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range m.config.Specs() {
		if s.Name == "lm_head.weight" {
			for d := range m.config.HiddenSize {
				flat[i][m.config.Vision.ImageTokenID*m.config.HiddenSize+d] *= 8
			}
		}
	}
	fonder, err := m.NewWeights(w.Version, flat)
	if err != nil {
		t.Fatal(err)
	}
	return fonder
}

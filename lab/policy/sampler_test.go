package policy

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// exampleLogits of 12 tokens: some likely, some rare, three alike, one impossible.
func exampleLogits() []float32 {
	return []float32{1, 2.5, -1, 0.5, 0.5, 3, -2, 0.5, float32(math.Inf(-1)), 1.5, -0.5, 2}
}

// softmax64 is softmax(logits/temperature) in the plainest form.
func softmax64(logits []float32, temperature float64) []float64 {
	p := make([]float64, len(logits))
	var sum float64
	for i, l := range logits {
		p[i] = math.Exp(float64(l) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// nucleus keeps the smallest set of the likeliest tokens whose probability is at least topP, the lower index first
// among equals, and scales it to 1.
func nucleus(p []float64, topP float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) })
	kept, sum := make([]float64, len(p)), 0.0
	for _, i := range order {
		if sum >= topP {
			break
		}
		kept[i] = p[i]
		sum += p[i]
	}
	for i := range kept {
		kept[i] /= sum
	}
	return kept
}

// chiSquare compares counts with a distribution: the statistic, and its 99.99% quantile by Wilson and Hilferty. Cells
// that expect less than 5 are taken together.
func chiSquare(counts []int, p []float64) (statistic, limit float64) {
	n := 0
	for _, c := range counts {
		n += c
	}
	cells, rest, restSeen := 0, 0.0, 0.0
	for i, c := range counts {
		expected := p[i] * float64(n)
		if expected < 5 {
			rest, restSeen = rest+expected, restSeen+float64(c)
			continue
		}
		statistic += (float64(c) - expected) * (float64(c) - expected) / expected
		cells++
	}
	if rest > 0 {
		statistic += (restSeen - rest) * (restSeen - rest) / rest
		cells++
	}
	k := float64(cells - 1)
	const normal = 3.719 // 99.99%
	return statistic, k * math.Pow(1-2/(9*k)+normal*math.Sqrt(2/(9*k)), 3)
}

func draws(t *testing.T, s Sampling, logits []float32, n int) []int {
	t.Helper()
	sampler, rng, counts := newSampler(len(logits), s), rollout.Stream(11, "test/draws", 0), make([]int, len(logits))
	for range n {
		token, _, _, err := sampler.draw(logits, rng)
		if err != nil {
			t.Fatal(err)
		}
		counts[token]++
	}
	return counts
}

// 40,000 draws tell a distribution from that of a temperature 5% off, or a nucleus 0.05 wider.
func TestTokensFollowTheSoftmaxOrItsNucleus(t *testing.T) {
	logits := exampleLogits()
	for _, c := range []struct{ temperature, topP float64 }{
		{1, 0}, {1, 1}, {0.5, 1}, {2, 1}, {1.3, 0.9}, {1, 0.5}, {0.7, 0.75}, {3, 0.2},
	} {
		counts := draws(t, Sampling{Temperature: c.temperature, TopP: c.topP}, logits, 40_000)
		topP := c.topP
		if topP == 0 {
			topP = 1
		}
		want := nucleus(softmax64(logits, c.temperature), topP)
		for i, p := range want {
			if p == 0 && counts[i] > 0 {
				t.Errorf("%+v: token %d was drawn from outside the nucleus", c, i)
			}
		}
		if got, limit := chiSquare(counts, want); got > limit {
			t.Errorf("%+v: chi-square %.1f over %.1f: drew %v", c, got, limit, counts)
		}
		if wrong, limit := chiSquare(counts, nucleus(softmax64(logits, 1.05*c.temperature), topP)); topP == 1 &&
			wrong < limit {
			t.Errorf("%+v: the test could not tell temperature %g from %g", c, c.temperature, 1.05*c.temperature)
		}
	}
}

func TestNucleusIsTheSmallestSetAndLowerIndicesGoFirst(t *testing.T) {
	log := func(p ...float64) []float32 {
		var l []float32
		for _, v := range p {
			l = append(l, float32(math.Log(v)))
		}
		return l
	}
	alike := make([]float32, 8)
	for _, c := range []struct {
		logits []float32
		topP   float64
		want   []int32
	}{
		{alike, 0.5, []int32{0, 1, 2, 3}}, // 4/8 is enough
		{alike, 0.51, []int32{0, 1, 2, 3, 4}},
		{alike, 0.125, []int32{0}},
		{alike, 1e-9, []int32{0}}, // the likeliest always stays
		{log(0.1, 0.2, 0.3, 0.4), 0.69, []int32{2, 3}},
		{log(0.1, 0.2, 0.3, 0.4), 0.71, []int32{1, 2, 3}},
		{log(0.2, 0.4, 0.2, 0.2), 0.5, []int32{0, 1}}, // of three alike, the first
		{log(0.2, 0.4, 0.2, 0.2), 0.999, []int32{0, 1, 2, 3}},
	} {
		s := newSampler(len(c.logits), Sampling{Temperature: 1, TopP: c.topP})
		_, _, got, err := s.draw(c.logits, rollout.Stream(1, "test", 0))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("top-p %g of %v: nucleus %v, want %v", c.topP, c.logits, got, c.want)
		}
	}
}

func TestTheLogprobIsOfTheSoftmaxOrItsNucleus(t *testing.T) {
	logits := exampleLogits()
	for _, s := range []Sampling{{Temperature: 0.7, TopP: 0.3}, {Temperature: 1}, {Temperature: 2.5, TopP: 0.95}, {}} {
		heat := s.Temperature
		if heat == 0 {
			heat = 1 // greedy log-probs are those of the model itself
		}
		want, sampler, rng := softmax64(logits, heat), newSampler(len(logits), s), rollout.Stream(3, "test", 0)
		for range 200 {
			token, logprob, nucleus, err := sampler.draw(logits, rng)
			if err != nil {
				t.Fatal(err)
			}
			kept := 1.0
			if (nucleus != nil) != (s.TopP > 0) {
				t.Fatalf("%+v: nucleus %v", s, nucleus)
			} else if nucleus != nil {
				kept = 0
				for _, id := range nucleus {
					kept += want[id]
				}
				if !slices.Contains(nucleus, token) || kept < s.TopP || !slices.IsSorted(nucleus) {
					t.Fatalf("%+v: token %d of nucleus %v, which has %v", s, token, nucleus, kept)
				}
			}
			near(t, "log-prob", logprob, math.Log(want[token]/kept), 1e-6)
			if s.Temperature == 0 && token != 5 {
				t.Fatalf("greedy took token %d, the largest logit is that of 5", token)
			}
		}
	}
	tie := []float32{0, 2, 1, 2}
	if token, logprob, _, err := newSampler(4, Sampling{}).draw(tie, nil); err != nil || token != 1 || logprob > 0 {
		t.Errorf("greedy among equals took token %d at %v, %v: want the first, 1", token, logprob, err)
	}
}

func TestACertainTokenHasLogprobZero(t *testing.T) {
	for _, s := range []Sampling{{}, {Temperature: 1e-300}, {Temperature: 1, TopP: 0.5}} {
		token, logprob, _, err := newSampler(3, s).draw([]float32{-200, 300, -200}, rollout.Stream(1, "test", 0))
		if err != nil || token != 1 || logprob != 0 {
			t.Errorf("%+v: token %d at %v, %v: want 1 at 0", s, token, logprob, err)
		}
	}
}

func TestLogitsThatAreNotNumbersAreRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   string
	}{
		{[]float32{nan, 1, 2}, "logit 0 is NaN"},
		{[]float32{1, 2, nan}, "logit 2 is NaN"},
		{[]float32{1, inf, 2}, "logit 1 is +Inf"},
		{[]float32{-inf, -inf, -inf}, "the logits of all tokens that may be drawn are -Inf"},
	} {
		for _, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 1, TopP: 0.5}} {
			_, _, _, err := newSampler(3, s).draw(c.logits, rollout.Stream(1, "test", 0))
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "learner.learning_rate") {
				t.Errorf("%v with %+v: %v, want %q and what to do", c.logits, s, err, c.want)
			}
		}
	}
}

// naiveCumulative names the first token at which the running sum passes the target.
func naiveCumulative(prob []float64, order []int32, target float64) int {
	sum, last := 0.0, 0
	for _, at := range order {
		if prob[at] > 0 {
			last = int(at)
		}
		if sum += prob[at]; sum > target {
			return int(at)
		}
	}
	return last
}

// Probabilities are multiples of 1/64, so that sums are exact whatever their order.
func FuzzInvertCumulative(f *testing.F) {
	f.Add([]byte{1, 0, 3, 0}, uint16(0), false)
	f.Add([]byte{0, 0, 200}, uint16(65535), true)
	f.Add([]byte{7, 7, 7, 7, 7}, uint16(28), true)
	f.Fuzz(func(t *testing.T, weights []byte, at uint16, ordered bool) {
		if len(weights) == 0 {
			return
		}
		prob, order := make([]float64, len(weights)), make([]int32, len(weights))
		for i, w := range weights {
			prob[i], order[i] = float64(w)/64, int32(i)
		}
		if ordered {
			slices.Reverse(order)
			order = order[:(len(order)+1)/2]
		}
		var sum float64
		for _, i := range order {
			sum += prob[i]
		}
		target := min(float64(at)/64, sum) // the end itself too: rounding can reach it
		got := invertCumulative(prob, order, target)
		if want := naiveCumulative(prob, order, target); got != want {
			t.Errorf("invertCumulative(%v, %v, %v) = %d, want %d", prob, order, target, got, want)
		}
		if sum > 0 && prob[got] == 0 {
			t.Errorf("invertCumulative(%v, %v, %v) = %d, whose probability is 0", prob, order, target, got)
		}
	})
}

func TestCumulativeAgreesWithTheRunningSum(t *testing.T) {
	rng := rollout.Stream(17, "test/cumulative", 0)
	for range 2000 {
		prob, order := make([]float64, 1+rng.IntN(9)), []int32{}
		for i := range prob {
			prob[i] = float64(rng.IntN(4)) / 4
			order = append(order, int32(i))
		}
		if rng.IntN(2) == 1 {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			order = order[:1+rng.IntN(len(order))]
		}
		for target := 0.0; target <= float64(len(order)); target += 0.125 {
			var sum float64
			for _, i := range order {
				sum += prob[i]
			}
			if target > sum {
				break
			}
			if got, want := invertCumulative(prob, order, target), naiveCumulative(prob, order, target); got != want {
				t.Fatalf("invertCumulative(%v, %v, %v) = %d, want %d", prob, order, target, got, want)
			}
		}
	}
}

func TestSuppressedTokensCountInTheProbabilities(t *testing.T) {
	logits := []float32{1, 3, 2, 0}
	for name, c := range map[string]struct {
		sampling Sampling
		drawn    map[int32]bool
	}{
		"greedy": {Sampling{}, map[int32]bool{2: true}},
		"all":    {Sampling{Temperature: 1}, map[int32]bool{0: true, 2: true, 3: true}},
		// of what remains 2 has a share of 0.67
		"nucleus": {Sampling{Temperature: 1, TopP: 0.6}, map[int32]bool{2: true}},
	} {
		s, rng, seen := newSampler(4, c.sampling), rollout.Stream(1, "test/never", 0), map[int32]int{}
		s.suppressed = []int32{1}
		for range 3000 {
			token, logprob, nucleus, err := s.draw(logits, rng)
			if err != nil {
				t.Fatal(err)
			}
			sum := math.E + math.Exp(3) + math.Exp(2) + 1
			if nucleus != nil { // what is suppressed is not of it
				sum = math.Exp(2)
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
		// Of what remains, 0, 2 and 3 have e, e^2 and 1: 0 is drawn with probability 0.2447, 734 of 3000 with a
		// deviation of 24.
		if name == "all" && math.Abs(float64(seen[0])-734) > 5*24 {
			t.Errorf("token 0 was drawn %d times", seen[0])
		}
	}
}

// What is never drawn may be so much likelier than all else that, beside it, nothing else has a probability that a
// float64 holds.
func TestSuppressionKeepsTheRatiosOfOtherProbabilities(t *testing.T) {
	for name, c := range map[string]struct {
		sampling Sampling
		logits   []float32
		drawn    map[int32]bool
	}{
		"greedy": {Sampling{}, []float32{1000, 0, 1, 0.5}, map[int32]bool{2: true}},
		"far": {Sampling{Temperature: 1}, []float32{1000, 0, 1, 0.5},
			map[int32]bool{1: true, 2: true, 3: true}},
		"cold": {Sampling{Temperature: 0.01}, []float32{9, 0, 1, 0.5}, map[int32]bool{2: true}},
		"nucleus": {Sampling{Temperature: 0.01, TopP: 0.9}, []float32{9, 1, 1, 0.5},
			map[int32]bool{1: true, 2: true}},
		"impossible": {Sampling{Temperature: 1}, []float32{float32(math.Inf(-1)), 0, 1, 0.5},
			map[int32]bool{1: true, 2: true, 3: true}},
		"frozen": {Sampling{Temperature: 1e-300}, []float32{9, 0, 1, 0.5}, map[int32]bool{2: true}},
		"none beside": {Sampling{Temperature: 1}, []float32{3, float32(math.Inf(-1)), 1, float32(math.Inf(-1))},
			map[int32]bool{2: true}},
	} {
		s, rng, seen := newSampler(4, c.sampling), rollout.Stream(2, "test/never", 0), map[int32]bool{}
		s.suppressed = []int32{0}
		heat := c.sampling.Temperature
		if heat == 0 {
			heat = 1
		}
		for range 300 {
			token, logprob, nucleus, err := s.draw(c.logits, rng)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[token] = true
			most, sum := max(c.logits[0], c.logits[2]), 0.0
			if nucleus != nil {
				most = c.logits[2]
			}
			for i, l := range c.logits {
				if nucleus == nil || slices.Contains(nucleus, int32(i)) {
					sum += math.Exp(float64(l-most) / heat)
				}
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
	if token, _, _, err := s.draw([]float32{3, float32(math.Inf(-1))}, rollout.Stream(1, "test", 0)); err == nil {
		t.Errorf("drew token %d, where nothing may be drawn", token)
	}
}

func TestAPolicyWithATowerNeverWritesImageTokens(t *testing.T) {
	c := withTower()
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

// Steps have the masks of earlier turns taken off (rollout.Rollout.Steps), so that an image token which the policy
// wrote there would pass for a patch: it writes none, though it would like to.
func TestStoredStepsHaveTheImagesOfTheirRollout(t *testing.T) {
	c := withTower()
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
		whole := &rollout.Rollout{Tokens: row.Tokens, Mask: row.Mask, Logprobs: row.Logprobs, Versions: row.Versions,
			Images: row.Images, Temperature: 1}
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
		shards := mustPrepare(t, l, []*rollout.Batch{batch})
		batches := []*rollout.Batch{batch}
		p, _, first := findPass(shards, batches, 0)
		scores := firstScores(t, l, shards, w)
		for n, s := range steps {
			_, _, from := findPass(shards, batches, 1+n)
			for j, of := range s.Mask {
				at, whole := from+j, first+j
				if p.images.patch[at] != p.images.patch[whole] {
					t.Errorf("token %d of step %d has place %d in an image, of the whole %d", j, n, p.images.patch[at],
						p.images.patch[whole])
				}
				if of == 1 {
					want := float64(scores.Logprobs[whole])
					near(t, "log-prob of a step", scores.Logprobs[at], want, 1e-5)
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

package sim_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// piece is one Continue: positions decoded with a version.
type piece struct {
	version   rollout.Version
	positions int
}

func generate(t *testing.T, g *sim.Generator, job uint64, pieces ...piece) []*rollout.Rollout {
	t.Helper()
	gen, err := g.Start(pipeline.Job{Number: job, Size: 4, Prompt: sim.Task{}.Train(job)})
	if err != nil {
		t.Fatal(err)
	}
	done := false
	for _, p := range pieces {
		if done, err = gen.Continue(context.Background(), pipeline.Weights{Version: p.version},
			p.positions); err != nil {
			t.Fatal(err)
		}
	}
	if !done {
		t.Fatalf("job %d is not done after %v", job, pieces)
	}
	rs, err := gen.Rollouts()
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestRolloutsAreValid(t *testing.T) {
	g := &sim.Generator{Seed: 1, Prompt: 3, Lengths: sim.Lognormal{Median: 6, Sigma: 1, Max: 20}}
	for job := range uint64(200) {
		group := rollout.Group{Rollouts: generate(t, g, job, piece{0, 2}, piece{4, 5}, piece{9, 0}), Size: 4}
		if err := group.Validate(rollout.Limits{}); err != nil {
			t.Fatalf("job %d: %v", job, err)
		}
	}
}

func TestRolloutsDependOnJobSeedWeightsAndPositions(t *testing.T) {
	g := &sim.Generator{Seed: 1, Lengths: sim.Constant(8)}
	base := []piece{{0, 2}, {1, 4}, {2, 0}}
	want := generate(t, g, 5, base...)
	if !reflect.DeepEqual(generate(t, g, 5, base...), want) {
		t.Error("the same job twice differs")
	}
	for name, got := range map[string][]*rollout.Rollout{
		"another job":        generate(t, g, 6, base...),
		"another seed":       generate(t, &sim.Generator{Seed: 2, Lengths: sim.Constant(8)}, 5, base...),
		"other weights":      generate(t, g, 5, piece{0, 2}, piece{0, 4}, piece{2, 0}),
		"other positions":    generate(t, g, 5, piece{0, 3}, piece{1, 3}, piece{2, 0}),
		"a split of a chunk": generate(t, g, 5, piece{0, 1}, piece{0, 1}, piece{1, 4}, piece{2, 0}),
	} {
		for i := range got {
			if got[i].Text == want[i].Text || slices.Equal(got[i].Tokens, want[i].Tokens) {
				t.Errorf("%s: row %d is the same", name, i)
			}
		}
	}
	versions := []rollout.Version{0, 0, 1, 1, 1, 1, 2, 2}
	if !slices.Equal(want[0].Versions, versions) {
		t.Errorf("versions are %v, want %v", want[0].Versions, versions)
	}
}

func TestAnUnfinishedGroupIsNotHandedOut(t *testing.T) {
	gen, err := (&sim.Generator{}).Start(pipeline.Job{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := gen.Continue(context.Background(), pipeline.Weights{}, 7); done || err != nil {
		t.Errorf("7 of 8 positions: done %v, error %v", done, err)
	}
	if _, err := gen.Rollouts(); err == nil {
		t.Error("rollouts were handed out with a position left")
	}
	if _, err := (&sim.Generator{}).Start(pipeline.Job{Size: 0}); err == nil {
		t.Error("an empty group was started")
	}
}

func TestLognormalLengthsHaveTheirMedianAndSpread(t *testing.T) {
	// Quantiles 16%, 50%, 84% of a lognormal are median exp(-sigma, 0, sigma); the standard error of the
	// count below a quantile q of n draws is sqrt(n q (1-q)).
	const n = 20000
	l := sim.Lognormal{Median: 200, Sigma: 0.5, Max: 1000}
	rng := rollout.Stream(3, "test/lengths", 0)
	below := map[float64]float64{}
	for range n {
		x := l.Draw(rng)
		if x < 1 || x > 1000 {
			t.Fatalf("length %d is out of range", x)
		}
		for _, z := range []float64{-1, 0, 1} {
			if float64(x) < math.Round(200*math.Exp(0.5*z)) {
				below[z]++
			} else if float64(x) == math.Round(200*math.Exp(0.5*z)) {
				below[z] += 0.5
			}
		}
	}
	for z, c := range below {
		q := 0.5 * math.Erfc(-z/math.Sqrt2)
		if sd := math.Sqrt(n * q * (1 - q)); math.Abs(c-n*q) > 4*sd {
			t.Errorf("%g of %d lengths are below the quantile %.3f, want %.0f +- %.0f", c, n, q, n*q, 4*sd)
		}
	}
}

func TestTaskRewardsAtItsRateAndTheSameResponseAlike(t *testing.T) {
	const n, accept = 20000, 0.3
	x := sim.Task{Seed: 1, Accept: accept}
	right := 0.0
	for i := range n {
		p, response := x.Train(uint64(i)), fmt.Sprint("answer ", i%7)
		v := x.Verify(p, response)
		if v != x.Verify(p, response) {
			t.Fatalf("two verdicts on %q to %s", response, p.ID)
		}
		if v.Correct != (v.Reward == 1) || !v.Correct && v.Reward != 0 {
			t.Fatalf("verdict is %+v", v)
		}
		right += float64(v.Reward)
	}
	if sd := math.Sqrt(n * accept * (1 - accept)); math.Abs(right-n*accept) > 4*sd {
		t.Errorf("%g of %d are rewarded, want %.0f +- %.0f", right, n, n*accept, 4*sd)
	}
	if got := x.HeldOut(); len(got) != 0 {
		t.Errorf("%d held-out prompts", len(got))
	}
	var _ task.Task = x
}

func TestPromptsDifferInDifficultyAsFarAsTheSpread(t *testing.T) {
	// Pass rates uniform in 0.5 +- 0.3, measured in 400 tries each, have the mean 0.5 and the variance
	// 0.3^2/3 + (0.25 - 0.03)/400 = 0.03055.
	const prompts, tries, variance = 2000, 400, 0.03055
	x := sim.Task{Seed: 1, Accept: 0.5, Spread: 0.3}
	var sum, squares float64
	for i := range prompts {
		p, right := x.Train(uint64(i)), 0.0
		for j := range tries {
			right += float64(x.Verify(p, fmt.Sprint("answer ", j)).Reward)
		}
		rate := right / tries
		sum += rate
		squares += (rate - 0.5) * (rate - 0.5)
	}
	if mean, sd := sum/prompts, math.Sqrt(variance/prompts); math.Abs(mean-0.5) > 4*sd {
		t.Errorf("the mean pass rate is %g, want 0.5 +- %g", mean, 4*sd)
	}
	// The square of a uniform deviation has 4/5 of its squared mean as variance.
	if v, sd := squares/prompts, variance*math.Sqrt(0.8/prompts); math.Abs(v-variance) > 4*sd {
		t.Errorf("the variance of pass rates is %g, want %g +- %g", v, variance, 4*sd)
	}
}

func TestPromptsComeOverAndOver(t *testing.T) {
	x := sim.Task{Prompts: 10}
	if x.Train(3).ID != x.Train(13).ID || x.Train(3).ID == x.Train(4).ID || x.Train(3).ID != (sim.Task{}).Train(3).ID {
		t.Errorf("prompts 3, 4, 13 are %v, %v, %v", x.Train(3), x.Train(4), x.Train(13))
	}
}

func TestRolloutsDependOnTheNumberOfThePrompt(t *testing.T) {
	text := func(number uint64) string {
		gen, err := (&sim.Generator{Seed: 1}).Start(pipeline.Job{Number: 5, Size: 1, PromptNumber: number})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gen.Continue(context.Background(), pipeline.Weights{}, 0); err != nil {
			t.Fatal(err)
		}
		rs, err := gen.Rollouts()
		if err != nil {
			t.Fatal(err)
		}
		return rs[0].Text
	}
	one, again, two := text(1), text(1), text(2)
	if again != one || two == one {
		t.Errorf("prompts 1, 1, 2 are answered %s, %s, %s", one, again, two)
	}
}

func TestTheLearnersDigestDistinguishesBatches(t *testing.T) {
	g := &sim.Generator{Seed: 1}
	draws := func(job uint64) []rollout.Draw {
		var ds []rollout.Draw
		for i, r := range generate(t, g, job, piece{0, 0}) {
			ds = append(ds, rollout.Draw{ID: rollout.ID(i + 1), Rollout: r, Weight: float32(i)})
		}
		return ds
	}
	step := func(bs ...*rollout.Batch) map[string]float64 {
		var l sim.Learner
		m, err := l.Step(context.Background(), bs)
		if err != nil {
			t.Fatal(err)
		}
		if l.Weights().Version != 1 {
			t.Errorf("version is %d after a step", l.Weights().Version)
		}
		return m.Metrics
	}
	a, b := &rollout.Batch{Draws: draws(1)}, &rollout.Batch{Draws: draws(2)}
	if x, y := step(a, b)["digest"], step(b, a)["digest"]; x == y {
		t.Error("two orders of batches have one digest")
	}
	if w := step(a, b)["weight"]; w != 1.5 {
		t.Errorf("mean weight is %g, want 1.5", w)
	}
}

// sparse makes the group of a job in Continues of one piece each, with version 10 for the first, 11 for the second, and
// so on.
func sparse(t *testing.T, g sim.Sparse, job uint64, size int) []*rollout.Rollout {
	t.Helper()
	gen, err := g.Start(pipeline.Job{Number: job, Size: size, Prompt: sim.Task{}.Train(job)})
	if err != nil {
		t.Fatal(err)
	}
	for v, done := rollout.Version(10), false; !done; v++ {
		if _, err := gen.Rollouts(); err == nil {
			t.Fatal("a group was handed out with pieces left")
		}
		if done, err = gen.Continue(context.Background(), pipeline.Weights{Version: v}, 1); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := gen.Rollouts()
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestSparseGroupsAreValidAndDependOnSeedAndJob(t *testing.T) {
	g := sim.Sparse{Seed: 1, Pieces: 5, Lengths: sim.Lognormal{Median: 100, Sigma: 1, Max: 1000}}
	for job := range uint64(100) {
		if err := (rollout.Group{Rollouts: sparse(t, g, job, 16), Size: 16}).Validate(rollout.Limits{}); err != nil {
			t.Fatalf("job %d: %v", job, err)
		}
	}
	if !reflect.DeepEqual(sparse(t, g, 3, 16), sparse(t, g, 3, 16)) {
		t.Error("the same job twice differs")
	}
	other := g
	other.Seed = 2
	if reflect.DeepEqual(sparse(t, g, 3, 16), sparse(t, g, 4, 16)) || reflect.DeepEqual(sparse(t, g, 3, 16),
		sparse(t, other, 3, 16)) {
		t.Error("another job, or another seed, makes the same group")
	}
}

func TestARolloutHasItsShareOfThePieces(t *testing.T) {
	lengths := sim.Lognormal{Median: 100, Sigma: 1, Max: 1000}
	const pieces = 8
	for job := range uint64(50) {
		whole, err := (&sim.Generator{Seed: 1, Lengths: lengths}).Start(pipeline.Job{Number: job, Size: 16})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := whole.Continue(context.Background(), pipeline.Weights{}, 0); err != nil {
			t.Fatal(err)
		}
		want, err := whole.Rollouts()
		if err != nil {
			t.Fatal(err)
		}
		longest := 0
		for _, r := range want {
			longest = max(longest, len(r.Tokens))
		}
		for i, r := range sparse(t, sim.Sparse{Seed: 1, Pieces: pieces, Lengths: lengths}, job, 16) {
			// The rollout ends within its last piece.
			n, end := len(r.Tokens), len(want[i].Tokens)*pieces
			if (n-1)*longest >= end || n*longest < end {
				t.Fatalf("job %d: row %d of %d tokens, where the longest has %d, has %d of %d pieces", job, i,
					len(want[i].Tokens), longest, n, pieces)
			}
			if r.Versions[0] != 10 || r.Versions[n-1] != rollout.Version(9+n) {
				t.Fatalf("job %d: row %d has versions %v", job, i, r.Versions)
			}
		}
	}
	for i, r := range sparse(t, sim.Sparse{Lengths: lengths}, 0, 4) {
		if len(r.Tokens) != 1 {
			t.Errorf("row %d has %d tokens, want 1", i, len(r.Tokens))
		}
	}
}

func TestEmptySparseGroupsAreRefused(t *testing.T) {
	if _, err := (sim.Sparse{}).Start(pipeline.Job{}); err == nil {
		t.Error("an empty group was started")
	}
	if _, err := (sim.Sparse{Pieces: -1}).Start(pipeline.Job{Size: 1}); err == nil {
		t.Error("a group in -1 pieces was started")
	}
}

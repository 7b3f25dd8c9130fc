package study

import (
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// short is an arm of a few evaluations.
func short() Arm {
	c := run.Default()
	c.Budget.Compute, c.Evaluate.Every, c.Evaluate.Target = 20, 5, 0.5
	return Arm{"arm", c}
}

// noted is a run with given accuracies, the first before any update; it has ended or failed.
func noted(seed uint64, ended bool, accuracies ...float64) *results.Run {
	r := &results.Run{Seed: seed}
	for k, p := range accuracies {
		g := float64(k) * 5 * unit(short().Config)
		r.Evals = append(r.Evals, results.Eval{Grid: g, Compute: g + 7, Clock: 2 * g, Pass1: p})
	}
	if ended {
		r.Summary = &results.Summary{}
	}
	return r
}

// turns is an arm of batches of 10 with two updates on each.
func turns() Runs {
	return Runs{Arm: Arm{Name: "turns", Config: run.Config{
		Pipeline: run.Pipeline{Options: pipeline.Options{Mode: "sync", Batch: 10, BatchUpdates: 2, RolloutCost: 1}},
		Budget:   run.Budget{Compute: 10},
	}}}
}

// evaluated is a run with accuracies after the given updates.
func evaluated(ended bool, updates []int, accuracies ...float64) *results.Run {
	r := &results.Run{Seed: 1}
	for i, p := range accuracies {
		r.Evals = append(r.Evals, results.Eval{Update: updates[i], Pass1: p})
	}
	if ended {
		r.Summary = &results.Summary{}
	}
	return r
}

func TestSettledAccuracyIsTheMeanOfTheLastThreeEvaluations(t *testing.T) {
	at := []int{0, 2, 3, 4, 6, 8} // after 0, 10, 20, 20, 30 and 40 rollouts
	values := []float64{0.9, 0.1, 0.2, 0.6, 0.4, 0.8}
	for _, c := range []struct {
		rollouts float64
		ended    bool
		want     float64
	}{
		{math.Inf(1), true, 0.6},
		{40, true, 0.6},
		{39, true, 0.4},
		{20, true, 0.3},
		{10, true, 0.1}, // the start is none of them
		{9, true, math.NaN()},
		{40, false, 0.6}, // it had come so far before it failed
		{41, false, 0},
		{20, false, 0.3},
	} {
		got := settledAt(c.rollouts, freshRollouts)(turns(), evaluated(c.ended, at, values...))
		if math.Abs(got-c.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("after %g rollouts, ended %t: %g, want %g", c.rollouts, c.ended, got, c.want)
		}
	}
	if got := settled(turns(), &results.Run{}); !math.IsNaN(got) {
		t.Errorf("a run that wrote nothing is at %g", got)
	}
}

func TestAnArmWhoseRunsAllFailedDoesNotLimitTheComparison(t *testing.T) {
	failing, whole := turns(), turns()
	failing.Runs = []*results.Run{evaluated(false, []int{0, 2}, 0.5, 0.5)}
	whole.Runs = []*results.Run{evaluated(true, []int{0, 2, 4}, 0.5, 0.5, 0.5), evaluated(false, []int{0, 8}, 0.5, 0.5)}
	if n := whole.end(freshRollouts); n != 20 {
		t.Errorf("compared after %g rollouts, want 20, to which the run came that did not fail", n)
	}
	if d, _ := atEqualRollouts(failing, whole).pairs.Values(); !slices.Equal(d, []float64{-0.5}) {
		t.Errorf("difference %v, want that the failed run has nothing left of 0.5", d)
	}
}

func TestMetricsAreAveragedOverAShareOfTheBudget(t *testing.T) {
	a, r := turns(), &results.Run{}
	for n := 1; n <= 10; n++ { // the budget is 10 x 20
		u := results.Update{Update: n, Compute: 20 * float64(n)}
		if n != 2 {
			u.ZeroVariance = results.Num(float64(n))
		}
		r.Updates = append(r.Updates, u)
	}
	if got := meanOf(zeroVariance, 0.3)(a, r); got != 2 { // of 1 and 3
		t.Errorf("over the first three tenths %g, want 2", got)
	}
	if got := meanOf(zeroVariance, 1)(a, r); math.Abs(got-53.0/9) > 1e-12 {
		t.Errorf("over all %g, want %g", got, 53.0/9)
	}
	if got := meanOf(absAdvantage, 1)(a, r); !math.IsNaN(got) {
		t.Errorf("of what no update has: %g", got)
	}
	if got := meanBetween(r, zeroVariance, 40, 80); got != 3.5 { // of 3 and 4
		t.Errorf("between two steps %g, want 3.5", got)
	}
}

func TestMeasuresOfRuns(t *testing.T) {
	a := Runs{Arm: short()}
	whole := noted(1, true, 0.2, 0.6, 0.4, 0.7, 0.8)
	falling := noted(2, true, 0.2, 0.9, 0.8, 0.3, 0.4)
	broken := noted(3, false, 0.2, 0.6, 0.6)
	empty := noted(4, false)
	a.Runs = []*results.Run{whole, falling, broken, empty}
	u := unit(a.Config)
	nan := math.NaN()
	for _, x := range []struct {
		name string
		of   measure
		want [4]float64
	}{
		// 0.6 and 0.4 are pooled; 0.9 to 0.4 at 0.6; a failed run goes on at 0 as far as the longest
		{"level", level, [4]float64{0.8, 0.6, 0.3, nan}},
		{"last", last, [4]float64{0.8, 0.4, 0, nan}},
		// third differences: 0.2 − 1.8 + 1.2 − 0.7 and 0.6 − 1.2 + 2.1 − 0.8; of the failed run 0.2 and −1.2
		{"wavering", wavering, [4]float64{math.Sqrt((1.21 + 0.49) / 40), math.Sqrt((0.16 + 1) / 40),
			math.Sqrt((0.04 + 1.44) / 40), nan}},
		{"mean", meanOver(1), [4]float64{2.5 / 4, 2.4 / 4, 1.2 / 4, nan}},
		{"mean of the first half", meanOver(0.5), [4]float64{0.5, 0.85, 0.6, nan}},
		{"to the target", toTarget, [4]float64{5 + 7/u, 3.75 + 7/u, 3.75 + 7/u, nan}},
		{"clock to the target", clockToTarget, [4]float64{10 * u, 7.5 * u, 7.5 * u, nan}},
	} {
		for i, r := range []*results.Run{whole, falling, broken, empty} {
			if got := x.of(a, r); math.Abs(got-x.want[i]) > 1e-9 || math.IsNaN(got) != math.IsNaN(x.want[i]) {
				t.Errorf("%s of run %d: %v, want %v", x.name, i+1, got, x.want[i])
			}
		}
	}
	if got := toTarget(a, noted(5, true, 0.2, 0.6, 0.3, 0.5, 0.4)); !math.IsInf(got, 1) {
		t.Errorf("the target is reached by a lone peak at %v", got)
	}
	for i, want := range []bool{false, true, true} {
		if got := crashed(a, []*results.Run{whole, falling, broken}[i]); got != want {
			t.Errorf("run %d crashed: %t, want %t", i+1, got, want)
		}
	}
}

func TestGPUTimeIsSharedOutAsStalledOrBusy(t *testing.T) {
	a := Runs{Arm: short()}
	r := noted(1, true, 0.5)
	r.Summary.WorkerTimes = []results.GPU{{Busy: 6, Stalled: 1, Idle: 1}, {Busy: 8}}
	r.Summary.TrainerTimes = []results.GPU{{Busy: 2, Stalled: 6}}
	r.Summary.Clock, r.Summary.Compute = 30, 20
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"stalled", stalled(a, r), 8.0 / 24}, {"clock per compute", clockPerCompute(a, r), 1.5},
	} {
		if math.Abs(x.got-x.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", x.name, x.got, x.want)
		}
	}
	if failed := noted(2, false, 0.5); !math.IsNaN(stalled(a, failed)) || !math.IsNaN(clockPerCompute(a, failed)) {
		t.Error("a run that failed has times")
	}
}

// An update that passes several steps counts at each of them; a step after a failure counts as 0.
func TestEveryStepOfTheBudgetCounts(t *testing.T) {
	a := Runs{Arm: short()}
	whole := noted(1, true, 0, 0.1, 0.2, 0.4, 0.5)
	gaps := noted(2, true, 0, 0.1, 0.2, 0.4, 0.5)
	gaps.Evals = slices.Delete(gaps.Evals, 1, 3)
	lost := noted(3, false, 0, 0.1, 0.2)
	for _, c := range []struct {
		run  *results.Run
		want float64
	}{{whole, 0.3}, {gaps, (3*0.4 + 0.5) / 4}, {lost, 0.3 / 4}} {
		if got := meanOverSteps(a, c.run); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("seed %d: %g, want %g", c.run.Seed, got, c.want)
		}
	}
	if meanOverSteps(a, whole) != meanOver(1)(a, whole) {
		t.Error("without a gap it is not the mean over the budget")
	}
}

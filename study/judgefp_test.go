package study

import (
	"math"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// turns is an arm of batches of 10 with two updates on each.
func turns() Runs {
	return Runs{Arm: Arm{Name: "turns", Config: run.Config{
		Pipeline: run.Pipeline{Mode: "sync", Batch: 10, BatchUpdates: 2, RolloutCost: 1}, Budget: run.Budget{Compute: 10},
	}}}
}

// evaluated is a run with accuracies after so many updates each.
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

func TestAccuracyIsTheMeanOfTheLastThreeEvaluationsWithinTheRollouts(t *testing.T) {
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
		got := settledAt(c.rollouts)(turns(), evaluated(c.ended, at, values...))
		if math.Abs(got-c.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("after %g rollouts, ended %t: %g, want %g", c.rollouts, c.ended, got, c.want)
		}
	}
	if got := settled(turns(), &results.Run{}); !math.IsNaN(got) {
		t.Errorf("a run that wrote nothing is at %g", got)
	}
}

func TestArmThatOnlyFailedLeavesItToTheOtherHowFarToCompare(t *testing.T) {
	failing, whole := turns(), turns()
	failing.Runs = []*results.Run{evaluated(false, []int{0, 2}, 0.5, 0.5)}
	whole.Runs = []*results.Run{evaluated(true, []int{0, 2, 4}, 0.5, 0.5, 0.5), evaluated(false, []int{0, 8}, 0.5, 0.5)}
	if n := whole.freshEnd(); n != 20 {
		t.Errorf("compared after %g rollouts, want 20, to which the run came that did not fail", n)
	}
	if d := atEqualFresh(failing, whole); len(d.values) != 1 || d.median != -0.5 {
		t.Errorf("difference %v, want that the failed run has nothing left of 0.5", d.values)
	}
}

func TestMetricsAreAveragedOverTheirPartOfTheBudget(t *testing.T) {
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

func TestMetricCurveHasAPointForEachPartThatHasUpdates(t *testing.T) {
	a := turns()
	r := &results.Run{Seed: 1, Summary: &results.Summary{}}
	for n := 1; n <= 5; n++ { // half of the budget
		r.Updates = append(r.Updates, results.Update{Update: n, Compute: 20 * float64(n), ZeroVariance: results.Num(0.1 * float64(n))})
	}
	a.Runs = []*results.Run{r}
	c := line{Runs: a}.metricCurve(zeroVariance)
	if len(c.At) != 5 {
		t.Fatalf("%d points, want 5", len(c.At))
	}
	for i, p := range c.At {
		if x := float64(i+1) - 5.0/metricBins; math.Abs(p.X-x) > 1e-9 || math.Abs(p.Y.Float()-0.1*float64(i+1)) > 1e-12 {
			t.Errorf("point %d is at %g, %g", i, p.X, p.Y.Float())
		}
	}
}

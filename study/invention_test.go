package study

import (
	"fmt"
	"math"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// invention is a world in which accuracy goes as it says, with the updates of synchronous runs.
type invention struct {
	accuracy  func(arm string, part float64) float64 // held-out, after a part of the budget
	zero      func(arm string, part float64) float64 // share of groups of zero variance; nil: 0.4
	advantage func(arm string, part float64) float64 // mean |advantage|; nil: 0.5
	noise     float64                                // accuracies after the start differ by so much, up on one seed and down on the next
	fails     func(arm string, seed uint64) float64  // part of the budget at which a run ends with an error; 0, or nil: it does not
	missing   func(arm string, seed uint64) bool     // wrote nothing; nil: none
}

// invent returns what the runs of a study came to in a world.
func (w invention) invent(s Study, o Options) *Found {
	f := &Found{Options: o}
	arms := s.Arms(o)
	for i, a := range arms {
		level := math.Pow(float64(i+1)/float64(len(arms)), 2) // no two arms, and no two pairs of neighbours, differ alike
		runs := Runs{Arm: a}
		for seed := uint64(1); seed <= uint64(o.Seeds); seed++ {
			if w.missing != nil && w.missing(a.Name, seed) {
				runs.Failed = append(runs.Failed, fmt.Sprintf("seed %d: it could not begin", seed))
				continue
			}
			r := w.run(a, seed, level)
			if r.Summary == nil {
				runs.Failed = append(runs.Failed, fmt.Sprintf("seed %d: the gradient's norm is NaN", seed))
			}
			runs.Runs = append(runs.Runs, r)
		}
		f.Arms = append(f.Arms, runs)
	}
	return f
}

// run invents a run with evaluations on the whole grid and an update for each step of compute.
func (w invention) run(a Arm, seed uint64, level float64) *results.Run {
	c := a.Config
	cost := bufferUnit(c)
	if c.Pipeline.Mode == "sync" {
		cost = float64(c.Pipeline.Batch) * (1 + c.Pipeline.RolloutCost/float64(perTurn(c)))
	}
	end, whole := c.Budget.Compute*unit(c), 1.0
	if w.fails != nil {
		if at := w.fails(a.Name, seed); at > 0 {
			whole = at
		}
	}
	of := func(f func(string, float64) float64, otherwise, part float64) results.Number {
		if f == nil {
			return results.Num(otherwise)
		}
		return results.Num(f(a.Name, part))
	}
	r := &results.Run{Seed: seed}
	for n := 1; float64(n)*cost <= end*whole; n++ {
		part := float64(n) * cost / end
		r.Updates = append(r.Updates, results.Update{
			Update: n, Compute: float64(n) * cost, Clock: float64(n) * cost / 8, Inserted: uint64(freshBy(c, float64(n))),
			ZeroVariance: of(w.zero, 0.4, part), MeanAbsAdvantage: of(w.advantage, 0.5, part), ESS: results.Num(1), StalenessMean: results.Num(0),
		})
	}
	shift := w.noise * level * []float64{-1, 1, -0.5, 0.5, 0.2}[seed%5]
	for _, step := range append([]float64{0}, grid(c, whole)...) {
		n := int(math.Ceil(step/cost - 1e-9))
		accuracy := w.accuracy(a.Name, step/end)
		if step > 0 {
			accuracy += shift
		}
		r.Evals = append(r.Evals, results.Eval{Update: n, Grid: step, Compute: float64(n) * cost, Clock: float64(n) * cost / 8, Problems: 400, Pass1: accuracy})
	}
	if whole == 1 {
		r.Summary = &results.Summary{Seed: seed, Ended: "budget", Updates: len(r.Updates)}
	}
	return r
}

// judged returns the findings on a world.
func (w invention) judged(t *testing.T, s Study, o Options) []results.Finding {
	t.Helper()
	j, err := s.Judge(w.invent(s, o))
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, s.Name, j)
	return j.Findings
}

// expect compares the verdicts with those wanted.
func expect(t *testing.T, findings []results.Finding, want ...results.Verdict) {
	t.Helper()
	if len(findings) != len(want) {
		t.Fatalf("%d findings, want %d", len(findings), len(want))
	}
	for i, f := range findings {
		if f.Verdict != want[i] {
			t.Errorf("%d. %q: %s, want %s\n  found: %s\n  why: %s", i, f.Claim, f.Verdict, want[i], f.Found, f.Why)
		}
	}
}

// alikeVerdicts returns a verdict so many times.
func alikeVerdicts(n int, v results.Verdict) []results.Verdict {
	list := make([]results.Verdict, n)
	for i := range list {
		list[i] = v
	}
	return list
}

package results

import (
	"fmt"
	"math"
	"slices"
)

// Against compares an arm with another on the seeds that both have.
type Against struct {
	Arm        string     `json:"arm"`        // the other
	Seeds      []uint64   `json:"seeds"`      // ascending
	Unfinished int        `json:"unfinished"` // of those, seeds on which one of the two has not ended
	Difference Difference `json:"difference"` // of pass@1
	Ratio      Spread     `json:"ratio"`      // of compute to the target, by formula, over the other's; without a target: no seeds
}

// Difference is how much higher an arm's held-out pass@1 was than another's on the same seed, at
// the last step of the evaluation grid that both came to.
type Difference struct {
	Seeds  int    `json:"seeds"` // that have one
	Median Number `json:"median"`
	Q1     Number `json:"q1"`
	Q3     Number `json:"q3"`
	Low    Number `json:"low"` // bootstrap interval of the median at 95%, with 4 seeds or more
	High   Number `json:"high"`
}

// bootstrapSeed makes the intervals of a table the same whenever it is made.
const bootstrapSeed = 1

// newAgainst compares an arm with the reference, nil where their tasks or evaluation sets differ.
func newAgainst(reference, arm NamedRuns, target Number) *Against {
	if both := []NamedRuns{reference, arm}; len(tasks(both)) > 1 || len(problems(both)) > 1 {
		return nil
	}
	others := seeded(reference)
	own := seeded(arm)
	a := &Against{Arm: reference.Name}
	var differences, ratios []float64
	for _, seed := range sortedSeeds(own) {
		base, shared := others[seed]
		if !shared {
			continue
		}
		run := own[seed]
		a.Seeds = append(a.Seeds, seed)
		if !base.ended() || !run.ended() {
			a.Unfinished++
		}
		if b, r, ok := lastShared(base.Evals, run.Evals); ok {
			differences = append(differences, r.Pass1-b.Pass1)
		}
		if target.Known() {
			ratio := ratioOf(ReachOf(base.Evals, target.Float()), ReachOf(run.Evals, target.Float()), func(r Reach) Number { return r.Compute })
			if !math.IsNaN(ratio) {
				ratios = append(ratios, ratio)
			}
		}
	}
	a.Difference = newDifference(differences)
	a.Ratio = newMeasure(ratios, math.NaN(), bootstrapSeed).Ratio
	return a
}

func newDifference(values []float64) Difference {
	d := Difference{
		Seeds: len(values), Median: Num(Median(values)),
		Q1: Num(Quantile(values, 0.25)), Q3: Num(Quantile(values, 0.75)),
	}
	if d.Seeds >= claimSeeds {
		low, high := Bootstrap(values, intervalLevel, bootstrapSeed)
		d.Low, d.High = Num(low), Num(high)
	}
	return d
}

// seeded returns an arm's runs by seed; of those with one seed the first.
func seeded(arm NamedRuns) map[uint64]*Run {
	runs := make(map[uint64]*Run)
	for _, r := range arm.Runs {
		if seed, ok := r.seed(); ok && runs[seed] == nil {
			runs[seed] = r
		}
	}
	return runs
}

func sortedSeeds(runs map[uint64]*Run) []uint64 {
	var list []uint64
	for seed := range runs {
		list = append(list, seed)
	}
	slices.Sort(list)
	return list
}

// lastShared returns the evaluations of two runs at the last step of the grid that both came to
// after the start, false if there is none.
func lastShared(a, b []Eval) (x, y Eval, ok bool) {
	for _, e := range a {
		if e.Grid <= 0 || ok && e.Grid == x.Grid { // of two at one step the first, as in curves
			continue
		}
		if i := slices.IndexFunc(b, func(o Eval) bool { return o.Grid == e.Grid }); i >= 0 {
			x, y, ok = e, b[i], true
		}
	}
	return x, y, ok
}

// tasks returns the names of the arms' tasks, each once.
func tasks(arms []NamedRuns) []string {
	return distinct(arms, func(s *Summary) string { return s.Task })
}

// problems returns the sizes of the arms' evaluation sets, each once.
func problems(arms []NamedRuns) []int {
	var sizes []int
	for _, a := range arms {
		for _, r := range a.Runs {
			for _, e := range r.Evals {
				if !slices.Contains(sizes, e.Problems) {
					sizes = append(sizes, e.Problems)
				}
			}
		}
	}
	return sizes
}

// furthest returns the largest compute that a run of the arm came to.
func furthest(a NamedRuns) float64 {
	far := 0.0
	for _, r := range a.Runs {
		if n := len(r.Updates); n > 0 {
			far = max(far, r.Updates[n-1].Compute)
		}
	}
	return far
}

// describeRun names a run for the reader of a warning.
func describeRun(a NamedRuns, i int) string {
	if seed, ok := a.Runs[i].seed(); ok {
		return fmt.Sprintf("%s, seed %d", a.Name, seed)
	}
	return fmt.Sprintf("%s, run %d of %d", a.Name, i+1, len(a.Runs))
}

package study

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// atBest is a family of arms that differ in their learning rate, as it is judged: of each seed the run at the best rate.
type atBest struct {
	Runs
	at []float64 // the rate of each run
}

// tuned picks, on each seed, the run at the rate that is best on the other seeds. A single seed has no others.
func tuned(name string, family []Runs) atBest {
	t := atBest{Runs: Runs{Arm: Arm{name, family[0].Config}}}
	seeds := seedsOf(family...)
	for _, seed := range seeds {
		others := seed
		if len(seeds) == 1 {
			others = 0
		}
		a := soonest(family, others)
		if r := a.Seed(seed); r != nil {
			t.Runs.Runs, t.at = append(t.Runs.Runs, r), append(t.at, a.Config.Learner.LearningRate)
		}
	}
	return t
}

// rates writes at which rate how many seeds are judged.
func (t atBest) rates() string {
	count := make(map[float64]int)
	for _, rate := range t.at {
		count[rate]++
	}
	var list []string
	for _, rate := range slices.Sorted(maps.Keys(count)) {
		text := fmt.Sprintf("%g", rate)
		if len(count) > 1 {
			text += fmt.Sprintf(" (%d of %d seeds)", count[rate], len(t.at))
		}
		list = append(list, text)
	}
	return names(list)
}

// soonest returns the arm with the least median compute to the target over the seeds other than one (0: over all), the most accurate over
// the run among equals.
func soonest(arms []Runs, other uint64) Runs {
	least := math.Inf(1)
	for _, a := range arms {
		least = math.Min(least, orInf(a.without(other).median(toTarget)))
	}
	var equal []Runs
	for _, a := range arms {
		if orInf(a.without(other).median(toTarget)) == least {
			equal = append(equal, a)
		}
	}
	return highest(equal, meanOver(1), other)
}

// orInf is a value, infinite where there is none.
func orInf(v float64) float64 {
	if math.IsNaN(v) {
		return math.Inf(1)
	}
	return v
}

// rateOn writes the rate that a seed is judged at.
func (t atBest) rateOn(seed uint64) string {
	i := slices.IndexFunc(t.Runs.Runs, func(r *results.Run) bool { return r.Seed == seed })
	if i < 0 {
		return "—"
	}
	return fmt.Sprintf("%g", t.at[i])
}

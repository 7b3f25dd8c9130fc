package results

import (
	"math"
	"slices"
)

// NamedRuns is an arm of a [Table]: the runs of one configuration, a seed each.
type NamedRuns struct {
	Name string
	Runs []*Run
}

// Table sets any number of arms side by side. The first is what the others are compared with.
type Table struct {
	Target    Number   `json:"target"`    // held-out pass@1 fixed before the runs; nothing where they have none in common
	Claim     bool     `json:"claim"`     // every other arm has enough seeds in common with the first, 4, all of which have ended
	Statement string   `json:"statement"` // Caution and Findings in one
	Caution   string   `json:"caution"`   // why there is no claim, empty where there is one
	Findings  []string `json:"findings"`  // the result in words, a sentence or two per arm
	Warnings  []string `json:"warnings"`  // what keeps the arms from being compared as they stand
	Arms      []ArmRow `json:"arms"`
}

// ArmRow is an arm over its seeds. Seeds that crashed or have not ended count as far as they came.
type ArmRow struct {
	Name       string   `json:"name"`
	Task       string   `json:"task"`
	Seeds      []uint64 `json:"seeds"`      // ascending, those that are known
	Runs       int      `json:"runs"`       // seeds known or not
	Unfinished int      `json:"unfinished"` // runs that were interrupted, or have no summary

	First Range `json:"pass1_first"`
	Best  Range `json:"pass1_best"`
	Last  Range `json:"pass1_last"`

	Reached  int   `json:"reached"`           // runs that reached the target
	ToTarget Range `json:"compute_to_target"` // not reached being infinite, and infinite being nothing

	MeanAbsAdvantage Number `json:"mean_abs_advantage"` // medians over the seeds of the mean over a run
	ZeroVariance     Number `json:"zero_variance"`
	ESS              Number `json:"ess"`
	ReplayRatio      Number `json:"replay_ratio"` // medians over the seeds, at the end
	NeverDrawn       Number `json:"never_drawn"`

	Against *Against `json:"against,omitempty"` // the first arm; nil where the two cannot be compared
}

// Range is a quantity over seeds: its median between the least and the greatest.
type Range struct {
	Runs   int    `json:"runs"` // that have it
	Median Number `json:"median"`
	Low    Number `json:"low"`
	High   Number `json:"high"`
}

// RangeOf returns the range of values, NaN being left out and infinity being nothing.
func RangeOf(values []float64) Range {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	r := Range{Runs: len(known)}
	if r.Runs > 0 {
		r.Median, r.Low, r.High = Num(Median(known)), Num(slices.Min(known)), Num(slices.Max(known))
	}
	return r
}

// Mean returns the mean of a metric over the run's updates that have it, nothing if none has.
func (r *Run) Mean(metric func(*Update) Number) Number {
	var sum, n float64
	for i := range r.Updates {
		if m := metric(&r.Updates[i]); m.Known() {
			sum += m.Float()
			n++
		}
	}
	return Num(sum / n)
}

// MedianMean returns the median over the runs of a metric's mean over each; runs without it are
// left out.
func MedianMean(runs []*Run, metric func(*Update) Number) Number {
	means := make([]float64, len(runs))
	for i, r := range runs {
		means[i] = r.Mean(metric).Float()
	}
	return RangeOf(means).Median
}

// Final returns the last known value of a metric, nothing if no update has it.
func (r *Run) Final(metric func(*Update) Number) Number {
	for i := len(r.Updates) - 1; i >= 0; i-- {
		if m := metric(&r.Updates[i]); m.Known() {
			return m
		}
	}
	return Number{}
}

// NewTable summarizes the arms and compares each with the first, seed by seed.
func NewTable(arms []NamedRuns) *Table {
	t := &Table{Target: commonTarget(arms)}
	for _, a := range arms {
		t.Arms = append(t.Arms, newArmRow(a, t.Target))
	}
	if len(arms) > 1 {
		t.Claim = true
		for i := range arms[1:] {
			pair := newAgainst(arms[0], arms[i+1], t.Target)
			t.Arms[i+1].Against = pair
			t.Claim = t.Claim && pair != nil && len(pair.Seeds) >= claimSeeds && pair.Unfinished == 0
		}
	}
	t.Warnings = warnings(arms)
	t.word()
	return t
}

// commonTarget returns the target of all runs that have ended, nothing if they differ.
func commonTarget(arms []NamedRuns) Number {
	targets := distinct(arms, func(s *Summary) Number { return s.Target })
	if len(targets) != 1 {
		return Number{}
	}
	return targets[0]
}

// distinct returns the values of the runs that have ended, each once, in order of appearance.
func distinct[T comparable](arms []NamedRuns, of func(*Summary) T) []T {
	var values []T
	for _, a := range arms {
		for _, r := range a.Runs {
			if r.Summary == nil {
				continue
			}
			if v := of(r.Summary); !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values
}

func newArmRow(a NamedRuns, target Number) ArmRow {
	row := ArmRow{Name: a.Name, Runs: len(a.Runs)}
	var first, best, last, reach, ratio, never []float64
	for _, r := range a.Runs {
		if seed, ok := r.seed(); ok && !slices.Contains(row.Seeds, seed) {
			row.Seeds = append(row.Seeds, seed)
		}
		if !r.ended() {
			row.Unfinished++
		}
		if r.Summary != nil {
			row.Task = r.Summary.Task
		}
		if n := len(r.Evals); n > 0 {
			first, last = append(first, r.Evals[0].Pass1), append(last, r.Evals[n-1].Pass1)
			best = append(best, BestPass1(r.Evals).Float())
		}
		if target.Known() {
			to := math.Inf(1)
			if where := ReachOf(r.Evals, target.Float()); where.Reached {
				row.Reached++
				to = where.Compute.Float()
			}
			reach = append(reach, to)
		}
		ratio = append(ratio, r.Final(func(u *Update) Number { return u.ReplayRatio }).Float())
		never = append(never, r.neverDrawn().Float())
	}
	slices.Sort(row.Seeds)
	row.First, row.Best, row.Last, row.ToTarget = RangeOf(first), RangeOf(best), RangeOf(last), RangeOf(reach)
	row.ReplayRatio, row.NeverDrawn = RangeOf(ratio).Median, RangeOf(never).Median
	row.MeanAbsAdvantage = MedianMean(a.Runs, func(u *Update) Number { return u.MeanAbsAdvantage })
	row.ZeroVariance = MedianMean(a.Runs, func(u *Update) Number { return u.ZeroVariance })
	row.ESS = MedianMean(a.Runs, func(u *Update) Number { return u.ESS })
	return row
}

// ended reports whether the run came to the end of its budget.
func (r *Run) ended() bool { return r.Summary != nil && r.Summary.Ended != "interrupted" }

// neverDrawn is the share of all inserted rollouts that no draw fell on; before the run has ended,
// that of those held.
func (r *Run) neverDrawn() Number {
	if r.Summary != nil && r.Summary.Sampling != nil {
		return r.Summary.Sampling.NeverUsed
	}
	return r.Final(func(u *Update) Number { return u.NeverDrawn })
}

// seed returns the run's seed, false if it is not known: a run that has not ended, read from
// outside a comparison.
func (r *Run) seed() (uint64, bool) { return r.Seed, r.Summary != nil || r.Seed != 0 }

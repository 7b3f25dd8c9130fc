package results

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// claimSeeds is how many seeds a claim needs (docs/METHODS.md, Evaluation).
const claimSeeds = 4

// intervalLevel is the level of the bootstrap intervals.
const intervalLevel = 0.95

// ownShare is the share of a run's own best accuracy whose compute is reported.
const ownShare = 0.98

// Compare is compare.json: what replay saved against the baseline.
type Compare struct {
	Format int     `json:"format"`
	Name   string  `json:"name"`
	Task   string  `json:"task"`
	Target float64 `json:"target"` // held-out pass@1, fixed before the runs

	Claim     bool   `json:"claim"`     // enough seeds have a ratio: 4
	Statement string `json:"statement"` // the result in words

	Compute     Measure `json:"compute"`      // by formula: the headline
	ComputeBusy Measure `json:"compute_busy"` // busy time of all GPUs by the clock
	ComputeAll  Measure `json:"compute_all"`  // time of all GPUs, idle time included
	Clock       Measure `json:"clock"`        // virtual time: how much sooner

	Seeds []SeedCompare `json:"seeds"` // ascending

	BaselineToOwnBest Number `json:"baseline_to_98_percent_of_best"` // compute, median over seeds
	ReplayToOwnBest   Number `json:"replay_to_98_percent_of_best"`
}

// Measure compares the arms by one measure of cost. Ratios are replay over baseline.
type Measure struct {
	Ratio        Spread `json:"ratio"`
	Savings      Spread `json:"savings"`                // 1 - ratio
	MedianCurves Number `json:"ratio_of_median_curves"` // 0 where only replay's reached the target, nothing where replay's did not
}

// Spread is a quantity over seeds. Seeds on which neither arm reached the target have no ratio and
// are left out. A quantile that is infinite, because replay did not reach the target on so many of
// the rest, is nothing.
type Spread struct {
	Reached bool   `json:"reached"` // the median is finite
	Seeds   int    `json:"seeds"`   // that have a ratio
	Median  Number `json:"median"`
	Q1      Number `json:"q1"`
	Q3      Number `json:"q3"`
	Low     Number `json:"low"` // bootstrap interval of the median at 95%, with 4 seeds or more
	High    Number `json:"high"`
}

// SeedCompare compares the arms on one seed. A ratio is 0 where only replay reached the target and
// nothing where replay did not: it is infinite if Baseline.Reached, undefined otherwise.
type SeedCompare struct {
	Seed         uint64 `json:"seed"`
	Baseline     Reach  `json:"baseline"`
	Replay       Reach  `json:"replay"`
	Ratio        Number `json:"ratio"` // of compute by formula
	Savings      Number `json:"savings"`
	RatioBusy    Number `json:"ratio_busy"`
	RatioAll     Number `json:"ratio_all"`
	BaselineBest Number `json:"baseline_best"` // largest pass@1
	ReplayBest   Number `json:"replay_best"`
}

// SeedEvals is the evaluations of one arm on one seed.
type SeedEvals struct {
	Seed  uint64
	Evals []Eval
}

// Protocol is what NewCompare compares.
type Protocol struct {
	Name     string
	Task     string
	Target   float64 // in (0, 1]
	Baseline []SeedEvals
	Replay   []SeedEvals // the same seeds
	Seed     uint64      // of the bootstrap
}

// NewCompare compares two arms seed by seed. They must have the same seeds and have been evaluated
// on the same number of problems.
func NewCompare(p Protocol) (*Compare, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	baseline, replay := bySeed(p.Baseline), bySeed(p.Replay)
	c := &Compare{Format: Format, Name: p.Name, Task: p.Task, Target: p.Target}
	var ownBaseline, ownReplay []float64
	for i := range baseline {
		c.Seeds = append(c.Seeds, compareSeed(baseline[i], replay[i], p.Target))
		ownBaseline = append(ownBaseline, ComputeToShare(baseline[i].Evals, ownShare).Float())
		ownReplay = append(ownReplay, ComputeToShare(replay[i].Evals, ownShare).Float())
	}
	c.BaselineToOwnBest, c.ReplayToOwnBest = Num(Median(ownBaseline)), Num(Median(ownReplay))

	curves := [2]Reach{MedianReach(evalsOf(baseline), p.Target), MedianReach(evalsOf(replay), p.Target)}
	measure := func(cost func(Reach) Number) Measure {
		ratios := make([]float64, 0, len(c.Seeds))
		for _, s := range c.Seeds {
			if r := ratioOf(s.Baseline, s.Replay, cost); !math.IsNaN(r) {
				ratios = append(ratios, r)
			}
		}
		return newMeasure(ratios, ratioOf(curves[0], curves[1], cost), p.Seed)
	}
	c.Compute = measure(func(r Reach) Number { return r.Compute })
	c.ComputeBusy = measure(func(r Reach) Number { return r.ComputeBusy })
	c.ComputeAll = measure(func(r Reach) Number { return r.ComputeAll })
	c.Clock = measure(func(r Reach) Number { return r.Clock })
	c.Claim = c.Compute.Ratio.Seeds >= claimSeeds
	c.Statement = c.statement()
	return c, nil
}

func (p *Protocol) validate() error {
	if !(p.Target > 0 && p.Target <= 1) {
		return fmt.Errorf("target is %v, want above 0 and at most 1", p.Target)
	}
	if len(p.Baseline) == 0 || len(p.Baseline) != len(p.Replay) {
		return fmt.Errorf("baseline has %d seeds and replay %d, want the same number, at least 1", len(p.Baseline), len(p.Replay))
	}
	problems := 0
	baseline, replay := bySeed(p.Baseline), bySeed(p.Replay)
	for i, b := range baseline {
		r := replay[i]
		if b.Seed != r.Seed || i > 0 && b.Seed == baseline[i-1].Seed {
			return fmt.Errorf("seed %d of baseline stands against seed %d of replay, want each seed once in both arms", b.Seed, r.Seed)
		}
		for _, e := range slices.Concat(b.Evals, r.Evals) {
			if problems == 0 {
				problems = e.Problems
			}
			if e.Problems != problems {
				return fmt.Errorf("seed %d: an evaluation has %d problems, another %d; arms are compared on one evaluation set", b.Seed, e.Problems, problems)
			}
		}
	}
	return nil
}

// bySeed returns the runs in ascending order of seed.
func bySeed(runs []SeedEvals) []SeedEvals {
	return slices.SortedFunc(slices.Values(runs), func(a, b SeedEvals) int { return cmp.Compare(a.Seed, b.Seed) })
}

func evalsOf(arm []SeedEvals) [][]Eval {
	runs := make([][]Eval, len(arm))
	for i := range arm {
		runs[i] = arm[i].Evals
	}
	return runs
}

func compareSeed(b, r SeedEvals, target float64) SeedCompare {
	s := SeedCompare{
		Seed: b.Seed, Baseline: ReachOf(b.Evals, target), Replay: ReachOf(r.Evals, target),
		BaselineBest: BestPass1(b.Evals), ReplayBest: BestPass1(r.Evals),
	}
	ratio := ratioOf(s.Baseline, s.Replay, func(r Reach) Number { return r.Compute })
	s.Ratio, s.Savings = Num(ratio), Num(1-ratio)
	s.RatioBusy = Num(ratioOf(s.Baseline, s.Replay, func(r Reach) Number { return r.ComputeBusy }))
	s.RatioAll = Num(ratioOf(s.Baseline, s.Replay, func(r Reach) Number { return r.ComputeAll }))
	return s
}

// ratioOf divides replay's cost of the target by the baseline's, not reached being infinity: 0
// where only replay reached it, +Inf where only the baseline did, NaN where neither did.
func ratioOf(baseline, replay Reach, cost func(Reach) Number) float64 {
	b, r := math.Inf(1), math.Inf(1)
	if baseline.Reached {
		b = cost(baseline).Float()
	}
	if replay.Reached {
		r = cost(replay).Float()
	}
	return r / b
}

// newMeasure summarizes the ratios of the seeds that have one. Savings fall as ratios rise, so that
// their quartiles change places.
func newMeasure(ratios []float64, ofCurves float64, seed uint64) Measure {
	ratio := Spread{Seeds: len(ratios)}
	median := Median(ratios)
	ratio.Reached = Num(median).Known()
	ratio.Median = Num(median)
	ratio.Q1, ratio.Q3 = Num(Quantile(ratios, 0.25)), Num(Quantile(ratios, 0.75))
	if len(ratios) >= claimSeeds {
		low, high := Bootstrap(ratios, intervalLevel, seed)
		ratio.Low, ratio.High = Num(low), Num(high)
	}
	saved := func(n Number) Number { return Num(1 - n.Float()) }
	return Measure{
		Ratio: ratio,
		Savings: Spread{
			Reached: ratio.Reached, Seeds: ratio.Seeds, Median: saved(ratio.Median),
			Q1: saved(ratio.Q3), Q3: saved(ratio.Q1), Low: saved(ratio.High), High: saved(ratio.Low),
		},
		MedianCurves: Num(ofCurves),
	}
}

// WriteCompare writes compare.json.
func WriteCompare(dir string, c *Compare) error {
	return writeJSON(filepath.Join(dir, CompareFile), c)
}

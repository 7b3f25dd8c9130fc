package results

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// claimSeeds is how many seeds a claim needs (docs/METHODS.md, Evaluation).
const claimSeeds = 4

// intervalLevel is the level of the bootstrap intervals.
const intervalLevel = 0.95

// ownShare is the share of a run's own best accuracy whose compute is reported.
const ownShare = 0.98

// Compare is compare.json: what replay saved compared with the baseline.
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
	Ratio   Spread `json:"ratio"`
	Savings Spread `json:"savings"` // 1 - ratio
	// 0 if only replay's reached the target, none if replay's did not
	MedianCurves Number `json:"ratio_of_median_curves"`
}

// Spread is a quantity over seeds. Seeds on which neither arm reached the target have no ratio and are left out. A
// quantile that is infinite, because replay did not reach the target on many of the others, is null.
type Spread struct {
	Reached bool   `json:"reached"` // the median is finite
	Seeds   int    `json:"seeds"`   // that have a ratio
	Median  Number `json:"median"`
	Q1      Number `json:"q1"`
	Q3      Number `json:"q3"`
	Low     Number `json:"low"` // bootstrap interval of the median at 95%, from 4 seeds up
	High    Number `json:"high"`
}

// SeedCompare compares the arms on one seed. A ratio is 0 if only replay reached the target and null if replay did not:
// then it is infinite if Baseline.Reached, and undefined otherwise.
type SeedCompare struct {
	Seed         uint64 `json:"seed"`
	Baseline     Reach  `json:"baseline"`
	Replay       Reach  `json:"replay"`
	Ratio        Number `json:"ratio"` // of compute by formula
	Savings      Number `json:"savings"`
	RatioBusy    Number `json:"ratio_busy"`
	RatioAll     Number `json:"ratio_all"`
	BaselineBest Number `json:"baseline_best"` // highest pass@1
	ReplayBest   Number `json:"replay_best"`
}

// SeedEvals is the evaluations of one arm on one seed.
type SeedEvals struct {
	Seed  uint64
	Evals []Eval
}

// Protocol is the input of NewCompare.
type Protocol struct {
	Name     string
	Task     string
	Target   float64 // in (0, 1]
	Baseline []SeedEvals
	Replay   []SeedEvals // the same seeds
	Seed     uint64      // of the bootstrap
}

// The costs by which arms are compared.
func byCompute(r Reach) Number     { return r.Compute }
func byComputeBusy(r Reach) Number { return r.ComputeBusy }
func byComputeAll(r Reach) Number  { return r.ComputeAll }
func byClock(r Reach) Number       { return r.Clock }

// NewCompare compares two arms seed by seed. They must have the same seeds, evaluated on the same number of problems.
func NewCompare(p Protocol) (*Compare, error) {
	bySeed := func(a, b SeedEvals) int { return cmp.Compare(a.Seed, b.Seed) }
	p.Baseline = slices.SortedFunc(slices.Values(p.Baseline), bySeed)
	p.Replay = slices.SortedFunc(slices.Values(p.Replay), bySeed)
	if err := p.validate(); err != nil {
		return nil, err
	}
	c := &Compare{Format: Format, Name: p.Name, Task: p.Task, Target: p.Target}
	var ownBaseline, ownReplay []float64
	var baseline, replay [][]Eval
	for i, b := range p.Baseline {
		r := p.Replay[i]
		c.Seeds = append(c.Seeds, compareSeed(b, r, p.Target))
		ownBaseline = append(ownBaseline, ComputeToShare(b.Evals, ownShare).Float())
		ownReplay = append(ownReplay, ComputeToShare(r.Evals, ownShare).Float())
		baseline, replay = append(baseline, b.Evals), append(replay, r.Evals)
	}
	c.BaselineToOwnBest, c.ReplayToOwnBest = Num(Median(ownBaseline)), Num(Median(ownReplay))

	ofBaseline, ofReplay := MedianReach(baseline, p.Target), MedianReach(replay, p.Target)
	measure := func(cost func(Reach) Number) Measure {
		var ratios []float64
		for _, s := range c.Seeds {
			if r := ratioOf(s.Baseline, s.Replay, cost); !math.IsNaN(r) {
				ratios = append(ratios, r)
			}
		}
		ratio := newSpread(ratios, p.Seed)
		return Measure{Ratio: ratio, Savings: ratio.savings(), MedianCurves: Num(ratioOf(ofBaseline, ofReplay, cost))}
	}
	c.Compute, c.ComputeBusy = measure(byCompute), measure(byComputeBusy)
	c.ComputeAll, c.Clock = measure(byComputeAll), measure(byClock)
	c.Claim = c.Compute.Ratio.Seeds >= claimSeeds
	c.Statement = c.statement()
	return c, nil
}

// validate checks a protocol whose arms are in order of seeds.
func (p *Protocol) validate() error {
	if !(p.Target > 0 && p.Target <= 1) {
		return fmt.Errorf("target: %v: want above 0 and at most 1", p.Target)
	}
	if len(p.Baseline) == 0 || len(p.Baseline) != len(p.Replay) {
		return fmt.Errorf("baseline has %d seeds and replay %d: want the same number, at least 1", len(p.Baseline),
			len(p.Replay))
	}
	problems := 0
	for i, b := range p.Baseline {
		r := p.Replay[i]
		if b.Seed != r.Seed || i > 0 && b.Seed == p.Baseline[i-1].Seed {
			return fmt.Errorf("seed %d of baseline is paired with seed %d of replay: want each seed once in both arms",
				b.Seed, r.Seed)
		}
		for _, e := range slices.Concat(b.Evals, r.Evals) {
			if problems == 0 {
				problems = e.Problems
			}
			if e.Problems != problems {
				return fmt.Errorf("seed %d: one evaluation has %d problems, another %d: want one evaluation set for "+
					"both arms",
					b.Seed, e.Problems, problems)
			}
		}
	}
	return nil
}

func compareSeed(b, r SeedEvals, target float64) SeedCompare {
	baseline, replay := ReachOf(b.Evals, target), ReachOf(r.Evals, target)
	ratio := ratioOf(baseline, replay, byCompute)
	return SeedCompare{
		Seed: b.Seed, Baseline: baseline, Replay: replay, Ratio: Num(ratio), Savings: Num(1 - ratio),
		RatioBusy:    Num(ratioOf(baseline, replay, byComputeBusy)),
		RatioAll:     Num(ratioOf(baseline, replay, byComputeAll)),
		BaselineBest: BestPass1(b.Evals), ReplayBest: BestPass1(r.Evals),
	}
}

// ratioOf divides replay's cost of the target by the baseline's. The cost is infinite if the target was not reached:
// the ratio is 0 if only replay reached it, +Inf if only the baseline did, NaN if neither did.
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

// newSpread summarizes a quantity over the seeds that have it.
func newSpread(values []float64, seed uint64) Spread {
	s := Spread{Seeds: len(values), Median: Num(Median(values)), Q1: Num(Quantile(values, 0.25)),
		Q3: Num(Quantile(values, 0.75))}
	s.Reached = s.Median.Known()
	if s.Seeds >= claimSeeds {
		low, high := Bootstrap(values, intervalLevel, seed)
		s.Low, s.High = Num(low), Num(high)
	}
	return s
}

// savings is 1 - ratio. Savings fall as ratios rise, so the quartiles and the ends of the interval change places.
func (s Spread) savings() Spread {
	saved := func(n Number) Number { return Num(1 - n.Float()) }
	s.Median, s.Q1, s.Q3, s.Low, s.High = saved(s.Median), saved(s.Q3), saved(s.Q1), saved(s.High), saved(s.Low)
	return s
}

// statement is the result in words, with no claim that the numbers do not support.
func (c *Compare) statement() string {
	var s []string
	n, ratio := len(c.Seeds), c.Compute.Ratio
	switch {
	case n < claimSeeds:
		s = append(s, fewSeeds(n))
	case !c.Claim:
		s = append(s, fmt.Sprintf("Only %d of %d seeds have a ratio: no claim; a claim needs %d.", ratio.Seeds, n,
			claimSeeds))
	}
	switch {
	case ratio.Seeds > 0:
		s = append(s, contest{c.Target, "Replay", "the baseline"}.finding(ratio))
	case c.Above():
		s = append(s, fmt.Sprintf("Both arms have reached %.4g held-out pass@1 before their first update: savings "+
			"cannot be measured; set a higher target, or end the warm-up sooner.", c.Target))
	default:
		s = append(s, fmt.Sprintf("Neither arm reached %.4g held-out pass@1 on any seed: savings cannot be measured.",
			c.Target))
	}
	if c.Claim && ratio.mayBeOne() {
		s = append(s, includesOne)
	}
	return strings.Join(append(s, c.missed()...), " ")
}

// fewSeeds tells why too few seeds make no claim.
func fewSeeds(n int) string {
	if n == 1 {
		return "One seed: no claim."
	}
	return fmt.Sprintf("%d seeds: an indication, no claim; a claim needs %d.", n, claimSeeds)
}

const includesOne = "The interval includes 1: a difference is not established."

// mayBeOne reports whether the interval of a ratio includes 1.
func (s Spread) mayBeOne() bool { return s.Reached && s.Low.Float() <= 1 && !(s.High.Float() < 1) }

// Above reports whether both arms start at the target on some seed, which then has no ratio.
func (c *Compare) Above() bool { return slices.ContainsFunc(c.Seeds, SeedCompare.above) }

func (s SeedCompare) above() bool {
	return s.Baseline.Reached && s.Replay.Reached && s.Baseline.Compute.Float() == 0 && s.Replay.Compute.Float() == 0
}

// contest names the arms of a ratio, replay over baseline, and their target.
type contest struct {
	target           float64
	replay, baseline string
}

// finding puts a ratio that some seed has into words.
func (c contest) finding(ratio Spread) string {
	goal := fmt.Sprintf("%.4g held-out pass@1", c.target)
	if !ratio.Reached {
		return fmt.Sprintf("%s did not reach %s where %s did (median ratio infinite): nothing saved.", c.replay, goal,
			c.baseline)
	}
	r := ratio.Median.Float()
	what := fmt.Sprintf("%s reached %s", c.replay, goal)
	switch {
	case r == 0:
		what += fmt.Sprintf(", %s did not within its budget: savings cannot be put in numbers; raise the budget",
			c.baseline)
	case r < 1:
		what += fmt.Sprintf(" with %.2f of %s's compute: %.0f%% saved", r, c.baseline, 100*(1-r))
	case r == 1:
		what += fmt.Sprintf(" with %s's compute: nothing saved", c.baseline)
	default:
		what += fmt.Sprintf(" with %.2f times %s's compute: nothing saved", r, c.baseline)
	}
	if ratio.Seeds == 1 || ratio.Q3.Float() == 0 { // ratios of 0 on most seeds have no quartiles worth telling
		return what + "."
	}
	spread := fmt.Sprintf("median of %d seeds, IQR %s to %s", ratio.Seeds, ratioText(ratio.Q1), ratioText(ratio.Q3))
	if ratio.Seeds >= claimSeeds {
		spread += fmt.Sprintf(", 95%% bootstrap interval %s to %s", ratioText(ratio.Low), ratioText(ratio.High))
	}
	return fmt.Sprintf("%s (ratio: %s).", what, spread)
}

// missed names the seeds without a finite, positive ratio, if any seed has a ratio at all.
func (c *Compare) missed() []string {
	if c.Compute.Ratio.Seeds == 0 {
		return nil
	}
	var sentences []string
	for _, m := range []struct {
		words string
		is    func(SeedCompare) bool
	}{
		{"only replay reached the target (ratio 0)", func(s SeedCompare) bool {
			return s.Replay.Reached &&
				!s.Baseline.Reached
		}},
		{"only the baseline reached the target (ratio infinite)",
			func(s SeedCompare) bool { return s.Baseline.Reached && !s.Replay.Reached }},
		{"neither did (no ratio)", func(s SeedCompare) bool { return !s.Baseline.Reached && !s.Replay.Reached }},
		{"both reached it before their first update (no ratio)", SeedCompare.above},
	} {
		var seeds []string
		for _, s := range c.Seeds {
			if m.is(s) {
				seeds = append(seeds, fmt.Sprint(s.Seed))
			}
		}
		switch n := len(seeds); n {
		case 0:
		case 1:
			sentences = append(sentences, fmt.Sprintf("On seed %s %s.", seeds[0], m.words))
		default:
			sentences = append(sentences,
				fmt.Sprintf("On seeds %s and %s %s.", strings.Join(seeds[:n-1], ", "), seeds[n-1],
					m.words))
		}
	}
	return sentences
}

// ratioText writes a ratio, which is infinite if it has no value.
func ratioText(n Number) string {
	if !n.Known() {
		return "infinity"
	}
	return fmt.Sprintf("%.2f", n.Float())
}

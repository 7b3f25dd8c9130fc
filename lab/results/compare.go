package results

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
)

// CompareFormat is the version of compare.json that this package reads and writes.
const CompareFormat = 3

// Compare is compare.json: what replay saved compared with the baseline.
type Compare struct {
	Format int     `json:"format"`
	Name   string  `json:"name"`
	Task   string  `json:"task"`
	Target float64 `json:"target"` // held-out pass@1, fixed before the runs

	Claim     bool   `json:"claim"`     // ClaimRuns seeds or more have a ratio
	Statement string `json:"statement"` // the result in words

	// What the target cost, replay over baseline. Seeds on which neither arm reached it have no ratio.
	Ratio      Effect `json:"ratio"`       // of compute by formula: the headline
	RatioBusy  Effect `json:"ratio_busy"`  // of busy time of all GPUs by the clock
	RatioAll   Effect `json:"ratio_all"`   // of time of all GPUs, idle time included
	RatioClock Effect `json:"ratio_clock"` // of virtual time

	Seeds []SeedCompare `json:"seeds"` // ascending
}

// SeedCompare compares the arms on one seed. If one of them did not reach the target, a ratio is that of what it spent
// altogether: at least as high as the true one if that is the baseline, at most if it is replay. If neither did, or one
// began there, it is null.
type SeedCompare struct {
	Seed          uint64 `json:"seed"`
	Baseline      Reach  `json:"baseline"`
	Replay        Reach  `json:"replay"`
	Ratio         Number `json:"ratio"` // of compute by formula
	RatioBusy     Number `json:"ratio_busy"`
	RatioAll      Number `json:"ratio_all"`
	BaselineLevel Number `json:"baseline_level"` // pass@1 reached
	ReplayLevel   Number `json:"replay_level"`
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
	Batch    int     // rollouts of a batch of the baseline, for the statement; 0: it does not tell
	Updates  int     // of the baseline on each batch
	Baseline []SeedEvals
	Replay   []SeedEvals // the same seeds
}

// The costs by which arms are compared.
func byCompute(a Axes) float64     { return a.Compute }
func byComputeBusy(a Axes) float64 { return a.ComputeBusy }
func byComputeAll(a Axes) float64  { return a.ComputeAll }
func byClock(a Axes) float64       { return a.Clock }

// NewCompare compares two arms seed by seed. They must have the same seeds, evaluated on the same number of problems.
func NewCompare(p Protocol) (*Compare, error) {
	bySeed := func(a, b SeedEvals) int { return cmp.Compare(a.Seed, b.Seed) }
	p.Baseline = slices.SortedFunc(slices.Values(p.Baseline), bySeed)
	p.Replay = slices.SortedFunc(slices.Values(p.Replay), bySeed)
	if err := p.validate(); err != nil {
		return nil, err
	}
	c := &Compare{Format: CompareFormat, Name: p.Name, Task: p.Task, Target: p.Target}
	for i, b := range p.Baseline {
		c.Seeds = append(c.Seeds, compareSeed(b, p.Replay[i], p.Target))
	}
	ratio := func(cost func(Axes) float64) Effect {
		var ratios ratios
		for i, b := range p.Baseline {
			ratios.add(b.Evals, p.Replay[i].Evals, p.Target, cost)
		}
		return ratios.effect()
	}
	c.Ratio, c.RatioBusy = ratio(byCompute), ratio(byComputeBusy)
	c.RatioAll, c.RatioClock = ratio(byComputeAll), ratio(byClock)
	c.Claim = c.Ratio.Seeds >= ClaimRuns
	c.Statement = c.statement(p)
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
	ratio := func(cost func(Axes) float64) Number {
		var one ratios
		one.add(b.Evals, r.Evals, target, cost)
		return one.effect().Mean
	}
	return SeedCompare{
		Seed: b.Seed, Baseline: ReachOf(b.Evals, target), Replay: ReachOf(r.Evals, target),
		Ratio: ratio(byCompute), RatioBusy: ratio(byComputeBusy), RatioAll: ratio(byComputeAll),
		BaselineLevel: Level(b.Evals), ReplayLevel: Level(r.Evals),
	}
}

// ratios collects the bounds of the logarithms of ratios.
type ratios struct{ low, high []float64 }

// add adds what replay spent on the target over what the baseline spent. A run without evaluations has no ratio.
func (x *ratios) add(baseline, replay []Eval, target float64, cost func(Axes) float64) {
	if len(baseline) == 0 || len(replay) == 0 {
		return
	}
	b, bReached := Spent(baseline, target, cost)
	r, rReached := Spent(replay, target, cost)
	low, high := LogRatio(r, b, rReached, bReached)
	x.low, x.high = append(x.low, low), append(x.high, high)
}

func (x *ratios) effect() Effect {
	return effectOf(NewBoundedPairs(x.low, x.high, make([]uint64, len(x.low))), math.Exp)
}

// statement is the result in words, with no claim that the numbers do not support. It names the opponent of a
// ratio, if the protocol tells its batch.
func (c *Compare) statement(p Protocol) string {
	var s []string
	n, ratio := len(c.Seeds), c.Ratio
	switch {
	case n < ClaimRuns:
		s = append(s, fewSeeds(n))
	case !c.Claim:
		s = append(s, fmt.Sprintf("Only %d of %d seeds have a ratio: no claim; a claim needs %d.", ratio.Seeds, n,
			ClaimRuns))
	}
	switch {
	case ratio.Seeds > 0:
		s = append(s, contest{c.Target, "Replay", "the baseline"}.finding(ratio))
		if p.Batch > 0 {
			s = append(s, fmt.Sprintf("The baseline makes %s on each batch of %d rollouts. With other batches, or other "+
				"numbers of updates, it may need less compute: they are not compared here.",
				words.Plural(max(p.Updates, 1), "update"), p.Batch))
		}
	case c.Above():
		s = append(s, fmt.Sprintf("Both arms have reached %.4g held-out pass@1 before their first update: savings "+
			"cannot be measured; set a higher target, or end the warm-up sooner.", c.Target))
	default:
		s = append(s, fmt.Sprintf("Neither arm reached %.4g held-out pass@1 on any seed: savings cannot be measured.",
			c.Target))
	}
	return strings.Join(append(s, c.missed()...), " ")
}

// fewSeeds tells why too few seeds make no claim.
func fewSeeds(n int) string {
	if n == 1 {
		return "One seed: no claim."
	}
	return fmt.Sprintf("%d seeds: an indication, no claim; a claim needs %d.", n, ClaimRuns)
}

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
func (c contest) finding(ratio Effect) string {
	goal := fmt.Sprintf("%.4g held-out pass@1", c.target)
	r := ratio.Mean.Float()
	if math.IsNaN(r) {
		return fmt.Sprintf("%s missed %s on some seeds and %s on others: what is saved is not known; raise the budget.",
			c.replay, goal, c.baseline)
	}
	compute, saved := c.baseline+"'s compute", "nothing saved"
	switch {
	case r < 1:
		compute, saved = fmt.Sprintf("%.2f of %s", r, compute), fmt.Sprintf("%.0f%% saved", 100*(1-r))
	case r > 1:
		compute = fmt.Sprintf("%.2f times %s", r, compute)
	}
	what := fmt.Sprintf("%s reached %s with ", c.replay, goal)
	switch {
	case ratio.Bound == AtMost && r < 1:
		saved += " or more"
	case ratio.Bound == AtMost, ratio.Bound == AtLeast && r < 1:
		saved = "what is saved is not known; raise the budget"
	}
	switch ratio.Bound {
	case AtMost:
		what += "at most " + compute
	case AtLeast:
		what = fmt.Sprintf("%s takes at least %s to reach %s", c.replay, compute, goal)
	default:
		what += compute
	}
	what += ": " + saved
	interval := ratio.IntervalText(func(v float64) string { return fmt.Sprintf("%.2f", v) })
	if interval == "" {
		return what + "."
	}
	least := ""
	if r := math.Sqrt(ratio.Low.Float() / ratio.High.Float()); r > 0 {
		least = fmt.Sprintf("a ratio of %.2g or less", r)
	}
	return fmt.Sprintf("%s (ratio over %d seeds: 95%% interval %s).%s", what, ratio.Seeds, interval,
		ratio.doubt(1, least))
}

// missed names the seeds without a ratio that is known, if any seed has a ratio at all.
func (c *Compare) missed() []string {
	if c.Ratio.Seeds == 0 {
		return nil
	}
	var sentences []string
	for _, m := range []struct {
		words string
		is    func(SeedCompare) bool
	}{
		{"only replay reached the target (the baseline counts with all that it spent)",
			func(s SeedCompare) bool { return s.Replay.Reached && !s.Baseline.Reached }},
		{"only the baseline reached the target (replay counts with all that it spent)",
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

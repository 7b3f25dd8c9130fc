package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

// seedRow is a row of the table of seeds.
type seedRow struct {
	Seed               uint64
	Baseline, Replay   string // compute to target
	BaselineBest, Best string
	Ratio, Busy, All   string
	Saved              string
}

func seedRows(c *results.Compare) []seedRow {
	var rows []seedRow
	for _, s := range c.Seeds {
		rows = append(rows, seedRow{
			Seed:     s.Seed,
			Baseline: reachText(s.Baseline), BaselineBest: fraction(s.BaselineBest),
			Replay: reachText(s.Replay), Best: fraction(s.ReplayBest),
			Ratio: seedRatio(s, s.Ratio), Busy: seedRatio(s, s.RatioBusy), All: seedRatio(s, s.RatioAll),
			Saved: savedText(s),
		})
	}
	return rows
}

func reachText(r results.Reach) string {
	if !r.Reached {
		return "not reached"
	}
	return words.Whole(r.Compute.Float())
}

func seedRatio(s results.SeedCompare, n results.Number) string {
	if s.Baseline.Reached && !s.Replay.Reached {
		return "∞"
	}
	return ratioText(n)
}

func savedText(s results.SeedCompare) string {
	switch {
	case !s.Replay.Reached:
		return "–"
	case !s.Baseline.Reached:
		return "only replay arrived"
	case !s.Savings.Known(): // both arms begin at the target, or the baseline alone does
		return "–"
	default:
		return words.Minus(words.Percent(s.Savings.Float(), 0))
	}
}

// armRow is a row of the table of arms.
type armRow struct {
	Class, Name, Seeds, Ended           string
	First, Best, Last, Target           medianRange
	Advantage, ZeroVariance, ESS, Reuse string
	Never                               string
}

// medianRange is a median with its range.
type medianRange struct{ Median, Range string }

func armRows(t *results.Table, sides []*arm) []armRow {
	var rows []armRow
	for i, a := range t.Arms {
		row := armRow{
			Class: sides[i].class(), Name: a.Name, Seeds: fmt.Sprint(a.Runs),
			First: rangeText(a.First), Best: rangeText(a.Best), Last: rangeText(a.Last), Target: reachedText(a),
			Advantage: number(a.MeanAbsAdvantage), ZeroVariance: shareText(a.ZeroVariance), ESS: number(a.ESS),
			Reuse: number(a.ReplayRatio), Never: shareText(a.NeverDrawn),
		}
		if a.Unfinished > 0 {
			row.Ended = fmt.Sprintf("%d not ended", a.Unfinished)
		}
		rows = append(rows, row)
	}
	return rows
}

// rangeText writes an accuracy over seeds.
func rangeText(r results.Range) medianRange {
	text := medianRange{Median: fraction(r.Median)}
	if r.Runs > 1 {
		text.Range = fraction(r.Low) + "–" + fraction(r.High)
	}
	return text
}

// reachedText writes the compute at which an arm reached the target.
func reachedText(a results.ArmRow) medianRange {
	to := a.ToTarget
	text := medianRange{Median: "not reached"}
	switch {
	case to.Runs == 0:
		return medianRange{Median: "–"}
	case to.Median.Known():
		text.Median = words.Whole(to.Median.Float())
	}
	switch {
	case to.Runs == 1:
	case a.Reached < to.Runs:
		text.Range = fmt.Sprintf("by %d of %d seeds", a.Reached, to.Runs)
	default:
		text.Range = words.Whole(to.Low.Float()) + "–" + words.Whole(to.High.Float())
	}
	return text
}

// againstRow compares an arm with the first.
type againstRow struct {
	Class, Name, Seeds string
	Difference, Ratio  spread
}

// spread is a median with its quartiles and its bootstrap interval.
type spread struct{ Median, IQR, Interval string }

// againstRows returns the comparisons with the first arm, and a note on multiple comparisons.
func againstRows(t *results.Table, sides []*arm) (rows []againstRow, chance string) {
	claims := 0
	for i, row := range t.Arms {
		a := row.Against
		if a == nil {
			continue
		}
		d, r := a.Difference, a.Ratio
		ratioOver := func(n results.Number) string { return ratioOver(r, n) }
		if d.Low.Known() {
			claims++
		}
		rows = append(rows, againstRow{
			Class: sides[i].class(), Name: row.Name, Seeds: fmt.Sprint(len(a.Seeds)),
			Difference: spread{differenceText(d.Median), within(differenceText, d.Q1, d.Q3),
				within(differenceText, d.Low, d.High)},
			Ratio: spread{ratioOver(r.Median), within(ratioOver, r.Q1, r.Q3), within(ratioOver, r.Low, r.High)},
		})
	}
	if claims > 1 {
		chance = fmt.Sprintf("Each interval stands for its own pair: of %d, one may leave out 0 or 1 by chance.", claims)
	}
	return rows, chance
}

// ratioOver writes a quantile of a ratio. An unknown quantile of known ratios is infinite.
func ratioOver(r results.Spread, n results.Number) string {
	if r.Seeds > 0 && !n.Known() {
		return "∞"
	}
	return ratioText(n)
}

// within writes an interval, or a dash if there is none.
func within(text func(results.Number) string, low, high results.Number) string {
	if !low.Known() && !high.Known() {
		return "–"
	}
	return text(low) + " to " + text(high)
}

// differenceText writes a difference of accuracies with its sign.
func differenceText(n results.Number) string { return words.Signed(n.Float(), 3) }

// factRow is a row of the table of facts: one value per arm.
type factRow struct {
	Name   string
	Values []string
}

// column is a fact of an arm as text.
type column struct {
	name string
	of   func(*arm) string
}

// factRows returns the facts of each arm, as medians over its seeds; nothing if no run has finished.
func factRows(arms []*arm) []factRow {
	if !slices.ContainsFunc(arms, func(a *arm) bool { return len(a.summaries()) > 0 }) {
		return nil
	}
	rows := func(columns []column) []factRow {
		var table []factRow
		for _, c := range columns {
			row := factRow{Name: c.name}
			for _, side := range arms {
				row.Values = append(row.Values, c.of(side))
			}
			table = append(table, row)
		}
		return table
	}
	return slices.Concat(rows(setupColumns()),
		withoutEmptyRows(rows(samplerColumns())), withoutEmptyRows(rows(promptColumns())), rows(resultColumns()),
		withoutEmptyRows(rows(episodeColumns())))
}

// withoutEmptyRows keeps the rows in which some arm has a value.
func withoutEmptyRows(rows []factRow) []factRow {
	return slices.DeleteFunc(rows, func(r factRow) bool {
		return !slices.ContainsFunc(r.Values, func(v string) bool { return strings.Trim(v, "–/ ") != "" })
	})
}

// setupColumns are an arm's configuration and schedule.
func setupColumns() []column {
	return []column{
		{"GPUs", gpusText},
		{"Batch B, rollouts", whole(func(s *results.Summary) float64 { return float64(s.BatchSize) })},
		{"Table capacity N, rollouts", whole(func(s *results.Summary) float64 { return float64(s.Capacity) })},
		{"Compute ratio γ of an update", func(a *arm) string {
			return number(a.median(func(s *results.Summary) results.Number { return results.Num(s.ComputeRatio) }))
		}},
		{"Rollout cost μ, configured / measured", expected(
			func(s *results.Summary) results.Number { return results.Num(s.RolloutCost) },
			func(s *results.Summary) results.Number { return s.RolloutCostMeasured })},
		{"New rollouts per update R, expected / measured", expected(
			func(s *results.Summary) results.Number { return results.Num(s.NewPerUpdatePlanned) },
			func(s *results.Summary) results.Number { return s.NewPerUpdate })},
		{"Replay ratio, expected / measured", expected(
			func(s *results.Summary) results.Number { return results.Num(s.ReplayRatioPlanned) },
			func(s *results.Summary) results.Number { return s.ReplayRatio })},
	}
}

// samplerColumns describe the sampler.
func samplerColumns() []column {
	return []column{
		{"Sampler", ofSampling(func(s *results.Sampling) string { return s.Sampler })},
		{"A draw falls on a", ofSampling(func(s *results.Sampling) string { return s.Unit })},
		{"Priority: base / exponent α", ofPriority(func(p *results.Priority) string {
			return p.Base + " / " +
				words.Amount(p.Exponent)
		})},
		{"Age decay τ", decayText},
		{"Effective half-life", halfLifeText},
		{"Entry / draws", ofPriority(func(p *results.Priority) string { return p.Entry + " / " + p.Draws })},
		{"Importance exponent β at the end / largest weight of", ofPriority(func(p *results.Priority) string {
			if p.Normalised == "" {
				return number(p.Beta)
			}
			return number(p.Beta) + " / " + p.Normalised
		})},
		{"Replay updates to each fresh one", ofSampling(func(s *results.Sampling) string {
			if s.Mix == 0 {
				return "–"
			}
			return fmt.Sprint(s.Mix)
		})},
		{"Fresh share of a batch", ofSampling(func(s *results.Sampling) string {
			if s.FreshShare == 0 {
				return "–"
			}
			return shareText(results.Num(s.FreshShare))
		})},
		{"Never drawn, of all inserted", func(a *arm) string {
			return shareText(a.median(func(s *results.Summary) results.Number {
				if s.Sampling == nil {
					return results.Number{}
				}
				return s.Sampling.NeverUsed
			}))
		}},
	}
}

// promptColumns describe prompt replay.
func promptColumns() []column {
	of := func(text func(*results.PromptReplay) string) func(*arm) string {
		return func(a *arm) string {
			if kept := a.replayingPrompts(); len(kept.runs) > 0 {
				return text(kept.runs[0].Summary.PromptReplay)
			}
			return "–"
		}
	}
	return []column{
		{"Prompt replay: share f / band", of(func(p *results.PromptReplay) string {
			return words.Amount(p.Fraction) + " / " + words.Amount(p.Band)
		})},
		{"Prompt replay: cooldown / most replays", of(func(p *results.PromptReplay) string {
			return fmt.Sprintf("%d versions / %d", p.Cooldown, p.MaxReuse)
		})},
		{"Groups of replayed prompts", func(a *arm) string {
			return shareText(a.replayingPrompts().median(func(s *results.Summary) results.Number {
				p := s.PromptReplay
				return results.Num(float64(p.Replayed) / float64(p.Replayed+p.Fresh))
			}))
		}},
	}
}

// resultColumns are an arm's results.
func resultColumns() []column {
	return []column{
		{"Updates", whole(func(s *results.Summary) float64 { return float64(s.Updates) })},
		{"Inserted, rollouts or steps as drawn", whole(func(s *results.Summary) float64 { return float64(s.Inserted) })},
		{"Uses", whole(func(s *results.Summary) float64 { return float64(s.Used) })},
		{"Evicted without a use", neverText},
		{"Compute by formula", whole(func(s *results.Summary) float64 { return s.Compute })},
		{"Compute, busy time", whole(func(s *results.Summary) float64 { return s.ComputeBusy })},
		{"Compute, all GPU time", whole(func(s *results.Summary) float64 { return s.ComputeAll })},
		{"Compute to 98% of own best", func(a *arm) string {
			return words.Whole(a.median(func(s *results.Summary) results.Number { return s.ToOwnBest }).Float())
		}},
		{"pass@1 first / best / last", func(a *arm) string {
			first := a.median(func(s *results.Summary) results.Number { return s.Pass1First })
			best := a.median(func(s *results.Summary) results.Number { return s.Pass1Best })
			last := a.median(func(s *results.Summary) results.Number { return s.Pass1Last })
			return fraction(first) + " / " + fraction(best) + " / " + fraction(last)
		}},
		{"Wall time of a run", wallText},
	}
}

// episodeColumns are an arm's rewards and those of the reference players.
func episodeColumns() []column {
	median := func(of func(*results.Summary) results.Number) func(*arm) results.Number {
		return func(a *arm) results.Number { return a.median(of) }
	}
	first := median(func(s *results.Summary) results.Number { return s.RewardFirst })
	last := median(func(s *results.Summary) results.Number { return s.RewardLast })
	return []column{
		{"Held-out reward first / last", func(a *arm) string { return fraction(first(a)) + " / " + fraction(last(a)) }},
		{"Expert, pass@1 / reward", playerText(func(s *results.Summary) *results.Bound { return s.Expert })},
		{"Random actions, pass@1 / reward", playerText(func(s *results.Summary) *results.Bound { return s.Random })},
	}
}

// whole writes the median of a count.
func whole(of func(*results.Summary) float64) func(*arm) string {
	return func(a *arm) string {
		return words.Whole(a.median(func(s *results.Summary) results.Number { return results.Num(of(s)) }).Float())
	}
}

// wallText writes the median wall time of the runs, or a dash without timing.jsonl.
func wallText(a *arm) string {
	var seconds []float64
	for _, run := range a.runs {
		if n := len(run.Timings); n > 0 {
			seconds = append(seconds, run.Timings[n-1].Elapsed)
		}
	}
	if len(seconds) == 0 {
		return "–"
	}
	t := time.Duration(results.Median(seconds) * float64(time.Second))
	if t < time.Minute {
		return fmt.Sprintf("%.1f s", t.Seconds())
	}
	return t.Round(time.Second).String()
}

// expected writes a planned number and the measured one.
func expected(planned, measured func(*results.Summary) results.Number) func(*arm) string {
	return func(a *arm) string { return number(a.median(planned)) + " / " + number(a.median(measured)) }
}

func gpusText(a *arm) string {
	s := a.summaries()
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d for inference, %d for training", s[0].Workers, s[0].Trainers)
}

func neverText(a *arm) string {
	share := a.median(func(s *results.Summary) results.Number {
		evicted := 0.0
		for _, n := range s.Evicted {
			evicted += float64(n)
		}
		return results.Num(float64(s.NeverUsed) / evicted)
	})
	return shareText(share)
}

// ofSampling writes a fact of the first run with a sampler, or a dash.
func ofSampling(text func(*results.Sampling) string) func(*arm) string {
	return func(a *arm) string {
		for _, s := range a.summaries() {
			if s.Sampling != nil {
				return text(s.Sampling)
			}
		}
		return "–"
	}
}

// ofPriority does the same for prioritized samplers.
func ofPriority(text func(*results.Priority) string) func(*arm) string {
	return ofSampling(func(s *results.Sampling) string {
		if s.Priority == nil {
			return "–"
		}
		return text(s.Priority)
	})
}

// decayText writes tau. It differs between seeds if it follows a target ESS.
func decayText(a *arm) string {
	tables := a.priorities()
	if len(tables) == 0 {
		return "–"
	}
	text := "none"
	if tau := medianNumber(tables, func(p *results.Priority) results.Number { return p.AgeDecay }); tau.Known() {
		text = words.Amount(tau.Float()) + " versions"
	}
	if tables[0].Auto {
		text += " at the end, for ESS/n " + number(tables[0].TargetESS)
	}
	return text
}

// halfLifeText writes the half-life of a rollout's probability and its formula.
func halfLifeText(a *arm) string {
	return ofPriority(func(p *results.Priority) string {
		if !p.HalfLife.Known() {
			return "–"
		}
		h, tau := p.HalfLife.Float(), p.AgeDecay.Float()
		text := fmt.Sprintf("%s versions", words.Whole(h))
		switch {
		case agrees(h, tau/p.Exponent*math.Ln2):
			text += " = (τ/α) ln 2"
		case agrees(h, tau*math.Ln2):
			text += " = τ ln 2"
		}
		return text
	})(a)
}

// agrees reports whether two numbers agree to the digits shown.
func agrees(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) }

// playerText writes the results of a reference player, or a dash.
func playerText(of func(*results.Summary) *results.Bound) func(*arm) string {
	return func(a *arm) string {
		for _, s := range a.summaries() {
			if b := of(s); b != nil {
				return words.Fixed(b.Pass1, 3) + " / " + words.Fixed(b.Reward, 3)
			}
		}
		return "–"
	}
}

// replayingPrompts returns the arm with only its finished runs that replayed prompts.
func (a *arm) replayingPrompts() *arm {
	kept := &arm{label: a.label, role: a.role}
	for _, r := range a.runs {
		if r.Summary != nil && r.Summary.PromptReplay != nil {
			kept.runs = append(kept.runs, r)
		}
	}
	return kept
}

// shareText writes a share as a percentage, or a dash if it is unknown.
func shareText(n results.Number) string { return words.Percent(n.Float(), 1) }

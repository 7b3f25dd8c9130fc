package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// isotonic defines the compute to target and the accuracy reached.
const isotonic = "A run’s isotonic curve is the fit to its pass@1 that never falls. Compute to target is where it " +
	"crosses the target, pass@1 reached is where it ends."

// seedSection compares the arms of a comparison seed by seed.
func seedSection(c *results.Compare) section {
	g := results.Grid{Columns: []string{"Seed", "Baseline, compute to target", "Baseline, pass@1 reached",
		"Replay, compute to target", "Replay, pass@1 reached", "Ratio by formula", "Ratio of busy time",
		"Ratio of all GPU time",
		"Saved"}}
	for _, s := range c.Seeds {
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(s.Seed), reachText(s.Baseline), fraction(s.BaselineLevel), reachText(s.Replay),
			fraction(s.ReplayLevel),
			seedRatio(s, s.Ratio), seedRatio(s, s.RatioBusy), seedRatio(s, s.RatioAll), savedText(s),
		})
	}
	return section{ID: "seeds", Title: "Seed by seed", Text: []string{isotonic + " Ratios are replay over baseline."},
		Grids: gridTables(g)}
}

func reachText(r results.Reach) string {
	if !r.Reached {
		return "not reached"
	}
	return words.Whole(r.Compute.Float())
}

// seedRatio writes the ratio of a seed, which is a bound if one of the runs did not reach the target.
func seedRatio(s results.SeedCompare, n results.Number) string {
	switch {
	case !n.Known():
		return "–"
	case !s.Replay.Reached:
		return "≥ " + ratioText(n.Float())
	case !s.Baseline.Reached:
		return "≤ " + ratioText(n.Float())
	default:
		return ratioText(n.Float())
	}
}

func savedText(s results.SeedCompare) string {
	switch {
	case !s.Replay.Reached:
		return "–"
	case !s.Baseline.Reached:
		return "only replay arrived"
	case !s.Ratio.Known(): // both arms begin at the target, or the baseline alone does
		return "–"
	default:
		return words.Minus(words.Percent(1-s.Ratio.Float(), 0))
	}
}

// armsSection compares arms: their results, and each with the first.
func armsSection(t *results.Table) section {
	s := section{ID: "arms", Title: "Arm by arm",
		Text: []string{"Medians over seeds, with the range in brackets. " + isotonic}}
	g := results.Grid{
		Note: "Mean |advantage|, the share of zero-variance groups and ESS/n are means over a run’s updates. Replay " +
			"ratio and never drawn are those at its end.",
		Columns: []string{"Arm", "Seeds", "First pass@1", "Pass@1 reached", "Last pass@1"},
	}
	if t.Target.Known() {
		g.Columns = append(g.Columns, "Compute to target "+number(t.Target))
	}
	g.Columns = append(g.Columns, "Mean |advantage|", "Zero variance", "ESS/n", "Replay ratio", "Never drawn")
	for _, a := range t.Arms {
		seeds := fmt.Sprint(a.Runs)
		if a.Unfinished > 0 {
			seeds += fmt.Sprintf(" (%d not ended)", a.Unfinished)
		}
		row := []string{a.Name, seeds, rangeText(a.First), rangeText(a.Level), rangeText(a.Last)}
		if t.Target.Known() {
			row = append(row, reachedText(a))
		}
		g.Rows = append(g.Rows, append(row, number(a.MeanAbsAdvantage), shareText(a.ZeroVariance), number(a.ESS),
			number(a.ReplayRatio), shareText(a.NeverDrawn)))
	}
	s.Grids = gridTables(g)
	if against := againstGrid(t); len(against.Rows) > 0 {
		s.Grids = append(s.Grids, gridTables(against)...)
	}
	return s
}

// rangeText writes an accuracy over seeds.
func rangeText(r results.Range) string {
	text := fraction(r.Median)
	if r.Runs > 1 {
		text += " (" + fraction(r.Low) + "–" + fraction(r.High) + ")"
	}
	return text
}

// reachedText writes the compute at which an arm reached the target.
func reachedText(a results.ArmRow) string {
	to := a.ToTarget
	text := "not reached"
	switch {
	case to.Runs == 0:
		return "–"
	case to.Median.Known():
		text = words.Whole(to.Median.Float())
	}
	switch {
	case to.Runs == 1:
		return text
	case a.Reached < to.Runs:
		return text + fmt.Sprintf(" (by %d of %d seeds)", a.Reached, to.Runs)
	default:
		return text + " (" + words.Whole(to.Low.Float()) + "–" + words.Whole(to.High.Float()) + ")"
	}
}

// againstGrid compares the arms with the first.
func againstGrid(t *results.Table) results.Grid {
	g := results.Grid{
		Title: "Against " + t.Arms[0].Name + ", seed by seed",
		Note: "Means with their 95% interval in brackets; of ratios the geometric mean. The difference is taken at the " +
			"last step of compute at which both were evaluated.",
		Columns: []string{"Arm", "Seeds in common", "Difference of pass@1"},
	}
	if t.Target.Known() {
		g.Columns = append(g.Columns, "Ratio of compute to target")
	}
	intervals := 0
	for _, a := range t.Arms {
		if a.Against == nil {
			continue
		}
		d, r := a.Against.Difference, a.Against.Ratio
		if d.Low.Known() {
			intervals++
		}
		row := []string{a.Name, fmt.Sprint(len(a.Against.Seeds)), effectText(d, differenceText)}
		if t.Target.Known() {
			row = append(row, effectText(r, ratioText))
		}
		g.Rows = append(g.Rows, row)
	}
	if intervals > 1 {
		g.Note += fmt.Sprintf(" Each interval stands for its own pair: of %d, one may leave out 0 or 1 by chance.",
			intervals)
	}
	return g
}

// effectText writes an effect with its interval in brackets.
func effectText(e results.Effect, text func(float64) string) string {
	if interval := e.IntervalText(text); interval != "" {
		return e.Text(text) + " (" + interval + ")"
	}
	return e.Text(text)
}

// differenceText writes a difference of accuracies with its sign.
func differenceText(v float64) string { return words.Signed(v, 3) }

// column is a fact of an arm as text.
type column struct {
	name string
	of   func(*arm) string
}

// factSection lists the facts of each arm, as medians over its seeds.
func factSection(arms []*arm) section {
	rows := func(columns []column) [][]string {
		var table [][]string
		for _, c := range columns {
			row := []string{c.name}
			for _, side := range arms {
				row = append(row, c.of(side))
			}
			table = append(table, row)
		}
		return table
	}
	heads := []string{""}
	for _, side := range arms {
		heads = append(heads, side.label)
	}
	s := section{ID: "facts", Title: "In numbers"}
	if severalSeeds(arms) {
		s.Text = []string{"Medians over seeds."}
	}
	setup := slices.Concat(rows(setupColumns()), withoutEmptyRows(rows(samplerColumns())),
		withoutEmptyRows(rows(promptColumns())))
	found := append(rows(resultColumns()), withoutEmptyRows(rows(episodeColumns()))...)
	s.Grids = []gridTable{factTable("Setup", heads, setup), factTable("Results", heads, found)}
	s.Grids[1].Note = "The unit of compute is one trainer GPU taking one rollout through forward, backward and its " +
		"share of the update; time is in what that takes. By formula an update costs B(1 + μ) without replay and " +
		"B(1 + W/T) with it."
	return s
}

// withoutEmptyRows keeps the rows in which some arm has a value.
func withoutEmptyRows(rows [][]string) [][]string {
	return slices.DeleteFunc(rows, func(row []string) bool {
		return !slices.ContainsFunc(row[1:], func(v string) bool { return strings.Trim(v, "–/ ") != "" })
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
		{"Prompt replay: keep / score / interval / skip", of(func(p *results.PromptReplay) string {
			if p.Keep+p.Score+p.Interval+p.Skip == "" {
				return "–"
			}
			return strings.Join([]string{cmp.Or(p.Keep, "–"), cmp.Or(p.Score, "–"), cmp.Or(p.Interval, "–"),
				cmp.Or(p.Skip, "–")}, " / ")
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
		{"Inserted, rollouts or steps as drawn",
			whole(func(s *results.Summary) float64 { return float64(s.Inserted) })},
		{"Uses", whole(func(s *results.Summary) float64 { return float64(s.Used) })},
		{"Evicted without a use", neverText},
		{"Compute by formula", whole(func(s *results.Summary) float64 { return s.Compute })},
		{"Compute, busy time", whole(func(s *results.Summary) float64 { return s.ComputeBusy })},
		{"Compute, all GPU time", whole(func(s *results.Summary) float64 { return s.ComputeAll })},
		{"Compute to 98% of the pass@1 reached", func(a *arm) string {
			return words.Whole(a.median(func(s *results.Summary) results.Number { return s.ToLevel }).Float())
		}},
		{"pass@1 first / reached / last", func(a *arm) string {
			first := a.median(func(s *results.Summary) results.Number { return s.Pass1First })
			level := a.median(func(s *results.Summary) results.Number { return s.Pass1Level })
			last := a.median(func(s *results.Summary) results.Number { return s.Pass1Last })
			return fraction(first) + " / " + fraction(level) + " / " + fraction(last)
		}},
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

// shareText writes a share as a percentage, or a dash if it is unknown.
func shareText(n results.Number) string { return words.Percent(n.Float(), 1) }

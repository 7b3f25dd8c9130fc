package report

import (
	"fmt"
	"slices"
	"time"

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
	return grouped(r.Compute.Float())
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
		return signed(s.Savings.Float())
	}
}

// signed writes a share as per cent with a proper minus.
func signed(share float64) string {
	if share < 0 {
		return "−" + percent(share)
	}
	return percent(share)
}

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

// factRows returns what is known of each arm, medians over its seeds; nothing if no run has ended.
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
	return slices.Concat(rows(setUp()), said(rows(samplerColumns())), said(rows(promptColumns())), rows(cameOf()), said(rows(episodeColumns())))
}

// setUp is how an arm was set up, and what its schedule came to.
func setUp() []column {
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

// cameOf is what an arm did and reached.
func cameOf() []column {
	return []column{
		{"Updates", whole(func(s *results.Summary) float64 { return float64(s.Updates) })},
		{"Inserted, rollouts or steps as drawn", whole(func(s *results.Summary) float64 { return float64(s.Inserted) })},
		{"Uses", whole(func(s *results.Summary) float64 { return float64(s.Used) })},
		{"Evicted without a use", neverText},
		{"Compute by formula", whole(func(s *results.Summary) float64 { return s.Compute })},
		{"Compute, busy time", whole(func(s *results.Summary) float64 { return s.ComputeBusy })},
		{"Compute, all GPU time", whole(func(s *results.Summary) float64 { return s.ComputeAll })},
		{"Compute to 98% of own best", func(a *arm) string {
			return grouped(a.median(func(s *results.Summary) results.Number { return s.ToOwnBest }).Float())
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

// whole writes the median of a count.
func whole(of func(*results.Summary) float64) func(*arm) string {
	return func(a *arm) string {
		return grouped(a.median(func(s *results.Summary) results.Number { return results.Num(of(s)) }).Float())
	}
}

// wallText writes the median wall time of the runs, a dash where timing.jsonl is missing.
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

// expected writes what was planned beside what was measured.
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

package study

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func mu() Study {
	return Study{
		Name: "mu", Title: "What does a rollout cost, and how often is it used?", Source: "[ER] tables 1, 2, app. E",
		Lead: []string{
			"μ is estimated from runs with a buffer as [ER] does: (K_train/T)/(K_infer/W), with K_train rollouts " +
				"backpropagated and K_infer generated. The virtual clock charges a configured μ, so that the " +
				"estimate can be checked against it; on real hardware only the estimate exists.",
			aboutLab(), aboutSchedule,
			"Errata of [ER]: its table 2 prints γ = 0.41 for (6,2) at μ = 6.84, where its formula gives 0.510; its " +
				"text's 0.65 at μ = 5.28 is 0.637; and its replay ratios of 5.6 and 17.6 for (5,3) and (4,4) do not " +
				"fit its own μ, which gives 4.1 and 6.8.",
		},
		Arms: func(o Options) []Arm { return append(splitArms(o), costlyArms(o)...) }, Judge: judgeMu,
	}
}

const (
	mu06B         = 6.84 // [ER] table 1's mu of Qwen3-0.6B; that of Qwen2.5-7B, 5.28, is the laboratory's
	muMargin      = 0.05 // agreement of measured with configured or expected values, as a share of them
	printedMargin = 0.1  // agreement of printed replay ratios with the formula's, as a share of them
)

// costlyArms are runs with a buffer at the mu of Qwen3-0.6B, by split.
func costlyArms(o Options) []Arm {
	var arms []Arm
	for _, s := range labSplits() {
		c := schedule(o, s, distinct)
		c.Pipeline.RolloutCost = mu06B
		arms = append(arms, Arm{fmt.Sprintf("schedule, %s, μ = %g", s, mu06B), c})
	}
	return arms
}

// printedReplayRatios are those of [ER] §4.2, by the splits of the laboratory.
func printedReplayRatios() []float64 { return []float64{2.2, 5.6, 17.6} }

// printedGammas are the entries of [ER] table 2.
func printedGammas() ([]split, []float64) {
	return []split{{7, 1}, {6, 2}, {5, 3}, {4, 4}, {2, 6}, {1, 7}}, []float64{1.02, 0.41, 0.34, 0.26, 0.17, 0.15}
}

func configuredCost(c run.Config) float64     { return c.Pipeline.RolloutCost }
func measuredCost(s *results.Summary) float64 { return s.RolloutCostMeasured.Float() }
func costEstimate(a Runs, r *results.Run) float64 {
	return inSummary(measuredCost)(a, r) / configuredCost(a.Config)
}
func usesFound(a Runs, r *results.Run) float64 {
	return inSummary(replayRatio)(a, r) / expectedReplayRatio(a.Config)
}

func judgeMu(f *Found) (Judgement, error) {
	costly := f.of(costlyArms(f.Options)...)
	return f.judge([]claim{
		{
			source: "[ER] app. E, table 1", text: "With a buffer, (K_train/T)/(K_infer/W) is what a rollout costs.",
			by: averageOver(f.Arms, costEstimate).is(within(1, muMargin)), check: true, measured: "Estimate over the configured " +
				"μ, mean over the arms",
			more: fmt.Sprintf("Medians of the arms: %s.", medians(f.Arms, costEstimate, times)),
		},
		{
			source: "[ER] §2.2", text: "A rollout is used μT/W times on average.",
			by: averageOver(f.Arms, usesFound).is(within(1, muMargin)), check: true,
			measured: "Replay ratio measured over expected, mean over the arms",
			more:     fmt.Sprintf("Medians of the arms: %s.", medians(f.Arms, usesFound, times)),
		},
		ratiosClaim(costly), gammaClaim(),
	}, f.muPage(costly)...)
}

// gammaClaim checks table 2 against the formula above it, which needs no run.
func gammaClaim() claim {
	splits, printed := printedGammas()
	var off []string
	for i, s := range splits {
		if g := computeRatio(s, mu06B); math.Abs(g-printed[i]) > 0.005+1e-9 {
			off = append(off, fmt.Sprintf("%s, printed %g, computed %.3f", s, printed[i], g))
		}
	}
	found := "All entries follow from the formula."
	if len(off) > 0 {
		found = "These do not follow from the formula: " + strings.Join(off, "; ") + "."
	}
	return claim{
		source: "[ER] table 2", text: "Its values of γ are (1 + W/T)/(1 + μ) at μ = 6.84.", measured: found,
		arithmetic: asArithmetic(len(off) == 0), why: "Arithmetic: an entry agrees if it is within half a unit of its " +
			"last digit.",
	}
}

// ratiosClaim checks the printed replay ratios against the source's own formula. What a simulator measures cannot
// refute what was measured on GPUs.
func ratiosClaim(costly []Runs) claim {
	consistent := true
	var list []string
	for i, a := range costly {
		printed, expected := printedReplayRatios()[i], expectedReplayRatio(a.Config)
		consistent = consistent && math.Abs(printed-expected) <= printedMargin*expected
		list = append(list, fmt.Sprintf("%s: printed %g, formula %s, the virtual clock %s", labSplits()[i], printed,
			times(expected), a.cell(inSummary(replayRatio), times)))
	}
	return claim{
		source: "[ER] §4.2", text: "The printed replay ratios, 2.2, 5.6 and 17.6, follow from its formula, μT/W.",
		measured:   strings.Join(list, "; ") + ".",
		arithmetic: asArithmetic(consistent), why: fmt.Sprintf("Arithmetic: a printed value is consistent with the "+
			"source's own formula, μT/W at μ = %g, if it is within %s of it.", mu06B, percent(printedMargin)),
	}
}

func (f *Found) muPage(costly []Runs) []results.Section {
	return []results.Section{
		{Title: "μ", Grids: []results.Grid{table("Estimates of μ",
			mediansNote+" [ER] table 1: 6.84 (6.45 to 7.07) for Qwen3-0.6B, 5.28 (5.12 to 5.48) for Qwen2.5-7B.",
			f.Arms,
			column{"runs", func(a Runs) string { return fmt.Sprint(len(a.Runs)) }},
			column{"μ configured", func(a Runs) string { return number(configuredCost(a.Config)) }},
			medianOf("μ estimated", inSummary(measuredCost), times))}},
		{Title: "γ and replay ratios", Figures: []results.Figure{ratioFigure(costly)},
			Grids: []results.Grid{gammaTable(), ratioTable(costly)}},
		{
			Title: "This machine, as a curiosity",
			Text: []string{"Wall time of generation and of learning per rollout, as this machine spent it on this " +
				"model: what μ would be if its cores were the GPUs. It tells nothing about GPUs, includes whatever " +
				"else the machine did, and enters no result."},
			Grids: []results.Grid{table("Milliseconds per rollout", mediansNote, f.Arms,
				medianOf("generation", generateMS, times),
				medianOf("learning", learnMS, times), medianOf("generation over learning", wallCost, times))},
		},
	}
}

func gammaTable() results.Grid {
	g := results.Grid{Title: "γ by formula", Columns: []string{"(W,T)", "γ at μ = 5.28", "γ at μ = 6.84",
		"printed at 6.84"}}
	splits, printed := printedGammas()
	for i, s := range splits {
		g.Rows = append(g.Rows, []string{
			s.String(), points(computeRatio(s, run.Default().Pipeline.RolloutCost)), points(computeRatio(s, mu06B)),
			times(printed[i]),
		})
	}
	return g
}

func ratioTable(arms []Runs) results.Grid {
	g := results.Grid{Title: "Replay ratio at μ = 6.84", Note: mediansNote,
		Columns: []string{"(W,T)", "measured", "expected, μT/W", "printed"}}
	for i, a := range arms {
		g.Rows = append(g.Rows, []string{
			labSplits()[i].String(), a.cell(inSummary(replayRatio), times), times(expectedReplayRatio(a.Config)),
			number(printedReplayRatios()[i]),
		})
	}
	return g
}

// ratioFigure draws the replay ratios by the formula, as measured, and as printed.
func ratioFigure(arms []Runs) results.Figure {
	expected := results.Curve{Name: "μT/W", Dashed: true, Colour: 0}
	measured := results.Curve{Name: "measured", Points: true, Colour: 1}
	printed := results.Curve{Name: "printed in [ER]", Points: true, Colour: 2}
	for i, a := range arms {
		x := 1 / labSplits()[i].ratio()
		expected.At = append(expected.At, results.Point{X: x, Y: results.Num(expectedReplayRatio(a.Config))})
		printed.At = append(printed.At, results.Point{X: x, Y: results.Num(printedReplayRatios()[i])})
		if q := quartilesOf(a.over(inSummary(replayRatio))); len(q.values) > 0 {
			measured.At = append(measured.At, q.point(x))
		}
	}
	return figure("Replay ratio by split",
		"At μ = 6.84: (6,2), (5,3) and (4,4). Measured: medians over seeds with their quartiles.",
		"trainers per worker T/W", "uses of a rollout", expected, measured, printed)
}

// generateMS and learnMS are the wall time of generating a rollout and of using it once, in milliseconds.
func generateMS(_ Runs, r *results.Run) float64 {
	return wallMS(r, func(t results.Timing) float64 { return t.Generate },
		func(u results.Update) uint64 { return u.Inserted })
}

func learnMS(_ Runs, r *results.Run) float64 {
	return wallMS(r, func(t results.Timing) float64 { return t.Learn }, func(u results.Update) uint64 { return u.Used })
}

func wallCost(a Runs, r *results.Run) float64 { return generateMS(a, r) / learnMS(a, r) }

// wallMS is the wall time that a run spent on something, over a count as of its last update, in milliseconds.
func wallMS(r *results.Run, spent func(results.Timing) float64, count func(results.Update) uint64) float64 {
	if len(r.Updates) == 0 || count(r.Updates[len(r.Updates)-1]) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, t := range r.Timings {
		sum += spent(t)
	}
	return 1000 * sum / float64(count(r.Updates[len(r.Updates)-1]))
}

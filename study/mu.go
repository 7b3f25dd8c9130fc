package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// mu estimates what a rollout costs, and checks the source's tables against its formulas.
func mu() Study {
	return Study{
		Name: "mu", Title: "What does a rollout cost, and how often is it used?", Source: "[ER] tables 1, 2, app. E",
		Lead: []string{
			"μ is estimated from runs with a buffer as [ER] does: (K_train/T)/(K_infer/W), with K_train rollouts backpropagated and K_infer generated. The virtual clock charges a configured " +
				"μ, so that the estimate can be held against it; on real hardware it is the other way round.",
			aboutLab(), aboutSchedule,
			"Errata of [ER]: its table 2 prints γ = 0.41 for (6,2) at μ = 6.84, where its formula gives 0.510; its text's 0.65 at μ = 5.28 is 0.637; and its replay ratios of 5.6 and 17.6 for " +
				"(5,3) and (4,4) do not fit its own μ, from which 4.1 and 6.8 follow.",
		},
		Arms: muArms, Judge: judgeMu,
	}
}

// rolloutCost06B is [ER] table 1's mu of Qwen3-0.6B; that of Qwen2.5-7B, 5.28, is the laboratory's.
const rolloutCost06B = 6.84

// Estimates agree with what was configured, and replay ratios with what is expected, if they are within this share of it.
const muMargin = 0.05

func muArms(o Options) []Arm {
	var arms []Arm
	for _, s := range labSplits() {
		arms = append(arms, bufferArm(o, s, labCapacity))
	}
	for _, s := range labSplits() {
		arms = append(arms, costlyArm(o, s))
	}
	return arms
}

// costlyArm is a run with a buffer at the mu of Qwen3-0.6B.
func costlyArm(o Options, s split) Arm {
	c := schedule(o, s, distinct)
	c.Pipeline.RolloutCost = rolloutCost06B
	return Arm{fmt.Sprintf("schedule, %s, μ = %g", s, rolloutCost06B), c}
}

func measuredCost(s *results.Summary) results.Number { return s.RolloutCostMeasured }
func replayRatio(s *results.Summary) results.Number  { return s.ReplayRatio }

// relative is a quantity of a run relative to what its configuration expects of it.
func relative(of func(*results.Summary) results.Number, expected func(run.Config) float64) measure {
	return func(a Runs, r *results.Run) float64 { return inSummary(of)(a, r) / expected(a.Config) }
}

func configuredCost(c run.Config) float64 { return c.Pipeline.RolloutCost }

// expectedReplayRatio is mu T/W.
func expectedReplayRatio(c run.Config) float64 {
	return c.Pipeline.RolloutCost * float64(c.Pipeline.Trainers) / float64(c.Pipeline.Workers)
}

// computeRatio is gamma.
func computeRatio(s split, mu float64) float64 { return (1 + s.ratio()) / (1 + mu) }

func judgeMu(f *Found) (Judgement, error) {
	estimate, uses := f.pooled(f.Arms, relative(measuredCost, configuredCost)), f.pooled(f.Arms, relative(replayRatio, expectedReplayRatio))
	costly := f.costly()
	return Judgement{
		Findings: []results.Finding{
			f.settle(asked{"[ER] app. E, table 1", "With a buffer, (K_train/T)/(K_infer/W) is what a rollout costs."},
				fmt.Sprintf("Estimate over the configured μ, mean over the arms: %s. Medians of the arms: %s.", estimate.format(times), meansOf(f.Arms, relative(measuredCost, configuredCost))), estimate, within("the estimate over the configured μ", 1, muMargin)),
			f.settle(asked{"[ER] §2.2", "A rollout is used μT/W times on average."},
				fmt.Sprintf("Measured over expected, mean over the arms: %s. Medians of the arms: %s.", uses.format(times), meansOf(f.Arms, relative(replayRatio, expectedReplayRatio))), uses, within("the measured replay ratio over the expected", 1, muMargin)),
			f.printedRatios(costly), printedGamma(),
		},
		Sections: append([]results.Section{
			{Title: "μ", Grids: []results.Grid{f.costGrid()}},
			{Title: "γ and replay ratios", Figures: []results.Figure{ratioFigure(costly)}, Grids: []results.Grid{gammaGrid(), ratioGrid(costly)}},
			{
				Title: "This machine, as a curiosity",
				Text: []string{"Wall time of generation and of learning per rollout, as this machine spent it on this model: what μ would be if its cores were the GPUs. It says nothing of GPUs, " +
					"includes whatever else the machine did, and enters no result."},
				Grids: []results.Grid{f.machineGrid()},
			},
		}, f.trouble()...),
	}, nil
}

// pooled is the mean of a measure over arms, seed by seed.
func (f *Found) pooled(arms []Runs, m measure) spread {
	var values []float64
	for _, seed := range seedsOf(arms...) {
		var on []float64
		for _, a := range arms {
			on = append(on, a.on(seed, m))
		}
		values = append(values, mean(on))
	}
	return spreadOf(values)
}

func (f *Found) costly() []Runs {
	var arms []Runs
	for _, s := range labSplits() {
		arms = append(arms, f.Of(costlyArm(f.Options, s).Name))
	}
	return arms
}

// printedReplayRatios are [ER] §4.2's, by the splits of the laboratory.
func printedReplayRatios() []float64 { return []float64{2.2, 5.6, 17.6} }

// printedMargin is how far a measured replay ratio may lie from the printed one, as a share of it, and agree.
const printedMargin = 0.1

// printedRatios sets the replay ratios that the source prints beside those measured.
func (f *Found) printedRatios(arms []Runs) results.Finding {
	var verdicts []results.Verdict
	found, n := "Measured at μ = 6.84:", f.Seeds
	for i, a := range arms {
		printed := printedReplayRatios()[i]
		s := spreadOf(a.over(inSummary(replayRatio)))
		n = min(n, len(s.values))
		verdicts = append(verdicts, within("", printed, printedMargin*printed).by(f, s))
		found += fmt.Sprintf(" %s %s against %g printed and %s expected;", labSplits()[i], s.format(times), printed, times(expectedReplayRatio(a.Config)))
	}
	why := fmt.Sprintf("The claim holds if each interval of the median lies within %s of the printed value, and does not hold if one lies outside.", percent(printedMargin))
	if c := f.caution(n); c != "" {
		why = c + " " + why
	}
	return results.Finding{
		Source: "[ER] §4.2", Claim: "The average replay ratio is 2.2, 5.6 and 17.6 for (6,2), (5,3) and (4,4).", Found: found[:len(found)-1] + ".",
		Verdict: all(verdicts...), Why: why,
	}
}

// printedGammas are the entries of [ER] table 2.
func printedGammas() ([]split, []float64) {
	return []split{{7, 1}, {6, 2}, {5, 3}, {4, 4}, {2, 6}, {1, 7}}, []float64{1.02, 0.41, 0.34, 0.26, 0.17, 0.15}
}

// printedGamma checks table 2 against the formula above it, which needs no run.
func printedGamma() results.Finding {
	splits, printed := printedGammas()
	var off []string
	for i, s := range splits {
		if g := computeRatio(s, rolloutCost06B); math.Abs(g-printed[i]) > 0.005+1e-9 {
			off = append(off, fmt.Sprintf("%s, printed %g, computed %.3f", s, printed[i], g))
		}
	}
	found := "All entries are those of the formula."
	if len(off) > 0 {
		found = "Not those of the formula: " + names(off) + "."
	}
	return results.Finding{
		Source: "[ER] table 2", Claim: "Its values of γ are (1 + W/T)/(1 + μ) at μ = 6.84.", Found: found, Verdict: verdict(len(off) == 0, len(off) > 0),
		Why: "Arithmetic: an entry agrees if it is within half a unit of its last digit.",
	}
}

func (f *Found) costGrid() results.Grid {
	g := results.Grid{
		Title: "Estimates of μ", Note: "Medians over seeds, quartiles in brackets. [ER] table 1: 6.84 (6.45 to 7.07) for Qwen3-0.6B, 5.28 (5.12 to 5.48) for Qwen2.5-7B.",
		Columns: []string{"arm", "runs", "μ configured", "μ estimated"},
	}
	for _, a := range f.Arms {
		g.Rows = append(g.Rows, []string{a.Name, fmt.Sprint(len(a.Runs)), number(configuredCost(a.Config)), a.cell(inSummary(measuredCost), times)})
	}
	return g
}

func gammaGrid() results.Grid {
	g := results.Grid{Title: "γ by formula", Columns: []string{"(W,T)", "γ at μ = 5.28", "γ at μ = 6.84", "printed at 6.84"}}
	splits, printed := printedGammas()
	for i, s := range splits {
		g.Rows = append(g.Rows, []string{s.String(), points(computeRatio(s, run.Default().Pipeline.RolloutCost)), points(computeRatio(s, rolloutCost06B)), times(printed[i])})
	}
	return g
}

func ratioGrid(arms []Runs) results.Grid {
	g := results.Grid{Title: "Replay ratio at μ = 6.84", Note: "Medians over seeds, quartiles in brackets.", Columns: []string{"(W,T)", "measured", "expected, μT/W", "printed"}}
	for i, a := range arms {
		g.Rows = append(g.Rows, []string{labSplits()[i].String(), a.cell(inSummary(replayRatio), times), times(expectedReplayRatio(a.Config)), number(printedReplayRatios()[i])})
	}
	return g
}

// ratioFigure draws the replay ratios: measured, by the formula, and as printed.
func ratioFigure(arms []Runs) results.Figure {
	expected, measured, printed := results.Curve{Name: "μT/W", Dashed: true, Colour: 0}, results.Curve{Name: "measured", Points: true, Colour: 1},
		results.Curve{Name: "printed in [ER]", Points: true, Colour: 2}
	for i, a := range arms {
		x := 1 / labSplits()[i].ratio()
		expected.At = append(expected.At, results.Point{X: x, Y: results.Num(expectedReplayRatio(a.Config))})
		printed.At = append(printed.At, results.Point{X: x, Y: results.Num(printedReplayRatios()[i])})
		if of := quartilesOf(a.over(inSummary(replayRatio))); len(of.values) > 0 {
			measured.At = append(measured.At, results.Point{X: x, Y: results.Num(of.median), Low: results.Num(of.q1), High: results.Num(of.q3)})
		}
	}
	fig := results.Figure{
		Title: "Replay ratio by split", Note: "At μ = 6.84: (6,2), (5,3) and (4,4). Measured: medians over seeds with their quartiles.",
		X: results.Axis{Title: "trainers per worker T/W"}, Y: results.Axis{Title: "uses of a rollout"}, Curves: []results.Curve{expected},
	}
	for _, c := range []results.Curve{measured, printed} {
		if len(c.At) > 0 {
			fig.Curves = append(fig.Curves, c)
		}
	}
	return fig
}

// machineGrid tells what this machine spent on a rollout.
func (f *Found) machineGrid() results.Grid {
	g := results.Grid{
		Title: "Milliseconds per rollout", Note: "Medians over seeds, quartiles in brackets.",
		Columns: []string{"arm", "generation", "learning", "generation over learning"},
	}
	for _, a := range f.Arms {
		g.Rows = append(g.Rows, []string{a.Name, a.cell(generateMS, times), a.cell(learnMS, times), a.cell(machineCost, times)})
	}
	return g
}

// generateMS and learnMS are the wall time of a rollout's generation and of one use of it, in milliseconds.
func generateMS(_ Runs, r *results.Run) float64 {
	return 1000 * spent(r, func(t results.Timing) float64 { return t.Generate }) / counted(r, func(u results.Update) uint64 { return u.Inserted })
}

func learnMS(_ Runs, r *results.Run) float64 {
	return 1000 * spent(r, func(t results.Timing) float64 { return t.Learn }) / counted(r, func(u results.Update) uint64 { return u.Used })
}

func machineCost(a Runs, r *results.Run) float64 { return generateMS(a, r) / learnMS(a, r) }

func spent(r *results.Run, of func(results.Timing) float64) float64 {
	var sum float64
	for _, t := range r.Timings {
		sum += of(t)
	}
	return sum
}

// counted is a count as of a run's last update, NaN before the first.
func counted(r *results.Run, of func(results.Update) uint64) float64 {
	if len(r.Updates) == 0 || of(r.Updates[len(r.Updates)-1]) == 0 {
		return math.NaN()
	}
	return float64(of(r.Updates[len(r.Updates)-1]))
}

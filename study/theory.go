package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

func theory() Study {
	return Study{
		Name: "theory", Title: "Does the calculator recommend well?", Source: "[ER] §3, theorem 3.5",
		Lead: []string{
			aboutLab(),
			"The calculator is fitted to a short run: the cost of a rollout, the correlation of gradients in a " +
				"buffer, and how their noise grows with staleness. From these follows J(N/R, B/R), to which the " +
				"compute of learning is proportional, for every cell of the grid of splits and capacities that was " +
				"really run. The recommended cell has the least J.",
			"Cells are ranked on each seed by what happened on it: compute to the target; among those that are equal, or " +
				"did not reach it, the higher mean accuracy over the run. The noise of single runs counts against the theory. " +
				fmt.Sprintf("The short run takes %d of the %d updates' compute. Its split and its table show more "+
					"staleness than any cell. Each seed's short run gives a fit and a recommendation of its own.",
					theoryCompute, labCompute),
		},
		Arms:  func(o Options) []Arm { return append([]Arm{shortArm(o), queueArm(o)}, gridArms(o)...) },
		Judge: func(f *Found) (Judgement, error) { return judgeTheory(f, fitRun) },
	}
}

// The short run that the calculator is fitted to. Its table holds staler rollouts than any of the grid's, so that
// nothing is extrapolated.
const (
	theoryCompute  = 10
	theoryCapacity = 6 * labBatch
	theoryShort    = "short run"
)

// bestShare is the part of the grid that a good recommendation is in.
const bestShare = 0.2

func shortArm(o Options) Arm {
	c := buffer(o, cell{split{4, 4}, theoryCapacity})
	c.Budget.Compute = min(c.Budget.Compute, theoryCompute)
	return Arm{theoryShort, c}
}

func judgeTheory(f *Found, fitted func(*results.Run) (fit, error)) (Judgement, error) {
	real := f.outcomes()
	ranked := real.ranked(seedsOf(f.Arms...))
	forecasts, problems := forecastsOf(f.Of(theoryShort).Runs, fitted, ranked)
	ranks := real.worth("the rank", func(v float64) string { return words.Fixed(v, 1) }, forecasts, forecast.rank)
	orders := real.worth("the rank correlation", times, forecasts, forecast.order)
	bestFifth := max(math.Floor(bestShare*float64(len(ranked))), 1)
	var chosen []string
	for _, c := range forecasts {
		chosen = append(chosen, c.chosen.String())
	}
	return f.judge([]claim{
		{
			source: "[ER] §3", text: "The configuration that the theory recommends is among the best.",
			by:       ranks.is(atMost(bestFifth)),
			measured: fmt.Sprintf("Rank of the recommended cell among %d", len(ranked)),
			more:     fmt.Sprintf("Recommended: %s.", sortedNames(chosen)),
			note:     fmt.Sprintf("The best fifth of %d cells ends at rank %s.", len(ranked), number(bestFifth)),
		},
		{
			source: "[ER] §3", text: "The theory orders configurations as they really are.", by: orders.is(above(0)),
			measured: "Rank correlation of J with the real ranks over the grid",
		},
	}, f.theoryPage(ranked, forecasts, problems)...)
}

func (f *Found) theoryPage(ranked []cell, forecasts []forecast, problems []string) []results.Section {
	relative := func(c cell) float64 { // J over the least, median over the short runs
		var list []float64
		for _, x := range forecasts {
			list = append(list, x.objective[c]/x.objective[x.chosen])
		}
		return results.Median(slices.DeleteFunc(list, math.IsNaN))
	}
	median := func(m measure) func(cell) float64 { return func(c cell) float64 { return f.at(c).median(m) } }
	maps := []results.Figure{
		heatMap("J over the grid, as fitted", "Relative to each fit's least; median over the short runs.",
			"J over the least", 2, true, relative),
		heatMap("Compute to the target, as it was",
			"In updates without replay, median over seeds. Empty: not reached, or not run.",
			"updates without replay", 0, true, median(toTarget)),
		heatMap("Mean accuracy over the run", "Median over seeds.", "mean pass@1", 3, false, median(meanOver(1))),
	}
	for _, c := range forecasts {
		m := results.MarkedAt{
			Name: "recommended", X: float64(slices.Index(labCapacities(), c.chosen.capacity)),
			Y: float64(slices.Index(labSplits(), c.chosen.split)),
		}
		for i := range maps {
			if !slices.Contains(maps[i].Marks, m) {
				maps[i].Marks = append(maps[i].Marks, m)
			}
		}
	}
	return []results.Section{
		{
			Title: "What the short runs say", Text: problems,
			Grids: []results.Grid{fitTable(forecasts, ranked)}, Figures: []results.Figure{profileFigure(forecasts)},
		},
		{Title: "The grid", Figures: append(maps, f.objectiveFigure(ranked, relative)),
			Grids: []results.Grid{f.rankTable(ranked, relative)}},
	}
}

// objectiveFigure draws accuracy against J, a point per cell.
func (f *Found) objectiveFigure(ranked []cell, relative func(cell) float64) results.Figure {
	var curves []results.Curve
	for i, s := range labSplits() {
		c := results.Curve{Name: s.String(), Colour: i, Points: true}
		for _, at := range ranked {
			if x := relative(at); at.split == s && !math.IsNaN(x) {
				c.At = append(c.At, quartilesOf(f.at(at).over(meanOver(1))).point(x))
			}
		}
		curves = append(curves, c)
	}
	return figure("Accuracy against J",
		"A point per cell. If the theory ordered the cells, points would fall to the right.",
		"J over the least", "mean pass@1 over the run", curves...)
}

// rankTable lists the cells in their real order.
func (f *Found) rankTable(ranked []cell, relative func(cell) float64) results.Grid {
	g := results.Grid{
		Title: "Cells, the best first", Note: "x = N/R and y = B/R at the configured μ; J over the least, median " +
			"over the short runs.",
		Columns: []string{"rank", "cell", "x", "y", "J", "compute to the target", "mean pass@1", "last pass@1"},
	}
	for i, c := range ranked {
		a := f.at(c)
		p := pointOf(c, a.Config.Pipeline.RolloutCost)
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(i + 1), c.String(), words.Fixed(p.X, 1), times(p.Y), times(relative(c)),
			a.cell(toTarget, updates), a.cell(meanOver(1), points), a.cell(last, points),
		})
	}
	return g
}

// fitTable lists the fit of each short run.
func fitTable(forecasts []forecast, ranked []cell) results.Grid {
	g := results.Grid{
		Title: "Fits", Note: "a is the exponent of the power law nearest to the measured variances; x* and y* are " +
			"the theory's own optimum, whatever configurations there are.",
		Columns: []string{"seed", "μ", "ρ", "a", "profile", "x*", "y*", "recommended", "its rank", "warnings"},
	}
	for _, c := range forecasts {
		optimum, warnings := c.fit.theory.Optimum(), "none"
		if len(c.fit.warnings) > 0 {
			warnings = strings.Join(c.fit.warnings, " ")
		}
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(c.seed), times(1 / c.fit.theory.TrainCost), points(c.fit.theory.Correlation),
			points(c.fit.PowerLaw.Exponent), c.fit.profile,
			words.Fixed(optimum.X, 1), times(optimum.Y), c.chosen.String(), number(c.rank(ranked)), warnings,
		})
	}
	return g
}

// profileFigure draws how noise grows with staleness, as measured in each short run.
func profileFigure(forecasts []forecast) results.Figure {
	var curves []results.Curve
	for i, c := range forecasts {
		if len(c.fit.Smoothed) == 0 {
			continue
		}
		scale := c.fit.Smoothed[0].Variance
		computed := results.Curve{Name: fmt.Sprintf("seed %d", c.seed), Colour: i, Dashed: true}
		for s := range int(math.Ceil(c.fit.Smoothed[len(c.fit.Smoothed)-1].Staleness)) + 1 {
			if v := c.fit.theory.Profile.At(float64(s)) / scale; !math.IsNaN(v) && !math.IsInf(v, 0) {
				computed.At = append(computed.At, results.Point{X: float64(s), Y: results.Num(v)})
			}
		}
		measured := results.Curve{Name: fmt.Sprintf("seed %d, measured", c.seed), Colour: i, Points: true}
		for _, m := range c.fit.measured {
			p := results.Point{X: m.Staleness, Y: results.Num(m.Variance / scale)}
			if m.Error > 0 {
				p.Low, p.High = results.Num((m.Variance-m.Error)/scale), results.Num((m.Variance+m.Error)/scale)
			}
			measured.At = append(measured.At, p)
		}
		curves = append(curves, computed, measured)
	}
	return figure("Noise by staleness", "Variance of single rollouts' gradients over that of fresh ones. Points are "+
		"measured, lines are the profile that J is computed with.", "staleness, versions",
		"variance, relative", curves...)
}

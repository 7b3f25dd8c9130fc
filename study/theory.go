package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// theory holds the calculator's recommendation against a grid of real runs.
func theory() Study {
	return Study{
		Name: "theory", Title: "Does the calculator recommend well?", Source: "[ER] §3, theorem 3.5",
		Lead: []string{
			aboutLab(),
			"The calculator is fitted from a short run: what a rollout costs, how far gradients in a buffer are correlated, and how their noise grows with staleness. From these follows " +
				"J(N/R, B/R), to which the compute of learning is proportional, for every cell of the grid of splits and capacities that was really run. The recommended cell has the least J.",
			"Cells are ranked by what really happened: median compute to the target over the seeds; among those that did not reach it, or equal, the higher mean accuracy over the run. " +
				fmt.Sprintf("The short run takes %d of the %d updates' compute, with the split and a table that show more staleness than any cell; each seed's short run is a fit and a recommendation of its own.",
					theoryCompute, labCompute),
		},
		Arms: theoryArms, Judge: func(f *Found) (Judgement, error) { return judgeTheory(f, fitRun) },
	}
}

// The short run that the calculator is fitted from: its table holds staler rollouts than any of the grid's, so that nothing is extrapolated.
const (
	theoryCompute  = 8
	theoryCapacity = 5 * labBatch
	theoryShort    = "short run"
)

// bestShare is the part of the grid that a good recommendation lands in.
const bestShare = 0.2

func theoryArms(o Options) []Arm { return append([]Arm{shortArm(o), queueArm(o)}, gridArms(o)...) }

func shortArm(o Options) Arm {
	c := buffer(o, split{4, 4}, theoryCapacity)
	c.Budget.Compute = min(c.Budget.Compute, theoryCompute)
	return Arm{theoryShort, c}
}

// forecast is what the calculator makes of one short run.
type forecast struct {
	seed      uint64
	fit       fit
	objective map[cell]float64 // J, NaN where the profile does not reach
	chosen    cell             // of least J
}

func judgeTheory(f *Found, fitted func(*results.Run) (fit, error)) (Judgement, error) {
	real := f.outcomes()
	ranked := real.ranked(seedsOf(f.Arms...))
	var forecasts []forecast
	var trouble []string
	for _, r := range f.Of(theoryShort).Runs {
		if failed(r) {
			trouble = append(trouble, fmt.Sprintf("Seed %d: the short run did not end.", r.Seed))
			continue
		}
		fit, err := fitted(r)
		if err != nil {
			trouble = append(trouble, fmt.Sprintf("Seed %d: %v.", r.Seed, err))
			continue
		}
		if c, ok := newForecast(r.Seed, fit, ranked); ok {
			forecasts = append(forecasts, c)
		} else {
			trouble = append(trouble, fmt.Sprintf("Seed %d: J is defined for no cell that was run.", r.Seed))
		}
	}
	ranks, orders := real.spread(ranked, forecasts, forecast.rank), real.spread(ranked, forecasts, forecast.order)
	most := max(math.Floor(bestShare*float64(len(ranked))), 1)
	whole := func(v float64) string { return fixed(v, 1) }
	return Judgement{
		Findings: []results.Finding{
			f.settle(asked{"[ER] §3", "The configuration that the theory recommends is among the best."},
				fmt.Sprintf("Rank of the recommended cell among %d: %s. Recommended: %s.", len(ranked), ranks.format(whole), chosenCells(forecasts)),
				ranks, atMost(fmt.Sprintf("the rank, with the best fifth of %d cells ending at rank %s,", len(ranked), number(most)), most)),
			f.settle(asked{"[ER] §3", "The theory orders configurations as they really are."},
				fmt.Sprintf("Rank correlation of J with the real ranks over the grid: %s.", orders.format(times)), orders, above("the rank correlation", 0)),
		},
		Sections: append(f.theorySections(ranked, forecasts, trouble), f.trouble()...),
	}, nil
}

// newForecast computes J for the cells; false if no cell has one.
func newForecast(seed uint64, fit fit, cells []cell) (forecast, bool) {
	c := forecast{seed: seed, fit: fit, objective: make(map[cell]float64)}
	least := math.Inf(1)
	for _, at := range cells {
		c.objective[at] = fit.objective(at)
		if c.objective[at] < least {
			least, c.chosen = c.objective[at], at
		}
	}
	return c, !math.IsInf(least, 1)
}

// rank is that of the recommended cell, from 1, in the order of the real runs.
func (c forecast) rank(ranked []cell) float64 { return float64(slices.Index(ranked, c.chosen) + 1) }

// order is the rank correlation of J with the order of the real runs, 0 where J is known of one cell alone.
func (c forecast) order(ranked []cell) float64 {
	var actual, j []float64
	for i, at := range ranked {
		if v := c.objective[at]; !math.IsNaN(v) {
			actual, j = append(actual, float64(i)), append(j, v)
		}
	}
	if len(j) < 2 {
		return 0
	}
	return rankCorrelation(j, actual)
}

func chosenCells(forecasts []forecast) string {
	var list []string
	for _, c := range forecasts {
		list = append(list, c.chosen.String())
	}
	return names(list)
}

func (f *Found) theorySections(ranked []cell, forecasts []forecast, trouble []string) []results.Section {
	relative := func(c cell) float64 {
		var on []float64
		for _, x := range forecasts {
			on = append(on, x.objective[c]/x.objective[x.chosen])
		}
		return results.Median(slices.DeleteFunc(on, math.IsNaN))
	}
	j := heat("J over the grid, as fitted", "Relative to each fit's least; median over the short runs.", "J over the least", 2, true, relative)
	actual := heat("Compute to the target, as it was", "In updates without replay, median over seeds. Empty: not reached, or not run.", "updates without replay", 0, true,
		func(c cell) float64 { return f.at(c).median(toTarget) })
	accuracy := heat("Mean accuracy over the run", "Median over seeds.", "mean pass@1", 3, false, func(c cell) float64 { return f.at(c).median(meanOver(1)) })
	for _, c := range forecasts {
		for _, fig := range []*results.Figure{&j, &actual, &accuracy} {
			mark(fig, c.chosen, "recommended")
		}
	}
	return []results.Section{
		{Title: "What the short runs say", Text: trouble, Grids: []results.Grid{fitGrid(forecasts, ranked)}, Figures: []results.Figure{profileFigure(forecasts)}},
		{Title: "The grid", Figures: []results.Figure{j, actual, accuracy, f.againstReal(ranked, relative)}, Grids: []results.Grid{f.rankGrid(ranked, relative)}},
	}
}

// mark names a cell of a map, once.
func mark(fig *results.Figure, c cell, name string) {
	m := results.MarkedAt{Name: name, X: float64(slices.Index(labCapacities(), c.capacity)), Y: float64(slices.Index(labSplits(), c.split))}
	if !slices.Contains(fig.Marks, m) {
		fig.Marks = append(fig.Marks, m)
	}
}

// againstReal draws what was against what was computed, a point a cell.
func (f *Found) againstReal(ranked []cell, relative func(cell) float64) results.Figure {
	fig := results.Figure{
		Title: "Accuracy against J", Note: "A point a cell. If the theory ordered the cells, points would fall to the right.",
		X: results.Axis{Title: "J over the least"}, Y: results.Axis{Title: "mean pass@1 over the run"},
	}
	for i, s := range labSplits() {
		c := results.Curve{Name: s.String(), Colour: i, Points: true}
		for _, at := range ranked {
			if x := relative(at); at.split == s && !math.IsNaN(x) {
				of := quartilesOf(f.at(at).over(meanOver(1)))
				c.At = append(c.At, results.Point{X: x, Y: results.Num(of.median), Low: results.Num(of.q1), High: results.Num(of.q3)})
			}
		}
		if len(c.At) > 0 {
			fig.Curves = append(fig.Curves, c)
		}
	}
	return fig
}

// rankGrid tells the cells in their real order.
func (f *Found) rankGrid(ranked []cell, relative func(cell) float64) results.Grid {
	g := results.Grid{
		Title: "Cells, the best first", Note: "x = N/R and y = B/R at the configured μ; J over the least, median over the short runs.",
		Columns: []string{"rank", "cell", "x", "y", "J", "compute to the target", "mean pass@1", "last pass@1"},
	}
	for i, c := range ranked {
		p, a := pointOf(c, f.at(c).Config.Pipeline.RolloutCost), f.at(c)
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(i + 1), c.String(), fixed(p.X, 1), fixed(p.Y, 2), times(relative(c)),
			a.cell(toTarget, updates), a.cell(meanOver(1), points), a.cell(last, points),
		})
	}
	return g
}

// pointOf is where a cell lies for the theory, at a rollout cost mu.
func pointOf(c cell, mu float64) design.Point {
	perUpdate := labBatch * c.split.ratio() / mu // R
	return design.Point{X: float64(c.capacity) / perUpdate, Y: labBatch / perUpdate}
}

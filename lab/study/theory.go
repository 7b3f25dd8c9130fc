package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

func theory() Study {
	return Study{
		Name: "theory", Title: "Does the calculator recommend well?", Source: "[ER] §3, theorem 3.5",
		Lead: []string{
			aboutLab(),
			"The calculator is fitted to a short run: the cost of a rollout, the correlation of gradients in a " +
				"buffer, and how their noise grows with staleness. From these follows J(N/R, B/R), to which the " +
				"compute of learning is proportional, for four corners of the grid of splits and capacities, which " +
				"were really run. The recommended corner has the least J.",
			"The corners are far from each other. J assumes the best learning " +
				"rate: each corner has the one that was best for it on base models that judge nothing. " +
				fmt.Sprintf("The short run takes %d of the %d updates' compute. Its split and its table show more "+
					"staleness than any corner. Each seed's short run gives a fit and a recommendation of its own.",
					theoryCompute, labCompute),
		},
		Pilots: theoryPilots, Arms: theoryArms,
		Judge: func(f *Found) (Judgement, error) { return judgeTheory(f, fitRun) },
	}
}

// corners are the cells that are compared.
func corners() []cell {
	few, many := labSplit(), split{4, 4}
	return []cell{{few, labBatch}, {few, widest}, {many, labBatch}, {many, 4 * labBatch}}
}

// tuned names the arm of a corner.
func (c cell) tuned() string { return c.String() + ", rate chosen" }

// theoryPilots choose the learning rate of each corner.
func theoryPilots(o Options) (list []Pilot) {
	for _, c := range corners() {
		p := Pilot{Name: "learning rate at " + c.String(), of: overTheRun, by: meanOver(1)}
		for _, rate := range labRates() {
			p.Arms = append(p.Arms, bufferArm(o, c).atRate(rate, buffer(o, c)))
		}
		list = append(list, p)
	}
	return list
}

func theoryArms(o Options) []Arm {
	arms := []Arm{shortArm(o)}
	for i, p := range theoryPilots(o) {
		arms = append(arms, Arm{corners()[i].tuned(), o.choice(p).Config})
	}
	return arms
}

// The short run that the calculator is fitted to. Its table holds staler rollouts than any of the grid's, so that
// nothing is extrapolated.
const (
	theoryCompute  = 10
	theoryCapacity = 6 * labBatch
	theoryShort    = "short run"
)

func shortArm(o Options) Arm {
	c := buffer(o, cell{split{4, 4}, theoryCapacity})
	c.Budget.Compute = min(c.Budget.Compute, theoryCompute)
	return Arm{theoryShort, c}
}

func judgeTheory(f *Found, fitted func(*results.Run) (fit, error)) (Judgement, error) {
	forecasts, problems := forecastsOf(f.Of(theoryShort).Runs, fitted, corners())
	var chosen []string
	for _, c := range forecasts {
		chosen = append(chosen, c.chosen.String())
	}
	return f.judge([]claim{
		{
			source: "[ER] §3", text: "The configuration that the theory recommends learns faster than the mean of the others.",
			by:       f.worth("the difference", change, forecasts, f.ahead).is(above(0)),
			measured: fmt.Sprintf("Mean pass@1 of the recommended corner less the mean of the other %d", len(corners())-1),
			more:     fmt.Sprintf("Recommended: %s.", sortedNames(chosen)),
		},
		{
			source: "[ER] §3", text: "The theory orders configurations as they really are.",
			by:       f.worth("the rank correlation", times, forecasts, f.order).is(above(0)),
			measured: "Rank correlation of J with falling mean pass@1, over the corners",
		},
	}, f.theoryPage(forecasts, problems)...)
}

func (f *Found) theoryPage(forecasts []forecast, problems []string) []results.Section {
	relative := func(c cell) float64 { // J over the least, median over the short runs
		var list []float64
		for _, x := range forecasts {
			list = append(list, x.objective[c]/x.objective[x.chosen])
		}
		return results.Median(slices.DeleteFunc(list, math.IsNaN))
	}
	return []results.Section{
		{
			Title: "What the short runs say", Text: problems,
			Grids: []results.Grid{fitTable(forecasts)}, Figures: []results.Figure{profileFigure(forecasts)},
		},
		{
			Title: "The corners", Figures: []results.Figure{f.objectiveFigure(relative)},
			Grids: []results.Grid{f.cornersTable(relative)},
		},
	}
}

// objectiveFigure draws accuracy against J, a point per corner.
func (f *Found) objectiveFigure(relative func(cell) float64) results.Figure {
	var curves []results.Curve
	for i, at := range corners() {
		if x := relative(at); !math.IsNaN(x) {
			c := results.Curve{Name: at.String(), Colour: i, Points: true}
			c.At = append(c.At, quartilesOf(f.Of(at.tuned()).over(meanOver(1))).point(x))
			curves = append(curves, c)
		}
	}
	return figure("Accuracy against J",
		"A point per corner. If the theory ordered them, points would fall to the right.",
		"J over the least", overTheRun, curves...)
}

// cornersTable lists the corners with their J.
func (f *Found) cornersTable(relative func(cell) float64) results.Grid {
	g := results.Grid{
		Title: "Corners", Note: "x = N/R and y = B/R at the configured μ; J over the least, median over the short runs.",
		Columns: []string{"cell", "learning rate", "x", "y", "J", "compute to the target", "mean pass@1", "last pass@1"},
	}
	for _, c := range corners() {
		a := f.Of(c.tuned())
		p := pointOf(c, a.Config.Pipeline.RolloutCost)
		g.Rows = append(g.Rows, []string{
			c.String(), number(a.Config.Learner.LearningRate), words.Fixed(p.X, 1), times(p.Y), times(relative(c)),
			a.cell(toTarget, updates), a.cell(meanOver(1), points), a.cell(last, points),
		})
	}
	return g
}

// fitTable lists the fit of each short run.
func fitTable(forecasts []forecast) results.Grid {
	g := results.Grid{
		Title: "Fits", Note: "a is the exponent of the power law nearest to the measured variances; x* and y* are " +
			"the theory's own optimum, whatever configurations there are.",
		Columns: []string{"seed", "μ", "ρ", "a", "profile", "x*", "y*", "recommended", "warnings"},
	}
	for _, c := range forecasts {
		optimum, warnings := c.fit.theory.Optimum(), "none"
		if len(c.fit.warnings) > 0 {
			warnings = strings.Join(c.fit.warnings, " ")
		}
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(c.seed), times(1 / c.fit.theory.TrainCost), points(c.fit.theory.Correlation),
			points(c.fit.PowerLaw.Exponent), c.fit.profile,
			words.Fixed(optimum.X, 1), times(optimum.Y), c.chosen.String(), warnings,
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

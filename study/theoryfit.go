package study

import (
	"context"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// fit is the calculator's parameters from a short run.
type fit struct {
	design.Fitted
	theory   design.Theory
	measured []design.Noise // before smoothing
	profile  string         // table or power law
	warnings []string       // of the measurement and of the fit
}

// fitRun measures a run's noise and fits the theory to it: the table of the measured variances, or the power law where no gradient was
// taken.
func fitRun(r *results.Run) (fit, error) {
	n, err := run.MeasureNoise(context.Background(), r.Dir, run.NoiseOptions{})
	if err != nil {
		return fit{}, err
	}
	return fitNoise(n)
}

func fitNoise(n *results.Noise) (fit, error) {
	m := Measurements([]*results.Noise{n}, known(n.RolloutCost), known(n.NewPerUpdate))
	fitted, err := design.Fit(m)
	if err != nil {
		return fit{}, fmt.Errorf("fit the theory to %s: %w", n.Run, err)
	}
	x := fit{Fitted: fitted, theory: fitted.WithTable(), measured: m.Noise, profile: "table", warnings: append(append([]string(nil), n.Warnings...), fitted.Doubts.All()...)}
	if n.Proxy {
		x.theory, x.profile = fitted.WithPowerLaw(), "power law"
	}
	return x, x.theory.Validate()
}

// objective is J at a cell of the grid, NaN where the profile does not reach.
func (x fit) objective(c cell) float64 {
	return x.theory.Objective(pointOf(c, 1/x.theory.TrainCost))
}

// fitGrid tells what each short run says.
func fitGrid(forecasts []forecast, ranked []cell) results.Grid {
	g := results.Grid{
		Title: "Fits", Note: "a is the exponent of the power law nearest to the measured variances; x* and y* are the theory's own optimum, whatever configurations there are.",
		Columns: []string{"seed", "μ", "ρ", "a", "profile", "x*", "y*", "recommended", "its rank", "warnings"},
	}
	for _, c := range forecasts {
		best := c.fit.theory.Optimum()
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(c.seed), times(1 / c.fit.theory.TrainCost), points(c.fit.theory.Correlation), points(c.fit.PowerLaw.Exponent), c.fit.profile,
			fixed(best.X, 1), fixed(best.Y, 2), c.chosen.String(), number(c.rank(ranked)), warningsOf(c.fit.warnings),
		})
	}
	return g
}

func warningsOf(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	s := list[0]
	for _, w := range list[1:] {
		s += " " + w
	}
	return s
}

// profileFigure draws how noise grows with staleness, as measured in each short run.
func profileFigure(forecasts []forecast) results.Figure {
	fig := results.Figure{
		Title: "Noise by staleness", Note: "Variance of single rollouts' gradients over that of fresh ones. Points are measured, lines the profile that J is computed with.",
		X: results.Axis{Title: "staleness, versions"}, Y: results.Axis{Title: "variance, relative"},
	}
	for i, c := range forecasts {
		if len(c.fit.Smoothed) == 0 {
			continue
		}
		scale := c.fit.Smoothed[0].Variance
		line := results.Curve{Name: fmt.Sprintf("seed %d", c.seed), Colour: i, Dashed: true}
		for s := range int(math.Ceil(c.fit.Smoothed[len(c.fit.Smoothed)-1].Staleness)) + 1 {
			if v := c.fit.theory.Profile.At(float64(s)) / scale; !math.IsNaN(v) && !math.IsInf(v, 0) {
				line.At = append(line.At, results.Point{X: float64(s), Y: results.Num(v)})
			}
		}
		points := results.Curve{Name: fmt.Sprintf("seed %d, measured", c.seed), Colour: i, Points: true}
		for _, m := range c.fit.measured {
			low, high := results.Number{}, results.Number{}
			if m.Error > 0 {
				low, high = results.Num((m.Variance-m.Error)/scale), results.Num((m.Variance+m.Error)/scale)
			}
			points.At = append(points.At, results.Point{X: m.Staleness, Y: results.Num(m.Variance / scale), Low: low, High: high})
		}
		fig.Curves = append(fig.Curves, line, points)
	}
	return fig
}

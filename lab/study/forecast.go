package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run/noise"
)

// fit is the calculator's parameters from a short run.
type fit struct {
	design.Fitted
	theory   design.Theory
	measured []design.Noise // before smoothing
	profile  string         // table or power law
	warnings []string       // of the measurement and of the fit
}

// fitRun measures a run's noise and fits the theory to it.
func fitRun(r *results.Run) (fit, error) {
	if err := measureNoise(r); err != nil {
		return fit{}, err
	}
	return fitNoise(r.Noise)
}

// measureNoise measures a run's noise, unless that is known from an archive.
func measureNoise(r *results.Run) error {
	if r.Noise != nil {
		return nil
	}
	if r.Dir == "" {
		return errors.New("its noise was not measured")
	}
	n, err := noise.Measure(context.Background(), r.Dir, noise.Options{})
	r.Noise = n
	return err
}

// fitNoise fits the table of the measured variances, or the power law if they are a proxy.
func fitNoise(n *results.Noise) (fit, error) {
	m := measurements([]*results.Noise{n}, orZero(n.RolloutCost), orZero(n.NewPerUpdate))
	fitted, err := design.Fit(m)
	if err != nil {
		return fit{}, fmt.Errorf("fit the theory to %s: %w", n.Run, err)
	}
	x := fit{
		Fitted: fitted, theory: fitted.Theory(fitted.Table), measured: m.Noise, profile: "table",
		warnings: slices.Concat(n.Warnings, fitted.Doubts.All()),
	}
	if n.Proxy {
		x.theory, x.profile = fitted.Theory(fitted.PowerLaw), "power law"
	}
	return x, x.theory.Validate()
}

// objective is J at a cell of the grid, NaN where the profile does not reach.
func (x fit) objective(c cell) float64 {
	return x.theory.Objective(pointOf(c, 1/x.theory.TrainCost))
}

// pointOf is where a cell lies for the theory, at a rollout cost mu.
func pointOf(c cell, mu float64) design.Point {
	perUpdate := labBatch * c.split.ratio() / mu // R
	return design.Point{X: float64(c.capacity) / perUpdate, Y: labBatch / perUpdate}
}

// forecast is what the calculator makes of one short run.
type forecast struct {
	seed      uint64
	fit       fit
	objective map[cell]float64 // J, NaN where the profile does not reach
	chosen    cell             // with the least J
}

// forecastsOf fits the theory to the short runs and computes J for the cells. It returns a sentence for each run that
// gives no forecast.
func forecastsOf(runs []*results.Run, fitted func(*results.Run) (fit, error), cells []cell) ([]forecast, []string) {
	var list []forecast
	var problems []string
	for _, r := range runs {
		if failed(r) {
			problems = append(problems, fmt.Sprintf("Seed %d: the short run failed.", r.Seed))
			continue
		}
		x, err := fitted(r)
		if err != nil {
			problems = append(problems, fmt.Sprintf("Seed %d: %v.", r.Seed, err))
			continue
		}
		c := forecast{seed: r.Seed, fit: x, objective: make(map[cell]float64)}
		least := math.Inf(1)
		for _, at := range cells {
			c.objective[at] = x.objective(at)
			if c.objective[at] < least {
				least, c.chosen = c.objective[at], at
			}
		}
		if math.IsInf(least, 1) {
			problems = append(problems, fmt.Sprintf("Seed %d: J is defined for no cell that was run.", r.Seed))
			continue
		}
		list = append(list, c)
	}
	return list, problems
}

// ahead is how far the recommended corner was ahead of the others on the forecast's seed, in mean accuracy over the
// run.
func (f *Found) ahead(c forecast) float64 {
	var others []float64
	for _, at := range corners() {
		if at != c.chosen {
			others = append(others, f.Of(at.tuned()).on(c.seed, meanOver(1)))
		}
	}
	return f.Of(c.chosen.tuned()).on(c.seed, meanOver(1)) - mean(others)
}

// order is the rank correlation of J with the accuracy of the corners on the forecast's seed, falling. It is 0 if J is
// known for fewer than two.
func (f *Found) order(c forecast) float64 {
	var lost, j []float64
	for _, at := range corners() {
		if v := c.objective[at]; !math.IsNaN(v) {
			lost, j = append(lost, -f.Of(at.tuned()).on(c.seed, meanOver(1))), append(j, v)
		}
	}
	if len(j) < 2 {
		return 0
	}
	return rankCorrelation(j, lost)
}

// worth is what each forecast is worth on its seed.
func (f *Found) worth(what string, write format, forecasts []forecast, of func(forecast) float64) estimate {
	var values []float64
	var bases []uint64
	for _, c := range forecasts {
		values, bases = append(values, of(c)), append(bases, baseOf(c.seed))
	}
	return estimate{what: what, write: write, pairs: results.NewPairs(values, bases)}
}

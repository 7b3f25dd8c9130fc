package study

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run/noise"
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
	if r.Noise == nil { // else it is from an archive
		n, err := noise.Measure(context.Background(), r.Dir, noise.Options{})
		if err != nil {
			return fit{}, err
		}
		r.Noise = n
	}
	return fitNoise(r.Noise)
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

// rank is that of the recommended cell, from 1, in the order of the real runs.
func (c forecast) rank(ranked []cell) float64 { return float64(slices.Index(ranked, c.chosen) + 1) }

// order is the rank correlation of J with the order of the real runs, 0 if J is known for fewer than two cells.
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

// outcomes is how the cells of the grid really did, seed by seed.
type outcomes map[cell]map[uint64]outcome

type outcome struct{ reach, mean float64 }

func (f *Found) outcomes() outcomes {
	o := make(outcomes)
	for _, c := range labGrid() {
		a := f.at(c)
		o[c] = make(map[uint64]outcome)
		for _, r := range a.Runs {
			o[c][r.Seed] = outcome{toTarget(a, r), meanOver(1)(a, r)}
		}
	}
	return o
}

// ranked returns the cells that have runs of the seeds, the best first. A seed may be listed more than once.
func (o outcomes) ranked(seeds []uint64) []cell {
	median := make(map[cell]outcome)
	var cells []cell
	reach, mean := make([]float64, 0, len(seeds)), make([]float64, 0, len(seeds))
	for _, c := range labGrid() {
		reach, mean = reach[:0], mean[:0]
		for _, s := range seeds {
			if x, ok := o[c][s]; ok {
				reach, mean = append(reach, x.reach), append(mean, x.mean)
			}
		}
		if len(reach) > 0 {
			cells, median[c] = append(cells, c), outcome{results.Median(reach), results.Median(mean)}
		}
	}
	slices.SortStableFunc(cells, func(a, b cell) int {
		return cmp.Or(cmp.Compare(median[a].reach, median[b].reach), cmp.Compare(median[b].mean, median[a].mean))
	})
	return cells
}

// worth is what each forecast is worth, given the real order of the cells on its seed.
func (o outcomes) worth(what string, write format, forecasts []forecast, of func(forecast, []cell) float64) estimate {
	var values []float64
	var bases []uint64
	for _, c := range forecasts {
		values, bases = append(values, of(c, o.ranked([]uint64{c.seed}))), append(bases, baseOf(c.seed))
	}
	return estimate{what: what, write: write, pairs: results.NewPairs(values, bases)}
}

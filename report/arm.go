package report

import (
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

// arm is one side of a comparison, one of several, or the single run of a report: the same
// configuration under one seed or several.
type arm struct {
	label string // for the reader
	note  string // beside it in the legend
	role  role   // its colour
	runs  []*results.Run
}

// class returns the style sheet's name of the arm's colour.
func (a *arm) class() string { return a.role.paint().variable }

// evals returns the evaluations of every run that has any.
func (a *arm) evals() [][]results.Eval {
	var evals [][]results.Eval
	for _, r := range a.runs {
		if len(r.Evals) > 0 {
			evals = append(evals, r.Evals)
		}
	}
	return evals
}

// summaries returns those of the runs that have ended.
func (a *arm) summaries() []*results.Summary {
	var s []*results.Summary
	for _, r := range a.runs {
		if r.Summary != nil {
			s = append(s, r.Summary)
		}
	}
	return s
}

// median returns the median of a number over the runs that have ended and know it.
func (a *arm) median(of func(*results.Summary) results.Number) results.Number {
	var values []float64
	for _, s := range a.summaries() {
		if n := of(s); n.Known() {
			values = append(values, n.Float())
		}
	}
	return results.Num(results.Median(values))
}

// histogram adds up one histogram of all runs that have ended.
func (a *arm) histogram(of func(*results.Summary) results.Histogram) results.Histogram {
	counts := make(map[uint64]uint64)
	for _, s := range a.summaries() {
		for _, bin := range of(s) {
			counts[bin[0]] += bin[1]
		}
	}
	var h results.Histogram
	for value, count := range counts {
		h = append(h, [2]uint64{value, count})
	}
	slices.SortFunc(h, func(x, y [2]uint64) int {
		if x[0] < y[0] {
			return -1
		}
		return 1
	})
	return h
}

// trace returns a metric of one run against its updates.
func trace(run *results.Run, metric func(*results.Update) results.Number) plotter.XYs {
	points := make(plotter.XYs, len(run.Updates))
	for i := range run.Updates {
		u := &run.Updates[i]
		points[i] = plotter.XY{X: float64(u.Update), Y: metric(u).Float()}
	}
	return points
}

// medianTrace returns the median over traces at every update that all of them have; where one has
// no value it counts the others. A single trace is its own median.
func medianTrace(traces []plotter.XYs) plotter.XYs {
	shortest := len(traces[0])
	for _, t := range traces {
		shortest = min(shortest, len(t))
	}
	points := make(plotter.XYs, shortest)
	values := make([]float64, 0, len(traces))
	for i := range points {
		values = values[:0]
		for _, t := range traces {
			if t[i].Y == t[i].Y {
				values = append(values, t[i].Y)
			}
		}
		points[i] = plotter.XY{X: traces[0][i].X, Y: results.Median(values)}
	}
	return points
}

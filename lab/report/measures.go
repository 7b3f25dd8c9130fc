package report

import (
	"slices"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// measure is a measure of how far a run has come: what may be x.
type measure struct {
	name   string
	titles []string // of axes; the first where a reader chose it
	of     func(results.Axes) float64
}

func measures() []measure {
	compute, clock := byCompute(), byClock()
	return []measure{
		{"updates", []string{updatesTitle, byUpdates().title}, func(a results.Axes) float64 { return a.Update }},
		{"compute", []string{compute.title}, compute.of},
		{"clock", []string{clock.title}, clock.of},
	}
}

// updatesTitle is the title of the axis of metrics by update.
const updatesTitle = "updates"

// measureOf returns the number of the measure that an axis shows, from 1; 0 if it is none.
func measureOf(title string) int {
	return 1 + slices.IndexFunc(measures(), func(m measure) bool { return slices.Contains(m.titles, title) })
}

// waysBudget is the number of points shared by the ways of all runs and medians of a page.
const waysBudget = 600

// measured numbers the ways of the arms' runs and medians, and returns them for the page's script.
func measured(arms []*arm) *figures.Measures {
	m := &figures.Measures{}
	for _, one := range measures() {
		m.Names, m.Titles = append(m.Names, one.name), append(m.Titles, one.titles[0])
	}
	n := len(arms)
	for _, side := range arms {
		n += len(side.runs)
	}
	limit := max(12, waysBudget/max(n, 1))
	add := func(way []results.Axes) int {
		var along []figures.Steps
		for _, one := range measures() {
			var xs figures.Steps
			for _, at := range way {
				xs = append(xs, one.of(at))
			}
			along = append(along, xs)
		}
		m.Runs = append(m.Runs, along)
		return len(m.Runs)
	}
	for _, side := range arms {
		side.ways = make(map[*results.Run]int)
		for _, run := range side.runs {
			if way := wayOf([]*results.Run{run}, limit); len(way) > 1 {
				side.ways[run] = add(way)
			}
		}
		if len(side.runs) == 1 {
			side.middle = side.ways[side.runs[0]]
		} else if way := wayOf(side.runs, limit); len(way) > 1 {
			side.middle = add(way)
		}
	}
	return m
}

// wayOf returns how far runs had come, as medians over them: at the evaluations and at some updates that all of them
// made, in ascending order.
func wayOf(runs []*results.Run, limit int) (way []results.Axes) {
	var evals [][]results.Eval
	shortest := 0
	for i, run := range runs {
		evals = append(evals, run.Evals)
		if i == 0 || len(run.Updates) < shortest {
			shortest = len(run.Updates)
		}
	}
	way = append(way, results.Axes{})
	for _, p := range results.MedianCurve(evals) {
		way = append(way, p.At)
	}
	for i := range shortest {
		if stride := (shortest + limit - 1) / limit; i%stride != 0 && i != shortest-1 {
			continue
		}
		var at []results.Axes
		for _, run := range runs {
			at = append(at, run.Updates[i].At())
		}
		median := func(of func(results.Axes) float64) float64 {
			values := make([]float64, len(at))
			for k, a := range at {
				values[k] = of(a)
			}
			return results.Median(values)
		}
		way = append(way, results.Axes{Update: at[0].Update,
			Compute: median(func(a results.Axes) float64 { return a.Compute }),
			Clock:   median(func(a results.Axes) float64 { return a.Clock })})
	}
	slices.SortStableFunc(way, func(a, b results.Axes) int {
		switch {
		case a.Update < b.Update || a.Update == b.Update && a.Compute < b.Compute:
			return -1
		case a.Update == b.Update && a.Compute == b.Compute:
			return 0
		}
		return 1
	})
	kept := way[:1]
	for _, at := range way[1:] { // medians of different runs may cross
		if last := kept[len(kept)-1]; at.Update > last.Update && at.Compute >= last.Compute && at.Clock >= last.Clock {
			kept = append(kept, at)
		}
	}
	return kept
}

// overSeeds adds the mean and the standard deviation over runs to a curve of their median: of a function of each run at
// each of the curve's points.
func overSeeds(c *results.Curve, runs int, at func(run, point int) float64) {
	if runs < 2 {
		return
	}
	for k := range c.At {
		var values []float64
		for run := range runs {
			values = append(values, at(run, k))
		}
		mean, deviation := results.MeanAndDeviation(values)
		c.Average, c.Deviation = append(c.Average, results.Num(mean)), append(c.Deviation, results.Num(deviation))
	}
}

package report

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

// passByK draws pass@k against k, before training and at the last evaluation of each arm.
func passByK(arms []*arm) (figure, error) {
	f := figure{Title: "pass@k before and after", Note: "Last evaluation of each arm, median over seeds. Grey: the warm start."}
	ys, ks := nothing(), nothing()
	var layers []plot.Plotter
	marked := map[int]bool{}
	curve := func(rates []results.PassRate) plotter.XYs {
		var points plotter.XYs
		for _, r := range rates {
			points = append(points, plotter.XY{X: math.Log2(float64(r.K)), Y: r.Rate})
			ks.add(math.Log2(float64(r.K)))
			ys.add(r.Rate)
			marked[r.K] = true
		}
		return points
	}
	add := func(points plotter.XYs, r role) {
		layers = append(append(layers, line(points, r, 2)...), dots(points, r, 2.5))
	}
	for i, side := range arms {
		c := results.MedianCurve(side.evals())
		if len(c) == 0 {
			continue
		}
		if first := c[0]; i == 0 && len(c) > 1 && first.At.Update == 0 {
			add(curve(first.PassAt), mutedColor)
		}
		add(curve(c[len(c)-1].PassAt), side.role)
	}
	y := ys.padded(0.06)
	s := half()
	ch := &chart{title: f.Title, class: s.class, width: s.width, height: s.height, left: 34, right: 10, layers: layers}
	x := ks.padded(0.04)
	ch.x = axis{title: "k, samples per problem", low: x.low, high: x.high, ticks: powersOf(marked), gridless: true}
	ch.y = axis{title: "held-out pass@k, sampled", low: max(0, y.low), high: min(1, y.high), ticks: ticks{about: 5}}
	svg, err := ch.svg()
	f.SVG = append(f.SVG, svg)
	return f, err
}

// powersOf returns ticks at the k that were measured, on an axis of log2 k.
func powersOf(marked map[int]bool) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var marks []plot.Tick
		for k := 1; math.Log2(float64(k)) <= high; k++ {
			if marked[k] {
				marks = append(marks, plot.Tick{Value: math.Log2(float64(k)), Label: strconv.Itoa(k)})
			}
		}
		return marks
	})
}

// updateCosts says what one update of each arm cost, so that compute can be read in updates too.
func updateCosts(arms []*arm) string {
	var text string
	for _, side := range arms {
		for _, run := range side.runs {
			if n := len(run.Updates); n > 0 {
				last := run.Updates[n-1]
				if text != "" {
					text += ", "
				}
				text += fmt.Sprintf("%s %s", side.label, grouped(last.Compute/float64(last.Update)))
				break
			}
		}
	}
	if text == "" {
		return ""
	}
	return "Compute of one update: " + text + "."
}

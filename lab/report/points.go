package report

import (
	"math"
	"regexp"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// seedsSuffix is what arm.name adds to the label of an arm.
var seedsSuffix = regexp.MustCompile(`, \d+ seeds$`)

// armsOf returns the arm of each curve, which hides and shows it on the whole page: its name, or that of the curve of
// its colour if it has none.
func armsOf(curves []results.Curve) []string {
	arms, byColour := make([]string, len(curves)), make(map[int]string)
	for i, c := range curves {
		arms[i] = seedsSuffix.ReplaceAllString(oneLine(c.Name), "")
		if byColour[c.Colour] == "" {
			byColour[c.Colour] = arms[i]
		}
	}
	for i, c := range curves {
		if thick := byColour[c.Colour]; arms[i] == "" || c.Thin && thick != "" {
			arms[i] = thick
		}
	}
	return arms
}

// data returns the points that the figure carries for the page's script.
func (p curveChart) data() *figures.Data {
	d := &figures.Data{X: axisData(p.of.X, p.x), Y: axisData(p.of.Y, p.y), Noisy: noisy(p.of.Curves)}
	arms := armsOf(p.of.Curves)
	for i, c := range p.of.Curves {
		d.Curves = append(d.Curves, curveData(c, arms[i]))
	}
	for _, g := range p.of.Guides {
		d.Guides = append(d.Guides, figures.Number(g.Y.Float()))
	}
	for _, m := range p.of.Marks {
		d.Marks = append(d.Marks, figures.Point{Y: figures.Number(m.Y), Arm: m.Arm})
	}
	return d
}

func axisData(a results.Axis, shown extent) figures.Axis {
	return figures.Axis{Title: oneLine(a.Title), Low: figures.Number(shown.low), High: figures.Number(shown.high),
		Log: a.Log}
}

// curveData returns a curve's points, thinned if there are many.
func curveData(c results.Curve, arm string) figures.Curve {
	out := figures.Curve{Name: oneLine(c.Name), Arm: arm, Colour: penOfCurve(c).role.paint().variable, Thin: c.Thin,
		Apart: c.Points}
	for _, m := range c.Mean { // of as many points, which are too few to be thinned
		out.Mean = append(out.Mean, figures.Number(m.Float()))
	}
	if !spreads(c) {
		for _, at := range thin(pointsOf(c), maxPoints) {
			out.X, out.Y = append(out.X, at.X), append(out.Y, figures.Number(at.Y))
		}
		return out
	}
	low, high := spreadOf(c)
	for i, at := range pointsOf(c) {
		out.X, out.Y = append(out.X, at.X), append(out.Y, figures.Number(at.Y))
		out.Low, out.High = append(out.Low, figures.Number(low[i].Y)), append(out.High, figures.Number(high[i].Y))
	}
	return out
}

// noisy reports whether a curve is long and turns at many of its points, so that smoothing helps to see where it goes.
func noisy(curves []results.Curve) bool {
	const long = 40
	for _, c := range curves {
		turns, known, before, step := 0, 0, math.NaN(), 0.0
		for _, at := range c.At {
			y := at.Y.Float()
			if math.IsNaN(y) {
				continue
			}
			known++
			if s := y - before; s*step < 0 {
				turns, step = turns+1, s
			} else if s != 0 && !math.IsNaN(s) {
				step = s
			}
			before = y
		}
		if !c.Points && known >= long && 3*turns > known {
			return true
		}
	}
	return false
}

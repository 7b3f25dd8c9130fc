package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

// mostPoints is how many points of a line are drawn; more are thinned so that peaks, gaps and ends stay.
const mostPoints = 600

// crowd is from how many lines on there are fewer markers along them, and finer lines.
const crowd = 8

// mostBands is how many bands can lie over one another before they hide the lines; more are drawn fainter.
const mostBands = 4

// plane draws a sheet's figure of curves over common axes.
type plane struct {
	of   *results.Figure
	x, y extent // what the axes show
}

// newPlane lays the axes out; ok is false where there is nothing to draw.
func newPlane(f *results.Figure) (p plane, ok bool) {
	xs, ys := nothing(), nothing()
	scattered := false
	for _, c := range f.Curves {
		for _, at := range c.At {
			spread := at.Low.Known() && at.High.Known()
			if spread {
				ys.add(at.Low.Float())
				ys.add(at.High.Float())
			}
			if ys.add(at.Y.Float()); at.Y.Known() || spread {
				xs.add(at.X)
			}
		}
		scattered = scattered || c.Points
	}
	for _, m := range f.Marks {
		xs.add(m.X)
		ys.add(m.Y)
	}
	if ys.empty() || xs.empty() {
		return p, false
	}
	for _, g := range f.Guides {
		xs.add(g.X.Float())
		ys.add(g.Y.Float())
	}
	beside := 0.0
	if scattered || xs.low == xs.high {
		beside = 0.05
	}
	return plane{f, reach(f.X, xs, beside), reach(f.Y, ys, 0.07)}, true
}

// reach returns what an axis shows of values that go so far, with a share of that added at both ends unless they are given.
func reach(a results.Axis, values extent, share float64) extent {
	shown := values
	switch {
	case share == 0:
	case a.Log:
		logs := extent{math.Log10(values.low), math.Log10(values.high)}.padded(share)
		shown = extent{math.Pow(10, logs.low), math.Pow(10, logs.high)}
	default:
		shown = values.padded(share)
		if values.low >= 0 && values.low < values.high { // room below 0 would say that values may lie there
			shown.low = max(0, shown.low)
		}
	}
	if a.Low.Known() {
		shown.low = a.Low.Float()
	}
	if a.High.Known() {
		shown.high = a.High.Float()
	}
	if shown.high > shown.low {
		return shown
	}
	switch { // an end was given beyond all values
	case a.Log && a.High.Known():
		shown.low = shown.high / 10
	case a.Log:
		shown.high = shown.low * 10
	case a.High.Known():
		shown.low = shown.high - 1
	default:
		shown.high = shown.low + 1
	}
	return shown
}

// chart draws the figure in a shape.
func (p plane) chart(s shape) *chart {
	ch := &chart{title: oneLine(p.of.Title), class: s.class + " sheet", width: s.width, height: s.height, left: 34, right: 12}
	ch.x = axisOf(p.of.X, p.x, s.about)
	ch.x.gridless = true
	if !p.of.X.Log {
		ch.x.ticks = ticks{s.about, p.whole()}
	}
	ch.y = axisOf(p.of.Y, p.y, 5)
	if p.banded() > mostBands {
		ch.class += " faint"
	}
	many := p.named() > crowd
	var back, lines, marks []plot.Plotter
	for _, c := range p.of.Curves {
		look := lookOf(c)
		if many {
			look.width = min(look.width, 1.4)
		}
		points := pointsOf(c)
		low, high := spreadOf(c)
		switch {
		case c.Thin && c.Points:
			back = append(back, scatter{thin(points, mostPoints), look})
		case c.Thin:
			back = append(back, strokes{thin(points, mostPoints), look})
		case c.Points:
			back = append(back, whiskers{low, high, look})
			marks = append(marks, scatter{thin(points, mostPoints), look})
		default:
			back = append([]plot.Plotter{bands{low, high, look}}, back...)
			lines = append(lines, strokes{thin(points, mostPoints), look})
			marks = append(marks, scatter{look.along(points, many), look})
		}
	}
	ch.layers = append(back, guideLines(p.of.Guides))
	ch.layers = append(append(append(ch.layers, lines...), marks...), annotations{p.of, p.inked()})
	return ch
}

// pointsOf returns a curve's points, NaN where one has no value.
func pointsOf(c results.Curve) plotter.XYs {
	points := make(plotter.XYs, len(c.At))
	for i, at := range c.At {
		points[i] = plotter.XY{X: at.X, Y: at.Y.Float()}
	}
	return points
}

// spreadOf returns the ends of the spread of a curve's points, NaN where there is none.
func spreadOf(c results.Curve) (low, high plotter.XYs) {
	for _, at := range c.At {
		l, h := at.Low.Float(), at.High.Float()
		if !at.Low.Known() || !at.High.Known() {
			l, h = math.NaN(), math.NaN()
		}
		low, high = append(low, plotter.XY{X: at.X, Y: l}), append(high, plotter.XY{X: at.X, Y: h})
	}
	return low, high
}

// inked returns the lines that names should not be written over.
func (p plane) inked() []plotter.XYs {
	var lines []plotter.XYs
	for _, c := range p.of.Curves {
		for _, part := range unbroken(pointsOf(c)) {
			if c.Points {
				for i := range part {
					lines = append(lines, part[i:i+1])
				}
				continue
			}
			lines = append(lines, thin(part, 120))
		}
	}
	return lines
}

// named counts the curves that are not thin.
func (p plane) named() int {
	n := 0
	for _, c := range p.of.Curves {
		if !c.Thin {
			n++
		}
	}
	return n
}

// banded counts the lines with a band.
func (p plane) banded() int {
	n := 0
	for _, c := range p.of.Curves {
		if !c.Thin && !c.Points && spreads(c) {
			n++
		}
	}
	return n
}

// whole reports whether all that is drawn along x is whole numbers, between which no tick should stand.
func (p plane) whole() bool {
	for _, c := range p.of.Curves {
		for _, at := range c.At {
			if at.X != math.Trunc(at.X) {
				return false
			}
		}
	}
	return true
}

// axisOf returns an axis with ticks for its kind.
func axisOf(a results.Axis, shown extent, about int) axis {
	out := axis{title: oneLine(a.Title), low: shown.low, high: shown.high, ticks: ticks{about: about}, log: a.Log}
	if a.Log {
		out.ticks = logTicks{about}
	}
	return out
}

// planeFigure draws a figure of curves in every shape that its place on the page has; without a plane it says why there is none.
func planeFigure(f *results.Figure, p *plane, shapes []shape) (sheetFigure, error) {
	out := sheetFigure{Title: f.Title, Note: f.Note}
	if p == nil {
		out.Empty = emptyPlane(f)
		return out, nil
	}
	for _, s := range shapes {
		svg, err := p.chart(s).svg()
		if err != nil {
			return out, fmt.Errorf("figure %q: %w", f.Title, err)
		}
		out.SVG = append(out.SVG, svg)
	}
	out.Beyond = p.beyond()
	var err error
	out.Legend, err = p.legend()
	return out, err
}

package report

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// MostArms is the most arms that a page can show: one for each colour.
const MostArms = figures.Colours

// rowSize is the size of the figures of a row: their class in the style sheet, and the sizes of their drawings.
type rowSize struct {
	class string
	sizes []figures.Size
}

func large() rowSize {
	return rowSize{"large", []figures.Size{{Class: "wide", Width: 840, Height: 330},
		{Class: "narrow", Width: 380, Height: 260}}}
}

func halves() rowSize {
	return rowSize{"grid halves", []figures.Size{{Class: "half", Width: 380, Height: 240}}}
}

func thirds() rowSize {
	return rowSize{"grid thirds", []figures.Size{{Class: "third", Width: 290, Height: 200}}}
}

// draw draws the figures of a row, each with its legend.
func (size rowSize) draw(list []results.Figure) figureRow {
	row := figureRow{Class: size.class}
	for i, f := range described(list) {
		of := &list[i]
		drawn := figure{Title: of.Title, Note: of.Note, Drawing: f.Draw(size.sizes...)}
		if len(drawn.SVG) == 0 {
			drawn.Empty = whyEmpty(of)
		}
		row.Figures = append(row.Figures, drawn)
	}
	return row
}

// drawPlain draws the figures of a row without legends. Empty ones say why.
func (size rowSize) drawPlain(why string, list []results.Figure) figureRow {
	row := size.draw(list)
	for i := range row.Figures {
		f := &row.Figures[i]
		f.Legend, f.Beyond = nil, ""
		if why != "" && f.Empty != "" {
			f.Empty = why
		}
	}
	return row
}

// whyEmpty explains why a figure is empty.
func whyEmpty(f *results.Figure) string {
	switch n := len(f.Curves); {
	case f.Map != nil:
		return "Nothing to draw: no cell of the map has a value."
	case n == 0:
		return "Nothing to draw: no run came to what this figure shows."
	case n == 1:
		return "Nothing to draw: its one curve never has a value."
	default:
		return fmt.Sprintf("Nothing to draw: none of its %d curves has a value.", n)
	}
}

// described describes the figures of one row. Axes of equal title and kind share one range, so that figures side by
// side can be compared by eye, unless one of them would become too flat to read.
func described(list []results.Figure) []*figures.Figure {
	all := make([]*figures.Figure, len(list))
	xs, ys := make(map[results.Axis][]*figures.Axis), make(map[results.Axis][]*figures.Axis)
	for i := range list {
		f := &list[i]
		if all[i] = describe(f); f.Map == nil && all[i].Fit() {
			xs[f.X], ys[f.Y] = append(xs[f.X], &all[i].X), append(ys[f.Y], &all[i].Y)
		}
	}
	for _, along := range []map[results.Axis][]*figures.Axis{xs, ys} {
		for axis, ranges := range along {
			if axis.Title != "" {
				share(ranges)
			}
		}
	}
	return all
}

// share gives every axis the range of all, if each fills at least a quarter of it.
func share(ranges []*figures.Axis) {
	low, high := ranges[0].Low, ranges[0].High
	for _, r := range ranges {
		low, high = min(low, r.Low), max(high, r.High)
	}
	length := func(low, high figures.Number) float64 {
		if ranges[0].Log {
			return math.Log10(float64(high / low))
		}
		return float64(high - low)
	}
	for _, r := range ranges {
		if 4*length(r.Low, r.High) < length(low, high) {
			return
		}
	}
	for _, r := range ranges {
		r.Low, r.High = low, high
	}
}

// describe returns the description of a figure for the page.
func describe(f *results.Figure) *figures.Figure {
	d := &figures.Figure{Title: f.Title, X: axisOf(f.X), Y: axisOf(f.Y), Noisy: noisy(f.Curves), Seeds: f.Thin}
	d.X.Measure = measureOf(f.X.Title)
	for i, arm := range armsOf(f.Curves) {
		d.Curves = append(d.Curves, curveOf(f.Curves[i], arm))
	}
	for _, g := range f.Guides {
		d.Guides = append(d.Guides, figures.Guide{Name: g.Name, X: plain(g.X), Y: plain(g.Y)})
	}
	for _, m := range f.Marks {
		d.Marks = append(d.Marks,
			figures.Mark{Name: m.Name, X: figures.Number(m.X), Y: figures.Number(m.Y), Arm: m.Arm, Run: m.Run})
	}
	if m := f.Map; m != nil {
		d.Cells = &figures.Cells{Columns: m.Columns, Rows: m.Rows, Digits: m.Digits, Unit: m.Unit, Less: m.Less}
		for _, row := range m.Values {
			d.Cells.Values = append(d.Cells.Values, plains(row))
		}
	}
	return d
}

func axisOf(a results.Axis) figures.Axis {
	return figures.Axis{Title: oneLine(a.Title), Low: plain(a.Low), High: plain(a.High), Log: a.Log}
}

func plain(n results.Number) figures.Number { return figures.Number(n.Float()) }

func plains(list []results.Number) []figures.Number {
	var plains []figures.Number
	for _, n := range list {
		plains = append(plains, plain(n))
	}
	return plains
}

// curveOf describes a curve. The shape of markers changes every four colours, so that forty curves differ in hue or
// shape. Dashes mean that a line was computed. A long curve without a spread is thinned.
func curveOf(c results.Curve, arm string) figures.Curve {
	const long, alike = 500, figures.Colours / 2
	out := figures.Curve{Name: oneLine(c.Name), Arm: arm, Colour: figures.Arms()[c.Colour%figures.Colours],
		Shape: c.Colour / alike, Thin: c.Thin, Apart: c.Points, Dashed: c.Dashed, Mean: plains(c.Mean),
		Average: plains(c.Average), Deviation: plains(c.Deviation), Run: c.Run}
	spread := slices.ContainsFunc(c.At, func(p results.Point) bool {
		return p.Low.Known() && p.High.Known() && p.Low != p.High
	})
	at := slices.Clone(c.At)
	switch {
	case c.Points: // the script looks for the nearest
		slices.SortStableFunc(at, func(a, b results.Point) int { return cmp.Compare(a.X, b.X) })
	case !spread && c.Mean == nil && c.Average == nil:
		at = thin(at, long)
	}
	for _, p := range at {
		out.X, out.Y = append(out.X, p.X), append(out.Y, plain(p.Y))
		if spread {
			out.Low, out.High = append(out.Low, plain(p.Low)), append(out.High, plain(p.High))
		}
	}
	return out
}

// seedsSuffix is what arm.name adds to the label of an arm.
var seedsSuffix = regexp.MustCompile(`, \d+ seeds$`)

// armsOf returns the arm of each curve, which hides and shows it on the whole page: its name, or that of the curve of
// its colour if it has none.
func armsOf(curves []results.Curve) []string {
	arms, byColour := make([]string, len(curves)), make(map[int]string)
	for i, c := range curves {
		arms[i] = seedsSuffix.ReplaceAllString(oneLine(c.Name), "")
		byColour[c.Colour] = cmp.Or(byColour[c.Colour], arms[i])
	}
	for i, c := range curves {
		if c.Thin || arms[i] == "" {
			arms[i] = byColour[c.Colour]
		}
	}
	return arms
}

// noisy reports whether a curve is long and turns at many of its points, so that smoothing helps to see where it goes.
func noisy(curves []results.Curve) bool {
	const long = 40
	return slices.ContainsFunc(curves, func(c results.Curve) bool {
		known := valuesOf(c.At)
		turns, n := 0, len(known)
		ys := slices.Compact(known)
		for i := 2; i < len(ys); i++ {
			if (ys[i-1] > ys[i-2]) != (ys[i] > ys[i-1]) {
				turns++
			}
		}
		return !c.Points && n >= long && 3*turns > n
	})
}

// oneLine returns text without line breaks, for names in plots.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

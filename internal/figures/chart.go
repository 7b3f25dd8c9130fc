package figures

import (
	"fmt"
	"html/template"
	"math"
	"slices"
)

// Size is the size of a drawing, in its own units, with its class in the style sheet. A drawing is scaled to the width
// of its place, so its width should be near to that in pixels.
type Size struct {
	Class         string
	Width, Height float64
	Bare          bool // without axes and text, stretched to its place: a sparkline
}

// Margins of a chart, and the distances of labels along its axes.
const (
	marginLeft  = 36.0 // at least, so that charts above one another align
	marginRight = 12.0
	titleHeight = textSize * 1.9
	labelHeight = textSize * 1.5
	labelGap    = 12.0
	columnGap   = 40.0
	rowGap      = 24.0
)

// A page with many curves has fewer markers, and finer lines and fainter bands by the style sheet.
const (
	crowdedFrom  = 8 // named curves
	maxBands     = 4 // that leave the lines visible
	maxMarkers   = 40
	fewMarkers   = 7
	markerRadius = 2.3
	pointRadius  = 3
	thinRadius   = 1.6
	ringRadius   = 5
)

// The layers of a chart, from the back to the front.
const (
	axes = iota
	bands
	seeds
	guides
	lines
	dots
	names
	layers
)

// Colours is the number of colours of curves.
const Colours = 8

// Arms returns the colours of curves, as variables of the style sheet. Eight hues are not all distinct to every eye, so
// they are two times four: within a four every two differ, and the second four should have another shape of markers.
func Arms() [Colours]string {
	return [Colours]string{"baseline", "replay", "green", "purple", "pink", "olive", "graphite", "sky"}
}

// chart is a drawing of a figure.
type chart struct {
	*Figure
	size  Size
	data  box // where the data is
	layer [layers]canvas
	taken []box   // by names and rings
	inked []point // of what names keep clear of
}

// chart draws curves, and says where.
func (f *Figure) chart(s Size) (template.HTML, box) {
	c := &chart{Figure: f, size: s, data: box{0, 4, s.Width, s.Height - 2}}
	if !s.Bare {
		c.drawAxes()
	}
	var bottom path
	bottom.line('M', point{c.data.left, c.data.bottom}, point{c.data.right, c.data.bottom})
	c.layer[axes].path(element{class: "axis"}, &bottom)
	for i := range f.Curves {
		c.drawCurve(i)
	}
	if !s.Bare {
		c.drawNotes()
	}
	if f.crowded() {
		s.Class += " crowded"
	}
	if f.count(func(c *Curve) bool { return !c.Thin && !c.Apart && c.spreads(&f.Y) }) > maxBands {
		s.Class += " faint"
	}
	var whole canvas
	for i := range c.layer {
		whole.WriteString(c.layer[i].String())
	}
	return whole.svg(s, f.Title), c.data
}

// count counts the curves of a kind.
func (f *Figure) count(kind func(*Curve) bool) (n int) {
	for i := range f.Curves {
		if kind(&f.Curves[i]) {
			n++
		}
	}
	return n
}

// crowded reports whether many curves are named.
func (f *Figure) crowded() bool { return f.count(func(c *Curve) bool { return !c.Thin }) > crowdedFrom }

// x and y place values. Far values stay far, and lines to them are cut at the edge of the data.
func (c *chart) x(v Number) float64 {
	return c.data.left + far(c.X.share(v))*(c.data.right-c.data.left)
}
func (c *chart) y(v Number) float64 {
	return c.data.bottom - far(c.Y.share(v))*(c.data.bottom-c.data.top)
}

func far(share float64) float64 { return max(-1e5, min(1e5, share)) }

// at places a point of a curve.
func (c *chart) at(x float64, y Number) point { return point{c.x(Number(x)), c.y(y)} }

// drawAxes leaves room for the axes' text, and draws them.
func (c *chart) drawAxes() {
	w, back := c.size.Width, &c.layer[axes]
	c.data = box{marginLeft, labelGap, w - marginRight, c.size.Height - labelHeight}
	if c.Y.Title != "" {
		c.data.top = titleHeight
		back.text(element{}, "start", 1, textSize*0.8, fitted(c.Y.Title, w-2))
	}
	if c.X.Title != "" {
		c.data.bottom -= labelHeight
	}
	height := c.data.bottom - c.data.top
	rows := ruler{&c.Y, height, max(rowGap, height/7), func(string) float64 { return 0 }, false}.ticks()
	for _, t := range rows {
		c.data.left = max(c.data.left, min(w/3, width(t.label)+8))
	}
	var grid, marks path
	for _, t := range rows {
		if y := c.y(t.at); t.label != "" {
			grid.line('M', point{c.data.left, y}, point{c.data.right, y})
			back.text(element{part: "n0"}, "end", c.data.left-6, y+3.5, fitted(t.label, c.data.left-6))
		}
	}
	length := c.data.right - c.data.left
	columns := ruler{&c.X, length, max(columnGap, length/10),
		func(label string) float64 { return width(label) + labelGap }, c.whole()}
	if len(c.X.Names) > 0 {
		columns.least = 0
	}
	for _, t := range columns.ticks() {
		x, long := c.x(t.at), 2.0
		if t.label != "" {
			long = 4
			back.centred(element{part: "u0"}, x, c.data.bottom+textSize*1.2, w, t.label)
		}
		if len(c.X.Names) == 0 {
			marks.line('M', point{x, c.data.bottom}, point{x, c.data.bottom + long})
		}
	}
	back.path(element{class: "gridline", part: "h0"}, &grid)
	back.path(element{class: "axis", part: "u0"}, &marks)
	back.centred(element{part: "t0"}, (c.data.left+c.data.right)/2, c.size.Height-4, w, c.X.Title)
}

// whole reports whether all x are whole numbers.
func (f *Figure) whole() bool {
	return f.count(func(c *Curve) bool {
		return slices.ContainsFunc(c.X, func(x float64) bool { return x != math.Trunc(x) })
	}) == 0
}

// spread returns the ends of a point's spread, none unless both can be drawn.
func (c *Curve) spread(y *Axis, k int) (low, high Number) {
	switch {
	case c.Filled:
		low, high = y.Low, c.Y[k]
	case k < len(c.Low) && k < len(c.High):
		low, high = c.Low[k], c.High[k]
	default:
		return None(), None()
	}
	if !y.holds(low) || !y.holds(high) {
		return None(), None()
	}
	return low, high
}

// spreads reports whether any point of the curve has a visible spread.
func (c *Curve) spreads(y *Axis) bool {
	for k := range c.X {
		if low, high := c.spread(y, k); low < high {
			return true
		}
	}
	return false
}

// known reports whether a curve has a value to draw at its k-th point.
func (f *Figure) known(c *Curve, k int) bool { return f.X.holds(Number(c.X[k])) && f.Y.holds(c.Y[k]) }

// runs splits the numbers below n where they are not known.
func runs(n int, known func(int) bool) (list [][]int) {
	for k := range n {
		if !known(k) {
			continue
		}
		if k == 0 || !known(k-1) {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], k)
	}
	return list
}

// drawCurve draws a curve with its spread and its markers.
func (c *chart) drawCurve(i int) {
	curve := &c.Curves[i]
	if curve.Bars {
		c.drawBars(curve)
		return
	}
	var line, marks path
	var known, marked []point
	for _, run := range runs(len(curve.X), func(k int) bool { return c.known(curve, k) }) {
		var points []point
		for _, k := range run {
			points = append(points, c.at(curve.X[k], curve.Y[k]))
		}
		known = append(known, points...)
		if curve.Apart || len(points) == 1 {
			marked = append(marked, points...)
			continue
		}
		for _, piece := range c.data.clip(points, false) {
			line.line('M', piece...)
			c.ink(piece...)
		}
	}
	for _, k := range c.marked(curve, len(known)) {
		marked = append(marked, known[k])
	}
	layer, front, look, radius := lines, dots, curve.look(), markerRadius
	switch {
	case curve.Thin:
		layer, front, radius = seeds, seeds, thinRadius
	case curve.Apart:
		radius = pointRadius
	}
	for _, at := range marked {
		if c.data.holds(at) && !c.size.Bare {
			marks.marker(curve.Shape, radius, at)
			c.ink(at)
		}
	}
	c.layer[layer].path(curve.element("line"+look, 'l', i), &line)
	c.layer[front].path(curve.element("dots"+look, 'm', i), &marks)
	c.drawSpread(i)
}

// look is the classes of the curve's line and markers. The shapes are five, filled and then open.
func (c *Curve) look() (classes string) {
	if c.Thin {
		classes += " thin"
	}
	if c.Dashed {
		classes += " dashed"
	}
	if c.Shape/5%2 == 1 {
		classes += " open"
	}
	return classes
}

// element is a part of the i-th curve.
func (c *Curve) element(class string, part byte, i int) element {
	return element{class, c.Colour, fmt.Sprintf("%c%d", part, i)}
}

// marked returns which of n points of a line carry its marker: all of a short line; of a long line a few, if the shape
// distinguishes it from others of its hue.
func (f *Figure) marked(c *Curve, n int) (list []int) {
	step := n
	if n > fewMarkers && (n > maxMarkers || f.crowded()) {
		step = fewMarkers
	}
	if c.Thin || c.Apart || c.Filled || c.Shape == 0 && (c.Dashed || step < n) {
		return nil
	}
	for i := range step {
		list = append(list, (2*i+1)*n/(2*step))
	}
	return list
}

// drawSpread draws the spread of a curve: a band along its line, whiskers at single points.
func (c *chart) drawSpread(i int) {
	const half = 3 // of a whisker's ends
	curve := &c.Curves[i]
	var band, whiskers path
	for _, run := range runs(len(curve.X), func(k int) bool {
		low, _ := curve.spread(&c.Y, k)
		return c.X.holds(Number(curve.X[k])) && c.Y.holds(low) && !curve.Thin
	}) {
		var ring, back []point
		for _, k := range run {
			low, high := curve.spread(&c.Y, k)
			from, to := c.at(curve.X[k], low), c.at(curve.X[k], high)
			if ring, back = append(ring, from), append(back, to); !curve.Apart && len(run) > 1 {
				continue
			}
			for _, line := range [3][]point{{from, to}, {{from.x - half, from.y}, {from.x + half, from.y}},
				{{to.x - half, to.y}, {to.x + half, to.y}}} {
				for _, piece := range c.data.clip(line, false) {
					whiskers.line('M', piece...)
				}
			}
		}
		slices.Reverse(back)
		if ring = c.data.clip(append(ring, back...), true)[0]; len(ring) > 2 && !curve.Apart && len(run) > 1 {
			band.ring(ring...)
		}
	}
	c.layer[bands].path(curve.element("band", 'b', i), &band)
	c.layer[seeds].path(curve.element("whisker", 'w', i), &whiskers)
}

// drawBars draws a bar at each whole number, with a tooltip over the height of the chart.
func (c *chart) drawBars(curve *Curve) {
	pitch := c.x(1) - c.x(0)
	for k, x := range curve.X {
		place := box{max(c.data.left, c.x(Number(x))-pitch/2), c.data.top, min(c.data.right, c.x(Number(x))+pitch/2),
			c.data.bottom}
		if !c.known(curve, k) || place.left >= place.right {
			continue
		}
		title, gap := "", min((place.right-place.left)*0.22, 5)
		if n := int(x); n >= 0 && n < len(c.Labels) {
			title = template.HTMLEscapeString(c.Labels[n])
		}
		bar := box{place.left + gap/2, c.data.bottom, place.right - gap/2, c.data.bottom}
		if v := curve.Y[k]; v > 0 {
			bar.top = max(c.data.top, min(c.y(v), bar.top-1.5)) // keep it visible
		}
		front := &c.layer[lines]
		front.WriteString("<g><title>" + title + "</title>")
		front.rect(element{class: "hit"}, place, 0)
		front.rect(element{class: "bar", colour: curve.Colour}, bar, min(2, pitch/6, (bar.bottom-bar.top)/2))
		front.WriteString("</g>\n")
	}
}

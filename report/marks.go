package report

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// targetLine is a layer: a dashed line at the target.
type targetLine struct{ y float64 }

// Plot implements plot.Plotter.
func (t targetLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, trY := p.Transforms(&c)
	y := trY(t.y)
	dash := draw.LineStyle{Color: inkColor.color(), Width: 0.9, Dashes: []vg.Length{4, 3}}
	c.StrokeLine2(dash, c.Min.X, y, c.Max.X, y)
}

// ageMark is a layer: a dashed line at a value of x, with its name at the top on the side that has
// more room.
type ageMark struct {
	x    float64
	text string
}

// Plot implements plot.Plotter.
func (m ageMark) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	x := trX(m.x)
	c.StrokeLine2(draw.LineStyle{Color: inkColor.color(), Width: 0.9, Dashes: []vg.Length{4, 3}}, x, c.Min.Y, x, c.Max.Y)
	name := style(inkColor, textSize)
	name.YAlign = draw.YTop
	at := vg.Point{X: x + 4, Y: c.Max.Y - 1}
	if x > (c.Min.X+c.Max.X)/2 {
		name.XAlign = draw.XRight
		at.X -= 8
	}
	c.FillText(name, at, m.text)
}

// crosses is a layer: where runs that have not ended were last seen.
type crosses struct {
	at   plotter.XYs
	role role
}

// Plot implements plot.Plotter.
func (m crosses) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	pen := draw.LineStyle{Color: m.role.color(), Width: 1.8}
	const arm = vg.Length(3.6)
	for _, at := range m.at {
		x, y := trX(at.X), trY(at.Y)
		c.StrokeLine2(pen, x-arm, y-arm, x+arm, y+arm)
		c.StrokeLine2(pen, x-arm, y+arm, x+arm, y-arm)
	}
}

// reachMark is a layer: where a median curve reached the target, with a line down to the axis.
type reachMark struct {
	x, y float64
	role role
}

// Plot implements plot.Plotter.
func (m reachMark) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	x, y := trX(m.x), trY(m.y)
	c.StrokeLine2(draw.LineStyle{Color: m.role.color(), Width: 1, Dashes: []vg.Length{1.5, 2.5}}, x, c.Min.Y, x, y)
	c.DrawGlyph(draw.GlyphStyle{Color: m.role.color(), Radius: 4.5, Shape: draw.PyramidGlyph{}}, vg.Point{X: x, Y: y})
}

// reachLabels is a layer: the values of the reach marks at the foot of their lines, the smallest to
// the left of its line and the others to the right, so that two never meet.
type reachLabels []reachMark

// Plot implements plot.Plotter.
func (l reachLabels) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	ordered := slices.SortedFunc(slices.Values(l), func(a, b reachMark) int { return cmp.Compare(a.x, b.x) })
	for i, m := range ordered {
		text := style(m.role, textSize)
		at := vg.Point{X: trX(m.x) + 4, Y: c.Min.Y + 5}
		if i == 0 && len(ordered) > 1 {
			text.XAlign = draw.XRight
			at.X -= 8
		}
		c.FillText(text, at, short(m.x, 0))
	}
}

// label is text beside a point.
type label struct {
	at   plotter.XY
	text string
	role role
}

// endLabels is a layer: names to the right of where lines end, moved apart where they would
// overlap. Of more arms than two the names stand in a column beside the plot, in ink, each behind a
// piece of its line: some hues are too light to be read.
type endLabels struct {
	labels []label
	column bool
}

// keyLength is the piece of line before a name in a column.
const keyLength = vg.Length(16)

// width returns the room that the labels need beside the plot.
func (l endLabels) width() vg.Length {
	widest := vg.Length(0)
	for _, e := range l.labels {
		widest = max(widest, style(e.role, textSize+1).Width(e.text))
	}
	if l.column {
		widest += keyLength + 4
	}
	return widest + 12
}

// Plot implements plot.Plotter.
func (l endLabels) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	const gap = textSize * 1.35
	ordered := slices.SortedFunc(slices.Values(l.labels), func(a, b label) int { return cmp.Compare(a.at.Y, b.at.Y) })
	heights := make([]vg.Length, len(ordered))
	floor := c.Min.Y
	for i, e := range ordered {
		heights[i] = max(trY(e.at.Y), floor)
		floor = heights[i] + gap
	}
	for i, ceiling := len(heights)-1, c.Max.Y; i >= 0; i-- { // and down again where they left the plot
		heights[i] = min(heights[i], ceiling)
		ceiling = heights[i] - gap
	}
	for i, e := range ordered {
		text := style(e.role, textSize+1)
		text.YAlign = draw.YCenter
		at := vg.Point{X: trX(e.at.X) + 8, Y: heights[i]}
		if l.column {
			at.X = c.Max.X + 8
			if e.role >= firstArm {
				text.Color = inkColor.color()
				c.StrokeLine2(draw.LineStyle{Color: e.role.color(), Width: 2, Dashes: e.role.dashes()}, at.X, at.Y, at.X+keyLength, at.Y)
				at.X += keyLength + 4
			}
		}
		c.FillText(text, at, e.text)
	}
}

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
// overlap.
type endLabels []label

// Plot implements plot.Plotter.
func (l endLabels) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	const gap = textSize * 1.35
	ordered := slices.SortedFunc(slices.Values(l), func(a, b label) int { return cmp.Compare(a.at.Y, b.at.Y) })
	floor := c.Min.Y
	for _, e := range ordered {
		text := style(e.role, textSize+1)
		text.YAlign = draw.YCenter
		y := max(trY(e.at.Y), floor)
		floor = y + gap
		c.FillText(text, vg.Point{X: trX(e.at.X) + 8, Y: y}, e.text)
	}
}

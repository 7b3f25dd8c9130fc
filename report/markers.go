package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/results"
)

// look is how a curve of a sheet is drawn. Eight hues are told apart by every eye in two fours, so that curves carry markers whose shape
// changes every four colours: forty colours differ in hue or shape. Dashes are left to say that a line was computed.
type look struct {
	role   role
	width  vg.Length
	dashes []vg.Length
	shape  marker
	points bool // unconnected
	plain  bool // without markers along the line
}

// lookOf returns the look of a curve.
func lookOf(c results.Curve) look {
	l := look{role: armRole(c.Colour % MostArms), width: 2, shape: markerOf(c.Colour / solid), points: c.Points}
	if c.Dashed {
		l.width, l.dashes = 1.6, []vg.Length{5, 3}
	}
	if c.Thin {
		l.role, l.width, l.plain = l.role.thin(), 0.8, true
	}
	l.plain = l.plain || c.Dashed && c.Colour < solid
	return l
}

// along returns where a line carries its marker: at every point of a short one; of a long one at a few places, if its shape tells it from
// others of its hue.
func (l look) along(points plotter.XYs, many bool) plotter.XYs {
	const short, few = 40, 7
	var known plotter.XYs
	for _, part := range unbroken(points) {
		known = append(known, part...)
	}
	switch {
	case l.plain:
		return nil
	case len(known) <= few, len(known) <= short && !many:
		return known
	case l.shape == markerOf(0):
		return nil
	}
	var kept plotter.XYs
	for i := range few {
		kept = append(kept, known[(2*i+1)*len(known)/(2*few)])
	}
	return kept
}

// marker is the shape of a point: a polygon of so many sides, upright or turned, filled or open. Without sides it is a circle.
type marker struct {
	sides int
	turn  float64 // of the first corner, in radians from the right
	open  bool
}

// markerOf returns the i-th shape, over again after ten.
func markerOf(i int) marker {
	up := math.Pi / 2
	shapes := [5]marker{{sides: 0}, {sides: 4, turn: math.Pi / 4}, {sides: 3, turn: up}, {sides: 4}, {sides: 3, turn: -up}}
	m := shapes[i%len(shapes)]
	m.open = i/len(shapes)%2 == 1
	return m
}

// draw puts the shape at a point, as large as a circle of that radius looks.
func (m marker) draw(c *draw.Canvas, r role, radius vg.Length, at vg.Point) {
	const round = 20 // corners of an open circle
	sides, size := m.sides, radius
	switch m.sides {
	case 0:
		if !m.open {
			c.DrawGlyph(draw.GlyphStyle{Color: r.color(), Radius: radius, Shape: draw.CircleGlyph{}}, at)
			return
		}
		sides = round
	case 3:
		size *= 1.5
	case 4:
		size *= 1.3
	}
	if !c.Contains(at) {
		return
	}
	corners := make([]vg.Point, sides, sides+1)
	for i := range corners {
		angle := m.turn + 2*math.Pi*float64(i)/float64(sides)
		corners[i] = vg.Point{X: at.X + size*vg.Length(math.Cos(angle)), Y: at.Y + size*vg.Length(math.Sin(angle))}
	}
	if m.open {
		c.StrokeLines(draw.LineStyle{Color: r.color(), Width: 1.3}, append(corners, corners[0]))
		return
	}
	c.FillPolygon(r.color(), corners)
}

// radius is that of a look's markers.
func (l look) radius() vg.Length {
	switch {
	case l.width < 1:
		return 1.6
	case l.points:
		return 3
	default:
		return 2.3
	}
}

// strokes is a layer: a line, broken where a value is missing; a lone value is a dot.
type strokes struct {
	points plotter.XYs
	look   look
}

// Plot implements plot.Plotter.
func (s strokes) Plot(c draw.Canvas, p *plot.Plot) {
	pen := draw.LineStyle{Color: s.look.role.color(), Width: s.look.width, Dashes: s.look.dashes}
	for _, part := range unbroken(s.points) {
		if len(part) == 1 {
			scatter{part, s.look}.Plot(c, p)
			continue
		}
		(&plotter.Line{XYs: part, LineStyle: pen}).Plot(c, p)
	}
}

// scatter is a layer: markers at points.
type scatter struct {
	points plotter.XYs
	look   look
}

// Plot implements plot.Plotter.
func (s scatter) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	for _, at := range s.points {
		if at.Y == at.Y {
			s.look.shape.draw(&c, s.look.role, s.look.radius(), vg.Point{X: trX(at.X), Y: trY(at.Y)})
		}
	}
}

// bands is a layer: the spread of a line, filled between its ends wherever two points in a row have one; a lone one is a whisker.
type bands struct {
	low, high plotter.XYs // of the same x
	look      look
}

// Plot implements plot.Plotter.
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	from := 0
	for _, part := range unbroken(b.low) {
		for b.low[from] != part[0] {
			from++
		}
		high := b.high[from : from+len(part)]
		from += len(part)
		if len(part) == 1 {
			whiskers{part, high, b.look}.Plot(c, p)
			continue
		}
		var ring []vg.Point
		for _, at := range part {
			ring = append(ring, vg.Point{X: trX(at.X), Y: trY(at.Y)})
		}
		for i := len(high) - 1; i >= 0; i-- {
			ring = append(ring, vg.Point{X: trX(high[i].X), Y: trY(high[i].Y)})
		}
		if ring = c.ClipPolygonXY(ring); len(ring) > 2 {
			c.FillPolygon(b.look.role.band().color(), ring)
		}
	}
}

// whiskers is a layer: the spread of points, each by itself.
type whiskers struct {
	low, high plotter.XYs // of the same x
	look      look
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	pen := draw.LineStyle{Color: w.look.role.color(), Width: 1}
	const half = vg.Length(3)
	for i, low := range w.low {
		if low.Y != low.Y {
			continue
		}
		x, bottom, top := trX(low.X), trY(low.Y), trY(w.high[i].Y)
		lines := [][]vg.Point{{{X: x, Y: bottom}, {X: x, Y: top}}, {{X: x - half, Y: bottom}, {X: x + half, Y: bottom}}, {{X: x - half, Y: top}, {X: x + half, Y: top}}}
		c.StrokeLines(pen, c.ClipLinesXY(lines...)...)
	}
}

// guideLines is a layer: straight lines across the plot.
type guideLines []results.Guide

// Plot implements plot.Plotter.
func (g guideLines) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	pen := draw.LineStyle{Color: mutedColor.color(), Width: 1, Dashes: []vg.Length{1.5, 2.5}}
	for _, guide := range g {
		if guide.Y.Known() {
			if y := trY(guide.Y.Float()); c.ContainsY(y) {
				c.StrokeLine2(pen, c.Min.X, y, c.Max.X, y)
			}
			continue
		}
		if x := trX(guide.X.Float()); c.ContainsX(x) {
			c.StrokeLine2(pen, x, c.Min.Y, x, c.Max.Y)
		}
	}
}

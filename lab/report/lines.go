package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// pen is how a curve is drawn.
type pen struct {
	role   role
	curve  int // its number
	width  vg.Length
	dashes []vg.Length
	shape  marker
	radius vg.Length // of markers
	points bool      // unconnected
	plain  bool      // no markers along the line
}

// penOfCurve returns the pen of a figure's curve. The shape of markers changes every four colours, so that forty curves
// differ in hue or shape. Dashes mean that a line was computed.
func penOfCurve(c results.Curve) pen {
	p := pen{role: armRole(c.Colour % MostArms), width: 2, shape: markerOf(c.Colour / solid), radius: 2.3,
		points: c.Points}
	if c.Points {
		p.radius = 3
	}
	if c.Dashed {
		p.width, p.dashes = 1.6, []vg.Length{5, 3}
	}
	if c.Thin {
		p.role, p.width, p.radius, p.plain = p.role.thin(), 0.8, 1.6, true
	}
	p.plain = p.plain || c.Dashed && c.Colour < solid
	return p
}

// of returns the role of a part of the curve.
func (p pen) of(part figures.Part) role { return p.role.of(part, p.curve) }

func (p pen) style() draw.LineStyle {
	return draw.LineStyle{Color: p.of(figures.Line).color(), Width: p.width, Dashes: p.dashes}
}

// along returns the points of a line that carry its marker: all of a short line; of a long line a few, if the shape
// distinguishes it from others of its hue.
func (p pen) along(points plotter.XYs, crowded bool) plotter.XYs {
	const short, few = 40, 7
	var known plotter.XYs
	for _, part := range unbroken(points) {
		known = append(known, part...)
	}
	switch {
	case p.plain:
		return nil
	case len(known) <= few, len(known) <= short && !crowded:
		return known
	case p.shape == markerOf(0):
		return nil
	}
	var marked plotter.XYs
	for i := range few {
		marked = append(marked, known[(2*i+1)*len(known)/(2*few)])
	}
	return marked
}

// marker is the shape of a point: a regular polygon, filled or open, or a circle if it has no sides.
type marker struct {
	sides int
	turn  float64 // angle of the first corner, in radians from the right
	open  bool
}

// markerOf returns the i-th shape. Shapes repeat after ten.
func markerOf(i int) marker {
	up := math.Pi / 2
	shapes := [5]marker{{sides: 0}, {sides: 4, turn: math.Pi / 4}, {sides: 3, turn: up}, {sides: 4},
		{sides: 3, turn: -up}}
	m := shapes[i%len(shapes)]
	m.open = i/len(shapes)%2 == 1
	return m
}

// draw draws the shape at a point, as large as a circle of the radius looks.
func (m marker) draw(c *draw.Canvas, r role, radius vg.Length, at vg.Point) {
	if !c.Contains(at) {
		return
	}
	size := radius
	switch m.sides {
	case 3:
		size *= 1.5
	case 4:
		size *= 1.3
	}
	var path vg.Path
	path.Move(at) // the page's script moves the shape with this point
	if m.sides == 0 {
		path.Move(vg.Point{X: at.X + size, Y: at.Y})
		path.Arc(at, size, 0, 2*math.Pi)
	}
	for i := range m.sides {
		angle := m.turn + 2*math.Pi*float64(i)/float64(m.sides)
		corner := vg.Point{X: at.X + size*vg.Length(math.Cos(angle)), Y: at.Y + size*vg.Length(math.Sin(angle))}
		if i == 0 {
			path.Move(corner)
		} else {
			path.Line(corner)
		}
	}
	path.Close()
	if m.open {
		c.SetLineStyle(draw.LineStyle{Color: r.color(), Width: 1.3})
		c.Stroke(path)
		return
	}
	c.SetColor(r.color())
	c.Fill(path)
}

// line is a layer: a line that breaks at missing values. A lone value is a marker.
type line struct {
	points plotter.XYs
	pen    pen
}

// Plot implements plot.Plotter.
func (l line) Plot(c draw.Canvas, p *plot.Plot) {
	for _, part := range unbroken(l.points) {
		if len(part) == 1 {
			markers{part, l.pen}.Plot(c, p)
			continue
		}
		(&plotter.Line{XYs: part, LineStyle: l.pen.style()}).Plot(c, p)
	}
}

// markers is a layer: a marker at each point.
type markers struct {
	points plotter.XYs
	pen    pen
}

// Plot implements plot.Plotter.
func (m markers) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	for _, at := range m.points {
		if !math.IsNaN(at.Y) {
			m.pen.shape.draw(&c, m.pen.of(figures.Marker), m.pen.radius, vg.Point{X: trX(at.X), Y: trY(at.Y)})
		}
	}
}

// band is a layer: the spread of a line, filled between its ends. A lone spread is a whisker.
type band struct {
	low, high plotter.XYs // at the same x
	pen       pen
}

// Plot implements plot.Plotter.
func (b band) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	from := 0
	for _, part := range unbroken(b.low) {
		for b.low[from] != part[0] {
			from++
		}
		high := b.high[from : from+len(part)]
		from += len(part)
		if len(part) == 1 {
			whiskers{part, high, b.pen}.Plot(c, p)
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
			c.FillPolygon(b.pen.role.band().of(figures.Band, b.pen.curve).color(), ring)
		}
	}
}

// whiskers is a layer: the spread of single points.
type whiskers struct {
	low, high plotter.XYs // at the same x
	pen       pen
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	style := draw.LineStyle{Color: w.pen.of(figures.Spread).color(), Width: 1}
	const half = vg.Length(3)
	for i, low := range w.low {
		if math.IsNaN(low.Y) {
			continue
		}
		x, bottom, top := trX(low.X), trY(low.Y), trY(w.high[i].Y)
		c.StrokeLines(style, c.ClipLinesXY(
			[]vg.Point{{X: x, Y: bottom}, {X: x, Y: top}},
			[]vg.Point{{X: x - half, Y: bottom}, {X: x + half, Y: bottom}},
			[]vg.Point{{X: x - half, Y: top}, {X: x + half, Y: top}})...)
	}
}

// rule is a layer: a straight line across the plot at a value of y, or of x if it is vertical.
type rule struct {
	at       float64
	vertical bool
	style    draw.LineStyle
}

// guideRules returns the lines of a figure's guides.
func guideRules(guides []results.Guide) []plot.Plotter {
	var rules []plot.Plotter
	for i, g := range guides {
		style := draw.LineStyle{Color: mutedColor.of(figures.Guide, i).color(), Width: 1,
			Dashes: []vg.Length{1.5, 2.5}}
		r := rule{g.Y.Float(), false, style}
		if !g.Y.Known() {
			r = rule{g.X.Float(), true, style}
		}
		rules = append(rules, r)
	}
	return rules
}

// Plot implements plot.Plotter.
func (r rule) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	if r.vertical {
		if x := trX(r.at); c.ContainsX(x) {
			c.StrokeLine2(r.style, x, c.Min.Y, x, c.Max.Y)
		}
	} else if y := trY(r.at); c.ContainsY(y) {
		c.StrokeLine2(r.style, c.Min.X, y, c.Max.X, y)
	}
}

package report

import (
	"cmp"
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// textSize is that of all text in plots. Every plot is drawn about as many points wide as it is
// shown pixels wide, so that text has one size on the page.
const textSize = 10

// axis is one axis of a chart.
type axis struct {
	title    string
	low      float64
	high     float64
	ticks    plot.Ticker
	gridless bool
	log      bool // base-10 logarithmic; both ends are above 0
}

// chart is one plot to be drawn. Layers are drawn in order, the grid below them.
type chart struct {
	title  string // for those who cannot see it
	class  string // of the SVG element
	width  vg.Length
	height vg.Length
	left   vg.Length // from the edge to the data, so that charts above one another align
	right  vg.Length // kept for labels beside the data
	x, y   axis
	layers []plot.Plotter
}

// svg draws the chart.
func (ch *chart) svg() (template.HTML, error) {
	p := plot.New()
	p.BackgroundColor = nil
	dress(&p.X, ch.x, axisColor)
	dress(&p.Y, ch.y, gridColor)
	p.X.Label.Text, p.X.Label.Padding = ch.x.title, 4
	p.Y.LineStyle.Width = 0
	p.Add(gridOf(ch.x, ch.y))
	p.Add(ch.layers...)
	// Layers may have widened the axes; a chart shows what it was asked to.
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = ch.x.low, ch.x.high, ch.y.low, ch.y.high

	c := vgsvg.New(ch.width, ch.height)
	area := draw.Crop(draw.New(c), 1, -ch.right-1, 1, -textSize*1.9)
	if shift := ch.left - p.DataCanvas(area).Min.X; shift > 0 {
		area.Min.X += shift
	}
	p.Draw(area)
	heading := style(mutedColor, textSize)
	heading.YAlign = draw.YTop
	whole := draw.New(c)
	whole.FillText(heading, vg.Point{X: 1, Y: ch.height - 1}, ch.y.title)
	return inline(c, ch.width, ch.height, ch.class, ch.title)
}

// dress gives an axis the look of all charts, with tick marks in a role's colour.
func dress(a *plot.Axis, of axis, marks role) {
	a.Min, a.Max = of.low, of.high
	a.Padding = 0
	if of.log {
		a.Scale = plot.LogScale{}
	}
	a.Color, a.Width = axisColor.color(), 0.8
	a.Tick.Marker = of.ticks
	a.Tick.Length, a.Tick.Width, a.Tick.Color = 4, 0.8, marks.color()
	xAlign, yAlign := a.Tick.Label.XAlign, a.Tick.Label.YAlign
	a.Tick.Label = style(mutedColor, textSize)
	a.Tick.Label.XAlign, a.Tick.Label.YAlign = xAlign, yAlign
	a.Label.TextStyle = style(mutedColor, textSize)
	a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = draw.XCenter, draw.YBottom
}

func gridOf(x, y axis) *plotter.Grid {
	g := &plotter.Grid{}
	line := draw.LineStyle{Color: gridColor.color(), Width: 0.8}
	if !x.gridless {
		g.Vertical = line
	}
	if !y.gridless {
		g.Horizontal = line
	}
	return g
}

// style returns left-aligned text in a role's colour.
func style(r role, size vg.Length) text.Style {
	return text.Style{
		Color:   r.color(),
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler,
	}
}

// line returns the layers of a line of the given width, a dot where it has but one point.
func line(points plotter.XYs, r role, width vg.Length) []plot.Plotter {
	var layers []plot.Plotter
	for _, part := range unbroken(points) {
		if len(part) == 1 {
			layers = append(layers, dots(part, r, max(1.2, width)))
			continue
		}
		layers = append(layers, &plotter.Line{XYs: part, LineStyle: draw.LineStyle{Color: r.color(), Width: width, Dashes: r.dashes()}})
	}
	return layers
}

// dots returns a layer of filled circles.
func dots(points plotter.XYs, r role, radius vg.Length) plot.Plotter {
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: r.color(), Radius: radius, Shape: draw.CircleGlyph{}}}
}

// area returns a layer that fills between two lines over the same x.
func area(low, high plotter.XYs, r role) plot.Plotter {
	ring := append(plotter.XYs{}, low...)
	for i := len(high) - 1; i >= 0; i-- {
		ring = append(ring, high[i])
	}
	return &plotter.Polygon{XYs: []plotter.XYs{ring}, Color: r.color()}
}

// extent is the range of values seen so far.
type extent struct{ low, high float64 }

// nothing is the extent before any value.
func nothing() extent { return extent{math.Inf(1), math.Inf(-1)} }

func (e *extent) add(v float64) {
	if !math.IsNaN(v) {
		e.low, e.high = min(e.low, v), max(e.high, v)
	}
}

// holds reports whether a value lies within, rounding aside.
func (e extent) holds(v float64) bool {
	slack := (e.high - e.low) * 1e-9
	return v >= e.low-slack && v <= e.high+slack
}

// empty reports whether no value was seen.
func (e extent) empty() bool { return e.low > e.high }

// padded returns the extent with a share of it added at both ends; a single value gets room
// around it.
func (e extent) padded(share float64) extent {
	if e.empty() {
		return extent{0, 1}
	}
	room := (e.high - e.low) * share
	if room == 0 {
		room = cmp.Or(math.Abs(e.high)*0.1, 1)
	}
	return extent{e.low - room, e.high + room}
}

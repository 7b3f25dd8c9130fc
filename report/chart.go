package report

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// textSize is the size of all text in plots. Every plot is drawn about as many points wide as it is shown in pixels, so
// that text has one size on the page.
const textSize = 10

// chart is one plot. Its layers are drawn in order over the grid.
type chart struct {
	title  string // for those who cannot see it
	class  string // of the SVG element
	width  vg.Length
	height vg.Length
	left   vg.Length // from the edge to the data, so that charts above one another align
	right  vg.Length // from the data to the edge
	x, y   axis
	layers []plot.Plotter
}

// svg draws the chart.
func (ch *chart) svg() markup {
	p := plot.New()
	p.BackgroundColor = nil
	styleAxis(&p.X, ch.x, axisColor)
	styleAxis(&p.Y, ch.y, gridColor)
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

// styleAxis gives an axis the style of all charts, with tick marks in the colour of a role.
func styleAxis(a *plot.Axis, of axis, marks role) {
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

// inline turns a canvas into an SVG element for the page: without XML header, with colours from the page's style sheet,
// in the reader's sans-serif font, and with a title for screen readers.
func inline(c *vgsvg.Canvas, width, height vg.Length, class, title string) markup {
	var b bytes.Buffer
	c.WriteTo(&b) // a buffer takes everything
	_, text, found := strings.Cut(b.String(), `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !found {
		panic("report: vgsvg wrote an SVG without an opening element")
	}
	text = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`font-weight:(normal|400);|font-style:normal;?`).ReplaceAllString(text, "")
	known := paints()
	text = regexp.MustCompile(`(fill|stroke):#([0-9A-F]{6})`).ReplaceAllStringFunc(text, func(style string) string {
		property, hex, _ := strings.Cut(style, ":#")
		p, ok := known[hex]
		switch {
		case !ok:
			return style
		case p.opacity == 1:
			return fmt.Sprintf("%s:var(--%s)", property, p.variable)
		default:
			return fmt.Sprintf("%s:var(--%s);%s-opacity:%g", property, p.variable, property, p.opacity)
		}
	})
	text = regexp.MustCompile(`\s*\n\s*`).ReplaceAllString(text, "\n")
	return markup(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %g %g" role="img">`+
		"<title>%s</title>%s", class, width.Points(), height.Points(), html.EscapeString(title), text))
}

// fill paints a rectangle.
func fill(c draw.Canvas, r role, left, right, bottom, top vg.Length) {
	c.FillPolygon(r.color(), []vg.Point{{X: left, Y: bottom}, {X: left, Y: top}, {X: right, Y: top},
		{X: right, Y: bottom}})
}

package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/internal/words"
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
	right  vg.Length // kept for labels beside the data
	x, y   axis
	layers []plot.Plotter
}

// svg draws the chart.
func (ch *chart) svg() (template.HTML, error) {
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

// bars is a layer of bars of equal width.
type bars struct {
	bars  []bar
	width float64
	role  role
}

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	for _, bar := range b.bars {
		low := float64(bar.index)*b.width - 0.5
		gap := b.width * 0.08
		ring := plotter.XYs{{X: low + gap, Y: 0}, {X: low + gap, Y: bar.share}, {X: low + b.width - gap, Y: bar.share},
			{X: low + b.width - gap, Y: 0}}
		(&plotter.Polygon{XYs: []plotter.XYs{ring}, Color: b.role.color()}).Plot(c, p)
	}
}

// bar is a share of the counts, at index times the common width.
type bar struct {
	index uint64
	share float64
}

// ageMark is a layer: a dashed vertical line with its name at the top, on the side with more room.
type ageMark struct {
	x    float64
	text string
}

// Plot implements plot.Plotter.
func (m ageMark) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	x := trX(m.x)
	across := targetRule(m.x)
	across.vertical = true
	across.Plot(c, p)
	name := style(inkColor, textSize)
	name.YAlign = draw.YTop
	at := vg.Point{X: x + 4, Y: c.Max.Y - 1}
	if x > (c.Min.X+c.Max.X)/2 {
		name.XAlign = draw.XRight
		at.X -= 8
	}
	c.FillText(name, at, m.text)
}

// crosses is a layer: the last points of unfinished runs.
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

// reachMark is a layer: the point at which a median curve reached the target, with a line down to the axis.
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

// reachLabels is a layer: the values of the reach marks at the foot of their lines. The smallest stands left of its
// line and the others right, so that two never overlap.
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
		c.FillText(text, at, words.Amount(m.x))
	}
}

// label is text beside a point.
type label struct {
	at   plotter.XY
	text string
	role role
}

// endLabels is a layer: names to the right of the ends of lines, moved apart where they would overlap. With more than
// two arms the names stand in a column, in ink behind a piece of their line, because some hues are too light for text.
type endLabels struct {
	labels []label
	column bool
}

// keyLength is the length of the piece of line before a name in a column.
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
				c.StrokeLine2(penOf(e.role, 2).style(), at.X, at.Y, at.X+keyLength, at.Y)
				at.X += keyLength + 4
			}
		}
		c.FillText(text, at, e.text)
	}
}

// inline turns a canvas into an SVG element for the page: without XML header, with colours from the page's style sheet,
// in the reader's sans-serif font, and with a title for screen readers.
func inline(c *vgsvg.Canvas, width, height vg.Length, class, title string) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %q: %w", title, err)
	}
	text := b.String()
	_, text, found := strings.Cut(text, `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !found {
		return "", fmt.Errorf("draw %q: the SVG has no opening element", title)
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
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %g %g" role="img"><title>%s</title>`,
		class, width.Points(), height.Points(), html.EscapeString(title))
	return template.HTML(head + text), nil
}

package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/internal/figures"
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

// svg draws the chart. The area is that of the data: left, bottom, right and top, y upwards.
func (ch *chart) svg() (svg markup, area [4]float64) {
	p := plot.New()
	p.BackgroundColor = nil
	styleAxis(&p.X, ch.x, axisColor, mutedColor)
	styleAxis(&p.Y, ch.y, gridColor.of(figures.Grid, 0), mutedColor.of(figures.Tick, 0))
	p.X.Label.Text, p.X.Label.Padding = ch.x.title, 4
	p.Y.LineStyle.Width = 0
	p.Add(gridOf(ch.x, ch.y))
	p.Add(ch.layers...)
	// Layers may have widened the axes; a chart shows what it was asked to.
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = ch.x.low, ch.x.high, ch.y.low, ch.y.high

	c := vgsvg.New(ch.width, ch.height)
	inside := draw.Crop(draw.New(c), 1, -ch.right-1, 1, -textSize*1.9)
	if shift := ch.left - p.DataCanvas(inside).Min.X; shift > 0 {
		inside.Min.X += shift
	}
	p.Draw(inside)
	heading := style(mutedColor, textSize)
	heading.YAlign = draw.YTop
	whole := draw.New(c)
	whole.FillText(heading, vg.Point{X: 1, Y: ch.height - 1}, ch.y.title)
	data := p.DataCanvas(inside)
	for i, v := range []vg.Length{data.Min.X, data.Min.Y, data.Max.X, data.Max.Y} {
		area[i] = math.Round(10*v.Points()) / 10
	}
	return inline(c, ch.width, ch.height, ch.class, ch.title), area
}

// styleAxis gives an axis the style of all charts, with tick marks and labels in the colours of roles.
func styleAxis(a *plot.Axis, of axis, marks, labels role) {
	a.Min, a.Max = of.low, of.high
	a.Padding = 0
	if of.log {
		a.Scale = plot.LogScale{}
	}
	a.Color, a.Width = axisColor.color(), 0.8
	a.Tick.Marker = of.ticks
	a.Tick.Length, a.Tick.Width, a.Tick.Color = 4, 0.8, marks.color()
	xAlign, yAlign := a.Tick.Label.XAlign, a.Tick.Label.YAlign
	a.Tick.Label = style(labels, textSize)
	a.Tick.Label.XAlign, a.Tick.Label.YAlign = xAlign, yAlign
	a.Label.TextStyle = style(mutedColor, textSize)
	a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = draw.XCenter, draw.YBottom
}

func gridOf(x, y axis) *plotter.Grid {
	g := &plotter.Grid{}
	if !x.gridless {
		g.Vertical = draw.LineStyle{Color: gridColor.color(), Width: 0.8}
	}
	if !y.gridless {
		g.Horizontal = draw.LineStyle{Color: gridColor.of(figures.Grid, 0).color(), Width: 0.8}
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
// in the reader's sans-serif font, with a title for screen readers, and with the parts that the page's script finds.
// Neighbouring paths of one style and part are one path.
func inline(c *vgsvg.Canvas, width, height vg.Length, class, title string) markup {
	var b bytes.Buffer
	c.WriteTo(&b) // a buffer takes everything
	_, text, found := strings.Cut(b.String(), `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !found {
		panic("report: vgsvg wrote an SVG without an opening element")
	}
	text = withStyles(text)
	var out strings.Builder
	attributes := "" // of the path that is open
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		line += "\n"
		d, rest, isPath := strings.Cut(strings.TrimPrefix(line, `<path d="`), `" `)
		isPath = isPath && strings.HasPrefix(line, "<path ")
		if attributes != "" && !(isPath && rest == attributes) {
			out.WriteString(`" ` + attributes)
			attributes = ""
		}
		switch {
		case !isPath:
			out.WriteString(line)
		case attributes == "":
			out.WriteString(`<path d="`)
			attributes = rest
			fallthrough
		default:
			out.WriteString(shorten(d))
		}
	}
	return markup(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %g %g" role="img">`+
		"<title>%s</title>\n%s", class, width.Points(), height.Points(), html.EscapeString(title), out.String()))
}

// withStyles returns an SVG whose elements refer to the page's style sheet and name their parts.
func withStyles(svg string) string {
	const begins, ends = `style="`, `"`
	var b strings.Builder
	known := make(map[string]string) // few styles of many elements
	for {
		before, after, found := strings.Cut(svg, begins)
		if !found {
			b.WriteString(svg)
			return b.String()
		}
		style, rest, _ := strings.Cut(after, ends)
		own, ok := known[style]
		if !ok {
			own = inlineStyle(style)
			known[style] = own
		}
		b.WriteString(strings.TrimRight(before, " \n\t") + own)
		svg = rest
	}
}

var (
	fontOfPage = regexp.MustCompile(`font-family:[^;]*;font-variant:[^;]*;|font-weight:(normal|400);|font-style:normal;?`)
	colour     = regexp.MustCompile(`(fill|stroke):#([0-9A-F]{6})`)
)

// inlineStyle returns the attributes of an element of a style: what the page's style sheet does not say, and its part.
func inlineStyle(style string) string {
	part := ""
	style = fontOfPage.ReplaceAllString(style, "")
	style = colour.ReplaceAllStringFunc(style, func(style string) string {
		property, hex, _ := strings.Cut(style, ":#")
		n, err := strconv.ParseUint(hex, 16, 32)
		r, ok := drawnIn(uint32(n))
		if err != nil || !ok {
			return style
		}
		part = r.part()
		if p := r.paint(); p.opacity != 1 {
			return fmt.Sprintf("%s:var(--%s);%s-opacity:%g", property, p.variable, property, p.opacity)
		}
		return fmt.Sprintf("%s:var(--%s)", property, r.paint().variable)
	})
	if style == fmt.Sprintf(`font-size:%dpx;fill:var(--muted)`, textSize) { // as the style sheet has it
		style = ""
	} else {
		style = fmt.Sprintf(` style="%s"`, style)
	}
	if part != "" {
		style = fmt.Sprintf(` data-p="%s"%s`, part, style)
	}
	return style
}

// shorten writes a path in tenths of a point, each point relative to the one before. A move right after a move is
// relative too. Nothing is left of a path without a place, as a rule has on an axis that ends far from it.
func shorten(d string) string {
	var b strings.Builder
	var x, y int // in tenths, as written so far
	var command byte
	number := func(tenths int, first bool) {
		text := strconv.FormatFloat(float64(tenths)/10, 'f', -1, 64)
		text = strings.Replace(strings.TrimPrefix(text, "0"), "-0.", "-.", 1)
		if text == "" {
			text = "0"
		}
		if !first && text[0] != '-' {
			b.WriteByte(' ')
		}
		b.WriteString(text)
	}
	for len(d) > 0 {
		token := d
		if next := strings.IndexAny(d[1:], "MLAZ"); next >= 0 {
			token = d[:1+next]
		}
		d = d[len(token):]
		at := strings.FieldsFunc(token[1:], func(r rune) bool { return r == ',' || r == ' ' })
		tenths := make([]int, len(at))
		for i, text := range at {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return ""
			}
			tenths[i] = int(math.Round(10 * v))
		}
		if len(tenths) < 2 { // Z
			b.WriteByte('z')
			command = 'z'
			continue
		}
		end := tenths[len(tenths)-2:]
		next := token[0] | 0x20
		switch {
		case token[0] == 'M' && command != 'M':
			next = 'M'
			b.WriteByte(next)
			number(end[0], true)
			number(end[1], false)
		case next == 'l' && command == 'l' && x == end[0] && y == end[1]: // shorter than a tenth
			continue
		default:
			if next != command || next == 'a' {
				b.WriteByte(next)
			}
			if next == 'a' {
				fmt.Fprintf(&b, "%s,%s 0 %s %s", at[0], at[1], at[3], at[4])
			}
			number(end[0]-x, next != command && next != 'a')
			number(end[1]-y, false)
		}
		x, y, command = end[0], end[1], next
	}
	return b.String()
}

// fill paints a rectangle.
func fill(c draw.Canvas, r role, left, right, bottom, top vg.Length) {
	c.FillPolygon(r.color(), []vg.Point{{X: left, Y: bottom}, {X: left, Y: top}, {X: right, Y: top},
		{X: right, Y: bottom}})
}

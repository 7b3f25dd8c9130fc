package report

import (
	"html/template"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// heat draws a heat map: cells by column and row, the first row on top. A stronger colour is better.
type heat struct {
	of     *results.Figure
	values extent
	ranked []float64 // ascending, where colours go by rank: few values far from the rest would leave these alike
	width  vg.Length // of the canvas
	left   vg.Length // of the first cell
	cell   vg.Length // its width
	row    vg.Length // its height
	every  int       // so manieth column has its name
	filled bool      // the cells have room for their values
}

// Sizes of a map, in points.
const (
	halfWidth   vg.Length = 380 // of a figure of half the page
	fullWidth   vg.Length = 840
	widestCell  vg.Length = 84
	mapHead     vg.Length = textSize * 1.9 // for the title of the rows, above the cells
	mapFoot     vg.Length = textSize * 3.4 // for names and title of the columns, below
	cellGap     vg.Length = 1.5
	betweenText vg.Length = 7 // values side by side
)

// newHeat lays a map out; ok is false if no cell has a value.
func newHeat(f *results.Figure) (h heat, ok bool) {
	m := f.Map
	h = heat{of: f, values: nothing(), row: 28, every: 1}
	text := style(inkColor, textSize)
	widest := vg.Length(0)
	var known []float64
	for _, row := range m.Values {
		for _, v := range row {
			if v.Known() {
				h.values.add(v.Float())
				known = append(known, v.Float())
				widest = max(widest, text.Width(words.Fixed(v.Float(), m.Digits)))
			}
		}
	}
	if h.values.empty() {
		return h, false
	}
	h.ranked = ranks(known, h.values)
	widestName := vg.Length(0)
	for _, name := range m.Columns {
		widestName = max(widestName, text.Width(oneLine(name)))
	}
	for _, name := range m.Rows {
		h.left = max(h.left, text.Width(oneLine(name))+8)
	}
	columns := vg.Length(len(m.Columns))
	needed := max(widest, widestName) + betweenText
	h.width = halfWidth
	if h.left+columns*needed > h.width {
		h.width = fullWidth
	}
	h.filled = h.left+columns*(widest+betweenText) <= h.width
	if !h.filled { // many small cells, like a picture
		h.row = max(4, min(14, 300/vg.Length(len(m.Rows))))
	}
	h.cell = min(widestCell, (h.width-h.left-1)/columns)
	for widestName+betweenText > h.cell*vg.Length(h.every) && h.every < len(m.Columns) {
		h.every++
	}
	return h, true
}

// svg draws the map.
func (h heat) svg() markup {
	m := h.of.Map
	height := mapHead + h.row*vg.Length(len(m.Rows)) + mapFoot
	canvas := vgsvg.New(h.width, height)
	c := draw.New(canvas)
	heading := style(mutedColor, textSize)
	heading.YAlign = draw.YTop
	c.FillText(heading, vg.Point{X: 1, Y: height - 1}, oneLine(h.of.Y.Title))
	for i, name := range m.Rows {
		if every := int(1 + textSize*1.3/h.row); i%every == 0 {
			text := style(mutedColor, textSize)
			text.XAlign, text.YAlign = draw.XRight, draw.YCenter
			c.FillText(text, vg.Point{X: h.left - 6, Y: h.box(height, 0, i).Max.Y - h.row/2}, oneLine(name))
		}
		for j, v := range m.Values[i] {
			h.drawCell(&c, h.box(height, j, i), v)
		}
	}
	h.drawColumns(&c)
	for i, mark := range h.of.Marks {
		outline(&c, h.box(height, int(mark.X), int(mark.Y)), markRole(i), h.nth(i))
	}
	return inline(canvas, h.width, height, h.class(), oneLine(h.of.Title))
}

// class is the SVG element's class. A wide map scrolls sideways on a narrow screen.
func (h heat) class() string {
	if h.width > halfWidth {
		return "map broad"
	}
	return "map half"
}

// box returns the rectangle of a cell on a canvas of a height.
func (h heat) box(height vg.Length, column, row int) vg.Rectangle {
	left, top := h.left+h.cell*vg.Length(column), height-mapHead-h.row*vg.Length(row)
	return vg.Rectangle{Min: vg.Point{X: left, Y: top - h.row}, Max: vg.Point{X: left + h.cell, Y: top}}
}

// drawCell fills a cell and writes its value into it.
func (h heat) drawCell(c *draw.Canvas, box vg.Rectangle, v results.Number) {
	gap := cellGap / 2
	if !h.filled {
		gap = 0.2
	}
	text := style(mutedColor, textSize)
	text.XAlign, text.YAlign = draw.XCenter, draw.YCenter
	middle := vg.Point{X: (box.Min.X + box.Max.X) / 2, Y: (box.Min.Y + box.Max.Y) / 2}
	if !v.Known() {
		if h.filled {
			edge := draw.LineStyle{Color: gridColor.color(), Width: 1}
			strokeBox(c, edge, box, gap+0.5)
			c.FillText(text, middle, "–")
		}
		return
	}
	paint, on := heatFill(h.share(v.Float()))
	fill(*c, paint, box.Min.X+gap, box.Max.X-gap, box.Min.Y+gap, box.Max.Y-gap)
	if h.filled {
		text.Color = on.color()
		c.FillText(text, middle, words.Fixed(v.Float(), h.of.Map.Digits))
	}
}

// drawColumns writes the columns' names and title below the cells.
func (h heat) drawColumns(c *draw.Canvas) {
	text := style(mutedColor, textSize)
	text.XAlign, text.YAlign = draw.XCenter, draw.YTop
	for i, name := range h.of.Map.Columns {
		if i%h.every == 0 {
			c.FillText(text, vg.Point{X: h.left + h.cell*(vg.Length(i)+0.5), Y: mapFoot - 3}, oneLine(name))
		}
	}
	text.YAlign = draw.YBottom
	c.FillText(text, vg.Point{X: h.left + h.cell*vg.Length(len(h.of.Map.Columns))/2, Y: 1}, oneLine(h.of.X.Title))
}

// heatFigure draws a map for its place on the page.
func heatFigure(f *results.Figure) figure {
	out := figure{Title: f.Title, Note: f.Note}
	h, ok := newHeat(f)
	if !ok {
		out.Empty = "Nothing to draw: no cell of the map has a value."
		return out
	}
	out.SVG, out.Scrolls, out.Legend = []markup{h.svg()}, h.width > halfWidth, h.legend()
	out.Data = template.JS(h.data().JSON())
	return out
}

// data returns the values that the map carries for the page's script.
func (h heat) data() *figures.Data {
	m := h.of.Map
	cells := &figures.Cells{Columns: m.Columns, Rows: m.Rows}
	for _, row := range m.Values {
		var values []figures.Number
		for _, v := range row {
			values = append(values, figures.Number(v.Float()))
		}
		cells.Values = append(cells.Values, values)
	}
	top := mapFoot + h.row*vg.Length(len(m.Rows))
	for i, v := range []vg.Length{h.left, top, h.cell, h.row} {
		cells.Box[i] = math.Round(100*v.Points()) / 100
	}
	return &figures.Data{X: figures.Axis{Title: oneLine(h.of.X.Title)}, Y: figures.Axis{Title: oneLine(h.of.Y.Title)},
		Cells: cells}
}

// ranks returns the distinct values in ascending order if half of the values lie within a sixth of their range at one
// end, else nil.
func ranks(values []float64, within extent) []float64 {
	share := (results.Median(values) - within.low) / (within.high - within.low)
	if share > 1.0/6 && share < 5.0/6 || within.low == within.high {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// share returns the strength of a value's colour, from 0 to 1.
func (h heat) share(v float64) float64 {
	var share float64
	switch {
	case h.values.high == h.values.low:
		return 0.4
	case h.ranked != nil:
		i, _ := slices.BinarySearch(h.ranked, v)
		share = float64(i) / float64(len(h.ranked)-1)
	default:
		share = (v - h.values.low) / (h.values.high - h.values.low)
	}
	if h.of.Map.Less {
		return 1 - share
	}
	return share
}

// nth counts the earlier marks on the same cell.
func (h heat) nth(i int) int {
	n := 0
	for _, m := range h.of.Marks[:i] {
		if m.X == h.of.Marks[i].X && m.Y == h.of.Marks[i].Y {
			n++
		}
	}
	return n
}

// markRole is the colour of the i-th mark of a map. None is blue.
func markRole(i int) role { return armRole([]int{0, 2, 4, 6}[i%4]) }

// outline frames a cell inside the frames of n others.
func outline(c *draw.Canvas, box vg.Rectangle, r role, n int) {
	strokeBox(c, draw.LineStyle{Color: r.color(), Width: 2.4}, box, 1.2+3*vg.Length(n))
}

// strokeBox draws the edge of a rectangle, inset by a length.
func strokeBox(c *draw.Canvas, pen draw.LineStyle, box vg.Rectangle, inset vg.Length) {
	low, high := vg.Point{X: box.Min.X + inset, Y: box.Min.Y + inset},
		vg.Point{X: box.Max.X - inset, Y: box.Max.Y - inset}
	c.StrokeLines(pen, []vg.Point{low, {X: high.X, Y: low.Y}, high, {X: low.X, Y: high.Y}, low})
}

// legend explains the colours and the frames.
func (h heat) legend() []key {
	m := h.of.Map
	if h.values.low == h.values.high {
		return h.markKeys([]key{{Name: words.Fixed(h.values.low, m.Digits) + " " + oneLine(m.Unit) + " in every cell"}})
	}
	from, to := h.values.low, h.values.high
	if m.Less {
		from, to = to, from
	}
	ramp := keyIcon(60, func(c *draw.Canvas) {
		step := (c.Max.X - c.Min.X) / heatLevels
		for i := range heatLevels {
			fill(*c, heat0+role(i), c.Min.X+step*vg.Length(i), c.Min.X+step*vg.Length(i+1), c.Min.Y, c.Max.Y)
		}
	})
	name := words.Fixed(to, m.Digits)
	if unit := oneLine(m.Unit); unit != "" {
		name += " " + unit
	}
	if h.ranked != nil {
		name += ", by rank"
	}
	return h.markKeys([]key{{Before: words.Fixed(from, m.Digits), Icon: ramp,
		Name: name + ", the stronger the better"}})
}

// markKeys adds the frames to a legend.
func (h heat) markKeys(keys []key) []key {
	for i, mark := range h.of.Marks {
		icon := keyIcon(18, func(c *draw.Canvas) {
			x := c.Center().X
			outline(c, vg.Rectangle{Min: vg.Point{X: x - 8, Y: c.Min.Y}, Max: vg.Point{X: x + 8, Y: c.Max.Y}},
				markRole(i), 0)
		})
		keys = append(keys, key{Icon: icon, Name: oneLine(mark.Name)})
	}
	return keys
}

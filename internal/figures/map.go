package figures

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/internal/words"
)

// heatLevels is the number of fills of a map, few enough that text is readable on each. The style sheet has them as
// heat-0, heat-1, … with on-heat-0, … for text.
const heatLevels = 9

// heatMap is a drawing of a figure's cells, the first row on top. A stronger colour is better.
type heatMap struct {
	*Figure
	values extent
	ranked []float64 // ascending, where colours go by rank: few values far from the rest would leave these alike
	width  float64
	left   float64 // of the first cell
	cell   float64 // its width
	row    float64 // its height
	every  int     // so manieth column has its name
	filled bool    // the cells have room for their values
}

// Sizes of a map.
const (
	halfWidth   = 380.0 // of a figure of half the page
	fullWidth   = 840.0
	widestCell  = 84
	betweenText = 7 // values side by side
	mapHead     = titleHeight
	mapFoot     = 2.6 * textSize
)

// Broad reports whether the figure is a map that needs the whole width of a page.
func (f *Figure) Broad() bool {
	m, ok := f.newMap()
	return ok && m.width > halfWidth
}

// newMap lays a map out; ok is false if no cell has a value.
func (f *Figure) newMap() (m *heatMap, ok bool) {
	if f.Cells == nil {
		return nil, false
	}
	m = &heatMap{Figure: f, values: nothing(), row: 28, every: 1, width: halfWidth}
	var known []float64
	widest, widestName := 0.0, 0.0
	for _, row := range f.Cells.Values {
		for _, v := range row {
			if m.values.add(&Axis{}, v) {
				known = append(known, float64(v))
				widest = max(widest, width(m.text(v)))
			}
		}
	}
	if len(known) == 0 {
		return nil, false
	}
	m.rank(known)
	for _, name := range f.Cells.Columns {
		widestName = max(widestName, width(oneLine(name)))
	}
	for _, name := range f.Cells.Rows {
		m.left = max(m.left, min(m.width/3, width(oneLine(name))+8))
	}
	columns := float64(len(f.Cells.Columns))
	if m.left+columns*(max(widest, widestName)+betweenText) > m.width {
		m.width = fullWidth
	}
	m.cell = min(widestCell, (m.width-m.left-1)/columns)
	if m.filled = widest+betweenText <= m.cell; !m.filled { // many small cells, like a picture
		m.row = max(4, min(14, 300/float64(len(f.Cells.Rows))))
	}
	for widestName+betweenText > m.cell*float64(m.every) && m.every < len(f.Cells.Columns) {
		m.every++
	}
	f.Cells.Box = [4]float64{m.left, mapHead, math.Round(100*m.cell) / 100, m.row}
	return m, true
}

func (m *heatMap) text(v Number) string { return words.Fixed(float64(v), m.Cells.Digits) }

// at returns the box of a cell.
func (m *heatMap) at(column, row int) box {
	left, top := m.left+m.cell*float64(column), mapHead+m.row*float64(row)
	return box{left, top, left + m.cell, top + m.row}
}

// svg draws the map.
func (m *heatMap) svg() template.HTML {
	s := Size{Class: "map half", Width: m.width, Height: mapHead + m.row*float64(len(m.Cells.Rows)) + mapFoot}
	if m.width > halfWidth {
		s.Class = "map broad" // scrolls sideways on a narrow screen
	}
	var text, all canvas
	var fills [heatLevels]path
	var empty path
	text.text(element{}, "start", 1, textSize*0.8, fitted(m.Y.Title, m.width-2))
	for i, row := range m.Cells.Values {
		if every := int(1 + textSize*1.3/m.row); i%every == 0 {
			text.text(element{}, "end", m.left-6, m.at(0, i).bottom-m.row/2+3.5, fitted(m.Cells.Rows[i], m.left-8))
		}
		for j, v := range row {
			b, level := m.at(j, i), m.level(v)
			label, colour := "–", ""
			switch {
			case level < 0 && m.filled:
				empty.box(b.inset(1.25))
			case level < 0:
			case m.filled:
				fills[level].box(b.inset(0.75))
				label, colour = m.text(v), fmt.Sprint("on-heat-", level)
			default:
				fills[level].box(b.inset(0.2))
			}
			if m.filled {
				text.text(element{colour: colour}, "middle", (b.left+b.right)/2, (b.top+b.bottom)/2+3.5, label)
			}
		}
	}
	for i, name := range m.Cells.Columns {
		if i%m.every == 0 {
			text.centred(element{}, m.left+m.cell*(float64(i)+0.5), s.Height-mapFoot+textSize*1.1, m.width, name)
		}
	}
	text.centred(element{}, m.left+m.cell*float64(len(m.Cells.Columns))/2, s.Height-3, m.width, m.X.Title)
	for i, mark := range m.Marks {
		if x, y := int(mark.X), int(mark.Y); min(x, y) >= 0 && x < len(m.Cells.Columns) && y < len(m.Cells.Rows) {
			text.frame(m.at(x, y), i, m.nth(i))
		}
	}
	all.path(element{class: "gridline"}, &empty)
	for level := range fills {
		all.path(element{class: "cell", colour: fmt.Sprint("heat-", level)}, &fills[level])
	}
	all.WriteString(text.String())
	return all.svg(s, m.Title)
}

// rank has colours go by rank if half of the values lie within a sixth of their range at one end.
func (m *heatMap) rank(values []float64) {
	slices.Sort(values)
	n := len(values)
	median := values[n/2]/2 + values[(n-1)/2]/2
	share := (median - m.values.low) / (m.values.high - m.values.low)
	if m.values.low < m.values.high && (share <= 1.0/6 || share >= 5.0/6) {
		m.ranked = slices.Compact(values)
	}
}

// level returns the fill of a value, -1 if there is none.
func (m *heatMap) level(v Number) int {
	share := (float64(v) - m.values.low) / (m.values.high - m.values.low)
	switch {
	case !(&Axis{}).holds(v):
		return -1
	case m.values.high == m.values.low:
		return heatLevels * 2 / 5
	case m.ranked != nil:
		i, _ := slices.BinarySearch(m.ranked, float64(v))
		share = float64(i) / float64(len(m.ranked)-1)
	}
	if m.Cells.Less {
		share = 1 - share
	}
	return min(heatLevels-1, int(share*heatLevels))
}

// nth counts the earlier marks on the same cell.
func (m *heatMap) nth(i int) int {
	n := 0
	for _, mark := range m.Marks[:i] {
		if mark.X == m.Marks[i].X && mark.Y == m.Marks[i].Y {
			n++
		}
	}
	return n
}

// frame frames a box for the i-th mark, inside the frames of n others. No frame is blue.
func (c *canvas) frame(b box, i, n int) {
	var edge path
	c.path(element{class: "frame", colour: Arms()[i%4*2]}, edge.box(b.inset(1.2+3*float64(n))))
}

// legend explains the colours and the frames.
func (m *heatMap) legend() []Key {
	low, high := m.text(Number(m.values.low)), m.text(Number(m.values.high))
	unit := ""
	if text := oneLine(m.Cells.Unit); text != "" {
		unit = " " + text
	}
	key := Key{Name: low + unit + " in every cell"}
	if m.values.low < m.values.high {
		if m.Cells.Less {
			low, high = high, low
		}
		key = Key{Before: low, Name: high + unit}
		if m.ranked != nil {
			key.Name += ", by rank"
		}
		key.Name += ", the stronger the better"
		const wide = 7
		var ramp canvas
		for level := range heatLevels {
			var fill path
			fill.box(box{float64(wide * level), 0, float64(wide * (level + 1)), iconHeight})
			ramp.path(element{class: "cell", colour: fmt.Sprint("heat-", level)}, &fill)
		}
		key.Icon = ramp.icon(wide * heatLevels)
	}
	keys := []Key{key}
	for i, mark := range m.Marks {
		var piece canvas
		piece.frame(box{1, 0, 17, iconHeight}, i, 0)
		keys = append(keys, Key{Icon: piece.icon(18), Name: oneLine(mark.Name)})
	}
	return keys
}

package report

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/results"
)

// nth counts the marks before the i-th that stand at the same cell.
func (h heat) nth(i int) int {
	n := 0
	for _, m := range h.of.Marks[:i] {
		if m.X == h.of.Marks[i].X && m.Y == h.of.Marks[i].Y {
			n++
		}
	}
	return n
}

// markRole is the colour of the i-th mark of a map, none of them a blue.
func markRole(i int) role { return armRole([]int{0, 2, 4, 6}[i%4]) }

// outline frames a cell, within the frames of n others.
func outline(c *draw.Canvas, box vg.Rectangle, r role, n int) {
	strokeBox(c, draw.LineStyle{Color: r.color(), Width: 2.4}, box, 1.2+3*vg.Length(n))
}

// strokeBox draws the edge of a rectangle, so far within it.
func strokeBox(c *draw.Canvas, pen draw.LineStyle, box vg.Rectangle, inset vg.Length) {
	low, high := vg.Point{X: box.Min.X + inset, Y: box.Min.Y + inset}, vg.Point{X: box.Max.X - inset, Y: box.Max.Y - inset}
	c.StrokeLines(pen, []vg.Point{low, {X: high.X, Y: low.Y}, high, {X: low.X, Y: high.Y}, low})
}

// legend says what the colours mean and what the frames are.
func (h heat) legend() ([]sheetKey, error) {
	m := h.of.Map
	if h.values.low == h.values.high {
		return h.markKeys([]sheetKey{{Name: cellText(results.Num(h.values.low), m.Digits) + " " + oneLine(m.Unit) + " in every cell"}})
	}
	from, to := h.values.low, h.values.high
	if m.Less {
		from, to = to, from
	}
	ramp, err := keyIcon(60, func(c *draw.Canvas) {
		step := (c.Max.X - c.Min.X) / heatLevels
		for i := range heatLevels {
			fill(*c, heat0+role(i), c.Min.X+step*vg.Length(i), c.Min.X+step*vg.Length(i+1), c.Min.Y, c.Max.Y)
		}
	})
	if err != nil {
		return nil, err
	}
	name := cellText(results.Num(to), m.Digits)
	if unit := oneLine(m.Unit); unit != "" {
		name += " " + unit
	}
	if h.ranked != nil {
		name += ", by rank"
	}
	return h.markKeys([]sheetKey{{Before: cellText(results.Num(from), m.Digits), Icon: ramp, Name: name + ", the stronger the better"}})
}

// markKeys adds what the frames are.
func (h heat) markKeys(keys []sheetKey) ([]sheetKey, error) {
	for i, mark := range h.of.Marks {
		icon, err := keyIcon(18, func(c *draw.Canvas) {
			x := c.Center().X
			outline(c, vg.Rectangle{Min: vg.Point{X: x - 8, Y: c.Min.Y}, Max: vg.Point{X: x + 8, Y: c.Max.Y}}, markRole(i), 0)
		})
		if err != nil {
			return nil, err
		}
		keys = append(keys, sheetKey{Icon: icon, Name: oneLine(mark.Name)})
	}
	return keys, nil
}

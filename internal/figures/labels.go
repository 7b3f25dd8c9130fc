package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
)

// ink notes a line that names should not cover. A single point counts as a whole crossing.
func (c *chart) ink(line ...point) {
	if len(c.Guides)+len(c.Marks) == 0 {
		return
	}
	const step, crossing = 3, 8
	for i := 1; i < len(line); i++ {
		from, to := line[i-1], line[i]
		n := math.Ceil(math.Hypot(to.x-from.x, to.y-from.y) / step)
		for k := range int(n) {
			share := float64(k) / n
			c.inked = append(c.inked, point{from.x + share*(to.x-from.x), from.y + share*(to.y-from.y)})
		}
	}
	if len(line) == 1 {
		c.inked = append(c.inked, slices.Repeat(line, crossing)...)
	}
}

// drawNotes draws the lines of guides and a ring at each mark, and writes their names where they cover least.
func (c *chart) drawNotes() {
	const gap = 4
	var shown []int
	for i, m := range c.Marks {
		if at := (point{c.x(m.X), c.y(m.Y)}); c.X.shows(m.X) && c.Y.shows(m.Y) {
			var ring path
			c.layer[names].path(element{"ring", "ink", fmt.Sprint("r", i)}, ring.marker(0, ringRadius, at))
			c.taken = append(c.taken, box{at.x, at.y, at.x, at.y}.inset(-ringRadius))
			shown = append(shown, i)
		}
	}
	for _, i := range shown {
		m := &c.Marks[i]
		c.name(m.Name, element{"", "ink", fmt.Sprint("r", i)}, beside(point{c.x(m.X), c.y(m.Y)}, ringRadius+3))
	}
	for i, g := range c.Guides {
		part, d := fmt.Sprint("g", i), c.data
		x, y := c.x(g.X), c.y(g.Y)
		level := c.Y.shows(g.Y)
		if !level && !c.X.shows(g.X) {
			continue
		}
		var places []placement
		for _, share := range [5]float64{1, 0, 0.75, 0.5, 0.25} {
			if level {
				x = d.left + gap + share*(d.right-d.left-2*gap)
				places = append(places, placement{x, y - gap, share, 1}, placement{x, y + gap, share, 0})
			} else {
				y = d.bottom - gap - share*(d.bottom-d.top-2*gap)
				places = append(places, placement{x + gap, y, 0, 1 - share}, placement{x - gap, y, 1, 1 - share})
			}
		}
		from, to := point{x, d.bottom}, point{x, d.top}
		if level {
			from, to = point{d.left, y}, point{d.right, y}
		}
		var line path
		line.line('M', from, to)
		c.layer[guides].path(element{class: "guide", part: part}, &line)
		c.name(g.Name, element{part: part}, places)
	}
}

// placement is a place for a name: a point, and how much of the name's width and height lies left of it and above.
type placement struct{ x, y, left, above float64 }

// beside returns the placements around a point.
func beside(at point, gap float64) (list []placement) {
	for _, p := range [12][4]float64{{1, 0, 0, 0.5}, {-1, 0, 1, 0.5}, {0, -1, 0.5, 1}, {0, 1, 0.5, 0},
		{1, -1, 0, 1}, {-1, -1, 1, 1}, {1, 1, 0, 0}, {-1, 1, 1, 0},
		{1, -1, 0, 2}, {-1, -1, 1, 2}, {1, 1, 0, -1}, {-1, 1, 1, -1}} {
		list = append(list, placement{at.x + p[0]*gap, at.y + p[1]*gap, p[2], p[3]})
	}
	return list
}

// name writes a name at the placement that covers least, the first of equals.
func (c *chart) name(name string, e element, places []placement) {
	if name = fitted(name, c.data.right-c.data.left); name == "" || len(places) == 0 {
		return
	}
	wide, least := width(name), math.Inf(1)
	var best box
	var at placement
	for _, p := range places {
		left, top := p.x-p.left*wide, p.y-p.above*textSize
		b := box{left, top, left + wide, top + textSize}
		if cost := c.cost(b); cost < least {
			best, least, at = b, cost, p
		}
	}
	best.left = max(c.data.left, min(c.data.right-wide, best.left))
	best.top = max(c.data.top, min(c.data.bottom-textSize, best.top))
	best.right, best.bottom = best.left+wide, best.top+textSize
	c.taken = append(c.taken, best)
	anchor, x := "middle", best.left+wide/2
	switch at.left {
	case 0:
		anchor, x = "start", best.left
	case 1:
		anchor, x = "end", best.right
	}
	c.layer[names].text(e, anchor, x, best.bottom-textSize*0.2, name)
}

// cost rates a box for a name. Leaving the data is worst, covering another name is bad, and covering lines costs by
// their length.
func (c *chart) cost(b box) (cost float64) {
	for _, over := range [4]float64{c.data.left - b.left, b.right - c.data.right, c.data.top - b.top,
		b.bottom - c.data.bottom} {
		if over > 0 {
			cost += 1e6 + 1e4*over
		}
	}
	for _, t := range c.taken {
		if b.overlaps(t) {
			cost += 1e4
		}
	}
	around := b.inset(-1)
	for _, at := range c.inked {
		if around.holds(at) {
			cost++
		}
	}
	return cost
}

// beyond lists the measured points, marks and guides outside the axes.
func (f *Figure) beyond() string {
	n := 0
	var outside []string
	out := func(x, y Number) bool { return f.X.holds(x) && !f.X.shows(x) || f.Y.holds(y) && !f.Y.shows(y) }
	for i := range f.Curves {
		c := &f.Curves[i]
		for k, x := range c.X {
			if !c.Dashed && f.known(c, k) && out(Number(x), c.Y[k]) {
				n++
			}
		}
	}
	if n > 0 {
		outside = append(outside, words.Plural(n, "point"))
	}
	notes := slices.Clone(f.Marks)
	for _, g := range f.Guides {
		notes = append(notes, Mark{Name: g.Name, X: g.X, Y: g.Y})
	}
	for _, m := range notes {
		if out(m.X, m.Y) {
			outside = append(outside, oneLine(m.Name))
		}
	}
	if len(outside) == 0 {
		return ""
	}
	return "Beyond the axes: " + strings.Join(outside, ", ") + "."
}

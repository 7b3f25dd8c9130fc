package figures

import (
	"cmp"
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

// drawGuides draws the lines of the guides.
func (c *chart) drawGuides() {
	for i, g := range c.Guides {
		var line path
		if c.Y.shows(g.Y) {
			line.line('M', point{c.data.left, c.y(g.Y)}, point{c.data.right, c.y(g.Y)})
		} else if c.X.shows(g.X) {
			line.line('M', point{c.x(g.X), c.data.bottom}, point{c.x(g.X), c.data.top})
		}
		c.add(guides, element{class: "guide", part: fmt.Sprint("g", i)}, &line)
	}
}

// drawNames draws a ring at each mark, then writes the names of marks and guides where they cover least.
func (c *chart) drawNames() {
	const gap = 4
	for i, m := range c.Marks {
		if at := (point{c.x(m.X), c.y(m.Y)}); c.X.shows(m.X) && c.Y.shows(m.Y) {
			var ring path
			c.add(names, element{"ring", "ink", fmt.Sprint("r", i)}, ring.marker(0, ringRadius, at))
			c.taken = append(c.taken, box{at.x, at.y, at.x, at.y}.inset(-ringRadius))
		}
	}
	for i, m := range c.Marks {
		if c.X.shows(m.X) && c.Y.shows(m.Y) {
			c.name(m.Name, element{"", "ink", fmt.Sprint("r", i)}, beside(point{c.x(m.X), c.y(m.Y)}, ringRadius+3))
		}
	}
	for i, g := range c.Guides {
		var places []placement
		for _, share := range [5]float64{1, 0, 0.75, 0.5, 0.25} {
			if c.Y.shows(g.Y) {
				x, y := c.data.left+gap+share*(c.data.right-c.data.left-2*gap), c.y(g.Y)
				places = append(places, placement{x, y - gap, share, 1}, placement{x, y + gap, share, 0})
			} else if c.X.shows(g.X) {
				x, y := c.x(g.X), c.data.bottom-gap-share*(c.data.bottom-c.data.top-2*gap)
				places = append(places, placement{x + gap, y, 0, 1 - share}, placement{x - gap, y, 1, 1 - share})
			}
		}
		c.name(g.Name, element{part: fmt.Sprint("g", i)}, places)
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
	anchor := ""
	for _, p := range places {
		left, top := p.x-p.left*wide, p.y-p.above*textSize
		b := box{left, top, left + wide, top + textSize}
		if cost := c.cost(b); cost < least {
			best, least, anchor = b, cost, map[float64]string{0: "start", 1: "end"}[p.left]
		}
	}
	best.left = max(c.data.left, min(c.data.right-wide, best.left))
	best.top = max(c.data.top, min(c.data.bottom-textSize, best.top))
	best.right, best.bottom = best.left+wide, best.top+textSize
	c.taken = append(c.taken, best)
	x := map[string]float64{"start": best.left, "": (best.left + best.right) / 2, "end": best.right}[anchor]
	c.layer[names].WriteString(e.text(cmp.Or(anchor, "middle"), x, best.bottom-textSize*0.2, name))
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
	for _, m := range f.Marks {
		if out(m.X, m.Y) {
			outside = append(outside, oneLine(m.Name))
		}
	}
	for _, g := range f.Guides {
		if out(g.X, g.Y) {
			outside = append(outside, oneLine(g.Name))
		}
	}
	if len(outside) == 0 {
		return ""
	}
	return "Beyond the axes: " + strings.Join(outside, ", ") + "."
}

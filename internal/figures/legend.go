package figures

import (
	"cmp"
	"fmt"
	"html/template"
)

// Key is an entry of a legend: a piece of the drawing and its name.
type Key struct {
	Before string // to the left of the piece
	Icon   template.HTML
	Name   string
	Arm    string // that the entry hides and shows; empty: none
}

// Legend names what a chart shows. Thin curves have one entry together, unless nothing else has their colour.
func (f *Figure) Legend() (keys []Key) {
	var shows struct{ thin, band, whisker, computed, measured bool }
	thick, seen := make(map[[2]any]bool), make(map[string]bool)
	look := func(c *Curve) [2]any { return [2]any{c.Colour, c.Shape} }
	for i := range f.Curves {
		c := &f.Curves[i]
		thick[look(c)] = thick[look(c)] || !c.Thin && c.Name != "" && f.points(c) > 0
	}
	for i := range f.Curves {
		c := &f.Curves[i]
		n := f.points(c)
		switch {
		case n == 0:
			continue
		case c.Thin && (thick[look(c)] || c.Name == ""):
			shows.thin = true
			continue
		case c.Name != "":
			id := fmt.Sprint(c.Name, look(c), c.Thin, c.Dashed, c.Apart)
			if !seen[id] {
				keys = append(keys, Key{Icon: c.icon(len(f.marked(c, n)) > 0), Name: oneLine(c.Name), Arm: c.Arm})
			}
			seen[id] = true
		}
		shows.computed, shows.measured = shows.computed || c.Dashed, shows.measured || !c.Dashed
		if !c.Thin && c.spreads(&f.Y) {
			shows.band, shows.whisker = shows.band || !c.Apart, shows.whisker || c.Apart
		}
	}
	spread := template.HTML("")
	if shows.band {
		spread += `<i class="key band"></i>`
	}
	if shows.whisker {
		spread += `<i class="key whisker"></i>`
	}
	for _, one := range []struct {
		shown bool
		key   Key
	}{
		{shows.thin, Key{Icon: `<i class="key fine"></i>`, Name: oneLine(cmp.Or(f.Seeds, "one seed"))}},
		{spread != "", Key{Icon: spread, Name: "spread"}},
		{shows.computed && shows.measured, Key{Icon: `<i class="key computed"></i>`, Name: "computed"}},
	} {
		if one.shown {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// points counts the points of a curve that can be drawn, by their value or their spread.
func (f *Figure) points(c *Curve) (n int) {
	for k := range c.X {
		if low, _ := c.spread(&f.Y, k); f.known(c, k) || f.X.holds(Number(c.X[k])) && f.Y.holds(low) {
			n++
		}
	}
	return n
}

// icon draws a piece of the curve.
func (c *Curve) icon(marked bool) template.HTML {
	const middle = iconHeight / 2.0
	wide := 26.0
	var line, marks path
	if c.Apart {
		wide = 10
	} else {
		line.line('M', point{0, middle}, point{wide, middle})
	}
	if marked || c.Apart {
		marks.marker(c.Shape, 3.1, point{wide / 2, middle})
	}
	var piece canvas
	piece.path(element{class: "line" + c.look(), colour: c.Colour}, &line)
	piece.path(element{class: "dots" + c.look(), colour: c.Colour}, &marks)
	return piece.icon(wide)
}

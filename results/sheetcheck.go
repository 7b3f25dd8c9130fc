package results

import (
	"errors"
	"fmt"
	"math"
)

// Validate reports everything that keeps a sheet from being drawn, each problem with its section and its figure or table.
func (s *Sheet) Validate() error {
	var c sheetCheck
	if s.Title == "" {
		c.refuse("title: it is empty: want what the page is about")
	}
	for i, f := range s.Findings {
		switch f.Verdict {
		case Holds, DoesNotHold, CannotTell:
		default:
			c.refuse("finding %d (%s): verdict %q: want %q, %q or %q", i+1, f.Source, f.Verdict, Holds, DoesNotHold, CannotTell)
		}
	}
	for _, section := range s.Sections {
		for i := range section.Figures {
			f := &section.Figures[i]
			c.at = fmt.Sprintf("section %q, figure %q: ", section.Title, f.Title)
			c.figure(f)
		}
		for i := range section.Grids {
			g := &section.Grids[i]
			c.at = fmt.Sprintf("section %q, table %q: ", section.Title, g.Title)
			c.grid(g)
		}
	}
	return errors.Join(c.problems...)
}

// sheetCheck gathers what is wrong with a sheet.
type sheetCheck struct {
	at       string // section and figure, before each problem
	problems []error
}

func (c *sheetCheck) refuse(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%s%w", c.at, fmt.Errorf(format, args...))) // a title may hold a per cent sign
}

func (c *sheetCheck) grid(g *Grid) {
	if len(g.Columns) == 0 {
		c.refuse("columns: there are none: want a name for each")
	}
	for i, row := range g.Rows {
		if len(row) != len(g.Columns) {
			c.refuse("row %d: %d cells: want %d, one for each column", i+1, len(row), len(g.Columns))
		}
	}
}

func (c *sheetCheck) figure(f *Figure) {
	if f.Map != nil {
		c.heatMap(f)
		return
	}
	c.axis("x", f.X)
	c.axis("y", f.Y)
	for i := range f.Curves {
		c.curve(f, i)
	}
	for _, g := range f.Guides {
		name := fmt.Sprintf("guide %q", g.Name)
		if g.X.Known() == g.Y.Known() {
			c.refuse("%s: want a value of x or of y, one of the two", name)
		}
		c.value(name, "x", f.X, g.X)
		c.value(name, "y", f.Y, g.Y)
	}
	for _, m := range f.Marks {
		name := fmt.Sprintf("mark %q", m.Name)
		c.place(name, "x", f.X, m.X)
		c.place(name, "y", f.Y, m.Y)
	}
}

func (c *sheetCheck) axis(name string, a Axis) {
	c.value("axis "+name, "low", a, a.Low)
	c.value("axis "+name, "high", a, a.High)
	if a.Low.Known() && a.High.Known() && a.Low.Float() >= a.High.Float() {
		c.refuse("axis %s: from %g to %g: want the low end below the high one", name, a.Low.Float(), a.High.Float())
	}
}

func (c *sheetCheck) curve(f *Figure, i int) {
	curve := &f.Curves[i]
	name := fmt.Sprintf("curve %q", curve.Name)
	if curve.Name == "" {
		name = fmt.Sprintf("curve %d", i+1)
	}
	if curve.Colour < 0 {
		c.refuse("%s: colour %d: want 0 or above", name, curve.Colour)
	}
	for j, p := range curve.At {
		at := fmt.Sprintf("%s, point %d", name, j+1)
		c.place(at, "x", f.X, p.X)
		c.value(at, "y", f.Y, p.Y)
		c.value(at, "low", f.Y, p.Low)
		c.value(at, "high", f.Y, p.High)
		if p.Low.Known() && p.High.Known() && p.Low.Float() > p.High.Float() {
			c.refuse("%s: a spread from %g to %g: want the low end first", at, p.Low.Float(), p.High.Float())
		}
	}
}

// value checks a number along an axis, where there is one.
func (c *sheetCheck) value(at, name string, a Axis, n Number) {
	if n.Known() {
		c.place(at, name, a, n.Float())
	}
}

// farthest is the largest size of a number that is drawn, and on a logarithmic axis its inverse the smallest: differences and margins of
// such numbers are still numbers.
const farthest = 1e200

// place checks a position along an axis.
func (c *sheetCheck) place(at, name string, a Axis, v float64) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		c.refuse("%s: %s = %g: want a finite number, or leave the point out", at, name, v)
	case a.Log && v <= 0:
		c.refuse("%s: %s = %g on a logarithmic axis: want a value above 0", at, name, v)
	case math.Abs(v) > farthest || a.Log && v < 1/farthest:
		c.refuse("%s: %s = %g: want a size of at most %g, on a logarithmic axis of %g or more too", at, name, v, farthest, 1/farthest)
	}
}

func (c *sheetCheck) heatMap(f *Figure) {
	m := f.Map
	if len(f.Curves)+len(f.Guides) > 0 {
		c.refuse("map: there are %d curves and %d guides beside it: want a map alone", len(f.Curves), len(f.Guides))
	}
	if m.Digits < 0 || m.Digits > 6 {
		c.refuse("map: %d digits: want 0 to 6", m.Digits)
	}
	if len(m.Values) != len(m.Rows) {
		c.refuse("map: %d rows of values: want %d, one for each name", len(m.Values), len(m.Rows))
	}
	for i, row := range m.Values {
		if len(row) != len(m.Columns) {
			c.refuse("map: row %d has %d values: want %d, one for each column", i+1, len(row), len(m.Columns))
		}
		for j, v := range row {
			c.value(fmt.Sprintf("map: row %d", i+1), fmt.Sprintf("value %d", j+1), Axis{}, v)
		}
	}
	for _, mark := range f.Marks {
		if !wholeBelow(mark.X, len(m.Columns)) || !wholeBelow(mark.Y, len(m.Rows)) {
			c.refuse("map: mark %q at column %g, row %g: want a cell, columns 0 to %d and rows 0 to %d",
				mark.Name, mark.X, mark.Y, len(m.Columns)-1, len(m.Rows)-1)
		}
	}
}

// wholeBelow reports whether v is one of the whole numbers 0 to n - 1.
func wholeBelow(v float64, n int) bool { return v == math.Trunc(v) && v >= 0 && v < float64(n) }

package results

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Study is study.json: the runs of a named study and what it found.
type Study struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	Quick  bool   `json:"quick"` // a rehearsal with small budgets: no claim
	Seeds  int    `json:"seeds"` // of each arm, from 1

	Arms    []StudyArm `json:"arms"`
	Machine Machine    `json:"machine"`
	Build   Build      `json:"build"` // of the program that judged the runs
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended"`
	Seconds float64    `json:"seconds"` // wall time of its runs, those of pilots and of other studies included
	AtOnce  int        `json:"at_once"` // runs side by side

	Sheet Sheet `json:"sheet"`
}

// StudyArm is the runs of one configuration.
type StudyArm struct {
	Name    string   `json:"name"`
	Differs []string `json:"differs"` // settings, as key: value, that differ from those of the first arm
	Folders []string `json:"folders"` // of the runs in order of seeds, relative to the study's folder; none of an archive
	Failed  []string `json:"failed"`  // the errors of runs that failed: "seed 3: …"
}

// Machine is the computer that a study ran on.
type Machine struct {
	System string `json:"system"` // operating system and architecture
	CPU    string `json:"cpu"`    // model, if the system tells
	Cores  int    `json:"cores"`
}

// Sheet is the page of a study or a calculation: findings, figures and tables. Package report draws it.
type Sheet struct {
	Kind     string    `json:"kind"` // "Study"
	Title    string    `json:"title"`
	Lead     []string  `json:"lead"` // paragraphs under the title
	Findings []Finding `json:"findings,omitempty"`
	Sections []Section `json:"sections"`
	// seeds, configuration, commit, machine, time: in the order in which they are shown
	Facts []Fact `json:"facts"`
}

// Section is a part of a sheet under its own heading.
type Section struct {
	Title   string   `json:"title"`
	Text    []string `json:"text,omitempty"`    // paragraphs
	Command string   `json:"command,omitempty"` // of the program, to be copied
	Figures []Figure `json:"figures,omitempty"`
	Grids   []Grid   `json:"tables,omitempty"`
}

// Fact is a line that a reader needs to trust a sheet or to repeat it.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// CommandFact is the name of the fact whose text is the command that makes the sheet.
const CommandFact = "Command"

// Verdict is the outcome of a claim.
type Verdict string

// The verdicts.
const (
	Holds        Verdict = "holds"
	DoesNotHold  Verdict = "does not hold"
	Inconclusive Verdict = "inconclusive"
	Untested     Verdict = "untested" // what the claim supposes did not happen
)

// Finding compares a claim of a source with what was found.
type Finding struct {
	Source  string  `json:"source"` // [ER] fig. 1
	Claim   string  `json:"claim"`  // the source's, in our words
	Found   string  `json:"found"`  // with figures and their spread
	Figure  string  `json:"figure"` // the figures that decide, without the words; at most three of several
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"`             // how the verdict follows from the figures
	Check   bool    `json:"check,omitempty"` // it follows from arithmetic or the clock, whatever is learned
}

// Grid is a table of words and formatted numbers.
type Grid struct {
	Title   string     `json:"title"`
	Note    string     `json:"note,omitempty"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"` // each as long as Columns; a cell in the first column names the row
}

// Figure is a picture as numbers: lines over common axes, or a map of colours.
type Figure struct {
	Title  string     `json:"title"`
	Note   string     `json:"note,omitempty"` // what it shows, and how it was made
	X      Axis       `json:"x"`
	Y      Axis       `json:"y"`
	Curves []Curve    `json:"curves,omitempty"`
	Guides []Guide    `json:"guides,omitempty"`
	Map    *HeatMap   `json:"map,omitempty"` // instead of curves; the axes have only titles
	Marks  []MarkedAt `json:"marks,omitempty"`
	Thin   string     `json:"thin,omitempty"` // what a thin curve shows; empty: one seed
}

// Axis is an axis of a figure.
type Axis struct {
	Title string `json:"title"`
	Log   bool   `json:"log,omitempty"` // base-10 logarithmic; values above 0
	Low   Number `json:"low"`           // none: as far as the values go
	High  Number `json:"high"`
}

// Curve is a line with its spread, or points.
type Curve struct {
	Name   string  `json:"name"`
	Colour int     `json:"colour"`           // curves of one number look alike; from 0
	Thin   bool    `json:"thin,omitempty"`   // behind the others and without a name: one seed, or as the figure tells
	Dashed bool    `json:"dashed,omitempty"` // computed, not measured
	Points bool    `json:"points,omitempty"` // unconnected
	At     []Point `json:"at"`
	// Mean, for each point of a smoothed curve, of what was measured since the point before: what can be smoothed anew.
	Mean []Number `json:"mean,omitempty"`

	Average   []Number `json:"-"` // at each point, over several seeds, where the curve is their median
	Deviation []Number `json:"-"` // the standard deviation over these seeds
	Run       int      `json:"-"` // whose way the page knows, from 1; 0: none
}

// Point is a point of a curve. Low and High are its spread, if known.
type Point struct {
	X    float64 `json:"x"`
	Y    Number  `json:"y"` // none breaks the line
	Low  Number  `json:"low"`
	High Number  `json:"high"`
}

// Guide is a straight line across a figure: a target, an expected value.
type Guide struct {
	Name string `json:"name"`
	X    Number `json:"x"` // one of the two is known
	Y    Number `json:"y"`
}

// MarkedAt is a named point of a figure or a cell of a map.
type MarkedAt struct {
	Name string  `json:"name"`
	X    float64 `json:"x"`             // of a map: the column, from 0
	Y    float64 `json:"y"`             // of a map: the row, from 0
	Arm  string  `json:"arm,omitempty"` // the curve that it belongs to, by name; empty: none
	Run  int     `json:"-"`             // as a curve's
}

// HeatMap is values by column and row.
type HeatMap struct {
	Columns []string   `json:"columns"`
	Rows    []string   `json:"rows"`
	Values  [][]Number `json:"values"` // by row; none is an empty cell
	Digits  int        `json:"digits"` // after the point, in the cells
	Unit    string     `json:"unit"`   // of the colours
	Less    bool       `json:"less"`   // small values are good
}

// Validate reports all problems that keep a sheet from being drawn, each with its section and its figure or table.
func (s *Sheet) Validate() error {
	var c sheetCheck
	if s.Title == "" {
		c.refuse("title: empty: want one")
	}
	for i, f := range s.Findings {
		switch f.Verdict {
		case Holds, DoesNotHold, Inconclusive, Untested:
		default:
			c.refuse("finding %d (%s): verdict %q: want %q, %q, %q or %q", i+1, f.Source, f.Verdict, Holds,
				DoesNotHold, Inconclusive, Untested)
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

// sheetCheck collects the problems of a sheet.
type sheetCheck struct {
	at       string // section and figure, before each problem
	problems []error
}

func (c *sheetCheck) refuse(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%s%w", c.at, fmt.Errorf(format, args...))) // titles may have a %
}

func (c *sheetCheck) grid(g *Grid) {
	if len(g.Columns) == 0 {
		c.refuse("columns: none: want one or more")
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
	if n := len(curve.Mean); n != 0 && n != len(curve.At) {
		c.refuse("%s: %d means: want %d, one for each point, or none", name, n, len(curve.At))
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

// value checks a number along an axis, if there is one.
func (c *sheetCheck) value(at, name string, a Axis, n Number) {
	if n.Known() {
		c.place(at, name, a, n.Float())
	}
}

// farthest is the largest size of a number that can be drawn; its inverse is the smallest on a logarithmic axis.
// Differences and margins of such numbers do not overflow.
const farthest = 1e200

// place checks a position along an axis.
func (c *sheetCheck) place(at, name string, a Axis, v float64) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		c.refuse("%s: %s = %g: want a finite number, or leave the point out", at, name, v)
	case a.Log && v <= 0:
		c.refuse("%s: %s = %g on a logarithmic axis: want a value above 0", at, name, v)
	case math.Abs(v) > farthest || a.Log && v < 1/farthest:
		c.refuse("%s: %s = %g: want a size of at most %g, on a logarithmic axis of %g or more too", at,
			name, v, farthest,
			1/farthest)
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

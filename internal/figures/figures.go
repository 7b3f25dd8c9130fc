// Package figures draws the charts of HTML pages, and makes them interactive.
//
// A [Figure] describes a chart: axes, curves with their spread, bars, guides and marks; or a map of cells.
// [Figure.Draw] makes an SVG for each size that the page needs, a legend, and the points for the page's script. A
// drawing is complete without the script, the same for the same figure, and has its colours from the page's style
// sheet, light and dark. [Style] has the rules of all that is drawn; it needs the variables page, panel, ink, muted,
// rule, grid, axis and sans, and those of the curves' colours and of maps. [Meter] and [Balance] are small drawings.
//
// [Script] shows values on hover and by the arrow keys, in all charts of an axis at once, and zooms into a part of that
// axis. It hides and shows arms, makes axes logarithmic, smooths, shows seeds as a mean or one by one, gives points as
// CSV, copies commands, and keeps all of it in the address. With the page's [Measures] a reader chooses what x is.
//
// It changes the drawing that is there. Parts of the drawing are told apart by the attribute data-p: the letter of a
// part and the number of the curve, guide or mark. A page that replaces its content dispatches the event
// reprise:replaced on document; the script then starts again with the state of the address.
//
// Text is placed by an estimate of its width, so a page may use any font.
package figures

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
)

// Script is the script of a page, to be placed at the end of its body.
var Script = axesText + figuresText

var (
	//go:embed axes.js
	axesText string
	//go:embed figures.js
	figuresText string
)

// Live is the script of pages that replace their content: functions, to be placed before the page's own script.
//
//go:embed live.js
var Live string

// Palette is the variables of the service's pages: their colours, light and dark, and their fonts.
//
//go:embed palette.css
var Palette string

// Style is the style sheet of drawings and of what the script adds to them.
//
//go:embed figures.css
var Style string

// Figure describes a chart, or a map of cells. In JSON it is what the script needs.
type Figure struct {
	Title  string       `json:"-"` // for those who cannot see it
	X      Axis         `json:"x"`
	Y      Axis         `json:"y"`
	Areas  [][4]float64 `json:"areas,omitempty"` // left, top, right and bottom of each drawing's data; set by Draw
	Noisy  bool         `json:"noisy,omitempty"` // smoothing helps
	Curves []Curve      `json:"curves,omitempty"`
	Labels []string     `json:"labels,omitempty"` // of x = 0, 1, …, which are shown instead of the numbers
	Guides []Guide      `json:"guides,omitempty"`
	Marks  []Mark       `json:"marks,omitempty"`
	Cells  *Cells       `json:"cells,omitempty"` // of a map, instead of curves
	Seeds  string       `json:"-"`               // what thin curves show, for the legend
}

// Axis is an axis of a figure. Ends that are [None] are as far as the values go.
type Axis struct {
	Title   string   `json:"title"`
	Measure int      `json:"measure,omitempty"` // of the page's Measures, from 1; 0: none
	Low     Number   `json:"low"`
	High    Number   `json:"high"`
	Log     bool     `json:"log,omitempty"`     // base-10 logarithmic
	Percent bool     `json:"percent,omitempty"` // values are shares
	Names   []string `json:"-"`                 // of 0, 1, …, instead of numbers
	Open    bool     `json:"-"`                 // the last name includes all larger values, and is always shown
}

// Curve is a line with its spread, or points, or bars. Values that are none break the line.
type Curve struct {
	Name      string   `json:"name"`
	Arm       string   `json:"arm"`             // that hides and shows it
	Colour    string   `json:"colour"`          // a variable of the style sheet
	Thin      bool     `json:"thin,omitempty"`  // one seed, behind the others
	Apart     bool     `json:"apart,omitempty"` // points that no line connects
	X         Steps    `json:"x"`
	Y         []Number `json:"y"`
	Low       []Number `json:"low,omitempty"`
	High      []Number `json:"high,omitempty"`
	Mean      []Number `json:"mean,omitempty"`   // since the point before: what is smoothed, instead of y
	Average   []Number `json:"avg,omitempty"`    // over several seeds, where y is their median
	Deviation []Number `json:"dev,omitempty"`    // the standard deviation over these seeds
	Run       int      `json:"run,omitempty"`    // of the page's Measures, from 1; 0: none
	Filled    bool     `json:"filled,omitempty"` // down to the axis
	Shape     int      `json:"-"`                // of markers, from 0
	Dashed    bool     `json:"-"`                // computed, not measured
	Bars      bool     `json:"-"`
}

// Guide is a named line across a figure: at a value of y, or of x if that is none.
type Guide struct {
	Name string `json:"-"`
	X    Number `json:"x"`
	Y    Number `json:"y"`
}

// Mark is a named point of a chart, or a framed cell of a map: its column and row.
type Mark struct {
	Name string `json:"-"`
	X    Number `json:"x"`
	Y    Number `json:"y"`
	Arm  string `json:"arm,omitempty"` // that hides and shows it
	Run  int    `json:"run,omitempty"` // as a curve's
}

// Measures is how far each run had come by each of several measures, so that a reader may choose which one is x.
// Between two entries of a run the script draws a straight line. Their Data stands in a script element of the page
// whose id is measures.
type Measures struct {
	Names  []string  `json:"names"`  // short, for the choice and the address
	Titles []string  `json:"titles"` // of an axis
	Runs   [][]Steps `json:"runs"`   // by run and measure, all measures of a run equally long
}

// Data is the measures for the script, as JSON; empty if there are none.
func (m *Measures) Data() template.JS {
	if len(m.Runs) == 0 {
		return ""
	}
	return encode(m)
}

// Cells is the values of a map by row and column, and where its cells lie.
type Cells struct {
	Columns []string   `json:"columns"`
	Rows    []string   `json:"rows"`
	Values  [][]Number `json:"values"`
	Box     [4]float64 `json:"box"` // left and top of the first cell, width and height of each; set by Draw
	Digits  int        `json:"-"`   // after the point, in the cells
	Unit    string     `json:"-"`   // of the colours
	Less    bool       `json:"-"`   // small values are good
}

// Drawing is a figure as a page shows it. Without an SVG there was nothing to draw.
type Drawing struct {
	SVG    []template.HTML // one for each size
	Broad  bool            // a map that scrolls sideways on a narrow screen
	Legend []Key
	Beyond string      // what the axes leave out, in words
	Data   template.JS // for the script, as JSON
}

// Draw draws the figure at each of the sizes. A map has a size of its own.
func (f *Figure) Draw(sizes ...Size) Drawing {
	var d Drawing
	f.Areas = nil
	if m, ok := f.newMap(); ok {
		d.SVG, d.Broad, d.Legend = []template.HTML{m.svg()}, m.width > halfWidth, m.legend()
	} else if f.Cells == nil && f.Fit() {
		for _, s := range sizes {
			svg, area := f.chart(s)
			d.SVG = append(d.SVG, svg)
			f.Areas = append(f.Areas, [4]float64{area.left, area.top, area.right, area.bottom})
		}
		d.Legend, d.Beyond = f.Legend(), f.beyond()
	}
	if len(d.SVG) > 0 {
		d.Data = encode(f)
	}
	return d
}

// encode writes what the script reads.
func encode(of any) template.JS {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Errorf("figures: encode the points of a figure: %w", err)) // all fields can be encoded
	}
	return template.JS(text) // JSON with <, > and & escaped, which ends no element
}

// Number is written with six significant digits. NaN and infinite ones are null.
type Number float64

// None is no number.
func None() Number { return Number(math.NaN()) }

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, v, 'g', 6, 64), nil
}

// Steps is ascending numbers. It is written as the first and the steps to the next, which are short, if all are whole,
// else as {"at": […]}.
type Steps []float64

// MarshalJSON implements json.Marshaler.
func (s Steps) MarshalJSON() ([]byte, error) {
	steps, at, whole := make([]Number, len(s)), make([]Number, len(s)), true
	for i, v := range s {
		if steps[i], at[i] = Number(v), Number(v); i > 0 {
			steps[i] = Number(v - s[i-1])
		}
		whole = whole && v == math.Trunc(v) && math.Abs(v) <= 1<<53
	}
	if !whole {
		return json.Marshal(map[string][]Number{"at": at})
	}
	return json.Marshal(steps)
}

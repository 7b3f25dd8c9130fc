// Package figures makes the charts of HTML pages interactive: values on hover and by the arrow keys, arms that are
// hidden and shown, logarithmic axes, smoothing, points as CSV, commands to copy, and all of it in the address.
//
// A page draws its charts as SVG and is complete without scripts. Each figure carries its points as [Data], in a
// script element of type application/json, and [Script] works on the drawing that is there. Parts of the drawing are
// told apart by the attribute data-p: a letter of [Part] and the number of the curve, guide or mark.
//
// A page that replaces its content dispatches the event reprise:replaced on document; the script then starts again with
// the state of the address. Packages report and service/watch share all this.
package figures

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Script is the script of a page, to be placed at the end of its body.
//
//go:embed figures.js
var Script string

// Live is the script of pages that replace their content: functions, to be placed before the page's own script.
//
//go:embed live.js
var Live string

// Style is the style sheet of what the script adds. It needs the variables page, panel, ink, muted and rule.
//
//go:embed figures.css
var Style string

// Part is what a piece of a drawing shows. Its letter is the first of the attribute data-p.
type Part byte

// The parts of a drawing.
const (
	Line   Part = 'l' // of a curve
	Band   Part = 'b' // between the ends of a curve's spread
	Marker Part = 'm' // at a curve's points
	Spread Part = 'w' // at single points
	Guide  Part = 'g' // with its name
	Mark   Part = 'r' // with its name
	Grid   Part = 'h' // horizontal lines, with the ticks of the y axis
	Tick   Part = 'n' // their labels
)

// Parts lists the parts in a fixed order.
func Parts() []Part { return []Part{Line, Band, Marker, Spread, Guide, Mark, Grid, Tick} }

// Data is the points of a figure and where they lie in its drawings.
type Data struct {
	X      Axis         `json:"x"`
	Y      Axis         `json:"y"`
	Areas  [][4]float64 `json:"areas,omitempty"` // left, bottom, right and top of each drawing's data; y grows upwards
	Noisy  bool         `json:"noisy,omitempty"` // smoothing helps
	Curves []Curve      `json:"curves,omitempty"`
	Labels []string     `json:"labels,omitempty"` // of x = 0, 1, …, which are shown instead of the numbers
	Guides []Number     `json:"guides,omitempty"` // y of each; none: a vertical one
	Marks  []Point      `json:"marks,omitempty"`
	Cells  *Cells       `json:"cells,omitempty"` // of a map, instead of curves
}

// Axis is an axis of a figure.
type Axis struct {
	Title string `json:"title"`
	Low   Number `json:"low"`
	High  Number `json:"high"`
	Log   bool   `json:"log,omitempty"`
}

// Curve is a curve's points.
type Curve struct {
	Name   string   `json:"name"`
	Arm    string   `json:"arm"`             // that hides and shows it
	Colour string   `json:"colour"`          // a variable of the style sheet
	Thin   bool     `json:"thin,omitempty"`  // one seed, behind the others
	Apart  bool     `json:"apart,omitempty"` // points that no line connects
	X      Steps    `json:"x"`
	Y      []Number `json:"y"` // none breaks the line
	Low    []Number `json:"low,omitempty"`
	High   []Number `json:"high,omitempty"`
	Mean   []Number `json:"mean,omitempty"` // since the point before: what is smoothed, instead of y
}

// Point is a mark.
type Point struct {
	Y   Number `json:"y"`
	Arm string `json:"arm,omitempty"` // that hides and shows it
}

// Cells is the values of a map by row and column, and where its cells lie.
type Cells struct {
	Columns []string   `json:"columns"`
	Rows    []string   `json:"rows"`
	Values  [][]Number `json:"values"`
	Box     [4]float64 `json:"box"` // left and top of the first cell, width and height of each; y grows upwards
}

// Number is written with six significant digits. NaN and infinite ones are null.
type Number float64

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
	steps := make([]Number, len(s))
	for i, v := range s {
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			at := make([]Number, len(s))
			for i, v := range s {
				at[i] = Number(v)
			}
			return json.Marshal(map[string][]Number{"at": at})
		}
		if steps[i] = Number(v); i > 0 {
			steps[i] = Number(v - s[i-1])
		}
	}
	return json.Marshal(steps)
}

// JSON returns the data for a script element: no part of it ends the element.
func (d *Data) JSON() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Errorf("figures: encode the points of a figure: %w", err)) // all fields can be encoded
	}
	return string(text)
}

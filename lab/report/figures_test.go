package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// points returns a curve's points at x = 1, 2, …; NaN stands for nothing.
func points(ys ...float64) (at []results.Point) {
	for i, y := range ys {
		at = append(at, results.Point{X: float64(i + 1), Y: results.Num(y)})
	}
	return at
}

// drawnFigure draws a figure as one of two beside one another.
func drawnFigure(f results.Figure) figure { return halves().draw([]results.Figure{f}).Figures[0] }

func TestAnEmptyFigureSaysWhy(t *testing.T) {
	for want, f := range map[string]results.Figure{
		"no run came to what this figure shows": {Guides: []results.Guide{{Name: "target", Y: results.Num(1)}}},
		"its one curve never has a value":       {Curves: []results.Curve{{At: points(math.NaN())}}},
		"none of its 3 curves has a value":      {Curves: make([]results.Curve, 3)},
		"no cell of the map has a value": {Map: &results.HeatMap{Columns: []string{"a"}, Rows: []string{"b"},
			Values: [][]results.Number{{{}}}}},
	} {
		f.Title = "f"
		text := pageOfSheet(t, &results.Sheet{Title: "t",
			Sections: []results.Section{{Title: "s", Figures: []results.Figure{f}}}})
		if !strings.Contains(text, want) || strings.Contains(text, "<svg") {
			t.Errorf("the page does not say %q alone", want)
		}
	}
}

// flight returns a figure of one line from x = 1 on.
func flight(y results.Axis, ys ...float64) results.Figure {
	return results.Figure{X: results.Axis{Title: "updates"}, Y: y,
		Curves: []results.Curve{{Name: "a", At: points(ys...)}}}
}

func TestFiguresSideBySideHaveOneRangeWhereTheirAxesAreAlike(t *testing.T) {
	accuracy, logarithmic := results.Axis{Title: "accuracy"}, results.Axis{Title: "noise", Log: true}
	for name, c := range map[string]struct {
		a, b  results.Figure
		x, y  bool // of one range
		wants [2]float64
	}{
		"alike": {flight(accuracy, 1, 3), flight(accuracy, 2, 4, 3), true, true,
			[2]float64{1 - 0.14, 4 + 0.14}},
		"of other titles": {flight(accuracy, 1, 3), flight(results.Axis{Title: "reward"}, 2, 4), true, false,
			[2]float64{}},
		"without titles": {flight(results.Axis{}, 1, 3), flight(results.Axis{}, 2, 4), true, false, [2]float64{}},
		"of other ends": {flight(accuracy, 1, 3),
			flight(results.Axis{Title: "accuracy", Low: results.Num(0)}, 2, 4), true, false, [2]float64{}},
		"too flat to be read": {flight(accuracy, 1, 3), flight(accuracy, 2, 20), true, false, [2]float64{}},
		"too far apart":       {flight(accuracy, 1, 3), flight(accuracy, 20, 22), true, false, [2]float64{}},
		"logarithmic": {flight(logarithmic, 1, 100), flight(logarithmic, 10, 1000), true, true,
			[2]float64{math.Pow(10, -0.14), math.Pow(10, 3.14)}},
		"logarithmic and too flat": {flight(logarithmic, 1, 1.2), flight(logarithmic, 10, 1000), true, false,
			[2]float64{}},
		"of lengths too far apart ": {flight(accuracy, 1, 3), flight(accuracy, 1, 2, 3, 2, 1, 2, 3, 2), false, true,
			[2]float64{1 - 0.14, 3 + 0.14}},
	} {
		charts := described([]results.Figure{c.a, {Title: "nothing"}, c.b, {Map: madeMap(false, []float64{1})}})
		a, b := charts[0], charts[2]
		equal := func(a, b figures.Axis) bool { return a.Low == b.Low && a.High == b.High }
		if equal(a.X, b.X) != c.x || equal(a.Y, b.Y) != c.y {
			t.Errorf("%s: ranges %v and %v, %v and %v", name, a.X, b.X, a.Y, b.Y)
		}
		if c.y && (math.Abs(float64(a.Y.Low)-c.wants[0]) > 1e-9 || math.Abs(float64(a.Y.High)-c.wants[1]) > 1e-9) {
			t.Errorf("%s: range %v, want %v", name, a.Y, c.wants)
		}
	}
}

func TestUnconnectedPointsAreInOrder(t *testing.T) {
	c := curveOf(results.Curve{Points: true, At: []results.Point{{X: 5}, {X: 2, Y: results.Num(7)}, {X: 3}}}, "")
	if !slices.IsSorted(c.X) || c.Y[0] != 7 {
		t.Errorf("the points are %v, %v", c.X, c.Y)
	}
}

func TestFortyColoursDifferInHueOrShape(t *testing.T) {
	seen := map[string]int{}
	for i := range 40 {
		c := curveOf(results.Curve{Colour: i}, "")
		look := fmt.Sprint(c.Colour, c.Shape)
		if j, ok := seen[look]; ok {
			t.Errorf("colours %d and %d look alike", j, i)
		}
		seen[look] = i
	}
}

func TestNoTickStandsBetweenWholeNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		last float64
		half bool
	}{"whole": {4, false}, "broken": {3.9, true}} {
		f := results.Figure{Title: "f", Curves: []results.Curve{{Name: "a",
			At: []results.Point{{X: 1, Y: results.Num(7)}, {X: 2, Y: results.Num(8)}, {X: c.last, Y: results.Num(9)}}}}}
		svg := string(drawnFigure(f).SVG[0])
		if got := strings.Contains(svg, ">2.5<"); got != c.half ||
			!strings.Contains(svg, ">2"+strings.Repeat(".0", map[bool]int{true: 1}[c.half])+"<") {
			t.Errorf("%s numbers: a tick at 2.5: %v, want %v", name, got, c.half)
		}
	}
}

// madeMap returns a map of the values, NaN for an empty cell.
func madeMap(less bool, rows ...[]float64) *results.HeatMap {
	m := &results.HeatMap{Digits: 2, Unit: "accuracy", Less: less}
	for i, row := range rows {
		m.Rows = append(m.Rows, fmt.Sprintf("row %d", i))
		var values []results.Number
		for j, v := range row {
			if i == 0 {
				m.Columns = append(m.Columns, fmt.Sprintf("c%d", j))
			}
			values = append(values, results.Num(v))
		}
		m.Values = append(m.Values, values)
	}
	return m
}

// Text on every fill has a contrast of 4.5 or more, on a light page and on a dark one, and fills go from weak to strong
// by lightness.
func TestNumbersInCellsCanBeRead(t *testing.T) {
	light, dark, _ := strings.Cut(styleText, "prefers-color-scheme: dark")
	for page, rules := range map[string]string{"light": light, "dark": dark} {
		before := math.NaN()
		for k := range 9 {
			cell, text := luminance(t, rules, fmt.Sprintf("--heat-%d", k)),
				luminance(t, rules, fmt.Sprintf("--on-heat-%d", k))
			if contrast := (max(cell, text) + 0.05) / (min(cell, text) + 0.05); contrast < 4.5 {
				t.Errorf("%s: text on level %d has a contrast of %.2f, want 4.5", page, k, contrast)
			}
			if page == "light" && cell >= before || page == "dark" && cell <= before {
				t.Errorf("%s: level %d is not stronger than the one before it", page, k)
			}
			before = cell
		}
	}
}

// luminance returns the relative luminance of a colour of the style sheet.
func luminance(t *testing.T, rules, variable string) float64 {
	t.Helper()
	_, value, found := strings.Cut(rules, variable+": #")
	if !found {
		t.Fatalf("the style sheet has no %s", variable)
	}
	hex, sum := hexOf(t, value[:6]), 0.0
	for i, weight := range [3]float64{0.2126, 0.7152, 0.0722} {
		c := float64(hex>>(16-8*i)&0xFF) / 255
		linear := math.Pow((c+0.055)/1.055, 2.4)
		if c <= 0.04045 {
			linear = c / 12.92
		}
		sum += weight * linear
	}
	return sum
}

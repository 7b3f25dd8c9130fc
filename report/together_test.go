package report

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// flight returns a figure of one line from x = 1 on.
func flight(y results.Axis, ys ...float64) results.Figure {
	return results.Figure{X: results.Axis{Title: "updates"}, Y: y, Curves: []results.Curve{{Name: "a", At: points(ys...)}}}
}

func TestFiguresSideBySideHaveOneRangeWhereTheirAxesAreAlike(t *testing.T) {
	accuracy, logarithmic := results.Axis{Title: "accuracy"}, results.Axis{Title: "noise", Log: true}
	for name, c := range map[string]struct {
		a, b  results.Figure
		x, y  bool // of one range
		wants extent
	}{
		"alike":                     {flight(accuracy, 1, 3), flight(accuracy, 2, 4, 3), true, true, extent{1 - 0.14, 4 + 0.14}},
		"of other titles":           {flight(accuracy, 1, 3), flight(results.Axis{Title: "reward"}, 2, 4), true, false, extent{}},
		"without titles":            {flight(results.Axis{}, 1, 3), flight(results.Axis{}, 2, 4), true, false, extent{}},
		"of other ends":             {flight(accuracy, 1, 3), flight(results.Axis{Title: "accuracy", Low: results.Num(0)}, 2, 4), true, false, extent{}},
		"too flat to be read":       {flight(accuracy, 1, 3), flight(accuracy, 2, 20), true, false, extent{}},
		"too far apart":             {flight(accuracy, 1, 3), flight(accuracy, 20, 22), true, false, extent{}},
		"logarithmic":               {flight(logarithmic, 1, 100), flight(logarithmic, 10, 1000), true, true, extent{math.Pow(10, -0.14), math.Pow(10, 3.14)}},
		"logarithmic and too flat":  {flight(logarithmic, 1, 1.2), flight(logarithmic, 10, 1000), true, false, extent{}},
		"of lengths too far apart ": {flight(accuracy, 1, 3), flight(accuracy, 1, 2, 3, 2, 1, 2, 3, 2), false, true, extent{1 - 0.14, 3 + 0.14}},
	} {
		planes := planesOf([]results.Figure{c.a, {Title: "nothing"}, c.b, {Map: madeMap(false, []float64{1})}})
		if planes[1] != nil || planes[3] != nil {
			t.Errorf("%s: a map or an empty figure has a plane", name)
		}
		a, b := planes[0], planes[2]
		if (a.x == b.x) != c.x || (a.y == b.y) != c.y {
			t.Errorf("%s: ranges %v and %v, %v and %v", name, a.x, b.x, a.y, b.y)
		}
		if c.y && (math.Abs(a.y.low-c.wants.low) > 1e-9 || math.Abs(a.y.high-c.wants.high) > 1e-9) {
			t.Errorf("%s: range %v, want %v", name, a.y, c.wants)
		}
	}
}

func TestOnlyWhatIsDrawnStretchesTheAxes(t *testing.T) {
	half := results.Figure{Curves: []results.Curve{{At: []results.Point{
		{X: 1, Y: results.Num(1), High: results.Num(50)}, {X: 2, Y: results.Num(2)}, {X: 9, Low: results.Num(1.2), High: results.Num(1.4)}, {X: 99, Low: results.Num(1)},
	}}}}
	p, ok := newPlane(&half)
	if !ok || p.x != (extent{1, 9}) || math.Abs(p.y.high-2.07) > 1e-9 {
		t.Errorf("axes %v and %v, want x to 9, where a spread without a value ends, and y to 2.07", p.x, p.y)
	}
}

func TestManyBandsAreDrawnFainter(t *testing.T) {
	for n, faint := range map[int]bool{4: false, 5: true} {
		var f results.Figure
		for i := range n {
			f.Curves = append(f.Curves, results.Curve{Name: "a", Colour: i, At: withSpread(points(1, 2), 0.1)},
				results.Curve{Name: "b", Colour: i, Points: true, At: withSpread(points(1, 2), 0.1)}, results.Curve{Name: "c", Colour: i, At: points(1, 2)})
		}
		p, _ := newPlane(&f)
		if got := p.chart(half()).class == "half sheet faint"; got != faint {
			t.Errorf("%d bands: fainter %v, want %v", n, got, faint)
		}
	}
}

func TestNoTickStandsBetweenWholeNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		last float64
		half bool
	}{"whole": {4, false}, "broken": {3.9, true}} {
		f := results.Figure{Title: "f", Curves: []results.Curve{{Name: "a", At: []results.Point{{X: 1, Y: results.Num(7)}, {X: 2, Y: results.Num(8)}, {X: c.last, Y: results.Num(9)}}}}}
		svg := string(drawnFigure(t, f).SVG[0])
		if got := strings.Contains(svg, ">2.5<"); got != c.half || !strings.Contains(svg, ">2"+strings.Repeat(".0", map[bool]int{true: 1}[c.half])+"<") {
			t.Errorf("%s numbers: a tick at 2.5: %v, want %v", name, got, c.half)
		}
	}
}

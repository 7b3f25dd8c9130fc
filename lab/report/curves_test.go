package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
)

// points returns a curve's points at x = 1, 2, …; NaN stands for nothing.
func points(ys ...float64) (at []results.Point) {
	for i, y := range ys {
		at = append(at, results.Point{X: float64(i + 1), Y: results.Num(y)})
	}
	return at
}

// withSpread gives every point that has a value a spread.
func withSpread(at []results.Point, by float64) []results.Point {
	for i, p := range at {
		at[i].Low, at[i].High = results.Num(p.Y.Float()-by), results.Num(p.Y.Float()+by)
	}
	return at
}

// drawnFigure draws a figure as one of two beside one another.
func drawnFigure(f results.Figure) figure { return halves().draw([]results.Figure{f}).Figures[0] }

// paths counts the strokes and areas of an SVG's paths whose attributes have all of the parts.
func paths(svg markup, parts ...string) int {
	n := 0
next:
	for _, path := range strings.Split(string(svg), "<path")[1:] {
		path, _, _ = strings.Cut(path, "/>")
		for _, part := range parts {
			if !strings.Contains(path, part) {
				continue next
			}
		}
		n += strings.Count(path, "M")
	}
	return n
}

func TestAMissingValueBreaksTheLineAndItsBand(t *testing.T) {
	nan := math.NaN()
	whole := drawnFigure(results.Figure{Title: "f",
		Curves: []results.Curve{{Name: "a", Colour: 1, At: withSpread(points(1, 2, 3, 2, 1), 0.2)}}})
	broken := drawnFigure(results.Figure{Title: "f",
		Curves: []results.Curve{{Name: "a", Colour: 1, At: withSpread(points(1, 2, nan, 2, 1), 0.2)}}})
	const stroke, band = "stroke:var(--replay);stroke-width:2", "fill:var(--replay);fill-opacity:0.17"
	for _, c := range []struct {
		name string
		f    figure
		want int
	}{{"whole", whole, 1}, {"broken", broken, 2}} {
		if lines, bands := paths(c.f.SVG[0], stroke), paths(c.f.SVG[0], band); lines != c.want || bands != c.want {
			t.Errorf("%s: %d lines and %d bands, want %d of each", c.name, lines, bands, c.want)
		}
	}
}

func TestALoneSpreadIsAWhisker(t *testing.T) {
	at := withSpread(points(1, 2, math.NaN(), 3), 0.2)
	f := drawnFigure(results.Figure{Title: "f", Curves: []results.Curve{{Name: "a", At: at}}})
	if bands, whiskers := paths(f.SVG[0], "fill-opacity:0.17"),
		paths(f.SVG[0], `stroke:var(--baseline)"`); bands != 1 || whiskers != 3 {
		t.Errorf("%d bands and %d strokes of whiskers, want 1 and 3", bands, whiskers)
	}
	scattered := drawnFigure(results.Figure{Title: "f", Curves: []results.Curve{{Name: "a", Points: true, At: at}}})
	if bands, whiskers, lines := paths(scattered.SVG[0], "fill-opacity:0.17"),
		paths(scattered.SVG[0], `stroke:var(--baseline)"`),
		paths(scattered.SVG[0], "stroke-width:2"); bands != 0 || whiskers != 9 || lines != 0 {
		t.Errorf("unconnected points: %d bands, %d strokes of whiskers and %d lines, want 0, 9 and 0", bands, whiskers,
			lines)
	}
}

func TestComputedCurvesAreDashedAndSeedsThinBehind(t *testing.T) {
	f := drawnFigure(results.Figure{Title: "f", Curves: []results.Curve{
		{Name: "measured", Colour: 0, At: points(1, 2)}, {Name: "computed", Colour: 1, Dashed: true, At: points(2, 3)},
		{Colour: 0, Thin: true, At: points(1.2, 2.2)},
	}})
	if n := paths(f.SVG[0], "stroke:var(--replay)", "stroke-dasharray:5,3"); n != 1 {
		t.Errorf("%d dashed lines, want the computed one", n)
	}
	if n := paths(f.SVG[0], "stroke:var(--baseline);stroke-width:2", "stroke-dasharray"); n != 0 {
		t.Error("a measured line is dashed")
	}
	text := string(f.SVG[0])
	seed, median := strings.Index(text, "stroke-opacity:0.38"),
		strings.Index(text, "stroke:var(--baseline);stroke-width:2")
	if seed < 0 || median < 0 || seed > median {
		t.Errorf("the seed's line stands at %d, the median's at %d: want it drawn before", seed, median)
	}
}

func TestLegendsNameOnlyWhatIsShown(t *testing.T) {
	nan := math.NaN()
	for want, curves := range map[string][]results.Curve{
		"a, b": {{Name: "a", At: points(1, 2)}, {Name: "b", Colour: 1, At: points(1, 2)},
			{Name: "c", Colour: 2, At: points(nan)}},
		"a, one seed": {{Name: "a", At: points(1, 2)}, {Thin: true, At: points(1)},
			{Name: "a, seed 2", Thin: true, At: points(1)}},
		"b, c":           {{Name: "b", At: withSpread(points(1, 2), 0)}, {Name: "c", Colour: 1, At: points(1)}},
		"a, spread":      {{Name: "a", At: withSpread(points(1, 2), 0.1)}},
		"a, b, computed": {{Name: "a", At: points(1, 2)}, {Name: "b", Dashed: true, At: points(1, 2)}},
		"b":              {{Name: "b", Dashed: true, At: points(1, 2)}},
		"a":              {{Name: "a", At: points(1, 2)}, {Name: "a", At: points(2, 3)}},
		"seed 1, seed 2": {{Name: "seed 1", Colour: 3, Thin: true, At: points(1)},
			{Name: "seed 2", Colour: 4, Thin: true, At: points(1)}},
		"one line, spread": {{Name: " one\nline ", Points: true, At: withSpread(points(1), 0.1)}},
		"p, q, one seed, spread": {{Name: "p", At: withSpread(points(1, 2), 0.1)},
			{Name: "q", Points: true, At: withSpread(points(1, 2), 0.1)}, {Thin: true, At: points(1)}},
	} {
		p, ok := newCurveChart(&results.Figure{Curves: curves})
		if !ok {
			t.Fatalf("%s: nothing to draw", want)
		}
		var names []string
		for _, k := range p.legend() {
			names = append(names, k.Name)
			if k.Icon == "" {
				t.Errorf("%s: %q has no key", want, k.Name)
			}
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("legend %q, want %q", got, want)
		}
	}
}

func TestThinCurvesAreNamedAsTheFigureSays(t *testing.T) {
	p, _ := newCurveChart(&results.Figure{Thin: "median of one configuration",
		Curves: []results.Curve{{Name: "a", At: points(1, 2)}, {Name: "b", Thin: true, At: points(1)}}})
	if keys := p.legend(); len(keys) != 2 || keys[1].Name != "median of one configuration" {
		t.Errorf("legend %+v", keys)
	}
}

func TestFortyColoursDifferInHueOrShape(t *testing.T) {
	seen := map[string]int{}
	for i := range 40 {
		l := penOfCurve(results.Curve{Colour: i})
		id := fmt.Sprint(l.role, l.shape)
		if j, ok := seen[id]; ok {
			t.Errorf("colours %d and %d look alike", j, i)
		}
		seen[id] = i
		if many := l.along(medianXYs(100), true); (len(many) == 0) != (i < solid) {
			t.Errorf("colour %d carries %d markers along a long line", i, len(many))
		}
	}
}

func TestMarkersFollowKnownValues(t *testing.T) {
	l := penOfCurve(results.Curve{Colour: 5})
	line := medianXYs(100)
	for i := range 60 {
		line[i].Y = math.NaN()
	}
	few := l.along(line, false)
	if len(few) != 40 { // all that are known
		t.Fatalf("%d markers, want 40", len(few))
	}
	if few = l.along(line, true); len(few) != 7 || few[0].X < 60 {
		t.Errorf("markers %v, want 7 of the known points", few)
	}
}

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

func TestWhatTheAxesLeaveOutIsSaid(t *testing.T) {
	f := results.Figure{
		Title: "f", Y: results.Axis{Low: results.Num(0), High: results.Num(2)},
		X:      results.Axis{Low: results.Num(1), High: results.Num(10)},
		Curves: []results.Curve{{Name: "a", At: points(1, 5, 2, -1)}, {Name: "theory", Dashed: true, At: points(9, 9)}},
		Guides: []results.Guide{{Name: "budget", X: results.Num(20)}, {Name: "target", Y: results.Num(1)}},
		Marks:  []results.MarkedAt{{Name: "optimum", X: 0.5, Y: 1}},
	}
	d := drawnFigure(f)
	if want := "Beyond the axes: 2 points, optimum, budget."; d.Beyond != want {
		t.Errorf("note %q, want %q", d.Beyond, want)
	}
	for _, name := range []string{"optimum", "budget"} {
		if strings.Contains(string(d.SVG[0]), name) {
			t.Errorf("%s is named in the plot that leaves it out", name)
		}
	}
	f.X, f.Y, f.Guides, f.Marks = results.Axis{}, results.Axis{}, f.Guides[1:], nil
	if d := drawnFigure(f); d.Beyond != "" || !strings.Contains(string(d.SVG[0]), ">target<") {
		t.Errorf("axes that go as far as the values leave %q out", d.Beyond)
	}
}

func TestAxesReachAsFarAsTheyAreTold(t *testing.T) {
	known := results.Num
	for _, c := range []struct {
		a         results.Axis
		share     float64
		low, high float64
	}{
		{results.Axis{}, 0, 2, 4},
		{results.Axis{}, 0.5, 1, 5},
		{results.Axis{}, 2, 0, 8}, // no room below 0 where no value is
		{results.Axis{Low: known(-3)}, 0.5, -3, 5},
		{results.Axis{High: known(3)}, 0.5, 1, 3},
		{results.Axis{High: known(-3)}, 0.5, -4, -3},
		{results.Axis{Low: known(30)}, 0.5, 30, 31},
		{results.Axis{Log: true}, 1, 1, 8},
		{results.Axis{Log: true, Low: known(40)}, 1, 40, 400},
		{results.Axis{Log: true, High: known(0.5)}, 1, 0.05, 0.5},
	} {
		got := reach(c.a, extent{2, 4}, c.share)
		if math.Abs(got.low-c.low) > 1e-12 || math.Abs(got.high-c.high) > 1e-9 {
			t.Errorf("axis %+v with %g on either side: %v, want %g to %g", c.a, c.share, got, c.low, c.high)
		}
	}
}

func TestALineOfNothingButZeroHasRoomOnBothSides(t *testing.T) {
	if got := reach(results.Axis{}, extent{0, 0}, 0.07); got.low >= 0 || got.high <= 0 {
		t.Errorf("the axis shows %v", got)
	}
}

func TestAKeyHasAMarkerWhereItsLineHasSome(t *testing.T) {
	long := make([]float64, 100)
	for i := range long {
		long[i] = float64(i)
	}
	f := drawnFigure(results.Figure{Title: "f", Curves: []results.Curve{
		{Name: "short", At: points(1, 2)}, {Name: "long", At: points(long...)},
		{Name: "long, of another four", Colour: 5, At: points(long...)},
		{Name: "scattered", Points: true, At: points(long...)}, {Name: "computed", Dashed: true, At: points(1, 2)},
	}})
	for i, want := range []bool{true, false, true, true, false} {
		if got := strings.Contains(string(f.Legend[i].Icon), "style=\"fill:var("); got != want {
			t.Errorf("the key of %q has a marker: %v, want %v", f.Legend[i].Name, got, want)
		}
	}
}

// Whatever numbers a sheet has, its figures are drawn without one that is none.
func TestRandomFiguresAreDrawn(t *testing.T) {
	for seed := range uint64(tests.Count(300, 60)) {
		rng := rand.New(rand.NewPCG(seed, 61))
		f := randomFigure(rng)
		s := results.Sheet{Title: "t", Sections: []results.Section{{Title: "s", Figures: []results.Figure{f}}}}
		text := pageOfSheet(t, &s)
		for _, none := range []string{"NaN", "Inf"} {
			if strings.Contains(text, none) {
				t.Fatalf("seed %d: the page shows %s: %+v", seed, none, f)
			}
		}
	}
}

// randomFigure returns a valid figure of curves.
func randomFigure(rng *rand.Rand) results.Figure {
	value := func(log bool) float64 {
		v := math.Exp(8 * rng.NormFloat64())
		if !log && rng.IntN(2) == 0 {
			v = -v
		}
		return v
	}
	maybe := func(log bool) results.Number {
		if rng.IntN(4) == 0 {
			return results.Number{}
		}
		return results.Num(value(log))
	}
	f := results.Figure{Title: "random", X: results.Axis{Log: rng.IntN(2) == 0}, Y: results.Axis{Log: rng.IntN(2) == 0}}
	if rng.IntN(3) == 0 {
		f.Y.Low = maybe(f.Y.Log)
	}
	for i := range rng.IntN(12) {
		c := results.Curve{Name: fmt.Sprint(i), Colour: rng.IntN(50), Thin: rng.IntN(3) == 0, Dashed: rng.IntN(3) == 0,
			Points: rng.IntN(3) == 0}
		for range rng.IntN(30) {
			p := results.Point{X: value(f.X.Log), Y: maybe(f.Y.Log), Low: maybe(f.Y.Log), High: maybe(f.Y.Log)}
			if p.Low.Float() > p.High.Float() {
				p.Low, p.High = p.High, p.Low
			}
			c.At = append(c.At, p)
		}
		f.Curves = append(f.Curves, c)
	}
	for range rng.IntN(4) {
		f.Guides = append(f.Guides, results.Guide{Name: "guide", Y: results.Num(value(f.Y.Log))},
			results.Guide{Name: "guide", X: results.Num(value(f.X.Log))})
		f.Marks = append(f.Marks, results.MarkedAt{Name: "mark", X: value(f.X.Log), Y: value(f.Y.Log)})
	}
	return f
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
		wants extent
	}{
		"alike": {flight(accuracy, 1, 3), flight(accuracy, 2, 4, 3), true, true,
			extent{1 - 0.14, 4 + 0.14}},
		"of other titles": {flight(accuracy, 1, 3), flight(results.Axis{Title: "reward"}, 2, 4), true, false,
			extent{}},
		"without titles": {flight(results.Axis{}, 1, 3), flight(results.Axis{}, 2, 4), true, false, extent{}},
		"of other ends": {flight(accuracy, 1, 3),
			flight(results.Axis{Title: "accuracy", Low: results.Num(0)}, 2, 4), true, false, extent{}},
		"too flat to be read": {flight(accuracy, 1, 3), flight(accuracy, 2, 20), true, false, extent{}},
		"too far apart":       {flight(accuracy, 1, 3), flight(accuracy, 20, 22), true, false, extent{}},
		"logarithmic": {flight(logarithmic, 1, 100), flight(logarithmic, 10, 1000), true, true,
			extent{math.Pow(10, -0.14), math.Pow(10, 3.14)}},
		"logarithmic and too flat": {flight(logarithmic, 1, 1.2), flight(logarithmic, 10, 1000), true, false, extent{}},
		"of lengths too far apart ": {flight(accuracy, 1, 3), flight(accuracy, 1, 2, 3, 2, 1, 2, 3, 2), false, true,
			extent{1 - 0.14, 3 + 0.14}},
	} {
		charts := curveChartsOf([]results.Figure{c.a, {Title: "nothing"}, c.b, {Map: madeMap(false, []float64{1})}})
		if charts[1] != nil || charts[3] != nil {
			t.Errorf("%s: a map or an empty figure has a plane", name)
		}
		a, b := charts[0], charts[2]
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
		{X: 1, Y: results.Num(1), High: results.Num(50)}, {X: 2, Y: results.Num(2)},
		{X: 9, Low: results.Num(1.2), High: results.Num(1.4)}, {X: 99, Low: results.Num(1)},
	}}}}
	p, ok := newCurveChart(&half)
	if !ok || p.x != (extent{1, 9}) || math.Abs(p.y.high-2.07) > 1e-9 {
		t.Errorf("axes %v and %v, want x to 9, where a spread without a value ends, and y to 2.07", p.x, p.y)
	}
}

func TestManyBandsAreDrawnFainter(t *testing.T) {
	for n, faint := range map[int]bool{4: false, 5: true} {
		var f results.Figure
		for i := range n {
			f.Curves = append(f.Curves, results.Curve{Name: "a", Colour: i, At: withSpread(points(1, 2), 0.1)},
				results.Curve{Name: "b", Colour: i, Points: true, At: withSpread(points(1, 2), 0.1)},
				results.Curve{Name: "c", Colour: i, At: points(1, 2)})
		}
		p, _ := newCurveChart(&f)
		if got := p.chart(halves().shapes[0]).class == "half faint"; got != faint {
			t.Errorf("%d bands: fainter %v, want %v", n, got, faint)
		}
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

func TestNamesKeepClearOfLinesOfOneAnotherAndOfTheEdge(t *testing.T) {
	p := canvas()
	for x := vg.Length(150); x <= 300; x++ { // a line on the right, above the guide
		p.ink = append(p.ink, vg.Point{X: x, Y: 108})
	}
	for _, name := range []string{"target 0.65", "on-policy", "expert", "another", "the fifth"} {
		p.write(name, mutedColor, alongRow(p.canvas.Rectangle, 100))
	}
	p.write("at the very edge", inkColor, beside(vg.Point{X: 298, Y: 198}, 6))
	if len(p.taken) != 6 {
		t.Fatalf("%d names, want 6", len(p.taken))
	}
	for i, a := range p.taken {
		if a.Min.X < 0 || a.Max.X > 300 || a.Min.Y < 0 || a.Max.Y > 200 {
			t.Errorf("name %d stands at %v, outside the plot", i, a)
		}
		for j, b := range p.taken[:i] {
			if a.Min.X < b.Max.X && b.Min.X < a.Max.X && a.Min.Y < b.Max.Y && b.Min.Y < a.Max.Y {
				t.Errorf("names %d and %d overlap", i, j)
			}
		}
		for _, at := range p.ink {
			if at.X > a.Min.X && at.X < a.Max.X && at.Y > a.Min.Y && at.Y < a.Max.Y {
				t.Errorf("name %d hides the line", i)
				break
			}
		}
	}
	p.write("", inkColor, nil)
	if len(p.taken) != 6 {
		t.Error("a name of nothing takes room")
	}
}

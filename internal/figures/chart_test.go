package figures

import (
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

func half() Size { return Size{Class: "half", Width: 380, Height: 240} }

// unfitted is a figure whose axes are as long as its curves.
func unfitted(curves ...Curve) *Figure {
	return &Figure{Title: "f", X: Axis{Low: None(), High: None()}, Y: Axis{Low: None(), High: None()}, Curves: curves}
}

// rising is a curve at x = 1, 2, …, with a spread if that is not 0.
func rising(spread Number, ys ...Number) Curve {
	c := Curve{Name: "a", Arm: "a", Colour: "replay", Y: ys}
	for i, y := range ys {
		c.X = append(c.X, float64(i+1))
		if spread != 0 {
			c.Low, c.High = append(c.Low, y-spread), append(c.High, y+spread)
		}
	}
	return c
}

// drawn draws a figure at half the page's width.
func drawn(t *testing.T, f *Figure) string {
	t.Helper()
	d := f.Draw(half())
	if len(d.SVG) != 1 {
		t.Fatalf("%d pictures, want 1", len(d.SVG))
	}
	return string(d.SVG[0])
}

// strokes counts the lines and areas of the paths of a class.
func strokes(svg, class string) (n int) {
	for _, m := range regexp.MustCompile(`<path class="`+class+`"[^>]* d="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		n += strings.Count(m[1], "M")
	}
	return n
}

func TestAMissingValueBreaksTheLineAndItsBand(t *testing.T) {
	for want, c := range map[int]Curve{1: rising(0.2, 1, 2, 3, 2, 1), 2: rising(0.2, 1, 2, None(), 2, 1)} {
		svg := drawn(t, unfitted(c))
		if lines, bands := strokes(svg, "line"), strokes(svg, "band"); lines != want || bands != want {
			t.Errorf("%d lines and %d bands, want %d of each", lines, bands, want)
		}
	}
}

func TestALoneSpreadIsAWhisker(t *testing.T) {
	c := rising(0.2, 1, 2, None(), 3)
	svg := drawn(t, unfitted(c))
	if bands, whiskers := strokes(svg, "band"), strokes(svg, "whisker"); bands != 1 || whiskers != 3 {
		t.Errorf("%d bands and %d strokes of whiskers, want 1 and 3", bands, whiskers)
	}
	c.Apart = true
	svg = drawn(t, unfitted(c))
	if bands, whiskers, lines := strokes(svg, "band"), strokes(svg, "whisker"), strokes(svg, "line"); bands != 0 ||
		whiskers != 9 || lines != 0 {
		t.Errorf("unconnected: %d bands, %d strokes of whiskers and %d lines, want 0, 9 and 0", bands, whiskers, lines)
	}
}

func TestSeedsAreThinBehindTheOthersAndComputedCurvesDashed(t *testing.T) {
	seed, computed := rising(0, 1.2, 2.2), rising(0, 2, 3)
	seed.Thin, computed.Dashed = true, true
	svg := drawn(t, unfitted(rising(0, 1, 2), computed, seed))
	thin, thick := strings.Index(svg, `class="line thin"`), strings.Index(svg, `class="line"`)
	if thin < 0 || thick < 0 || thin > thick || strokes(svg, "line dashed") != 1 {
		t.Errorf("the seed's line is at %d, the other's at %d: want it before; dashed: %d, want 1", thin, thick,
			strokes(svg, "line dashed"))
	}
}

func TestManyBandsAreDrawnFainter(t *testing.T) {
	for n, faint := range map[int]bool{4: false, 5: true} {
		f := unfitted(slices.Repeat([]Curve{rising(0.1, 1, 2)}, n)...)
		if got := strings.Contains(drawn(t, f), " faint"); got != faint {
			t.Errorf("%d bands: fainter %v, want %v", n, got, faint)
		}
	}
}

func TestPartsTellCurvesGuidesAndMarks(t *testing.T) {
	f := unfitted(rising(0.1, 1, 2), rising(0, 2, 3))
	f.Guides = []Guide{{Name: "budget", X: 1.5, Y: None()}, {Name: "target", X: None(), Y: 2}}
	f.Marks = []Mark{{Name: "best", X: 2, Y: 3}}
	svg := drawn(t, f)
	for _, want := range []string{`class="line" color="var(--replay)" data-p="l1"`, `class="guide" data-p="g1"`,
		`class="band" color="var(--replay)" data-p="b0"`, `class="dots" color="var(--replay)" data-p="m1"`,
		`class="gridline" data-p="h0"`, `class="ring" color="var(--ink)" data-p="r0"`, `data-p="n0"`, ">target<",
		">budget<", ">best<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

func TestLegendsNameOnlyWhatIsShown(t *testing.T) {
	named := func(c Curve, name, colour string, change func(*Curve)) Curve {
		c.Name, c.Colour = name, colour
		if change != nil {
			change(&c)
		}
		return c
	}
	thin := func(c *Curve) { c.Thin = true }
	dashed := func(c *Curve) { c.Dashed = true }
	apart := func(c *Curve) { c.Apart = true }
	two := rising(0, 1, 2)
	for want, curves := range map[string][]Curve{
		"a, b": {named(two, "a", "replay", nil), named(two, "b", "green", nil),
			named(rising(0, None()), "c", "sky", nil)},
		"a, one seed":    {named(two, "a", "replay", nil), named(two, "", "replay", thin)},
		"a, spread":      {named(rising(0.1, 1, 2), "a", "replay", nil)},
		"a, b, computed": {named(two, "a", "replay", nil), named(two, "b", "replay", dashed)},
		"b":              {named(two, "b", "replay", dashed)},
		"a":              {named(two, "a", "replay", nil), named(two, "a", "replay", nil)},
		"seed 1, seed 2": {named(two, "seed 1", "pink", thin), named(two, "seed 2", "sky", thin)},
		"p, q, one seed, spread": {named(rising(0.1, 1, 2), "p", "replay", nil),
			named(rising(0.1, 1, 2), " q\n", "replay", apart), named(two, "", "replay", thin)},
	} {
		var names []string
		for _, k := range unfitted(curves...).Legend() {
			if names = append(names, k.Name); k.Icon == "" {
				t.Errorf("%s: %q has no piece", want, k.Name)
			}
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("legend %q, want %q", got, want)
		}
	}
}

func TestLongLinesCarryAFewMarkersIfTheirShapeTellsThemApart(t *testing.T) {
	long := rising(0, make([]Number, 100)...)
	for i := range long.Y[:60] {
		long.Y[i] = None()
	}
	for _, c := range []struct{ shape, named, want int }{{0, 1, 40}, {1, 1, 40}, {0, 9, 0}, {1, 9, 7}} {
		long.Shape = c.shape
		f := unfitted(append(slices.Repeat([]Curve{rising(0, 1)}, c.named-1), long)...)
		m := regexp.MustCompile(fmt.Sprintf(`data-p="m%d" d="[^"]*"`, c.named-1)).FindString(drawn(t, f))
		if n := strings.Count(m, "M"); n != c.want {
			t.Errorf("shape %d among %d: %d markers, want %d of the known points", c.shape, c.named, n, c.want)
		}
		f.Curves = f.Curves[c.named-1:]
		if c.named == 1 && !strings.Contains(string(f.Legend()[0].Icon), "dots") {
			t.Error("the key has no marker, its line has some")
		}
	}
}

func TestWhatTheAxesLeaveOutIsSaid(t *testing.T) {
	theory := rising(0, 9, 9)
	theory.Dashed = true
	f := unfitted(rising(0, 1, 5, 2, -1), theory)
	f.X.Low, f.X.High, f.Y.Low, f.Y.High = 1, 10, 0, 2
	f.Guides = []Guide{{Name: "budget", X: 20, Y: None()}, {Name: "target", X: None(), Y: 1}}
	f.Marks = []Mark{{Name: "optimum", X: 0.5, Y: 1}}
	d := f.Draw(half())
	if want := "Beyond the axes: 2 points, optimum, budget."; d.Beyond != want {
		t.Errorf("note %q, want %q", d.Beyond, want)
	}
	if svg := string(d.SVG[0]); strings.Contains(svg, "optimum") || strings.Contains(svg, "budget") {
		t.Error("what the drawing leaves out is named in it")
	}
}

func TestAxesReachAsFarAsTheyAreTold(t *testing.T) {
	for _, c := range []struct {
		low, high Number
		log       bool
		values    extent
		share     float64
		want      extent
	}{
		{None(), None(), false, extent{2, 4}, 0, extent{2, 4}},
		{None(), None(), false, extent{2, 4}, 0.5, extent{1, 5}},
		{None(), None(), false, extent{2, 4}, 2, extent{0, 8}}, // no room below 0 where no value is
		{None(), None(), false, extent{0, 0}, 2, extent{0, 1}},
		{None(), None(), false, extent{-3, -3}, 2, extent{-3.3, -2.7}},
		{-3, None(), false, extent{2, 4}, 0.5, extent{-3, 5}},
		{None(), 3, false, extent{2, 4}, 0.5, extent{1, 3}},
		{None(), -3, false, extent{2, 4}, 0.5, extent{-4, -3}},
		{30, None(), false, extent{2, 4}, 0.5, extent{30, 33}},
		{None(), None(), true, extent{2, 4}, 1, extent{1, 8}},
		{40, None(), true, extent{2, 4}, 1, extent{40, 400}},
		{None(), 0.5, true, extent{2, 4}, 1, extent{0.05, 0.5}},
	} {
		a := Axis{Low: c.low, High: c.high, Log: c.log}
		a.reach(c.values, c.share)
		if math.Abs(float64(a.Low)-c.want.low) > 1e-12 || math.Abs(float64(a.High)-c.want.high) > 1e-9 {
			t.Errorf("%+v: from %v to %v", c, a.Low, a.High)
		}
	}
}

func TestOnlyWhatIsDrawnStretchesTheAxes(t *testing.T) {
	f := unfitted(Curve{X: Steps{1, 2, 9, 99}, Y: []Number{1, 2, None(), None()},
		Low: []Number{None(), None(), 1.2, 1}, High: []Number{50, None(), 1.4, None()}})
	if !f.Fit() || f.X.Low != 1 || f.X.High != 9 || math.Abs(float64(f.Y.High)-2.07) > 1e-9 {
		t.Errorf("axes %v and %v, want x to 9, where a spread without a value ends, and y to 2.07", f.X, f.Y)
	}
}

// labels returns the labels of an axis 400 units long.
func labels(a Axis, least float64, whole bool) []string {
	var list []string
	for _, tick := range (ruler{&a, 400, least, width, whole}).ticks() {
		if tick.label != "" {
			list = append(list, tick.label)
		}
	}
	return list
}

func TestTicksStandAtRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		axis  Axis
		least float64
		whole bool
		want  string
	}{
		{Axis{Low: 0, High: 100}, 80, false, "0 20 40 60 80 100"},
		{Axis{Low: 0, High: 1}, 100, false, "0 0.25 0.50 0.75 1.00"},
		{Axis{Low: 0.3, High: 77_000}, 50, false, "10k 20k 30k 40k 50k 60k 70k"},
		{Axis{Low: -12, High: 13}, 50, false, "−10 −5 0 5 10"},
		{Axis{Low: 0, High: 2}, 30, true, "0 1 2"},
		{Axis{Low: 1, High: 4, Log: true}, 30, true, "1 2 3 4"},
		{Axis{Low: 0, High: 0.1, Percent: true}, 90, false, "0.0% 2.5% 5.0% 7.5% 10.0%"},
		{Axis{Low: 1, High: 1000, Log: true}, 20, false, "1 2 5 10 20 50 100 200 500 1000"},
		{Axis{Low: 1, High: 1000, Log: true}, 50, false, "1 3 10 30 100 300 1000"},
		{Axis{Low: 1, High: 1e6, Log: true}, 60, false, "1 10 100 1000 10k 100k 1M"},
		{Axis{Low: 1, High: 1e12, Log: true}, 100, false, "1 1000 1M 1G 1e+12"},
		{Axis{Low: 120, High: 190, Log: true}, 50, false, "120 140 160 180"}, // too short for powers
		{Axis{Low: -0.5, High: 9.5, Names: strings.Fields("0 2 4 6 8 10 12 14 16 18+"), Open: true}, 60, false,
			"0 4 8 12 18+"},
		{Axis{Low: -0.5, High: 2.5, Names: strings.Fields("a b c")}, 30, false, "a b c"},
	} {
		if got := strings.Join(labels(c.axis, c.least, c.whole), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.axis, got, c.want)
		}
	}
}

func TestTicksAreEnoughAndKeepClearOfEachOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 3000 {
		a := Axis{Low: Number(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(8)-3))), Log: rng.IntN(2) == 0}
		a.High = a.Low + Number(rng.ExpFloat64()*math.Pow(10, float64(rng.IntN(8)-3)))
		if a.Log {
			a.Low = Number(math.Pow(10, 12*rng.Float64()-6))
			a.High = a.Low * Number(math.Pow(10, 0.1+2*rng.ExpFloat64()))
		}
		r := ruler{&a, 250 + 500*rng.Float64(), 24, width, false}
		n, right := 0, math.Inf(-1)
		for _, tick := range r.ticks() {
			at := r.length * a.share(tick.at)
			if !a.shows(tick.at) {
				t.Fatalf("tick %v on %+v", tick, a)
			}
			if tick.label == "" {
				continue
			}
			if left := at - width(tick.label)/2; left < right-1e-6 {
				t.Fatalf("%q overlaps its neighbour on %+v", tick.label, a)
			}
			n, right = n+1, at+width(tick.label)/2
		}
		if n < 2 {
			t.Fatalf("%d labels on %+v in %g, want two or more", n, a, r.length)
		}
	}
}

func TestALogarithmicAxisSetsEqualRatiosEquallyFarApart(t *testing.T) {
	for _, log := range []bool{true, false} {
		c := chart{Figure: &Figure{X: Axis{Low: 1, High: 1000, Log: log}}, data: box{0, 0, 300, 100}}
		if ratio := (c.x(1000) - c.x(100)) / (c.x(100) - c.x(10)); log != (math.Abs(ratio-1) < 1e-9) {
			t.Errorf("logarithmic %v: 1000 is %.3g times as far from 100 as that from 10", log, ratio)
		}
	}
}

func TestNamesKeepClearOfLinesOfOneAnotherAndOfTheEdge(t *testing.T) {
	flat := rising(0, 5.1, 5.1, 5.1, 5.1)
	flat.X = Steps{50, 60, 80, 100}
	f := unfitted(flat)
	f.X.Low, f.X.High, f.Y.Low, f.Y.High = 0, 100, 0, 10
	for _, name := range []string{"target 0.65", "on-policy", "expert", "another", "the fifth"} {
		f.Guides = append(f.Guides, Guide{Name: name, X: None(), Y: 5})
	}
	f.Marks = []Mark{{Name: "at the very edge", X: 100, Y: 10}}
	c := &chart{Figure: f, size: half(), data: box{0, 0, 300, 200}}
	c.drawCurve(0)
	c.drawNotes()
	if len(c.taken) != 7 { // a ring and six names
		t.Fatalf("%d places are taken, want 7", len(c.taken))
	}
	for i, a := range c.taken[1:] {
		if a.left < 0 || a.right > 300 || a.top < 0 || a.bottom > 200 {
			t.Errorf("name %d stands at %v, outside the data", i, a)
		}
		for j, b := range c.taken[1 : 1+i] {
			if a.overlaps(b) {
				t.Errorf("names %d and %d overlap", i, j)
			}
		}
		if slices.ContainsFunc(c.inked, a.holds) {
			t.Errorf("name %d hides the line", i)
		}
	}
}

func TestBarsAreAsHighAsTheirValues(t *testing.T) {
	c := rising(0, 0, 1, 4, 0.001)
	c.Bars, c.X = true, Steps{0, 1, 2, 3}
	f := unfitted(c)
	f.Labels = []string{"none", "one & more", "four", "few"}
	f.X, f.Y.Low = Axis{Low: -0.5, High: 7.5, Names: []string{"n", "o", "f", "w"}}, 0
	svg := drawn(t, f)
	var heights []float64
	for _, m := range regexp.MustCompile(`class="bar".* height="([0-9.]+)"`).FindAllStringSubmatch(svg, -1) {
		h, _ := strconv.ParseFloat(m[1], 64)
		heights = append(heights, h)
	}
	if len(heights) != 4 || heights[0] != 0 || math.Abs(heights[2]/heights[1]-4) > 0.02 || heights[3] < 1 ||
		!strings.Contains(svg, "<title>one &amp; more</title>") {
		t.Errorf("heights %v, want them as 0 to 1 to 4 and a little, in\n%s", heights, svg)
	}
}

// figureOf makes a figure of bytes, whatever they are.
func figureOf(data []byte) *Figure {
	next := func() uint64 {
		var word [8]byte
		data = data[copy(word[:], data):]
		return binary.LittleEndian.Uint64(word[:])
	}
	value := func() Number {
		special := []Number{0, None(), Number(math.Inf(1)), Number(math.Inf(-1)), math.MaxFloat64, -1e300, 5e-324, -1,
			1, 1e17}
		switch n := next(); n % 4 {
		case 0:
			return special[n/4%uint64(len(special))]
		case 1:
			return Number(math.Float64frombits(n))
		default:
			return Number(int64(n)) / (1 << 50)
		}
	}
	values := func(n int) (list []Number) {
		for range n {
			list = append(list, value())
		}
		return list
	}
	name := func() string { return strings.Repeat("<long & naïve> ", int(next()%9)) }
	flags := next()
	flag := func(n int) bool { return flags>>n&1 == 1 }
	f := &Figure{Title: name(), X: Axis{Title: name(), Low: value(), High: value(), Log: flag(0)},
		Y: Axis{Title: name(), Low: value(), High: value(), Log: flag(1), Percent: flag(2)}}
	if flag(3) {
		f.X.Names, f.X.Open = strings.Fields(name()+"0"), flag(4)
	}
	if flag(5) && flag(6) {
		m := &Cells{Columns: []string{name(), "b", name()}, Rows: slices.Repeat([]string{name()}, int(1+next()%40)),
			Digits: int(next() % 7), Unit: name(), Less: flag(7)}
		for range m.Rows {
			m.Values = append(m.Values, values(3))
		}
		f.Cells, f.Marks = m, []Mark{{Name: name(), X: value(), Y: value()}, {Name: "m", X: 1, Y: 0}}
		return f
	}
	for n := next() % 6; n > 0; n-- {
		flags := next()
		c := Curve{Name: name(), Colour: "replay", Shape: int(flags % 11), Thin: flags>>8%3 == 0,
			Dashed: flags>>16%3 == 0, Apart: flags>>24%3 == 0, Bars: flags>>32%5 == 0, Filled: flags>>40%5 == 0}
		for range next() % 50 {
			c.X, c.Y = append(c.X, float64(value())), append(c.Y, value())
		}
		if flags>>48%2 == 0 {
			c.Low, c.High = values(len(c.X)), values(len(c.X))
		}
		f.Curves = append(f.Curves, c)
	}
	for n := next() % 4; n > 0; n-- {
		f.Guides = append(f.Guides, Guide{name(), value(), value()})
		f.Marks = append(f.Marks, Mark{Name: name(), X: value(), Y: value()})
	}
	return f
}

// staysInside draws a figure and checks that the drawing is sound, within its view box, and the same when drawn again.
func staysInside(t *testing.T, data []byte) {
	t.Helper()
	sizes := []Size{half(), {Class: "wide", Width: 840, Height: 330},
		{Class: "spark", Width: 320, Height: 44, Bare: true}}
	d, again := figureOf(data).Draw(sizes...), figureOf(data).Draw(sizes...)
	if fmt.Sprint(d) != fmt.Sprint(again) {
		t.Fatal("drawn again the figure is another")
	}
	for _, key := range d.Legend {
		if strings.Contains(string(key.Icon), "NaN") {
			t.Fatalf("a legend has %s", key.Icon)
		}
	}
	for _, svg := range d.SVG {
		checkInside(t, string(svg))
	}
}

// checkInside checks that all of a drawing lies in its view box, by the estimated width of text.
func checkInside(t *testing.T, svg string) {
	t.Helper()
	var w, h, x float64
	anchor := ""
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %.3000s", err, svg)
		}
		var points []point
		switch e := token.(type) {
		case xml.StartElement:
			of := make(map[string]string)
			for _, a := range e.Attr {
				of[a.Name.Local] = a.Value
			}
			number := func(name string) float64 { v, _ := strconv.ParseFloat(of[name], 64); return v }
			if e.Name.Local == "svg" {
				_, _ = fmt.Sscanf(of["viewBox"], "0 0 %g %g", &w, &h)
			}
			x, anchor = number("x"), of["text-anchor"]
			y := number("y")
			points = append(ends(of["d"]), point{x, y}, point{x + number("width"), y + number("height")})
		case xml.CharData:
			wide := width(string(e))
			left := x - wide*map[string]float64{"middle": 0.5, "end": 1}[anchor]
			if anchor != "" {
				points = []point{{left, 0}, {left + wide, 0}}
			}
		case xml.EndElement:
			anchor = ""
		}
		for _, at := range points {
			if !(box{0, 0, w, h}).inset(-0.1).holds(at) {
				t.Fatalf("%v is outside a drawing of %g by %g:\n%.3000s", at, w, h, svg)
			}
		}
	}
}

// ends returns the points of a path, and the ends of its arcs.
func ends(d string) (points []point) {
	at := point{}
	for _, m := range command.FindAllStringSubmatch(d, -1) {
		list := number.FindAllString(m[2], -1)
		if len(list) < 2 { // z
			continue
		}
		right, _ := strconv.ParseFloat(list[len(list)-2], 64)
		down, _ := strconv.ParseFloat(list[len(list)-1], 64)
		if m[1] == "M" {
			at = point{}
		}
		at = point{at.x + right, at.y + down}
		points = append(points, at)
	}
	return points
}

var command, number = regexp.MustCompile(`([Mmlaz])([^Mmlaz]*)`), regexp.MustCompile(`NaN|-?[0-9.]+`)

func TestRandomFiguresStayInTheirViewBoxes(t *testing.T) {
	for seed := range uint64(tests.Count(1000, 200)) {
		rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
		data := make([]byte, 8*(10+seed%700))
		_, _ = rng.Read(data)
		if staysInside(t, data); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzFiguresStayInTheirViewBoxes(f *testing.F) {
	f.Add([]byte("a figure of few bytes"))
	f.Fuzz(staysInside)
}

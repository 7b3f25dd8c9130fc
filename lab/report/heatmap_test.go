package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

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

func drawnMap(t *testing.T, f results.Figure) (string, figure) {
	t.Helper()
	d := heatFigure(&f)
	if len(d.SVG) != 1 {
		t.Fatalf("%d pictures, want 1", len(d.SVG))
	}
	return string(d.SVG[0]), d
}

// Text on every fill has a contrast of 4.5 or more, on a light page and on a dark one, and fills go from weak to strong
// by lightness.
func TestNumbersInCellsCanBeRead(t *testing.T) {
	light, dark, _ := strings.Cut(styleText, "prefers-color-scheme: dark")
	for page, rules := range map[string]string{"light": light, "dark": dark} {
		before := math.NaN()
		for k := range heatLevels {
			cell, text := luminance(t, rules, fmt.Sprintf("--heat-%d", k)),
				luminance(t, rules, fmt.Sprintf("--on-heat-%d", k))
			if contrast := (max(cell, text) + 0.05) / (min(cell, text) + 0.05); contrast < 4.5 {
				t.Errorf("%s: text on level %d has a contrast of %.2f, want 4.5", page, k, contrast)
			}
			if page == "light" && cell >= before || page == "dark" && cell <= before {
				t.Errorf("%s: level %d is not stronger than the one before it", page, k)
			}
			before = cell
			want := fmt.Sprintf("--heat-%d: #%06x", k, heatPaints()[k])
			if page == "light" && !strings.Contains(rules, want) {
				t.Errorf("the style sheet's light level %d is not the one drawn, %s", k, want)
			}
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

func TestTheBestCellIsTheStrongest(t *testing.T) {
	for _, less := range []bool{false, true} {
		h, _ := newHeat(&results.Figure{Map: madeMap(less, []float64{1, 2, 5})})
		low, _ := heatFill(h.share(1))
		high, _ := heatFill(h.share(5))
		if less {
			low, high = high, low
		}
		if low != heat0 || high != heat0+heatLevels-1 {
			t.Errorf("less is better: %v: worst at level %d, best at level %d", less, low-heat0, high-heat0)
		}
	}
	same := results.Figure{Map: madeMap(false, []float64{3, 3}), Marks: []results.MarkedAt{{Name: "best"}}}
	if _, d := drawnMap(t, same); len(d.Legend) != 2 || d.Legend[0].Name != "3.00 accuracy in every cell" ||
		d.Legend[1].Name != "best" {
		t.Errorf("equal cells have the legend %+v", d.Legend)
	}
	h, _ := newHeat(&same)
	if level, _ := heatFill(h.share(3)); level <= heat0 || level >= heat0+heatLevels-1 {
		t.Errorf("equal cells are drawn at level %d, want neither the best nor the worst", level-heat0)
	}
}

func TestAMapOfFewFarValuesIsShadedByRank(t *testing.T) {
	for name, c := range map[string]struct {
		less   bool
		row    []float64
		levels []role
		ranked bool
	}{
		"even":             {false, []float64{1, 2, 3}, []role{0, 4, 8}, false},
		"one far below":    {false, []float64{-640, 5, 6, 7, 7}, []role{0, 3, 6, 8, 8}, true},
		"one far above":    {true, []float64{1, 2, 3, 900}, []role{8, 6, 3, 0}, true},
		"empty cells":      {false, []float64{math.NaN(), -640, 6, 7}, []role{0, 4, 8}, true},
		"two values":       {false, []float64{1, 2}, []role{0, 8}, false},
		"one, and another": {false, []float64{1, 2, 2, 2}, []role{0, 8, 8, 8}, true},
	} {
		f := results.Figure{Map: madeMap(c.less, c.row)}
		h, _ := newHeat(&f)
		levels := c.levels
		for _, v := range c.row {
			if v != v {
				continue
			}
			if level, _ := heatFill(h.share(v)); level-heat0 != levels[0] {
				t.Errorf("%s: %g at level %d, want %d", name, v, level-heat0, levels[0])
			}
			levels = levels[1:]
		}
		if _, d := drawnMap(t, f); strings.Contains(d.Legend[0].Name, "by rank") != c.ranked {
			t.Errorf("%s: legend %q", name, d.Legend[0].Name)
		}
	}
}

func TestCellsShowTheirNumbersAndEmptyOnesADash(t *testing.T) {
	f := results.Figure{Title: "m", X: results.Axis{Title: "N & more"}, Y: results.Axis{Title: "split"},
		Map: madeMap(false, []float64{0.5, -0.25}, []float64{math.NaN(), -0.001})}
	text, d := drawnMap(t, f)
	for _, want := range []string{">0.50<", ">−0.25<", ">–<", ">0.00<", ">row 1<", ">c1<", ">N &amp; more<", ">split<",
		"var(--on-heat-", "<title>m</title>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the map lacks %q", want)
		}
	}
	if strings.Count(text, "fill:var(--heat-") != 3 {
		t.Errorf("%d filled cells, want 3", strings.Count(text, "fill:var(--heat-"))
	}
	if k := d.Legend[0]; k.Before != "−0.25" || !strings.HasPrefix(k.Name, "0.50 accuracy") {
		t.Errorf("the legend goes from %q to %q", k.Before, k.Name)
	}
	f.Map.Less = true
	if _, d = drawnMap(t, f); d.Legend[0].Before != "0.50" || !strings.HasPrefix(d.Legend[0].Name, "−0.25 accuracy") {
		t.Errorf("where less is better, the legend goes from %q to %q", d.Legend[0].Before, d.Legend[0].Name)
	}
}

func TestMarkedCellsAreFramedOnceEach(t *testing.T) {
	f := results.Figure{Title: "m", Map: madeMap(false, []float64{1, 2}, []float64{3, 4}),
		Marks: []results.MarkedAt{{Name: "best", X: 1, Y: 1}, {Name: "recommended", X: 1, Y: 1},
			{Name: "default", X: 0, Y: 0}}}
	text, d := drawnMap(t, f)
	frames := map[string]bool{}
	for _, variable := range []string{"baseline", "green", "pink"} {
		_, after, _ := strings.Cut(strings.Join(strings.Split(text, "<path")[1:], "<path"), "stroke:var(--"+variable)
		if after == "" {
			t.Errorf("no frame in %s", variable)
		}
		head, _, _ := strings.Cut(text, "stroke:var(--"+variable)
		frames[head[strings.LastIndex(head, `d="`):]] = true
	}
	if len(frames) != 3 {
		t.Errorf("%d places of frames, want 3: two at one cell stand within one another", len(frames))
	}
	var names []string
	for _, k := range d.Legend[1:] {
		names = append(names, k.Name)
	}
	if got := strings.Join(names, ", "); got != "best, recommended, default" {
		t.Errorf("the legend names %q", got)
	}
}

func TestAMapTakesTheRoomOfItsColumns(t *testing.T) {
	row := func(n int) (list []float64) {
		for i := range n {
			list = append(list, float64(i))
		}
		return list
	}
	for _, c := range []struct {
		columns        int
		broad, numbers bool
	}{{3, false, true}, {16, true, true}, {80, true, false}} {
		f := results.Figure{Title: "m", Map: madeMap(false, row(c.columns), row(c.columns))}
		text, d := drawnMap(t, f)
		if broad(&f) != c.broad || d.Scrolls != c.broad || strings.Contains(text, `class="map broad"`) != c.broad {
			t.Errorf("%d columns: broad %v, want %v", c.columns, broad(&f), c.broad)
		}
		if got := strings.Contains(text, ">1.00<"); got != c.numbers {
			t.Errorf("%d columns: numbers in cells %v, want %v", c.columns, got, c.numbers)
		}
		if names := strings.Count(text, ">c"); names > c.columns || names < 3 || c.numbers && names != c.columns {
			t.Errorf("%d columns have %d names", c.columns, names)
		}
	}
}

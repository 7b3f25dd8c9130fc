package figures

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// mapOf returns a map of rows of values.
func mapOf(rows ...[]Number) *Figure {
	m := &Cells{Digits: 2, Unit: "accuracy", Values: rows}
	for i := range rows {
		m.Rows = append(m.Rows, fmt.Sprintf("row %d", i))
	}
	for j := range rows[0] {
		m.Columns = append(m.Columns, fmt.Sprintf("c%d", j))
	}
	return &Figure{Title: "m", X: Axis{Title: "N & more"}, Y: Axis{Title: "split"}, Cells: m}
}

func TestTheBestCellIsTheStrongestByRankIfFewLieFarOff(t *testing.T) {
	for name, c := range map[string]struct {
		less   bool
		row    []Number
		levels []int
		ranked bool
	}{
		"even":             {false, []Number{1, 2, 3}, []int{0, 4, 8}, false},
		"less is better":   {true, []Number{1, 2, 3}, []int{8, 4, 0}, false},
		"one far below":    {false, []Number{-640, 5, 6, 7, 7}, []int{0, 3, 6, 8, 8}, true},
		"one far above":    {true, []Number{1, 2, 3, 900}, []int{8, 6, 3, 0}, true},
		"empty cells":      {false, []Number{None(), -640, 6, 7}, []int{-1, 0, 4, 8}, true},
		"two values":       {false, []Number{1, 2}, []int{0, 8}, false},
		"one, and another": {false, []Number{1, 2, 2, 2}, []int{0, 8, 8, 8}, true},
		"all the same":     {false, []Number{3, 3}, []int{3, 3}, false},
	} {
		f := mapOf(c.row)
		f.Cells.Less = c.less
		m, _ := f.newMap()
		var levels []int
		for _, v := range c.row {
			levels = append(levels, m.level(v))
		}
		if !slices.Equal(levels, c.levels) {
			t.Errorf("%s: levels %v, want %v", name, levels, c.levels)
		}
		if legend := f.Draw().Legend[0].Name; strings.Contains(legend, "by rank") != c.ranked {
			t.Errorf("%s: legend %q", name, legend)
		}
	}
}

func TestCellsShowTheirNumbersAndEmptyOnesADash(t *testing.T) {
	f := mapOf([]Number{0.5, -0.25}, []Number{None(), -0.001})
	svg := drawn(t, f)
	for _, want := range []string{">0.50<", ">−0.25<", ">–<", ">0.00<", ">row 1<", ">c1<", ">N &amp; more<", ">split<",
		"var(--on-heat-", "<title>m</title>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the map lacks %q", want)
		}
	}
	if n := strokes(svg, "cell"); n != 3 {
		t.Errorf("%d filled cells, want 3", n)
	}
	if k := f.Draw().Legend[0]; k.Before != "−0.25" || !strings.HasPrefix(k.Name, "0.50 accuracy") {
		t.Errorf("the legend goes from %q to %q", k.Before, k.Name)
	}
	f.Cells.Less = true
	if k := f.Draw().Legend[0]; k.Before != "0.50" || !strings.HasPrefix(k.Name, "−0.25 accuracy") {
		t.Errorf("where less is better, the legend goes from %q to %q", k.Before, k.Name)
	}
	if d := mapOf([]Number{None()}).Draw(); d.SVG != nil || d.Data != "" {
		t.Error("a map of nothing is drawn")
	}
}

func TestMarkedCellsAreFramedOnceEach(t *testing.T) {
	f := mapOf([]Number{1, 2}, []Number{3, 4})
	f.Marks = []Mark{{Name: "best", X: 1, Y: 1}, {Name: "recommended", X: 1, Y: 1}, {Name: "default", X: 0, Y: 0}}
	frames := make(map[string]bool)
	for _, path := range strings.Split(drawn(t, f), "<path ") {
		if _, d, found := strings.Cut(path, ` d="`); found && strings.HasPrefix(path, `class="frame"`) {
			frames[d] = true
		}
	}
	var names []string
	for _, k := range f.Draw().Legend[1:] {
		names = append(names, k.Name)
	}
	if got := strings.Join(names, ", "); len(frames) != 3 || got != "best, recommended, default" {
		t.Errorf("%d places of frames, want 3, as two at one cell stand within one another; named are %q", len(frames), got)
	}
}

func TestAMapTakesTheRoomOfItsColumns(t *testing.T) {
	for _, c := range []struct {
		columns        int
		broad, numbers bool
	}{{3, false, true}, {16, true, true}, {80, true, false}} {
		row := make([]Number, c.columns)
		for j := range row {
			row[j] = Number(j)
		}
		f := mapOf(row, row)
		svg := drawn(t, f)
		if f.Broad() != c.broad || strings.Contains(svg, `class="chart map broad"`) != c.broad {
			t.Errorf("%d columns: broad %v, want %v", c.columns, f.Broad(), c.broad)
		}
		if got := strings.Contains(svg, ">1.00<"); got != c.numbers {
			t.Errorf("%d columns: numbers in cells %v, want %v", c.columns, got, c.numbers)
		}
		if names := strings.Count(svg, ">c"); names > c.columns || names < 3 || c.numbers && names != c.columns {
			t.Errorf("%d columns have %d names", c.columns, names)
		}
	}
}

package report

import (
	"fmt"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/results"
)

func TestFiguresAreArrangedByTheirNumberAndKind(t *testing.T) {
	p := results.Figure{Title: "p", Curves: []results.Curve{{Name: "a", At: points(1, 2)}}}
	busy := p
	for i := range 6 {
		busy.Curves = append(busy.Curves, results.Curve{Name: fmt.Sprint(i), Colour: i, At: points(1, 2)})
	}
	small := results.Figure{Title: "m", Map: madeMap(false, []float64{1, 2})}
	large := results.Figure{Title: "M", Map: madeMap(false, make([]float64, 20))}
	for _, c := range []struct {
		figures []results.Figure
		want    string
	}{
		{nil, ""},
		{[]results.Figure{p}, "large 1×2"},
		{[]results.Figure{p, p}, "grid halves 2×1"},
		{[]results.Figure{p, p, p}, "grid thirds 3×1"},
		{[]results.Figure{p, busy, p}, "large 1×2, grid halves 2×1"},
		{[]results.Figure{p, p, p, p}, "grid halves 4×1"},
		{[]results.Figure{p, p, p, p, p}, "large 1×2, grid halves 4×1"},
		{[]results.Figure{small}, "grid halves 1×1"},
		{[]results.Figure{small, p, p}, "grid halves 3×1"},
		{[]results.Figure{large}, "large 1×1"},
		{[]results.Figure{p, p, large, p}, "grid halves 2×1, large 1×1, large 1×2"},
	} {
		rows, err := arranged(c.figures)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s %d×%d", r.Class, len(r.Figures), len(r.Figures[0].SVG)))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%d figures: %q, want %q", len(c.figures), strings.Join(got, ", "), c.want)
		}
	}
}

// canvas returns a canvas to place names on, and what they are placed with.
func canvas() *placing {
	c := draw.New(vgsvg.New(300, 200))
	return &placing{canvas: &c}
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

package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/lab/results"
)

func TestTicksLieOnRoundNumbersWithinTheAxis(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		low := rng.NormFloat64() * math.Pow(10, float64(rng.IntN(8)-3))
		high := low + rng.ExpFloat64()*math.Pow(10, float64(rng.IntN(8)-3))
		marks := ticks{about: 5}.Ticks(low, high)
		if len(marks) < 2 || len(marks) > 9 {
			t.Fatalf("%d ticks from %v to %v, want about 5", len(marks), low, high)
		}
		slack := (high - low) * 1e-6
		for i, m := range marks {
			if m.Value < low-slack || m.Value > high+slack || i > 0 && m.Label == marks[i-1].Label {
				t.Fatalf("tick %v (%q) from %v to %v", m.Value, m.Label, low, high)
			}
		}
	}
	if marks := (ticks{about: 4, integer: true}).Ticks(0, 2); len(marks) != 3 {
		t.Errorf("integer ticks of 0 to 2: %v, want 0, 1, 2", marks)
	}
	if marks := (logTicks{about: 5, integer: true}).Ticks(1, 4); len(marks) != 4 {
		t.Errorf("integer ticks of 1 to 4 on a logarithmic axis: %v, want 1 to 4", marks)
	}
	if marks := (ticks{about: 4}).Ticks(3, 3); len(marks) != 1 {
		t.Errorf("an axis of one value has %d ticks, want 1", len(marks))
	}
}

// medianXYs returns a line of n points.
func medianXYs(n int) plotter.XYs {
	line := make(plotter.XYs, n)
	for i := range line {
		line[i] = plotter.XY{X: float64(i), Y: float64(i)}
	}
	return line
}

func TestLogTicksStandAtRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		about     int
		want      string
	}{
		{1, 1000, 9, "[1 2 5 10 20 50 100 200 500 1000]"},
		{1, 1000, 5, "[1 3 10 30 100 300 1000]"},
		{1, 1e6, 5, "[1 10 100 1000 10k 100k 1M]"},
		{1, 1e12, 4, "[1 10k 100M 1e+12]"},
		{256, 16384, 5, "[500 1000 2000 5000 10k]"},
		{120, 190, 5, "[120 130 140 150 160 170 180 190]"}, // too short for powers
		{0.0003, 0.02, 5, "[0.0005 0.001 0.002 0.005 0.01 0.02]"},
		{7, 7, 5, "[7]"},
	} {
		var labels []string
		for _, m := range (logTicks{about: c.about}).Ticks(c.low, c.high) {
			if m.Label != "" {
				labels = append(labels, m.Label)
			}
		}
		if got := fmt.Sprint(labels); got != c.want {
			t.Errorf("from %g to %g, about %d: %s, want %s", c.low, c.high, c.about, got, c.want)
		}
	}
}

func TestLogTicksAreEnoughAndWithinTheAxis(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 3000 {
		low := math.Pow(10, 12*rng.Float64()-6)
		high := low * math.Pow(10, 0.05+rng.ExpFloat64()*2)
		about := 4 + rng.IntN(7)
		seen, labelled := map[float64]bool{}, 0
		for _, m := range (logTicks{about: about}).Ticks(low, high) {
			if m.Value < low*(1-1e-6) || m.Value > high*(1+1e-6) {
				t.Fatalf("tick %g from %g to %g", m.Value, low, high)
			}
			if seen[m.Value] {
				t.Fatalf("tick %g twice from %g to %g", m.Value, low, high)
			}
			seen[m.Value] = true
			if m.Label != "" {
				labelled++
			}
		}
		if labelled < 2 || labelled > 2*about {
			t.Fatalf("%d labels from %g to %g, want about %d", labelled, low, high, about)
		}
	}
}

func TestALogarithmicAxisSetsEqualRatiosEquallyFarApart(t *testing.T) {
	at := regexp.MustCompile(`<path d="M([0-9.]+) [^"]*" data-p="g[0-9]" style="[^"]*stroke-dasharray:1.5,2.5`)
	for _, log := range []bool{true, false} {
		f := results.Figure{Title: "f", X: results.Axis{Log: log},
			Curves: []results.Curve{{Name: "a", At: []results.Point{{X: 1, Y: results.Num(1)},
				{X: 1000, Y: results.Num(2)}}}}}
		for _, x := range []float64{10, 100, 1000} {
			f.Guides = append(f.Guides, results.Guide{X: results.Num(x)})
		}
		var places []float64
		for _, m := range at.FindAllStringSubmatch(string(drawnFigure(f).SVG[0]), -1) {
			x, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, x)
		}
		if len(places) != 3 {
			t.Fatalf("%d guides drawn, want 3", len(places))
		}
		if ratio := (places[2] - places[1]) / (places[1] - places[0]); log != (math.Abs(ratio-1) < 0.01) {
			t.Errorf("logarithmic %v: 1000 is %.3g times as far from 100 as that from 10", log, ratio)
		}
	}
}

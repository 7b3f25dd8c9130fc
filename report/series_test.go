package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

func TestThinningKeepsEndsPeaksAndGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		n, limit := 1+rng.IntN(3000), 30+rng.IntN(300)
		points := make(plotter.XYs, n)
		low, high := math.Inf(1), math.Inf(-1)
		gaps := 0
		for i := range points {
			points[i] = plotter.XY{X: float64(i), Y: rng.NormFloat64()}
			if rng.IntN(500) == 0 {
				points[i].Y = math.NaN()
				gaps++
				continue
			}
			low, high = min(low, points[i].Y), max(high, points[i].Y)
		}
		got := thin(points, limit)
		if len(got) > limit*4/3+2 {
			t.Fatalf("%d of %d points kept, asked for %d", len(got), n, limit)
		}
		if got[0].X != 0 || got[len(got)-1].X != float64(n-1) {
			t.Fatalf("ends %v and %v, want 0 and %d", got[0].X, got[len(got)-1].X, n-1)
		}
		keptLow, keptHigh, keptGaps, before := math.Inf(1), math.Inf(-1), 0, -1.0
		for _, p := range got {
			if p.X <= before {
				t.Fatalf("x %v follows %v", p.X, before)
			}
			before = p.X
			if math.IsNaN(p.Y) {
				keptGaps++
				continue
			}
			keptLow, keptHigh = min(keptLow, p.Y), max(keptHigh, p.Y)
		}
		if keptLow != low || keptHigh != high || (gaps > 0) != (keptGaps > 0) {
			t.Fatalf("lowest %v, highest %v, %d gaps; want %v, %v and some of %d", keptLow, keptHigh, keptGaps, low, high, gaps)
		}
	}
}

func TestALineBreaksWhereAValueIsMissing(t *testing.T) {
	nan := math.NaN()
	points := plotter.XYs{{X: 0, Y: nan}, {X: 1, Y: 1}, {X: 2, Y: 2}, {X: 3, Y: nan}, {X: 4, Y: 4}}
	parts := unbroken(points)
	if len(parts) != 2 || len(parts[0]) != 2 || len(parts[1]) != 1 || parts[1][0].X != 4 {
		t.Errorf("parts %v, want [1 2] and [4]", parts)
	}
	if unbroken(plotter.XYs{{Y: nan}}) != nil {
		t.Error("nothing known has a part")
	}
}

func TestSmoothingIsNotMovedByALoneSpike(t *testing.T) {
	points := plotter.XYs{{X: 0, Y: 1}, {X: 1, Y: 2}, {X: 2, Y: 900}, {X: 3, Y: math.NaN()}, {X: 4, Y: 3}}
	want := []float64{1.5, 2, 451, math.NaN(), 3} // windows of 3, less the missing value: (1 2), (1 2 900), (2 900), none, (3)
	for i, p := range smooth(points, 1) {
		if p.Y != want[i] && !(math.IsNaN(p.Y) && math.IsNaN(want[i])) {
			t.Errorf("point %d smoothed to %v, want %v", i, p.Y, want[i])
		}
	}
}

func TestSmoothingALongLineKeepsItsEnds(t *testing.T) {
	points := make(plotter.XYs, 5000)
	for i := range points {
		points[i] = plotter.XY{X: float64(i), Y: float64(i)}
	}
	got := smooth(points, 125)
	if len(got) > 400 || got[0].X != 0 || got[len(got)-1].X != 4999 {
		t.Fatalf("%d points from %v to %v, want at most 400 from 0 to 4999", len(got), got[0].X, got[len(got)-1].X)
	}
	if mid := got[len(got)/2]; mid.Y != mid.X {
		t.Errorf("a straight line is moved from %v to %v", mid.X, mid.Y)
	}
}

func TestTheMedianOfTracesEndsWithTheShortest(t *testing.T) {
	nan := math.NaN()
	got := medianTrace([]plotter.XYs{
		{{X: 1, Y: 1}, {X: 2, Y: nan}, {X: 3, Y: 9}},
		{{X: 1, Y: 3}, {X: 2, Y: 4}},
		{{X: 1, Y: 8}, {X: 2, Y: 6}, {X: 3, Y: 9}},
	})
	if len(got) != 2 || got[0].Y != 3 || got[1].Y != 5 {
		t.Errorf("median %v, want 3 and 5", got)
	}
}

func TestOnlyFarOutliersAreCutOff(t *testing.T) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i % 10)
	}
	if y, cut := window(append([]float64{}, values...)); cut != "" || y.high < 9 || y.low != 0 {
		t.Errorf("window %v, note %q, want all of 0 to 9 and no note", y, cut)
	}
	values[500] = 1e6
	if y, cut := window(append([]float64{}, values...)); y.high > 30 || cut != "Peaks up to 1M are cut off." {
		t.Errorf("window %v, note %q, want the peak cut and named", y, cut)
	}
	for i := range 300 { // a collapse is no outlier
		values[i] = 1e6
	}
	if y, cut := window(values); cut != "" || y.high < 1e6 {
		t.Errorf("window %v, note %q, want the collapse in full", y, cut)
	}
}

func TestNumbersAreWrittenForReading(t *testing.T) {
	for _, c := range []struct {
		v, step float64
		want    string
	}{
		{0, 0.1, "0"}, {0.3, 0.1, "0.3"}, {0.30000000000000004, 0.05, "0.30"}, {1500, 500, "1500"}, {5120, 0, "5120"},
		{20000, 10000, "20k"}, {12500, 500, "12.5k"}, {1_500_000, 500_000, "1.5M"}, {2e9, 1e9, "2G"}, {1e-5, 1e-5, "1e-05"},
		{276521, 0, "277k"}, {0.6372, 0, "0.637"}, {1.76, 0, "1.76"}, {-0.25, 0.05, "−0.25"}, {-2e-5, 0, "−2e-05"}, {3e13, 0, "3e+13"}, {0.65, 0, "0.65"},
	} {
		if got := short(c.v, c.step); got != c.want {
			t.Errorf("short(%v, %v) = %q, want %q", c.v, c.step, got, c.want)
		}
	}
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -1234: "−1,234", math.Inf(1): "–"} {
		if got := grouped(v); got != want {
			t.Errorf("grouped(%v) = %q, want %q", v, got, want)
		}
	}
}

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
	if marks := (ticks{about: 4}).Ticks(3, 3); len(marks) != 1 {
		t.Errorf("an axis of one value has %d ticks, want 1", len(marks))
	}
}

func TestBusyTimeIsTheShareOverAllSeeds(t *testing.T) {
	run := func(g results.GPU, idle float64) *results.Run {
		return &results.Run{Summary: &results.Summary{WorkerTimes: []results.GPU{g, {}}, TrainerTimes: []results.GPU{{Busy: 1, Stalled: 1, Idle: idle}}}}
	}
	side := &arm{runs: []*results.Run{run(results.GPU{Busy: 3, Stalled: 1}, 0), run(results.GPU{Busy: 9, Stalled: 1, Idle: 2}, 4), {}}}
	rows := gpuRows(side)
	want := []gpuRow{{"worker 1", 0.75, 0.125}, {"trainer 1", 0.25, 0.25}} // worker 2 never lived
	if len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if !idles(side) || idles(&arm{runs: side.runs[2:]}) || idles(&arm{runs: []*results.Run{run(results.GPU{Busy: 1, Stalled: 1}, 0)}}) {
		t.Error("idle is not told from stalled")
	}
}

func TestNotesTellWhatAHistogramLeavesOut(t *testing.T) {
	s := &results.Summary{Staleness: results.Histogram{{1, 1}, {2, 1}}, TokenStaleness: results.Histogram{{1, 1}, {2, 1}}}
	side := &arm{runs: []*results.Run{{Summary: s}}}
	if a, b := youngerTokens(side), stillPresent(side); a+b != "" {
		t.Errorf("nothing is left out, but the notes say %q and %q", a, b)
	}
	s.TokenStaleness, s.UsesPresent = results.Histogram{{0, 1}, {1, 1}}, results.Histogram{{0, 3}, {2, 1}}
	if note := youngerTokens(side); !strings.Contains(note, "is 0.5 on average") {
		t.Errorf("staleness of younger tokens: %q", note)
	}
	if note := stillPresent(side); !strings.Contains(note, "The 4 in the table at the end: mean 0.5.") {
		t.Errorf("uses of what is present: %q", note)
	}
}

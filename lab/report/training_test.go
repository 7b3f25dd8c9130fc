package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// bounded is an arm of one run whose bound and change of reward are measured every 10 of 40 updates.
func bounded() []*arm {
	run := &results.Run{}
	for u := 1; u <= 40; u++ {
		up := results.Update{Update: u, Other: map[string]results.Number{"tokens": results.Num(3)}}
		if u%10 == 0 {
			up.Other["bound"], up.Other["reward_change"], up.Other["bound_tv"] = results.Num(-float64(u)),
				results.Num(float64(u)), results.Num(0.5)
		}
		run.Updates = append(run.Updates, up)
	}
	run.Updates = append(run.Updates, results.Update{Update: 41})
	return []*arm{{runs: []*results.Run{run}}}
}

func TestTheBoundIsShownBesideTheTrueChange(t *testing.T) {
	figures, _ := trainingFigures(bounded(), commonMetrics())
	var titles []string
	for _, f := range figures {
		if strings.HasPrefix(f.Title, "Improvement") {
			titles = append(titles, f.Title)
			if svg := drawnFigure(f).SVG[0]; !strings.Contains(string(svg), `class="line"`) {
				t.Errorf("%s has no line", f.Title)
			}
		}
	}
	if want := []string{"Improvement: lower bound", "Improvement: true change"}; !slices.Equal(titles, want) {
		t.Errorf("figures are %q, want %q", titles, want)
	}
	none := []*arm{{runs: []*results.Run{{Updates: []results.Update{{Update: 1}}}}}}
	if figures, missing := trainingFigures(none, commonMetrics()); len(figures) > 0 || len(missing) != 9 ||
		strings.Contains(strings.Join(missing, ""), "improvement") {
		t.Errorf("of nothing measured: %d figures; %q are missed, want 9 without the bound", len(figures), missing)
	}
	var further []string
	for _, m := range furtherMetrics(bounded()) {
		further = append(further, m.title)
	}
	if want := []string{"bound_tv", "tokens"}; !slices.Equal(further, want) {
		t.Errorf("further metrics are %q, want %q", further, want)
	}
}

func TestWhatIsMeasuredNowAndThenIsOneLine(t *testing.T) {
	points := seriesOf(bounded()[0].runs[0], other("bound"))
	if got := spaced(points); len(got) != 4 || got[0].X != 10 || got[3].Y.Float() != -40 {
		t.Errorf("the points are %v", got)
	}
	// A gap of one that is measured at every update stays one.
	whole := seriesOf(bounded()[0].runs[0], other("tokens"))
	if got := spaced(whole); len(got) != 41 || got[40].Y.Known() {
		t.Errorf("%d points, the last %v", len(got), got[len(got)-1])
	}
}

func TestThinningKeepsEndsPeaksAndGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		n, limit := 1+rng.IntN(3000), 30+rng.IntN(300)
		points := make([]results.Point, n)
		low, high := math.Inf(1), math.Inf(-1)
		gaps := 0
		for i := range points {
			points[i].X = float64(i)
			if rng.IntN(500) == 0 {
				gaps++
				continue
			}
			points[i].Y = results.Num(rng.NormFloat64())
			low, high = min(low, points[i].Y.Float()), max(high, points[i].Y.Float())
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
			if !p.Y.Known() {
				keptGaps++
				continue
			}
			keptLow, keptHigh = min(keptLow, p.Y.Float()), max(keptHigh, p.Y.Float())
		}
		if keptLow != low || keptHigh != high || (gaps > 0) != (keptGaps > 0) {
			t.Fatalf("lowest %v, highest %v, %d gaps; want %v, %v and some of %d", keptLow, keptHigh, keptGaps, low,
				high, gaps)
		}
	}
}

func TestSmoothingIsNotMovedByALoneSpike(t *testing.T) {
	series := points(1, 2, 900, math.NaN(), 3)
	// windows of 3, less the missing value: (1 2), (1 2 900), (2 900), none, (3)
	want := []float64{1.5, 2, 451, math.NaN(), 3}
	for i, p := range smooth(series, 1, 1) {
		if p.Y != results.Num(want[i]) {
			t.Errorf("point %d smoothed to %v, want %v", i, p.Y, want[i])
		}
	}
}

func TestSmoothingALongLineKeepsItsEnds(t *testing.T) {
	points := make([]results.Point, 5000)
	for i := range points {
		points[i] = results.Point{X: float64(i), Y: results.Num(float64(i))}
	}
	got := smooth(points, 125, 15)
	if len(got) > 400 || got[0].X != 0 || got[len(got)-1].X != 4999 {
		t.Fatalf("%d points from %v to %v, want at most 400 from 0 to 4999", len(got), got[0].X, got[len(got)-1].X)
	}
	if mid := got[len(got)/2]; mid.Y.Float() != mid.X {
		t.Errorf("a straight line is moved from %v to %v", mid.X, mid.Y)
	}
}

func TestTheMedianOfTracesEndsWithTheShortest(t *testing.T) {
	got := medianSeries([][]results.Point{points(1, math.NaN(), 9), points(3, 4), points(8, 6, 9)})
	if len(got) != 2 || got[0].Y.Float() != 3 || got[1].Y.Float() != 5 {
		t.Errorf("median %v, want 3 and 5", got)
	}
}

func TestOnlyFarOutliersAreCutOff(t *testing.T) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i % 10)
	}
	if low, high, cut := window(slices.Clone(values)); cut != "" || low.Known() || high.Known() {
		t.Errorf("from %v to %v, note %q, want all of 0 to 9 and no note", low, high, cut)
	}
	values[500] = 1e6
	if low, high, cut := window(slices.Clone(values)); low != results.Num(0) || high.Float() > 30 ||
		cut != "Peaks up to 1M are cut off." {
		t.Errorf("from %v to %v, note %q, want the peak cut and named", low, high, cut)
	}
	for i := range 300 { // a collapse is no outlier
		values[i] = 1e6
	}
	if low, high, cut := window(values); cut != "" || low.Known() || high.Known() {
		t.Errorf("from %v to %v, note %q, want the collapse in full", low, high, cut)
	}
}

// Smoothing starts from means of all updates, not from the extremes that thinning keeps.
func TestFiguresCarryTheMeansOfAllUpdates(t *testing.T) {
	run := &results.Run{}
	for u := 1; u <= 1000; u++ {
		y := 0.0
		if u%100 == 0 {
			y = 100 // a peak, which thinning keeps
		}
		run.Updates = append(run.Updates, results.Update{Update: u, GradNorm: results.Num(y)})
	}
	m := metric{title: "m", of: func(u *results.Update) results.Number { return u.GradNorm }}
	f, ok := m.figure([]*arm{{label: "a", runs: []*results.Run{run}}})
	if !ok {
		t.Fatal("nothing is drawn")
	}
	thick := f.Curves[1]
	if n := len(thick.At); n < 100 || n > 200 || len(thick.Mean) != n {
		t.Fatalf("%d points and %d means, want 100 to 200", n, len(thick.Mean))
	}
	sum, before := 0.0, 0.0
	for i, at := range thick.At {
		sum += thick.Mean[i].Float() * (at.X - before)
		before = at.X
	}
	if math.Abs(sum/1000-1) > 1e-9 {
		t.Errorf("the means of all stretches have the mean %v, want 1, that of the updates", sum/1000)
	}
}

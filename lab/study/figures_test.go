package study

import (
	"math"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

func TestHistogramsAreDrawnAsShares(t *testing.T) {
	a := Runs{Arm: short()}
	for seed := range uint64(2) {
		r := noted(seed, true, 0)
		for v := range uint64(200) {
			r.Summary.Staleness = append(r.Summary.Staleness, [2]uint64{v, 1 + v%3})
		}
		a.Runs = append(a.Runs, r)
	}
	c := shares(a, staleness())
	width, sum := c.At[1].X-c.At[0].X, 0.0
	for _, p := range c.At {
		sum += p.Y.Float() * width
	}
	if len(c.At) > maxBins || math.Abs(sum-1) > 1e-9 {
		t.Errorf("%d bins whose shares sum to %v", len(c.At), sum)
	}
	if got := histogramMedian(results.Histogram{{2, 3}, {5, 1}, {9, 3}}); got.Float() != 5 {
		t.Errorf("median %v, want 5", got.Float())
	}
}

func TestFailedRunsAreDrawnAtZeroToTheEnd(t *testing.T) {
	l := line{Runs: Runs{Arm: short(), Runs: []*results.Run{noted(1, false, 0.2, 0.6),
		noted(2, true, 0.2, 0.3, 0.4, 0.5, 0.6)}}}
	curves := l.seedCurves(inUpdates(l.Arm))
	if end := curves[0].At[len(curves[0].At)-1]; len(curves) != 2 || end.Y.Float() != 0 {
		t.Errorf("%d curves, the first ends at %v", len(curves), end.Y)
	}
	c := l.medianCurve(inUpdates(l.Arm))
	if len(c.At) != 5 || math.Abs(c.At[1].Y.Float()-0.45) > 1e-12 || math.Abs(c.At[4].Y.Float()-0.3) > 1e-12 ||
		!(c.At[4].X > c.At[3].X) {
		t.Errorf("the median curve has points %v, want 5, of which the last is the median of 0.6 and nothing", c.At)
	}
	if r := l.Runs.Runs[0]; len(r.Evals) != 2 || len(l.evals()[0]) != 5 {
		t.Errorf("the failed run has %d evaluations of its own, want 2", len(r.Evals))
	}
}

func TestAMetricCurveHasAPointForEachLineOfMetrics(t *testing.T) {
	a := turns()
	r := &results.Run{Seed: 1, Summary: &results.Summary{}}
	for n := 1; n <= 5; n++ { // half of the budget
		r.Updates = append(r.Updates, results.Update{Update: n, Compute: 20 * float64(n),
			ZeroVariance: results.Num(0.1 * float64(n))})
	}
	a.Runs = []*results.Run{r}
	c := line{Runs: a}.metricCurve(zeroVariance)
	if len(c.At) != 5 {
		t.Fatalf("%d points, want 5", len(c.At))
	}
	for i, p := range c.At {
		if x := float64(i + 1); math.Abs(p.X-x) > 1e-9 || math.Abs(p.Y.Float()-0.1*float64(i+1)) > 1e-12 {
			t.Errorf("point %d is at %g, %g", i, p.X, p.Y.Float())
		}
	}
}

func TestAFailedRunCountsAsZeroInTheMedianCurve(t *testing.T) {
	a := Runs{Arm: short(), Runs: []*results.Run{noted(1, false, 0, 0.5), noted(2, true, 0, 0.4, 0.4, 0.4, 0.4),
		noted(3, true, 0, 0.6, 0.6, 0.6, 0.6)}}
	curve := results.MedianCurve(a.evals())
	if n := len(curve); n != 5 || curve[1].Pass1 != 0.5 || curve[4].Pass1 != 0.4 {
		t.Errorf("%d points, %v", n, curve)
	}
}

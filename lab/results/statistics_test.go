package results

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

var inf = math.Inf(1)

func near(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-12*max(1, math.Abs(b))
}

func TestPassAtKMatchesValuesByHand(t *testing.T) {
	for _, c := range []struct {
		n, c, k int
		want    float64
	}{
		{10, 3, 1, 0.3},
		{4, 2, 2, 5. / 6},             // 1 - C(2,2)/C(4,2) = 1 - 1/6
		{10, 3, 5, 11. / 12},          // 1 - C(7,5)/C(10,5) = 1 - 21/252
		{5, 0, 5, 0},                  // none right
		{5, 1, 5, 1},                  // fewer wrong than drawn
		{1000, 1, 1, 0.001},           // C(1000, 500) would overflow
		{1000, 2, 500, 1 - 499./1998}, // (500*499)/(1000*999) wrong pairs outside the draw
		{5, 2, 6, math.NaN()}, {5, 2, 0, math.NaN()}, {5, 6, 1, math.NaN()}, {5, -1, 1, math.NaN()},
	} {
		if got := passAtK(c.n, c.c, c.k); !near(got, c.want) {
			t.Errorf("PassAtK(%d, %d, %d) = %v, want %v", c.n, c.c, c.k, got, c.want)
		}
	}
	if got := MeanPassAtK(4, []int{0, 2, 4}, 2); !near(got, (0+5./6+1)/3) {
		t.Errorf("MeanPassAtK = %v", got)
	}
	if got := MeanPassAtK(4, nil, 2); !math.IsNaN(got) {
		t.Errorf("MeanPassAtK of no problems = %v, want NaN", got)
	}
}

func TestQuantilesInterpolateOrderStatistics(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 0.25, 1.75}, // h = 0.75
		{[]float64{4, 1, 3, 2}, 0.75, 3.25},
		{[]float64{5}, 0.25, 5},
		{[]float64{3, 1, 2}, 0, 1}, {[]float64{3, 1, 2}, 1, 3},
		{[]float64{1, 2, inf}, 0.5, 2},         // the middle value is finite
		{[]float64{1, 2, inf, inf}, 0.5, inf},  // halfway to infinity
		{[]float64{1, 2, 3, inf}, 0.5, 2.5},    // untouched by the infinite one
		{[]float64{1, 2, 3, inf}, 0.75, inf},   // h = 2.25
		{[]float64{inf, inf}, 0.5, inf},        // not inf - inf
		{[]float64{-inf, -inf, 1}, 0.25, -inf}, // savings of replay that never arrived
		{[]float64{-inf, 1}, 0.25, -inf}, {[]float64{-inf, 1, 2}, 0.5, 1}, {[]float64{-inf, inf}, 0.5, math.NaN()},
		{nil, 0.5, math.NaN()}, {[]float64{1, math.NaN()}, 0.5, math.NaN()},
	} {
		if got := Quantile(c.values, c.q); !near(got, c.want) {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	if Median(values); values[0] != 3 {
		t.Error("Median reordered its argument")
	}
}

// The bootstrap distribution of the median of (1, 2, 3) is exact: the median of three draws is 1
// when two or more are 1, which has probability 7/27; likewise 3. So the 2.5% and 97.5% points are
// 1 and 3, and the interval at level 0.4 (30% to 70%) is [2, 2].
func TestTheBootstrapFollowsTheExactDistribution(t *testing.T) {
	values := []float64{2, 3, 1}
	if low, high := Bootstrap(values, 0.95, 1); low != 1 || high != 3 {
		t.Errorf("95%% interval [%v, %v], want [1, 3]", low, high)
	}
	if low, high := Bootstrap(values, 0.4, 1); low != 2 || high != 2 {
		t.Errorf("40%% interval [%v, %v], want [2, 2]", low, high)
	}
	// 7/27 = 0.259: at level 0.5 (25% to 75%) both ends are still outside.
	if low, high := Bootstrap(values, 0.5, 1); low != 1 || high != 3 {
		t.Errorf("50%% interval [%v, %v], want [1, 3]", low, high)
	}
	if low, high := Bootstrap([]float64{0.5, inf, inf, inf}, 0.95, 1); high != inf || low > 1e9 && low != inf {
		t.Errorf("interval with infinities [%v, %v]", low, high)
	}
	if low, high := Bootstrap(nil, 0.95, 1); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("interval of nothing [%v, %v], want NaN", low, high)
	}
}

func TestTheBootstrapIntervalHasItsNominalCoverage(t *testing.T) {
	tests.Long(t)
	rng := rand.New(rand.NewPCG(7, 7))
	const trials = 100
	covered := 0
	for i := range trials {
		values := make([]float64, 15)
		for j := range values {
			values[j] = rng.NormFloat64()
		}
		if low, high := Bootstrap(values, 0.95, uint64(i)); low <= 0 && 0 <= high {
			covered++
		}
	}
	// 95 of 100 are expected at exactly 95%; three standard deviations are 6.5. The percentile interval of a median of
	// 15 is close to nominal.
	if covered < 89 || covered > 99 {
		t.Errorf("covered %d of %d, want 89 to 99", covered, trials)
	}
}

func evalsAt(step float64, accuracies ...float64) []Eval {
	var evals []Eval
	for i, a := range accuracies {
		at := step * float64(i)
		evals = append(evals, Eval{Update: 10 * i, Grid: 100 * float64(i), Compute: at, ComputeBusy: 1.1 * at,
			ComputeAll: 1.2 * at, Clock: at / 8, Problems: 400, Pass1: a})
	}
	return evals
}

func TestTheIsotonicCurvePoolsWhatFalls(t *testing.T) {
	for _, c := range [][2][]float64{
		{{1, 2, 3}, {1, 2, 3}},
		{{3, 2, 1}, {2, 2, 2}},
		{{1, 3, 2, 2, 5, 4}, {1, 7.0 / 3, 7.0 / 3, 7.0 / 3, 4.5, 4.5}},
		{{4, 1, 1, 3}, {2, 2, 2, 3}},
		{nil, {}},
	} {
		got := Isotonic(c[0])
		if len(got) != len(c[1]) {
			t.Fatalf("%v: %v, want %v", c[0], got, c[1])
		}
		for i := range got {
			if !near(got[i], c[1][i]) {
				t.Errorf("%v: %v, want %v", c[0], got, c[1])
			}
		}
	}
}

// No curve that rises is nearer: moving any stretch's end of the fit, as far as it stays in order, costs squares.
func TestTheIsotonicCurveIsTheNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		values := make([]float64, 1+rng.IntN(12))
		for i := range values {
			values[i] = float64(rng.IntN(6))
		}
		fit := Isotonic(values)
		if !slices.IsSorted(fit) {
			t.Fatalf("%v: %v falls", values, fit)
		}
		distance := func(curve []float64) (sum float64) {
			for i, v := range curve {
				sum += (v - values[i]) * (v - values[i])
			}
			return sum
		}
		for range 50 {
			other := make([]float64, len(values))
			for i := range other {
				other[i] = fit[i] + 0.3*rng.NormFloat64()
			}
			slices.Sort(other)
			if distance(other) < distance(fit)-1e-9 {
				t.Fatalf("%v: %v is nearer than %v", values, other, fit)
			}
		}
	}
}

func TestATargetIsReachedWhereTheIsotonicCurveCrossesIt(t *testing.T) {
	for _, c := range []struct {
		accuracies []float64
		want       float64 // evaluations; NaN: not reached
	}{
		{[]float64{0.4, 0.5, 0.7}, 1.75},
		{[]float64{0.4, 0.7, 0.5, 0.7, 0.8}, 2.5}, // a lone peak counts with the fall behind it
		{[]float64{0.7, 0.7}, 0},
		{[]float64{0.7}, 0},
		{[]float64{0.4, 0.65}, 1},
		{[]float64{0.4, 0.9, 0.1}, math.NaN()},
		{nil, math.NaN()},
	} {
		r := ReachOf(evalsAt(50, c.accuracies...), 0.65)
		if r.Reached == math.IsNaN(c.want) || r.Reached && !near(r.Compute.Float(), 50*c.want) {
			t.Errorf("%v: %+v, want compute %g", c.accuracies, r, 50*c.want)
		}
		if r.Reached && (!near(r.Update.Float(), 10*c.want) || !near(r.Clock.Float(), 50*c.want/8)) {
			t.Errorf("%v: %+v, want update %g", c.accuracies, r, 10*c.want)
		}
	}
	if r := ReachOf(evalsAt(50, 0.4, 0.5), 0.65); r != (Reach{}) {
		t.Errorf("not reached, but %+v", r)
	}
}

func TestTheLevelOfARun(t *testing.T) {
	evals := evalsAt(10, 0.4, 0.6, 0.8, 0.7, 0.6) // the last three are pooled at 0.7
	if got := Level(evals); !near(got.Float(), 0.7) {
		t.Errorf("the level is %v, want 0.7", got)
	}
	if got := ComputeToShare(evals, 0.98); !near(got.Float(), 18.6) { // 0.686 between 0.6 at 10 and 0.7 at 20
		t.Errorf("compute to 98%% of the level = %v, want 18.6", got)
	}
	for _, got := range []Number{Level(nil), ComputeToShare(nil, 0.98)} {
		if got.Known() {
			t.Errorf("without evaluations it is %v, want nothing", got)
		}
	}
}

func TestTheRoughnessOfACurve(t *testing.T) {
	variance, sampling := Roughness(evalsAt(10, 0.1, 0.2, 0.4, 0.7)) // a parabola but for nothing
	if !near(variance.Float()+1, 1) || !near(sampling.Float(), (0.09+0.16+0.24+0.21)/4/400) {
		t.Errorf("a parabola varies by %v, sampling by %v", variance, sampling)
	}
	if variance, _ = Roughness(evalsAt(10, 0.5, 0.5, 0.5, 0.3, 0.5)); !near(variance.Float(), (0.04+0.36)/20/2) {
		t.Errorf("a fall of 0.2 varies by %v", variance)
	}
	if variance, _ = Roughness(evalsAt(10, 0.1, 0.9, 0.1)); variance.Known() {
		t.Errorf("three evaluations vary by %v, want nothing", variance)
	}
}

// Runs of known truth: of 200 sampled answers each, from flat, rising and crashing curves. What sampling explains is
// called rough as seldom as a test at 5% may, and less if the problems differ; crashes are found.
func TestRoughnessTellsCrashesFromSampling(t *testing.T) {
	tests.Long(t)
	const studies, runs, evals, problems = 100, 12, 21, 200
	rng := rand.New(rand.NewPCG(5, 6))
	rising := func(k int) float64 { return 0.05 + 0.6*(1-math.Exp(-0.3*float64(k))) }
	for _, c := range []struct {
		name   string
		differ float64 // of the problems' chances from their mean
		of     func(k int, crash int) float64
		rough  bool
	}{
		{"flat", 0, func(int, int) float64 { return 0.3 }, false},
		{"flat, problems differ", 0.25, func(int, int) float64 { return 0.3 }, false},
		{"rising", 0, func(k, _ int) float64 { return rising(k) }, false},
		{"rising with a crash", 0, func(k, crash int) float64 {
			if k == crash || k == crash+1 {
				return 0.3 * rising(k)
			}
			return rising(k)
		}, true},
		{"wavering", 0, func(k, _ int) float64 { return 0.4 + 0.06*float64(k%2) }, true},
	} {
		found := 0
		for range studies {
			var beyond []float64
			for range runs {
				crash, of := 5+rng.IntN(12), make([]Eval, evals)
				for k := range of {
					right := 0.0
					for i := range problems {
						if rng.Float64() < c.of(k, crash)+c.differ*float64(2*(i%2)-1) {
							right++
						}
					}
					of[k] = Eval{Problems: problems, Pass1: right / problems}
				}
				variance, sampling := Roughness(of)
				beyond = append(beyond, variance.Float()-sampling.Float())
			}
			if NewPairs(beyond, make([]uint64, runs)).PAbove(0) <= 0.05 {
				found++
			}
		}
		// 5% of 100 studies have a standard deviation of 2
		if !c.rough && found > 12 || c.rough && found < 95 {
			t.Errorf("%s: %d of %d studies call it rough", c.name, found, studies)
		}
	}
}

func TestTheMedianCurveEndsWithTheShortestRun(t *testing.T) {
	a, b, c := evalsAt(100, 0.4, 0.5, 0.6), evalsAt(110, 0.4, 0.7, 0.9), evalsAt(100, 0.1, 0.2)
	a[1].PassAt = []PassRate{{4, 0.5}, {8, 0.6}}
	b[1].PassAt = []PassRate{{4, 0.7}}
	c[1].PassAt = []PassRate{{4, 0.9}}
	curve := MedianCurve([][]Eval{a, b, c})
	if len(curve) != 2 {
		t.Fatalf("%d points, want the 2 that all three runs have", len(curve))
	}
	p := curve[1]
	if p.Pass1 != 0.5 || !near(p.Q1, 0.35) || !near(p.Q3, 0.6) || p.At.Compute != 100 || p.Runs != 3 {
		t.Errorf("second point %+v", p)
	}
	if len(p.PassAt) != 1 || p.PassAt[0] != (PassRate{4, 0.7}) {
		t.Errorf("pass@k %v, want k = 4 alone, at 0.7", p.PassAt)
	}
	if MedianCurve(nil) != nil {
		t.Error("no runs have a curve")
	}
}

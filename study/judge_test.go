package study

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func TestRulesDecideByWhereTheIntervalLies(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.CannotTell
	inf := math.Inf(1)
	for _, x := range []struct {
		name      string
		rule      rule
		low, high float64
		want      results.Verdict
	}{
		{"above", above("q", 1), 1.1, 1.2, h}, {"above", above("q", 1), 1, 1.2, c}, {"above", above("q", 1), 0.9, 1, n}, {"above", above("q", 1), 0.5, inf, c},
		{"above", above("q", 0), 0, 0, n}, {"above", above("q", 0), math.NaN(), math.NaN(), c},
		{"below", below("q", 1), 0.5, 0.9, h}, {"below", below("q", 1), 0.5, 1, c}, {"below", below("q", 1), 1, inf, n}, {"below", below("q", 1), inf, inf, n},
		{"at least", atLeast("q", 1), 1, 2, h}, {"at least", atLeast("q", 1), 0.9, 2, c}, {"at least", atLeast("q", 1), 0.5, 0.9, n},
		{"at most", atMost("q", 3), 1, 3, h}, {"at most", atMost("q", 3), 1, 3.5, c}, {"at most", atMost("q", 3), 3.5, 9, n},
		{"within", within("q", 1, 0.5), 0.5, 1.5, h}, {"within", within("q", 1, 0.5), 0.4, 1, c}, {"within", within("q", 1, 0.5), 1.6, 2, n},
		{"within", within("q", 1, 0.5), 0.1, 0.4, n}, {"within", within("q", 1, 0.5), 0.1, 3, c},
	} {
		if got := x.rule.decide(x.low, x.high); got != x.want {
			t.Errorf("%s, [%v, %v]: %s, want %s", x.name, x.low, x.high, got, x.want)
		}
	}
}

func TestAVerdictOfPartsIsThatOfTheWorst(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.CannotTell
	for _, x := range []struct {
		parts []results.Verdict
		want  results.Verdict
	}{{[]results.Verdict{h, h}, h}, {[]results.Verdict{h, c}, c}, {[]results.Verdict{h, c, n}, n}, {nil, c}} {
		if got := all(x.parts...); got != x.want {
			t.Errorf("%v: %s, want %s", x.parts, got, x.want)
		}
	}
}

func TestSpreadsOfFewSeedsHaveNoInterval(t *testing.T) {
	for n, want := range []string{
		"not measured", "0.500 on one seed", "0.600 (2 seeds, IQR 0.550 to 0.650)", "0.700 (3 seeds, IQR 0.600 to 0.800)",
		"0.800 (4 seeds, IQR 0.650 to 0.950, 95% interval 0.500 to 1.100)",
	} {
		values := []float64{math.NaN()}
		for i := range n {
			values = append(values, 0.5+0.2*float64(i))
		}
		if got := spreadOf(values).format(points); got != want {
			t.Errorf("%d seeds: %s, want %s", n, got, want)
		}
	}
	unreached := spreadOf([]float64{1, math.Inf(1), math.Inf(1), math.Inf(1)})
	if got := unreached.format(times); got != "∞ (4 seeds, IQR ∞ to ∞, 95% interval 1.00 to ∞)" {
		t.Error(got)
	}
}

func TestNumbersAreWrittenWithTheSignOfNegativeOnes(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{change(0.02), "+0.020"}, {change(-0.02), "−0.020"}, {change(0), "0.000"}, {points(-0.0001), "0.000"}, {change(math.Inf(-1)), "−∞"},
		{updates(math.Inf(1)), "not reached"}, {updates(155.4), "155"}, {percent(0.364), "36%"}, {percent(-0.02), "−2%"}, {points(math.NaN()), "—"}, {number(-0.03), "−0.03"},
	} {
		if x.got != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
}

func TestRankCorrelationIsKendalls(t *testing.T) {
	for _, x := range []struct {
		x, y []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 3, 4}, 1},
		{[]float64{1, 2, 3, 4}, []float64{9, 5, 3, math.Inf(-1)}, -1},
		{[]float64{1, 2, 3, 4}, []float64{1, 3, 2, 4}, 4.0 / 6},
		{[]float64{1, 2, 3, 4}, []float64{1, 2, math.Inf(1), math.Inf(1)}, 5 / math.Sqrt(6*5)},
		{[]float64{1, 2, 3}, []float64{7, 7, 7}, 0},
		{[]float64{1, 2}, []float64{1, math.NaN()}, math.NaN()},
	} {
		if got := rankCorrelation(x.x, x.y); math.Abs(got-x.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(x.want) {
			t.Errorf("%v with %v: %v, want %v", x.y, x.x, got, x.want)
		}
	}
}

// short is an arm of a few evaluations.
func short() Arm {
	c := run.Default()
	c.Budget.Compute, c.Evaluate.Every, c.Evaluate.Target = 20, 5, 0.5
	return Arm{"arm", c}
}

// noted is a run with given accuracies, the first before the run's begin; ended or with an error.
func noted(seed uint64, ended bool, accuracies ...float64) *results.Run {
	r := &results.Run{Seed: seed}
	for k, p := range accuracies {
		g := float64(k) * 5 * unit(short().Config)
		r.Evals = append(r.Evals, results.Eval{Grid: g, Compute: g + 7, Clock: 2 * g, Pass1: p})
	}
	if ended {
		r.Summary = &results.Summary{}
	}
	return r
}

func TestMeasuresOfRuns(t *testing.T) {
	a := Runs{Arm: short()}
	whole := noted(1, true, 0.2, 0.6, 0.4, 0.7, 0.8)
	falling := noted(2, true, 0.2, 0.9, 0.8, 0.3, 0.4)
	broken := noted(3, false, 0.2, 0.6, 0.6)
	empty := noted(4, false)
	u := unit(a.Config)
	nan := math.NaN()
	for _, x := range []struct {
		name string
		of   measure
		want [4]float64
	}{
		{"best", best, [4]float64{0.8, 0.9, 0.6, nan}},
		{"last", last, [4]float64{0.8, 0.4, 0, nan}},
		{"fall", fall, [4]float64{0.2, 0.6, 0.6, nan}},
		{"mean", meanOver(1), [4]float64{2.5 / 4, 2.4 / 4, 1.2 / 4, nan}},
		{"mean of the first half", meanOver(0.5), [4]float64{0.5, 0.85, 0.6, nan}},
		{"to the target", toTarget, [4]float64{15 + 7/u, 5 + 7/u, 5 + 7/u, nan}},
		{"clock to the target", clockToTarget, [4]float64{30 * u, 10 * u, 10 * u, nan}},
	} {
		for i, r := range []*results.Run{whole, falling, broken, empty} {
			if got := x.of(a, r); math.Abs(got-x.want[i]) > 1e-9 || math.IsNaN(got) != math.IsNaN(x.want[i]) {
				t.Errorf("%s of run %d: %v, want %v", x.name, i+1, got, x.want[i])
			}
		}
	}
	if got := toTarget(a, noted(5, true, 0.2, 0.6, 0.4, 0.6, 0.4)); !math.IsInf(got, 1) {
		t.Errorf("the target is reached by single evaluations at %v", got)
	}
	for i, want := range []bool{false, true, true} {
		if got := crashed(a, []*results.Run{whole, falling, broken}[i]); got != want {
			t.Errorf("run %d crashed: %t, want %t", i+1, got, want)
		}
	}
}

func TestSharesOfGPUTimeAndItsPrice(t *testing.T) {
	a := Runs{Arm: short()}
	r := noted(1, true, 0.5)
	r.Summary.WorkerTimes = []results.GPU{{Busy: 6, Stalled: 1, Idle: 1}, {Busy: 8}}
	r.Summary.TrainerTimes = []results.GPU{{Busy: 2, Stalled: 6}}
	r.Summary.Clock, r.Summary.Compute = 30, 20
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"stalled", stalled(a, r), 8.0 / 24}, {"clock per compute", clockPerCompute(a, r), 1.5},
		{"stalled anyway at (5,1)", stalledAnyway(split{5, 1}, 5.28), (1 - 5/5.28) / 6}, {"stalled anyway at (6,1)", stalledAnyway(split{6, 1}, 3), 6 * 0.5 / 7},
	} {
		if math.Abs(x.got-x.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", x.name, x.got, x.want)
		}
	}
	if failed := noted(2, false, 0.5); !math.IsNaN(stalled(a, failed)) || !math.IsNaN(clockPerCompute(a, failed)) {
		t.Error("a run that failed has times")
	}
}

func TestDifferencesAreOfOneSeed(t *testing.T) {
	a := Runs{Arm: short(), Runs: []*results.Run{noted(1, true, 0.9), noted(2, true, 0.5), noted(4, true, 0.1)}}
	b := Runs{Arm: short(), Runs: []*results.Run{noted(2, true, 0.4), noted(3, true, 0.9), noted(4, true, 0.3)}}
	if got := difference(a, b, best).values; len(got) != 2 || math.Abs(got[0]-0.1) > 1e-12 || math.Abs(got[1]+0.2) > 1e-12 {
		t.Errorf("differences %v, want 0.1 and −0.2", got)
	}
}

// TestAFamilyGainsNothingByBeingLarge has families of arms that differ by chance alone: picked on all seeds, the best of many is ahead; picked
// on the other seeds, it is not.
func TestAFamilyGainsNothingByBeingLarge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	family := func(n int) []Runs {
		arms := make([]Runs, n)
		for i := range arms {
			arms[i].Arm = short()
			for seed := uint64(1); seed <= 5; seed++ {
				p := make([]float64, 5)
				for k := range p {
					p[k] = rng.Float64()
				}
				arms[i].Runs = append(arms[i].Runs, noted(seed, true, p...))
			}
		}
		return arms
	}
	var naive, honest, curves []float64
	for range 200 {
		many, few := family(20), family(1)
		naive = append(naive, highest(many, last, 0).median(last)-highest(few, last, 0).median(last))
		honest = append(honest, mean(chosenDifferences(many, few, last)))
		curves = append(curves, mean(leadOver(many, few)))
	}
	standardError := func(v []float64) float64 {
		m, sum := mean(v), 0.0
		for _, x := range v {
			sum += (x - m) * (x - m)
		}
		return math.Sqrt(sum/float64(len(v)-1)) / math.Sqrt(float64(len(v)))
	}
	if mean(naive) < 0.2 {
		t.Errorf("the best of twenty is only %v ahead: the test has no power", mean(naive))
	}
	for name, v := range map[string][]float64{"the choice": honest, "the curves": curves} {
		if m, e := mean(v), standardError(v); math.Abs(m) > 4*e || e > 0.02 {
			t.Errorf("%s: ahead by %v ± %v", name, m, e)
		}
	}
}

func TestTheOptimalityCurveIsTheRunningMaximumOfTheBestMedian(t *testing.T) {
	family := []Runs{
		{Arm: short(), Runs: []*results.Run{noted(1, true, 0, 0.1, 0.5, 0.2, 0.2), noted(2, true, 0, 0.1, 0.7, 0.2, 0.2)}},
		{Arm: short(), Runs: []*results.Run{noted(1, true, 0, 0.3, 0.4, 0.5, 0.9), noted(2, false, 0, 0.3, 0.4)}},
	}
	want := []float64{0.3, 0.6, 0.6, 0.6}
	for i, got := range optimality(family, grid(short().Config, 1)) {
		if math.Abs(got-want[i]) > 1e-12 {
			t.Errorf("step %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestHistogramsAreDrawnAsShares(t *testing.T) {
	a := Runs{Arm: short()}
	for seed := range uint64(2) {
		r := noted(seed, true, 0)
		for v := range uint64(200) {
			r.Summary.Staleness = append(r.Summary.Staleness, [2]uint64{v, 1 + v%3})
		}
		a.Runs = append(a.Runs, r)
	}
	c := shares(a, distributions()[0])
	width, sum := c.At[1].X-c.At[0].X, 0.0
	for _, p := range c.At {
		sum += p.Y.Float() * width
	}
	if len(c.At) > mostBins || math.Abs(sum-1) > 1e-9 {
		t.Errorf("%d bins whose shares sum to %v", len(c.At), sum)
	}
	if got := histogramMedian(results.Histogram{{2, 3}, {5, 1}, {9, 3}}); got.Float() != 5 {
		t.Errorf("median %v, want 5", got.Float())
	}
}

func TestRunsThatFailedAreDrawnToTheirEnd(t *testing.T) {
	l := line{Runs: Runs{Arm: short(), Runs: []*results.Run{noted(1, false, 0.2, 0.6), noted(2, true, 0.2, 0.3, 0.4, 0.5, 0.6)}}}
	curves := l.seedCurves(inUpdates(l.Arm))
	if end := curves[0].At[len(curves[0].At)-1]; len(curves) != 2 || end.Y.Float() != 0 {
		t.Errorf("%d curves, the first ends at %v", len(curves), end.Y)
	}
	c := l.medianCurve(inUpdates(l.Arm))
	if len(c.At) != 5 || math.Abs(c.At[1].Y.Float()-0.45) > 1e-12 || math.Abs(c.At[4].Y.Float()-0.3) > 1e-12 || !(c.At[4].X > c.At[3].X) {
		t.Errorf("the median curve has points %v, want 5, of which the last is the median of 0.6 and nothing", c.At)
	}
	if r := l.Runs.Runs[0]; len(r.Evals) != 2 || len(l.evals()[0]) != 5 {
		t.Errorf("the failed run has %d evaluations of its own, want 2", len(r.Evals))
	}
}

func TestNamesAreListedOnce(t *testing.T) {
	for want, list := range map[string][]string{"none": nil, "a": {"a", "a"}, "a and b": {"b", "a", "b"}, "a, b and c": {"c", "b", "a"}} {
		before := slices.Clone(list)
		if got := names(list); got != want || !slices.Equal(list, before) {
			t.Errorf("%v: %s, want %s", before, got, want)
		}
	}
}

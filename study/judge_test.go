package study

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

func TestARuleDecidesByWhereTheIntervalLies(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.CannotTell
	inf := math.Inf(1)
	for _, x := range []struct {
		name      string
		rule      rule
		low, high float64
		want      results.Verdict
	}{
		{"above", above(1), 1.1, 1.2, h}, {"above", above(1), 1, 1.2, c}, {"above", above(1), 0.9, 1, n},
		{"above", above(1), 0.5, inf, c},
		{"above", above(0), 0, 0, n}, {"above", above(0), math.NaN(), math.NaN(), c},
		{"below", below(1), 0.5, 0.9, h}, {"below", below(1), 0.5, 1, c}, {"below", below(1), 1, inf, n},
		{"below", below(1), inf, inf, n},
		{"at least", atLeast(1), 1, 2, h}, {"at least", atLeast(1), 0.9, 2, c}, {"at least", atLeast(1), 0.5, 0.9, n},
		{"at most", atMost(3), 1, 3, h}, {"at most", atMost(3), 1, 3.5, c}, {"at most", atMost(3), 3.5, 9, n},
		{"within", within(1, 0.5), 0.5, 1.5, h}, {"within", within(1, 0.5), 0.4, 1, c},
		{"within", within(1, 0.5), 1.6, 2, n},
		{"within", within(1, 0.5), 0.1, 0.4, n}, {"within", within(1, 0.5), 0.1, 3, c},
	} {
		if got := x.rule.decide(x.low, x.high); got != x.want {
			t.Errorf("%s, [%v, %v]: %s, want %s", x.name, x.low, x.high, got, x.want)
		}
	}
}

func TestAClaimOfSeveralPartsNeedsAllOfThem(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.CannotTell
	for _, x := range []struct {
		parts []results.Verdict
		want  results.Verdict
	}{{[]results.Verdict{h, h}, h}, {[]results.Verdict{h, c}, c}, {[]results.Verdict{h, c, n}, n}, {nil, c}} {
		if got := all(x.parts); got != x.want {
			t.Errorf("%v: %s, want %s", x.parts, got, x.want)
		}
	}
}

func TestEstimatesFromFewSeedsHaveNoInterval(t *testing.T) {
	for n, want := range []string{
		"not measured", "0.500 on one seed", "0.600 (2 seeds, IQR 0.550 to 0.650)",
		"0.700 (3 seeds, IQR 0.600 to 0.800)",
		"0.800 (4 seeds, IQR 0.650 to 0.950, 95% interval 0.500 to 1.100)",
	} {
		values := []float64{math.NaN()}
		for i := range n {
			values = append(values, 0.5+0.2*float64(i))
		}
		if got := estimateOf("", points, values).String(); got != want {
			t.Errorf("%d seeds: %s, want %s", n, got, want)
		}
	}
	unreached := estimateOf("", times, []float64{1, math.Inf(1), math.Inf(1), math.Inf(1)})
	if got := unreached.String(); got != "∞ (4 seeds, IQR ∞ to ∞, 95% interval 1.00 to ∞)" {
		t.Error(got)
	}
}

func TestNumbersAreWrittenWithTheirSign(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{change(0.02), "+0.020"}, {change(-0.02), "−0.020"}, {change(0), "0.000"}, {points(-0.0001), "0.000"},
		{change(math.Inf(-1)), "−∞"},
		{updates(math.Inf(1)), "not reached"}, {updates(155.4), "155"}, {percent(0.364), "36%"},
		{percent(-0.02), "−2%"}, {points(math.NaN()), missing}, {number(-0.03), "−0.03"},
	} {
		if x.got != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
}

func TestRankCorrelationIsKendallsTauB(t *testing.T) {
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

func TestDifferencesPairRunsOfOneSeed(t *testing.T) {
	a := Runs{Arm: short(), Runs: []*results.Run{noted(1, true, 0.9), noted(2, true, 0.5), noted(4, true, 0.1)}}
	b := Runs{Arm: short(), Runs: []*results.Run{noted(2, true, 0.4), noted(3, true, 0.9), noted(4, true, 0.3)}}
	if got := difference(a, b, best).values; len(got) != 2 || math.Abs(got[0]-0.1) > 1e-12 ||
		math.Abs(got[1]+0.2) > 1e-12 {
		t.Errorf("differences %v, want 0.1 and −0.2", got)
	}
}

// TestAFamilyGainsNothingByBeingLarge has families of arms that differ by chance alone: picked on all seeds, the best
// of many is ahead; picked on the other seeds, it is not.
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
		honest = append(honest, mean(chosenDifference(many, few, last).values))
		curves = append(curves, mean(lead(many, few).values))
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
		{Arm: short(), Runs: []*results.Run{noted(1, true, 0, 0.1, 0.5, 0.2, 0.2),
			noted(2, true, 0, 0.1, 0.7, 0.2, 0.2)}},
		{Arm: short(), Runs: []*results.Run{noted(1, true, 0, 0.3, 0.4, 0.5, 0.9), noted(2, false, 0, 0.3, 0.4)}},
	}
	want := []float64{0.3, 0.6, 0.6, 0.6}
	for i, got := range optimality(family, grid(short().Config, 1)) {
		if math.Abs(got-want[i]) > 1e-12 {
			t.Errorf("step %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestNamesAreListedOnce(t *testing.T) {
	for want, list := range map[string][]string{"none": nil, "a": {"a", "a"}, "a and b": {"b", "a", "b"},
		"a, b and c": {"c", "b", "a"}} {
		before := slices.Clone(list)
		if got := sortedNames(list); got != want || !slices.Equal(list, before) {
			t.Errorf("%v: %s, want %s", before, got, want)
		}
	}
}

func TestAClaimAboutTasksNeedsMostOfThemAndNoneAgainst(t *testing.T) {
	holds, fails, open := results.Holds, results.DoesNotHold, results.CannotTell
	for _, c := range []struct {
		parts []results.Verdict
		want  results.Verdict
	}{
		{[]results.Verdict{holds, holds, holds, open}, holds},
		{[]results.Verdict{holds, holds, open, open}, open},
		{[]results.Verdict{holds, holds, holds, fails}, open},
		{[]results.Verdict{fails, fails, fails, holds}, fails},
		{[]results.Verdict{fails, fails, open, open}, open},
		{nil, open},
	} {
		if got := most(c.parts); got != c.want {
			t.Errorf("%v: %s, want %s", c.parts, got, c.want)
		}
	}
}

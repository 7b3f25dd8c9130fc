package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// made is an estimate of twelve runs, on three base models in turn.
func made(values ...float64) estimate {
	bases := make([]uint64, len(values))
	for i := range values {
		bases[i] = baseOf(uint64(i + 1))
	}
	return estimate{what: "the difference", write: change, pairs: results.NewPairs(values, bases)}
}

// known is the mean of an estimate whose values are known.
func known(e estimate) float64 {
	mean, _ := e.pairs.Mean()
	return mean
}

// around is twelve values that lie about v, at most a tenth of it away.
func around(v float64) []float64 {
	values := make([]float64, 12)
	for i := range values {
		values[i] = v * (1 + 0.02*float64(i%5-2) + 0.01*float64(i%3-1))
	}
	return values
}

func TestARuleDecidesByTheValues(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.Inconclusive
	same := func(v float64) []float64 { return slices.Repeat([]float64{v}, 12) }
	wide := []float64{-2, 5, 0, 4, -3, 2, 1, -1, 3, 0.5, -2.5, 2.5}
	for _, x := range []struct {
		name   string
		rule   rule
		values []float64
		want   results.Verdict
	}{
		{"above", above(1), around(1.2), h}, {"above", above(1), around(0.8), n}, {"above", above(1), wide, c},
		{"above, equal", above(1), same(1), c}, {"at least, equal", atLeast(1), same(1), h},
		{"at most, equal", atMost(1), same(1), h}, {"below, equal", below(1), same(1), c},
		{"below", below(1), around(0.8), h}, {"below", below(1), wide, c},
		{"at least", atLeast(1), around(2), h}, {"at most", atMost(3), around(9), n},
		{"within", within(1, 0.5), around(1), h}, {"within", within(1, 0.5), around(2), n},
		{"within", within(1, 0.5), around(0.1), n}, {"within", within(1, 0.5), wide, c},
	} {
		f := &Found{}
		j, err := f.judge([]claim{{source: "s", text: x.name, by: made(x.values...).is(x.rule)}})
		if got := j.Findings[0]; err != nil || got.Verdict != x.want {
			t.Errorf("%s, %v: %s, want %s: %s %s", x.name, x.values, got.Verdict, x.want, got.Found, got.Why)
		}
	}
}

// A value that is only known to be at most so much holds a claim that it is low, and cannot refute it.
func TestARuleDecidesByTheBoundsOfValues(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.Inconclusive
	for _, x := range []struct {
		rule   rule
		at     float64
		atMost bool
		want   results.Verdict
	}{
		{below(1), 0.8, true, h}, {below(1), 2, true, c}, {above(1), 0.8, true, n}, {above(1), 2, true, c},
		{below(1), 0.8, false, c}, {below(1), 2, false, n}, {above(1), 0.8, false, c}, {above(1), 2, false, h},
		{within(1, 0.5), 1, true, c}, {within(1, 0.5), 0.3, true, n}, {within(1, 0.5), 2, false, n},
	} {
		e := made(around(x.at)...)
		low, high := e.pairs.Values()
		low, high = slices.Clone(low), slices.Clone(high)
		if x.atMost {
			low[3], low[8] = math.Inf(-1), math.Inf(-1)
		} else {
			high[3], high[8] = math.Inf(1), math.Inf(1)
		}
		bases := make([]uint64, len(low))
		for i := range bases {
			bases[i] = baseOf(uint64(i + 1))
		}
		e.pairs = results.NewBoundedPairs(low, high, bases)
		j, err := (&Found{}).judge([]claim{{source: "s", text: "t", by: e.is(x.rule)}})
		if got := j.Findings[0]; err != nil || got.Verdict != x.want {
			t.Errorf("%s, about %g, at most %t: %s, want %s: %s %s", x.rule.holds, x.at, x.atMost, got.Verdict, x.want,
				got.Found, got.Why)
		}
	}
}

func TestAClaimOfSeveralPartsNeedsAllOfThemOrMost(t *testing.T) {
	const h, n, c = results.Holds, results.DoesNotHold, results.Inconclusive
	wide := []float64{-2, 5, 0, 4, -3, 2, 1, -1, 3, 0.5, -2.5, 2.5}
	parts := map[results.Verdict]estimate{h: made(around(1)...), n: made(around(-1)...), c: made(wide...)}
	for _, x := range []struct {
		parts []results.Verdict
		most  bool
		want  results.Verdict
	}{
		{[]results.Verdict{h, h}, false, h}, {[]results.Verdict{h, c}, false, c}, {[]results.Verdict{h, c, n}, false, n},
		{[]results.Verdict{h, h, h, c}, true, h}, {[]results.Verdict{h, h, c, c}, true, c},
		{[]results.Verdict{n, n, n, h}, true, n}, {[]results.Verdict{n, n, c, c}, true, n}, // no more than half can hold
		{[]results.Verdict{n, c, c, c}, true, c},
	} {
		made := claim{source: "s", text: "t", measured: "m", most: x.most}
		for i, p := range x.parts {
			made.by = append(made.by, parts[p].named(string(rune('a'+i)), above(0)))
		}
		j, err := (&Found{}).judge([]claim{made})
		if got := j.Findings[0]; err != nil || got.Verdict != x.want {
			t.Errorf("%v, most %t: %s, want %s: %s", x.parts, x.most, got.Verdict, x.want, got.Why)
		}
	}
}

// Of many claims each must be surer; checks are not counted, and what is inconclusive names the effect that would have
// shown.
func TestTheClaimsOfAStudyAreDecidedTogether(t *testing.T) {
	// Twelve values of mean 0.5 and deviation 0.6: sure of one claim, not of twenty.
	unsure := made(-0.3, 0.8, 1.2, 0.1, 1.3, 0.4, -0.2, 1.1, 0.6, 0.2, -0.4, 1.2)
	noise := made(-2, 5, 0, 4, -3, 2, 1, -1, 3, 0.5, -2.5, 2.5)
	for others, want := range map[int]results.Verdict{0: results.Holds, 20: results.Inconclusive} {
		claims := []claim{{source: "s", text: "t", measured: "m", by: unsure.is(above(0))}}
		for range others {
			claims = append(claims, claim{source: "s", text: "t", measured: "m", by: noise.is(above(0))})
		}
		j, err := (&Found{}).judge(append(claims, claim{source: "s", text: "t", by: unsure.is(above(0)), check: true}))
		if err != nil {
			t.Fatal(err)
		}
		if got := j.Findings[0]; got.Verdict != want {
			t.Errorf("beside %d others: %s, want %s: %s", others, got.Verdict, want, got.Why)
		}
		if got := j.Findings[others+1]; got.Verdict != results.Holds || !got.Check {
			t.Errorf("a check is %s: %s", got.Verdict, got.Why)
		}
	}
	j, err := (&Found{}).judge([]claim{{source: "s", text: "t", measured: "m", by: noise.is(above(0))}})
	if err != nil || !strings.Contains(j.Findings[0].Why, "The least effect that so many runs would have shown is +1.") {
		t.Errorf("what would have shown is not said: %s", j.Findings[0].Why)
	}
}

func TestAnEstimateSaysOnHowManyRunsItRests(t *testing.T) {
	for n, want := range []string{
		"not measured", "+0.500 (1 run)", "+0.600 (2 runs)", "+0.700 (3 runs)",
		// base models at 0.8, 0.7 and 0.9, one degree of freedom: 12.7 standard errors of 0.42/3 times the root of 2.5
		"+0.800 (4 runs, 95% interval −2.041 to +3.641; by base model +0.800, +0.700, +0.900; " +
			"over base models +0.552 to +1.048)", // two degrees of freedom: 4.303 standard errors of 0.1 over the root of 3
	} {
		values := []float64{math.NaN()}
		for i := range n {
			values = append(values, 0.5+0.2*float64(i))
		}
		e := made(values[1:]...)
		if got := e.String(); got != want {
			t.Errorf("%d runs: %s, want %s", n, got, want)
		}
	}
	ratios := made(math.Log(0.5), math.Log(2), math.Log(0.5), math.Log(2))
	ratios.log, ratios.write = true, times
	if got := ratios.String(); !strings.HasPrefix(got, "1.00 (4 runs") {
		t.Errorf("a ratio is the geometric mean: %s", got)
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
	if got, _ := difference(a, b, level).pairs.Values(); len(got) != 2 || math.Abs(got[0]-0.1) > 1e-12 ||
		math.Abs(got[1]+0.2) > 1e-12 {
		t.Errorf("differences %v, want 0.1 and −0.2", got)
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

package task

import (
	"math"
	"slices"
	"testing"
)

// Kolmogorov-Smirnov against the exact distribution: with 4,000 draws the 99.9% quantile of the distance is
// 1.95/sqrt(4000) = 0.0308; a mean wrong by 15% is found out.
func TestLatenciesFollowTheirDistribution(t *testing.T) {
	normal := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	for name, c := range map[string]struct {
		latency Latency
		below   func(x float64) float64
	}{
		"exponential": {Latency{Distribution: Exponential, Mean: 3},
			func(x float64) float64 { return 1 - math.Exp(-x/3) }},
		"lognormal": {Latency{Distribution: Lognormal, Mean: 3},
			func(x float64) float64 { return normal(math.Log(x/3) + 0.5) }},
		"narrow": {Latency{Distribution: Lognormal, Mean: 5, Sigma: 0.2},
			func(x float64) float64 { return normal(math.Log(x/5)/0.2 + 0.1) }},
	} {
		const n = 4000
		draws := make([]float64, n)
		for group := range draws {
			draws[group] = c.latency.Draw(17, uint64(group))
		}
		slices.Sort(draws)
		distance := 0.0
		for i, x := range draws {
			distance = max(distance, math.Abs(c.below(x)-float64(i)/n), math.Abs(c.below(x)-float64(i+1)/n))
		}
		if distance > 0.0308 {
			t.Errorf("%s: distance %.4f", name, distance)
		}
	}
}

func TestLatencyIsAFunctionOfSeedAndGroup(t *testing.T) {
	l := Latency{Distribution: Exponential, Mean: 1}
	if l.Draw(1, 2) != l.Draw(1, 2) || l.Draw(1, 2) == l.Draw(1, 3) || l.Draw(1, 2) == l.Draw(2, 2) {
		t.Error("draws do not follow seed and group")
	}
	if got := (Latency{}).Draw(1, 2); got != 0 {
		t.Errorf("no latency takes %v", got)
	}
	if got := (Latency{Mean: 4}).Draw(1, 2); got != 4 {
		t.Errorf("constant 4 takes %v", got)
	}
}

func TestLatencySettingsAreValidated(t *testing.T) {
	for _, c := range []struct {
		latency  Latency
		problems int
	}{
		{Latency{}, 0},
		{Latency{Distribution: Constant, Mean: 1}, 0},
		{Latency{Distribution: Exponential, Mean: 1}, 0},
		{Latency{Distribution: Lognormal, Mean: 1, Sigma: 4}, 0},
		{Latency{Distribution: "normal", Mean: -1, Sigma: 1}, 3},
		{Latency{Mean: math.NaN()}, 1},
		{Latency{Mean: math.Inf(1)}, 1},
		{Latency{Distribution: Lognormal, Sigma: math.NaN()}, 1},
		{Latency{Distribution: Lognormal, Sigma: 5}, 1},
		{Latency{Distribution: Exponential, Sigma: 1}, 1},
	} {
		problems := 0
		if joined, ok := c.latency.Validate().(interface{ Unwrap() []error }); ok {
			problems = len(joined.Unwrap())
		}
		if problems != c.problems {
			t.Errorf("%+v: %d problems, want %d: %v", c.latency, problems, c.problems, c.latency.Validate())
		}
	}
}

package results

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Quantile returns the q-quantile, q in [0, 1], by linear interpolation of order statistics: with
// the n values in order and h = (n-1)q, the value a share h - floor(h) of the way from number
// floor(h) to the next, counted from 0. Infinite values are in order like others, and what lies
// strictly between a finite and an infinite one is infinite, between the two infinities NaN. It is NaN
// without values, and where a value is NaN. The argument is left as it is.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	ordered := slices.Sorted(slices.Values(values))
	return quantileOf(ordered, q)
}

func quantileOf(ordered []float64, q float64) float64 {
	h := float64(len(ordered)-1) * q
	i := min(int(h), len(ordered)-1)
	part := h - float64(i)
	switch {
	case part == 0 || ordered[i] == ordered[i+1]: // infinity minus itself would be NaN
		return ordered[i]
	case math.IsInf(ordered[i], -1) && !math.IsInf(ordered[i+1], 1): // as would be a finite value plus minus infinity plus infinity
		return ordered[i]
	}
	return ordered[i] + part*(ordered[i+1]-ordered[i])
}

// Median is Quantile at 1/2.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// resamples is how often Bootstrap draws; at 10,000 the ends of a 95% interval rest on 250 draws
// each.
const resamples = 10_000

// Bootstrap returns the percentile interval of the median at the given level (0.95): the median of
// as many values drawn with replacement, many times over. The same values and seed give the same
// interval.
func Bootstrap(values []float64, level float64, seed uint64) (low, high float64) {
	if slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN(), math.NaN()
	}
	drawn := make([]float64, len(values))
	return BootstrapOf(len(values), func(draw []int) float64 {
		for i, of := range draw {
			drawn[i] = values[of]
		}
		slices.Sort(drawn)
		return quantileOf(drawn, 0.5)
	}, level, seed)
}

// BootstrapOf returns the percentile interval of any statistic of n seeds or samples: what it is of as
// many of their numbers, from 0, drawn with replacement. statistic must not keep draw, nor be NaN.
func BootstrapOf(n int, statistic func(draw []int) float64, level float64, seed uint64) (low, high float64) {
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	rng := rand.New(rand.NewPCG(seed, 0x626f6f74)) // "boot"
	found, draw := make([]float64, resamples), make([]int, n)
	for i := range found {
		for j := range draw {
			draw[j] = rng.IntN(n)
		}
		found[i] = statistic(draw)
	}
	slices.Sort(found)
	return quantileOf(found, (1-level)/2), quantileOf(found, (1+level)/2)
}

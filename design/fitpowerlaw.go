package design

import "math"

// mostExponent bounds the search of a fitted exponent; from 1/2 on the theory says to stay on-policy, whatever the exponent.
const mostExponent = 5

// fitPowerLaw returns the power law of least deviance, see [residual], and its residual. The law's variance at staleness s is its mean over
// [s, s+1): so staleness 0 takes part, and sbar2 at whole horizons is the average of what was fitted, which reading s^(2a) at s
// itself would not give.
func fitPowerLaw(values []weighted) (PowerLaw, float64) {
	flat := true
	for _, v := range values {
		flat = flat && v.at == values[0].at
	}
	best := 0.0
	if !flat {
		best = fitExponent(values)
	}
	if best < 1e-6 {
		best = 0
	}
	law := PowerLaw{Exponent: best, Scale: fitScale(values, best)}
	return law, residual(values, law.over)
}

// fitExponent returns the best a in [0, mostExponent]: the best of a grid, refined by golden section between its neighbours.
func fitExponent(values []weighted) float64 {
	cost := func(a float64) float64 {
		return residual(values, PowerLaw{Exponent: a, Scale: fitScale(values, a)}.over)
	}
	const spacing = 0.01
	best, least := 0.0, cost(0)
	for i := 1; i <= mostExponent/spacing; i++ {
		if c := cost(float64(i) * spacing); c < least {
			best, least = float64(i)*spacing, c
		}
	}
	low, high := max(0, best-spacing), min(mostExponent, best+spacing)
	const golden = 0.6180339887498949
	for range 50 {
		a, b := high-golden*(high-low), low+golden*(high-low)
		if cost(a) <= cost(b) {
			high = b
		} else {
			low = a
		}
	}
	return (low + high) / 2
}

// fitScale returns the scale of least deviance for an exponent, the mean of measured over s^(2a).
func fitScale(values []weighted, a float64) float64 {
	sum, weights := 0.0, 0.0
	for _, v := range values {
		sum += v.weight * (v.value / step(v.at, a))
		weights += v.weight
	}
	return sum / weights
}

// over returns the law's mean over [s, s+1).
func (p PowerLaw) over(s float64) float64 { return p.scale() * step(s, p.Exponent) }

// step returns the mean of x^(2a) over [s, s+1), ((s+1)^(2a+1) - s^(2a+1))/(2a+1) in a form that does not cancel for large s.
func step(s, a float64) float64 {
	p := 2*a + 1
	if s < 1 {
		return (math.Pow(s+1, p) - math.Pow(s, p)) / p
	}
	return math.Pow(s, p) * math.Expm1(p*math.Log1p(1/s)) / p
}

package design

import (
	"fmt"
	"math"
)

// PowerLaw is noise that grows as a power of staleness, sigma2(s) = Scale s^(2a). The zero value is flat noise, whose variance does not
// depend on staleness.
//
// Mean is the integral of sigma2 from 0 to x over x, which is above 0 at x = 1, where the sum over whole versions would be 0. For the
// same reason a power law that grows says nothing of sigma2(0), which it would have to be 0.
type PowerLaw struct {
	Exponent float64 `json:"exponent"` // a: 0 (flat), or 1e-6 to 10
	Scale    float64 `json:"scale"`    // sigma2 at staleness 1, above 0 [1]; it moves no optimum
}

// Mean implements [Profile]: Scale x^(2a)/(2a+1).
func (p PowerLaw) Mean(x float64) float64 {
	if p.Exponent == 0 {
		return p.scale()
	}
	return p.scale() * math.Pow(x, 2*p.Exponent) / (2*p.Exponent + 1)
}

// At implements [Profile]: Scale s^(2a), NaN at 0 unless the noise is flat.
func (p PowerLaw) At(s float64) float64 {
	switch {
	case p.Exponent == 0:
		return p.scale()
	case s == 0:
		return math.NaN()
	}
	return p.scale() * math.Pow(s, 2*p.Exponent)
}

// Reach implements [Profile]: a law has no end.
func (p PowerLaw) Reach() float64 { return math.Inf(1) }

func (p PowerLaw) scale() float64 {
	if p.Scale == 0 {
		return 1
	}
	return p.Scale
}

func (p PowerLaw) validate() error {
	if a := p.Exponent; a != 0 && !(a >= 1e-6 && a <= 10) {
		return fmt.Errorf("noise_exponent: %v: want 0 (noise that staleness does not change) or 1e-6 to 10", a)
	}
	if !(p.scale() > 0) || math.IsInf(p.scale(), 0) {
		return fmt.Errorf("profile: scale %v: want a finite number above 0", p.Scale)
	}
	return nil
}

// stationary returns the x in (0, +Inf] at which the derivative of Mean(x) (sqrt m + sqrt(rho + 1/x))^2 is 0, for exponents in (0, 1/2). The
// form is [ER]'s root with its numerator made rational, so that it neither divides by 0 at m = rho and rho = 0 nor cancels near them.
func (p PowerLaw) stationary(m, rho float64) float64 {
	a := p.Exponent
	s := math.Sqrt(a*a*m*m + m*rho*(1-2*a))
	return square(1-2*a) / (2 * a * (a*m + rho*(1-2*a) + s))
}

func (p PowerLaw) horizon(m, rho float64) float64 {
	switch a := p.Exponent; {
	case a == 0:
		return math.Inf(1)
	case a >= 0.5:
		return 1
	default:
		return max(1, p.stationary(m, rho))
	}
}

// turns implements [Profile]. x^(2a) (b + 1/x) falls until (1-2a)/(2 a b) and rises from there.
func (p PowerLaw) turns(b float64, visit func(x float64)) {
	if a := p.Exponent; a > 0 && a < 0.5 {
		visit((1 - 2*a) / (2 * a * b))
	}
}

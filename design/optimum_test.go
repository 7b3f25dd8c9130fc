package design

import (
	"math"
	"math/rand/v2"
	"testing"
)

// slope is the derivative of f at t by five points, with an error of the order of h^4.
func slope(f func(float64) float64, t float64) float64 {
	const h = 0.02
	return (8*(f(t+h)-f(t-h)) - (f(t+2*h) - f(t-2*h))) / (12 * h)
}

// rootOf returns the zero of a rising function between low and high, by the Illinois form of false position.
func rootOf(f func(float64) float64, low, high float64) float64 {
	a, b := f(low), f(high)
	for range 200 {
		mid := (low*b - high*a) / (b - a)
		c := f(mid)
		if math.Abs(high-low) < 1e-9 || c == 0 {
			return mid
		}
		if c < 0 {
			if low == mid {
				return mid
			}
			low, a, b = mid, c, b/2
		} else {
			if high == mid {
				return mid
			}
			high, b, a = mid, c, a/2
		}
	}
	return (low + high) / 2
}

// leastY minimises J over y at a given x, by nothing but values of J; both as logarithms.
func leastY(theory Theory, logX float64) float64 {
	return rootOf(func(v float64) float64 {
		return slope(func(v float64) float64 { return math.Log(theory.Objective(Point{math.Exp(logX), math.Exp(v)})) }, v)
	}, -25, 25)
}

// leastX minimises min_y J over x >= 1 the same way: at the best y the derivative is the partial one.
func leastX(theory Theory) (x, y float64) {
	rise := func(u float64) float64 {
		v := leastY(theory, u)
		return slope(func(u float64) float64 { return math.Log(theory.Objective(Point{math.Exp(u), math.Exp(v)})) }, u)
	}
	u := 0.0
	if rise(0) < 0 {
		u = rootOf(rise, 0, 40)
	}
	return math.Exp(u), math.Exp(leastY(theory, u))
}

func randomTheory(rng *rand.Rand) Theory {
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	theory := Theory{TrainCost: 1 / between(0.1, 100), Correlation: between(1e-5, 1)}
	switch rng.IntN(8) {
	case 0:
		theory.Correlation = 0
	case 1:
		theory.Correlation = min(theory.TrainCost, 1)
	case 2: // near the place where the textbook form of the root divides by 0
		theory.Correlation = min(theory.TrainCost*(1+1e-9*rng.Float64()), 1)
	}
	a := between(0.003, 0.499)
	if rng.IntN(20) == 0 {
		a = 0.5 + rng.Float64()
	}
	theory.Profile = PowerLaw{Exponent: a, Scale: between(0.1, 10)}
	return theory
}

func TestClosedFormsAreTheNumericalMinimumOver10000RandomTheories(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	found := map[Where]int{}
	for i := range 10_000 {
		theory := randomTheory(rng)
		o := theory.Optimum()
		x, y := leastX(theory)
		near(t, "x*", o.X, x, 1e-6)
		near(t, "y*", o.Y, y, 1e-6)
		near(t, "J", o.Objective, theory.Objective(Point{x, y}), 1e-9)
		near(t, "the savings", o.Savings, theory.Savings(o.Point), 1e-9)
		found[o.Where]++
		if t.Failed() {
			t.Fatalf("theory %d: %+v", i, theory)
		}
	}
	if found[Inside] < 5000 || found[AtOne] < 500 {
		t.Errorf("the random theories are lopsided: %v", found)
	}
}

func TestWhereNoiseGrowsTooFastTheBestIsToStayOnPolicy(t *testing.T) {
	for _, theory := range []Theory{
		{TrainCost: 0.2, Correlation: 0.1, Profile: PowerLaw{Exponent: 0.5}},
		{TrainCost: 0.2, Correlation: 1, Profile: PowerLaw{Exponent: 0.6}}, // the closed form has no real root
		{TrainCost: 0.2, Correlation: 0.1, Profile: PowerLaw{Exponent: 2}},
		{TrainCost: 50, Correlation: 0.1, Profile: PowerLaw{Exponent: 0.3}}, // the closed form gives x* = 0.0088
	} {
		o := theory.Optimum()
		if o.X != 1 || o.Where != AtOne || o.Reached {
			t.Errorf("%+v: x* is %v, %v", theory, o.X, o.Where)
		}
		near(t, "y*", o.Y, 1/math.Sqrt(theory.TrainCost*(1+theory.Correlation)), 1e-14)
	}
}

func TestFlatNoiseHasNoFiniteHorizon(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Correlation: 0.1, Profile: PowerLaw{}}
	o := theory.Optimum()
	if !math.IsInf(o.X, 1) || o.Where != AtInfinity || o.Reached {
		t.Errorf("x* is %v, %v", o.X, o.Where)
	}
	near(t, "y*", o.Y, math.Sqrt(5.28/0.1), 1e-14)
	near(t, "J", o.Objective, square(math.Sqrt(1/5.28)+math.Sqrt(0.1)), 1e-14)

	theory.Correlation = 0
	o = theory.Optimum()
	if !math.IsInf(o.X, 1) || !math.IsInf(o.Y, 1) {
		t.Errorf("without correlation the optimum is %v", o.Point)
	}
	near(t, "J without correlation", o.Objective, 1/5.28, 1e-14)
}

func TestAVanishingExponentTendsToFlatNoise(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Correlation: 0.1, Profile: PowerLaw{Exponent: 1e-6}}
	o := theory.Optimum()
	if o.X < 1e5 {
		t.Errorf("x* is %v", o.X)
	}
	near(t, "y*", o.Y, math.Sqrt(5.28/0.1), 1e-4)
}

func TestTheOptimumMovesAsFigure4Shows(t *testing.T) {
	at := func(mu, rho, a float64) Point {
		return Theory{TrainCost: 1 / mu, Correlation: rho, Profile: PowerLaw{Exponent: a}}.Optimum().Point
	}
	base := at(5, 0.2, 0.1)
	for what, p := range map[string]Point{
		"dearer rollouts": at(10, 0.2, 0.1), "less correlation": at(5, 0.1, 0.1), "slower noise": at(5, 0.2, 0.05),
	} {
		if p.X <= base.X || p.Y <= base.Y {
			t.Errorf("%s: %v is not beyond %v", what, p, base)
		}
	}
}

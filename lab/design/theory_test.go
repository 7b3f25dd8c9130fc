package design

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// near fails unless two numbers agree to a relative tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if got == want {
		return
	}
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %.12g, want %.12g", what, got, want)
	}
}

func TestTheOptimumHasTheCheckValuesOfMethods(t *testing.T) {
	for _, c := range []struct{ mu, rho, a, x, y float64 }{
		{5.28, 0.1, 0.2, 4.26522, 3.97327},
		{6.84, 0.5, 0.05, 11.34599, 3.41027},
	} {
		o := Theory{TrainCost: 1 / c.mu, Correlation: c.rho, Profile: PowerLaw{Exponent: c.a}}.Optimum()
		near(t, "x*", o.X, c.x, 2e-6)
		near(t, "y*", o.Y, c.y, 2e-6)
		if o.Where != Inside {
			t.Errorf("at mu %v the optimum is %v", c.mu, o.Where)
		}
	}
}

func TestTheObjectiveIsTheProductOfItsFactors(t *testing.T) {
	theory := Theory{TrainCost: 0.3, Correlation: 0.2, Profile: PowerLaw{Exponent: 0.1}}
	x, y := 7.0, 3.0
	want := math.Pow(x, 0.2) / 1.2 * (1 + 0.3*y) * (1/y + 1/x + 0.2)
	near(t, "J", theory.Objective(Point{x, y}), want, 1e-14)
	near(t, "J at y*", theory.Objective(Point{x, theory.bestReplay(x)}), theory.Envelope(x), 1e-14)
	for _, off := range []float64{0.9, 1.1} {
		if theory.Objective(Point{x, off * theory.bestReplay(x)}) <= theory.Envelope(x) {
			t.Errorf("a replay ratio %v times y* is no worse", off)
		}
	}
}

func TestTheObjectiveKeepsItsLimitAtInfinity(t *testing.T) {
	flat := Theory{TrainCost: 0.25, Profile: PowerLaw{}}
	near(t, "J(inf, inf) without correlation", flat.Objective(Point{math.Inf(1), math.Inf(1)}), 0.25, 1e-15)
	near(t, "J(inf, 4) without correlation", flat.Objective(Point{math.Inf(1), 4}), 0.5, 1e-15)
	if j := flat.Objective(Point{9, math.Inf(1)}); !math.IsInf(j, 1) {
		t.Errorf("J(9, inf) is %v: training for ever on a finite buffer costs without end", j)
	}
	flat.Correlation = 0.5
	near(t, "J(inf, 2)", flat.Objective(Point{math.Inf(1), 2}), 1.5*(0.5+0.5), 1e-15)
}

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	err := Theory{TrainCost: math.NaN(), Correlation: 1.5, Profile: PowerLaw{Exponent: -1, Scale: -2}}.Validate()
	for _, want := range []string{"train_cost: NaN: want 1e-05 to 1000", "correlation: 1.5: want 0 to 1",
		"noise_exponent: -1: want 1e-06"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	bad := []Theory{
		{TrainCost: 0, Profile: PowerLaw{}},
		{TrainCost: math.Inf(1), Profile: PowerLaw{}},
		{TrainCost: 1, Correlation: -0.1, Profile: PowerLaw{}},
		{TrainCost: 1},
		{TrainCost: 1, Profile: (*Table)(nil)},
		{TrainCost: 1, Profile: new(Table)},
		{TrainCost: 1, Profile: PowerLaw{Exponent: 1e-9}},
		{TrainCost: 1, Profile: PowerLaw{Exponent: 11}},
		{TrainCost: 1, Profile: PowerLaw{Scale: math.Inf(1)}},
	}
	for i, theory := range bad {
		if theory.Validate() == nil {
			t.Errorf("theory %d is accepted: %+v", i, theory)
		}
	}
	good := Theory{TrainCost: 1 / 5.28, Correlation: 1, Profile: PowerLaw{}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestSavingsOfSmallBuffersWithFlatNoise(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Profile: PowerLaw{}}
	once, exact := theory.OnPolicyOnce()
	for x, percent := range map[float64]float64{28: 32, 7: 20} {
		saved := 1 - theory.Objective(Point{x, 5.28 * 2 / 6})/once
		if !exact || math.Round(100*saved) != percent {
			t.Errorf("(6,2) with flat noise saves %.1f%% at x = %v (exact %v), want %v%%", 100*saved, x, exact, percent)
		}
	}
}

func TestOnPolicyDependsOnWhetherDrawsRepeat(t *testing.T) {
	theory := Theory{TrainCost: 0.25, Correlation: 0.5, Profile: table(t, 2, 3)}
	near(t, "J(1, 1)", theory.OnPolicy(), 2*1.25*2.5, 1e-15)
	once, exact := theory.OnPolicyOnce()
	near(t, "J with each rollout once", once, 2*1.25, 1e-15)
	if !exact {
		t.Error("a table gives sigma2(0)")
	}
	near(t, "the savings of on-policy itself", theory.savings(theory.Objective(Point{1, 1})), 0, 0)
	near(t, "the savings", theory.savings(theory.Objective(Point{2, 2})), 1-2.5*1.5*1.5/6.25, 1e-15)
}

func TestAPowerLawThatGrowsBoundsTheCostOfUsingRolloutsOnce(t *testing.T) {
	theory := Theory{TrainCost: 0.25, Profile: PowerLaw{Exponent: 0.1}}
	once, exact := theory.OnPolicyOnce()
	if exact {
		t.Error("sigma2(0) of s^(2a) would be 0, which is no noise")
	}
	near(t, "the mean over the first version", once, 1.25/1.2, 1e-15)
}

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

// minY minimises J over y at a given x, by nothing but values of J; both as logarithms.
func minY(theory Theory, logX float64) float64 {
	return rootOf(func(v float64) float64 {
		return slope(func(v float64) float64 { return math.Log(theory.Objective(Point{math.Exp(logX), math.Exp(v)})) },
			v)
	}, -25, 25)
}

// minX minimises min_y J over x >= 1 the same way: at the best y the derivative is the partial one.
func minX(theory Theory) (x, y float64) {
	rise := func(u float64) float64 {
		v := minY(theory, u)
		return slope(func(u float64) float64 { return math.Log(theory.Objective(Point{math.Exp(u), math.Exp(v)})) }, u)
	}
	u := 0.0
	if rise(0) < 0 {
		u = rootOf(rise, 0, 40)
	}
	return math.Exp(u), math.Exp(minY(theory, u))
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

func TestClosedFormsAreTheNumericalMinimumOfRandomTheories(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	found := map[Where]int{}
	const theories = 500
	for i := range theories {
		theory := randomTheory(rng)
		o := theory.Optimum()
		x, y := minX(theory)
		near(t, "x*", o.X, x, 1e-6)
		near(t, "y*", o.Y, y, 1e-6)
		near(t, "J", o.Objective, theory.Objective(Point{x, y}), 1e-9)
		near(t, "the savings", o.Savings, theory.savings(theory.Objective(o.Point)), 1e-9)
		found[o.Where]++
		if t.Failed() {
			t.Fatalf("theory %d: %+v", i, theory)
		}
	}
	if found[Inside] < theories/2 || found[AtOne] < theories/20 {
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
		if o.X != 1 || o.Where != AtOne {
			t.Errorf("%+v: x* is %v, %v", theory, o.X, o.Where)
		}
		near(t, "y*", o.Y, 1/math.Sqrt(theory.TrainCost*(1+theory.Correlation)), 1e-14)
	}
}

func TestFlatNoiseHasNoFiniteHorizon(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Correlation: 0.1, Profile: PowerLaw{}}
	o := theory.Optimum()
	if !math.IsInf(o.X, 1) || o.Where != AtInfinity {
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

func TestTheRewardWeightIsThatOfFigure1(t *testing.T) {
	near(t, "the weight of a prompt that is never solved", NormalisedRewardWeight(0, 0.01), 9, 1e-12)
	near(t, "of one that always is", NormalisedRewardWeight(1, 0.01), 9, 1e-12)
	near(t, "at 1/2", NormalisedRewardWeight(0.5, 0.01), 1/math.Sqrt(0.26)-1, 1e-12)
	if !math.IsInf(NormalisedRewardWeight(1, 0), 1) {
		t.Error("without epsilon the weight does not explode")
	}
}

package design

import (
	"math"
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

func TestCheckValuesOfTheDefinitions(t *testing.T) {
	for _, c := range []struct{ mu, rho, a, x, y float64 }{
		{5.28, 0.1, 0.2, 4.26522, 3.97327},
		{6.84, 0.5, 0.05, 11.34599, 3.41027},
	} {
		o := Theory{TrainCost: 1 / c.mu, Correlation: c.rho, Profile: PowerLaw{Exponent: c.a}}.Optimum()
		near(t, "x*", o.X, c.x, 2e-6)
		near(t, "y*", o.Y, c.y, 2e-6)
		if !o.Reached || o.Where != Inside {
			t.Errorf("at mu %v the optimum is %v, reached %v", c.mu, o.Where, o.Reached)
		}
	}
}

func TestTheObjectiveIsTheProductOfItsFactors(t *testing.T) {
	theory := Theory{TrainCost: 0.3, Correlation: 0.2, Profile: PowerLaw{Exponent: 0.1}}
	x, y := 7.0, 3.0
	want := math.Pow(x, 0.2) / 1.2 * (1 + 0.3*y) * (1/y + 1/x + 0.2)
	near(t, "J", theory.Objective(Point{x, y}), want, 1e-14)
	near(t, "J at y*", theory.Objective(Point{x, theory.BestReplay(x)}), theory.Envelope(x), 1e-14)
	for _, off := range []float64{0.9, 1.1} {
		if theory.Objective(Point{x, off * theory.BestReplay(x)}) <= theory.Envelope(x) {
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

func TestValidateNamesEverythingAtOnce(t *testing.T) {
	err := Theory{TrainCost: math.NaN(), Correlation: 1.5, Profile: PowerLaw{Exponent: -1, Scale: -2}}.Validate()
	for _, want := range []string{"train_cost: NaN: want 1e-6 to 1e6", "correlation: 1.5: want 0 to 1", "noise_exponent: -1: want 0"} {
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

package design

import (
	"math"
	"testing"
)

func TestTheReadingOfSmallBuffers(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Profile: PowerLaw{}}
	for x, percent := range map[float64]float64{28: 32, 7: 20} {
		saved, ok := theory.SavingsOnce(Point{x, 5.28 * 2 / 6})
		if !ok || math.Round(100*saved) != percent {
			t.Errorf("(6,2) with flat noise saves %.1f%% at x = %v (%v), want %v%%", 100*saved, x, ok, percent)
		}
	}
}

func TestOnPolicyDependsOnWhetherDrawsRepeat(t *testing.T) {
	theory := Theory{TrainCost: 0.25, Correlation: 0.5, Profile: table(t, 2, 3)}
	near(t, "J(1, 1)", theory.OnPolicy(), 2*1.25*2.5, 1e-15)
	once, ok := theory.OnPolicyOnce()
	near(t, "J with each rollout once", once, 2*1.25, 1e-15)
	if !ok {
		t.Error("a table gives sigma2(0)")
	}
	near(t, "the savings of on-policy itself", theory.Savings(Point{1, 1}), 0, 0)
	near(t, "the savings", theory.Savings(Point{2, 2}), 1-2.5*1.5*1.5/6.25, 1e-15)
	saved, _ := theory.SavingsOnce(Point{2, 2})
	near(t, "the savings against once", saved, 1-2.5*1.5*1.5/2.5, 1e-15)
}

func TestAPowerLawThatGrowsDoesNotGiveFreshNoise(t *testing.T) {
	theory := Theory{TrainCost: 0.25, Profile: PowerLaw{Exponent: 0.1}}
	if _, ok := theory.OnPolicyOnce(); ok {
		t.Error("sigma2(0) of s^(2a) would be 0, which is no noise")
	}
	if _, ok := theory.SavingsOnce(Point{4, 2}); ok {
		t.Error("savings are promised against it")
	}
}

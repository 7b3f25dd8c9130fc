package design

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func conditions() Conditions {
	return Conditions{Gap: 2, Smoothness: 3, Bias: 0.1, LearningRate: 0.01, Updates: 1000, Batch: 8, Capacity: 40, NewPerUpdate: 4}
}

func TestTheBoundIsThatOfTheorem34(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Correlation: 0.3, Profile: PowerLaw{Exponent: 0.25, Scale: 2}}
	got, err := theory.Bound(conditions())
	if err != nil {
		t.Fatal(err)
	}
	// N/R = 10, sbar2 = 2 sqrt(10)/1.5; 4 N^2 kappa^2 eta/R^2 = 0.04.
	near(t, "the bound", got, 12*2/(0.01*1000)+8*0.01*(0.04+3)*(2*math.Sqrt(10)/1.5)*(1./8+1./40+0.3/4), 1e-14)
}

func TestTheBoundIsRefusedAboveItsLearningRate(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Profile: PowerLaw{}}
	for _, c := range []struct {
		name        string
		bias, limit float64
	}{
		{"smoothness limits", 0.1, 1.0 / 6}, // not L/2 = 1.5, as [ER] prints
		{"bias limits", 1, 4 / (2 * math.Sqrt2 * 40)},
		{"no bias", 0, 1.0 / 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			cond := conditions()
			cond.Bias = c.bias
			near(t, "the greatest learning rate", cond.MostLearningRate(), c.limit, 1e-15)
			cond.LearningRate = c.limit * 0.999999
			if _, err := theory.Bound(cond); err != nil {
				t.Errorf("just below: %v", err)
			}
			cond.LearningRate = c.limit * 1.000001
			_, err := theory.Bound(cond)
			var refused *LearningRateError
			if !errors.As(err, &refused) || refused.Most != cond.MostLearningRate() || !strings.Contains(err.Error(), "learning_rate: ") {
				t.Errorf("just above: %v", err)
			}
		})
	}
}

func TestTheBoundAtItsBestLearningRateGoesAsTheRootOfJ(t *testing.T) {
	// [ER] appendix C.3.1: with compute C = (R + m B) T and little bias, the least over eta is proportional to sqrt(J(N/R, B/R)).
	theory := Theory{TrainCost: 0.2, Correlation: 0.3, Profile: PowerLaw{Exponent: 0.2}}
	least := func(batch, capacity int, r float64) float64 {
		const compute = 1e12
		c := Conditions{Gap: 1, Smoothness: 1, Batch: batch, Capacity: capacity, NewPerUpdate: r, Updates: int(compute / (r + theory.TrainCost*float64(batch)))}
		best := math.Inf(1)
		for e := -9.0; e < -3; e += 0.001 {
			c.LearningRate = math.Pow(10, e)
			bound, err := theory.Bound(c)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, bound)
		}
		return best
	}
	a, b := least(64, 128, 32), least(256, 4096, 64)
	want := math.Sqrt(theory.Objective(Point{128. / 32, 64. / 32}) / theory.Objective(Point{4096. / 64, 256. / 64}))
	near(t, "the ratio of bounds", a/b, want, 1e-5)
}

func TestTheBoundNamesEveryConditionThatIsUnfit(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Profile: table(t, 1, 2)}
	_, err := theory.Bound(Conditions{Gap: -1, Bias: math.NaN()})
	for _, key := range []string{"gap: -1", "smoothness: 0", "bias: NaN", "learning_rate: 0", "updates: 0", "batch: 0", "capacity: 0", "new_per_update: 0"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %q: %v", key, err)
		}
	}
	for _, capacity := range []int{3, 9} { // horizons 0.75 and 2.25
		c := conditions()
		c.Capacity = capacity
		if _, err := theory.Bound(c); err == nil || !strings.Contains(err.Error(), "capacity: ") {
			t.Errorf("capacity %d is outside the profile: %v", capacity, err)
		}
	}
}

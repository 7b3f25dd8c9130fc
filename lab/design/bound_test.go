package design

import (
	"math"
	"strings"
	"testing"
)

func conditions() Conditions {
	return Conditions{Gap: 2, Smoothness: 3, Bias: 0.1, LearningRate: 0.01, Updates: 1000}
}

// configured returns a configuration of batch B, capacity N and R new rollouts per update.
func configured(b, n int, r float64) Configuration {
	return Configuration{Batch: b, Capacity: n, RolloutsPerUpdate: r, Horizon: float64(n) / r}
}

func TestTheBoundIsThatOfTheorem34(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Correlation: 0.3, Profile: PowerLaw{Exponent: 0.25, Scale: 2}}
	got, err := theory.Bound(conditions(), configured(8, 40, 4))
	if err != nil {
		t.Fatal(err)
	}
	// N/R = 10, sbar2 = 2 sqrt(10)/1.5; 4 N^2 kappa^2 eta/R^2 = 0.04.
	near(t, "the bound", got.Bound, 12*2/(0.01*1000)+8*0.01*(0.04+3)*(2*math.Sqrt(10)/1.5)*(1./8+1./40+0.3/4), 1e-14)
}

func TestTheBoundHoldsUpToItsGreatestLearningRate(t *testing.T) {
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
			cond.Bias, cond.LearningRate = c.bias, 0
			b, err := theory.Bound(cond, configured(8, 40, 4))
			if err != nil || b.LearningRate != b.Most {
				t.Errorf("no learning rate is %+v, %v, want the greatest", b, err)
			}
			near(t, "the greatest learning rate", b.Most, c.limit, 1e-15)
			cond.LearningRate = c.limit * 0.999999
			if _, err := theory.Bound(cond, configured(8, 40, 4)); err != nil {
				t.Errorf("just below: %v", err)
			}
			cond.LearningRate = c.limit * 1.000001
			if _, err = theory.Bound(cond, configured(8, 40, 4)); err == nil ||
				!strings.Contains(err.Error(), "learning_rate: ") {
				t.Errorf("just above: %v", err)
			}
		})
	}
}

func TestTheBoundAtItsBestLearningRateGoesAsTheRootOfJ(t *testing.T) {
	// [ER] appendix C.3.1: with compute C = (R + m B) T and little bias, the least over eta is proportional to
	// sqrt(J(N/R, B/R)).
	theory := Theory{TrainCost: 0.2, Correlation: 0.3, Profile: PowerLaw{Exponent: 0.2}}
	const compute = 1e12
	least := func(at Configuration) float64 {
		perUpdate := at.RolloutsPerUpdate + theory.TrainCost*float64(at.Batch)
		c := Conditions{Gap: 1, Smoothness: 1, Updates: int(compute / perUpdate)}
		best := math.Inf(1)
		for e := -9.0; e < -3; e += 0.001 {
			c.LearningRate = math.Pow(10, e)
			b, err := theory.Bound(c, at)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, b.Bound)
		}
		return best
	}
	a, b := least(configured(64, 128, 32)), least(configured(256, 4096, 64))
	ja, jb := theory.Objective(Point{128. / 32, 64. / 32}), theory.Objective(Point{4096. / 64, 256. / 64})
	near(t, "the ratio of bounds", a/b, math.Sqrt(ja/jb), 1e-5)
	near(t, "the factor that is printed", a, asymptotic(ja)/math.Sqrt(compute), 1e-3)
}

func TestTheBoundReportsEveryProblemAtOnce(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Profile: table(t, 1, 2)}
	_, err := theory.Bound(Conditions{Gap: -1, Bias: math.NaN(), LearningRate: -1}, configured(8, 8, 4))
	for _, key := range []string{"gap: -1", "smoothness: 0", "bias: NaN", "learning_rate: -1", "updates: 0"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name %q: %v", key, err)
		}
	}
	if b, _ := theory.Bound(conditions(), configured(8, 9, 4)); !math.IsNaN(b.Bound) {
		t.Errorf("beyond the profile the bound is %v, want none", b.Bound)
	}
}

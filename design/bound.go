package design

import (
	"errors"
	"fmt"
	"math"
)

// Conditions are what theorem 3.4 of [ER] needs to know besides the theory.
type Conditions struct {
	Gap          float64 `json:"gap" yaml:"gap"`                       // F0, the objective at the start above its least, >= 0
	Smoothness   float64 `json:"smoothness" yaml:"smoothness"`         // L, the Lipschitz constant of the gradient, > 0
	Bias         float64 `json:"bias" yaml:"bias"`                     // kappa, bias of a gradient per distance that the weights have moved, >= 0
	LearningRate float64 `json:"learning_rate" yaml:"learning_rate"`   // eta, of plain SGD, > 0
	Updates      int     `json:"updates" yaml:"updates"`               // T, > 0
	Batch        int     `json:"batch" yaml:"batch"`                   // B, > 0
	Capacity     int     `json:"capacity" yaml:"capacity"`             // N, > 0; N/R is in [1, Reach]
	NewPerUpdate float64 `json:"new_per_update" yaml:"new_per_update"` // R, > 0
}

// LearningRateError says that theorem 3.4 does not hold at a learning rate.
type LearningRateError struct{ LearningRate, Most float64 }

func (e *LearningRateError) Error() string {
	return fmt.Sprintf("learning_rate: %v: want at most %v = min(R/(2 sqrt2 kappa N), 1/(2L)), where the bound holds", e.LearningRate, e.Most)
}

// MostLearningRate returns min(R/(2 sqrt2 kappa N), 1/(2L)), the greatest learning rate at which the bound holds. The second part is an
// erratum: [ER] prints L/2, its proof needs L eta < 1/2 (appendix C, equation 3).
func (c Conditions) MostLearningRate() float64 {
	most := 1 / (2 * c.Smoothness)
	if c.Bias > 0 {
		most = min(most, c.NewPerUpdate/(2*math.Sqrt2*c.Bias*float64(c.Capacity)))
	}
	return most
}

// Bound returns the right side of theorem 3.4, which the mean over T updates of the squared norm of the gradient does not exceed:
//
//	12 F0/(eta T) + 8 eta (4 N^2 kappa^2 eta/R^2 + L) sbar2(N/R) (1/B + 1/N + rho/R)
//
// A learning rate above [Conditions.MostLearningRate] is refused with a [LearningRateError].
func (t Theory) Bound(c Conditions) (float64, error) {
	if err := errors.Join(t.Validate(), c.validate()); err != nil {
		return 0, err
	}
	if most := c.MostLearningRate(); c.LearningRate > most {
		return 0, &LearningRateError{c.LearningRate, most}
	}
	x := float64(c.Capacity) / c.NewPerUpdate
	if !(x >= 1 && x <= t.Profile.Reach()) {
		return 0, fmt.Errorf("capacity: %d: want 1 to %v times new_per_update (%v), the horizons that the profile speaks of", c.Capacity, t.Profile.Reach(), c.NewPerUpdate)
	}
	start := 12 * c.Gap / (c.LearningRate * float64(c.Updates))
	noise := t.Profile.Mean(x) * (1/float64(c.Batch) + 1/float64(c.Capacity) + t.Correlation/c.NewPerUpdate)
	return start + 8*c.LearningRate*(4*square(x*c.Bias)*c.LearningRate+c.Smoothness)*noise, nil
}

func (c Conditions) validate() error {
	var errs []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: want %s", key, value, want))
		}
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	above := func(key string, x float64) { check(finite(x) && x > 0, key, x, "a finite number above 0") }
	atLeast := func(key string, x float64) { check(finite(x) && x >= 0, key, x, "a finite number of at least 0") }
	count := func(key string, n int) { check(n > 0, key, n, "at least 1") }
	atLeast("gap", c.Gap)
	above("smoothness", c.Smoothness)
	atLeast("bias", c.Bias)
	above("learning_rate", c.LearningRate)
	count("updates", c.Updates)
	count("batch", c.Batch)
	count("capacity", c.Capacity)
	above("new_per_update", c.NewPerUpdate)
	return errors.Join(errs...)
}

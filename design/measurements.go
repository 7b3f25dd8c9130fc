package design

import (
	"errors"
	"fmt"
	"math"
)

// Measurements are what a run says of its gradient noise. Units of variances do not matter, as long as they are one.
type Measurements struct {
	RolloutCost  float64 // mu as measured, 0 if it was not
	NewPerUpdate float64 // R, new rollouts per update, > 0 where Means are given

	Noise []Noise // by staleness, in any order, at least one
	Proxy bool    // Noise is 1/ESS by age, which stands for sigma2 up to a factor and is no variance of a gradient

	Means []MeanNoise // of mean gradients, of at least two b; without them the correlation stays unknown
}

// Noise is the variance of single rollouts' gradients at one staleness.
type Noise struct {
	Staleness float64 // versions, the mean over those measured, 0 to 1e6
	Variance  float64 // E ||g - mean g||^2, > 0
	Count     int     // rollouts it rests on; 0 where nobody counted, taken as 1
	Error     float64 // standard error of Variance, 0 where it is not known; where all are known they take the place of counts
}

// MeanNoise is the variance of the mean gradient of b draws.
type MeanNoise struct {
	Draws    int     // b, >= 1
	Variance float64 // > 0
	Count    int     // disjoint micro-batches it rests on; 0 where nobody counted, taken as 1
}

// Validate returns everything that is out of its range, or nil.
func (m Measurements) Validate() error {
	var errs []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: want %s", key, value, want))
		}
	}
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	check(m.RolloutCost == 0 || positive(m.RolloutCost), "rollout_cost", m.RolloutCost, "a finite number above 0, or 0 if it was not measured")
	check(len(m.Noise) > 0, "noise", "nothing", "at least the variance of fresh rollouts")
	for i, n := range m.Noise {
		key := fmt.Sprintf("noise[%d].", i)
		check(n.Staleness >= 0 && n.Staleness <= 1e6, key+"staleness", n.Staleness, "0 to 1e6 versions")
		check(positive(n.Variance), key+"variance", n.Variance, "a finite number above 0")
		check(n.Count >= 0, key+"count", n.Count, "at least 0")
		check(n.Error == 0 || positive(n.Error), key+"error", n.Error, "a finite number of at least 0")
	}
	sizes := map[int]bool{}
	for i, n := range m.Means {
		key := fmt.Sprintf("means[%d].", i)
		sizes[n.Draws] = true
		check(n.Draws >= 1, key+"draws", n.Draws, "at least 1")
		check(positive(n.Variance), key+"variance", n.Variance, "a finite number above 0")
		check(n.Count >= 0, key+"count", n.Count, "at least 0")
	}
	if len(m.Means) > 0 {
		check(len(sizes) >= 2, "means", fmt.Sprint(len(sizes)), "micro-batches of at least two sizes, or none")
		check(positive(m.NewPerUpdate), "new_per_update", m.NewPerUpdate, "a finite number above 0")
	}
	return errors.Join(errs...)
}

package design

import (
	"errors"
	"fmt"
	"math"
)

// Profile is how the variance of a rollout's gradient grows with its staleness. There are two: [PowerLaw] and [*Table]. The unexported
// methods are what lets their minima be found exactly rather than by a scan.
type Profile interface {
	// Mean returns sbar2(x), the variance averaged over a buffer of staleness horizon x >= 1; NaN beyond Reach.
	Mean(x float64) float64
	// At returns sigma2(s) at staleness s >= 0, NaN where the profile does not say.
	At(s float64) float64
	// Reach returns the greatest horizon that the profile speaks of, +Inf where it speaks of all.
	Reach() float64

	// validate returns everything that makes the profile unfit.
	validate() error
	// horizon returns the x in [1, Reach] that minimises Mean(x) (sqrt m + sqrt(rho + 1/x))^2, the smallest of several.
	horizon(m, rho float64) float64
	// turns calls visit with horizons, in any order, such that every local minimum of Mean(x) (b + 1/x) inside a range of horizons is
	// among them.
	turns(b float64, visit func(x float64))
}

// Theory is what the calculator is told.
type Theory struct {
	TrainCost   float64 // m, cost of training on a rollout over the cost of generating it, 1/mu; in [1e-6, 1e6]
	Correlation float64 // rho, of the gradient noise of rollouts in a buffer, in [0, 1]
	Profile     Profile
}

// Point is a choice of buffer and replay: x = N/R versions, the staleness horizon, and y = B/R, the replay ratio.
type Point struct{ X, Y float64 }

// Validate returns everything that is out of its range, or nil. The other methods of a theory are defined where it returns nil.
func (t Theory) Validate() error {
	var errs []error
	if !(t.TrainCost >= 1e-6 && t.TrainCost <= 1e6) {
		errs = append(errs, fmt.Errorf("train_cost: %v: want 1e-6 to 1e6, the cost of training on a rollout over that of generating it (1/rollout_cost)", t.TrainCost))
	}
	if !(t.Correlation >= 0 && t.Correlation <= 1) {
		errs = append(errs, fmt.Errorf("correlation: %v: want 0 to 1", t.Correlation))
	}
	if t.Profile == nil {
		errs = append(errs, errors.New("profile: nothing: want a PowerLaw or a Table"))
	} else {
		errs = append(errs, t.Profile.validate())
	}
	return errors.Join(errs...)
}

// Objective returns J(x, y) = sbar2(x) (1 + m y)(1/y + 1/x + rho), the noise of an update times its cost: the compute to reach a given
// gradient goes as J, where there is much of it ([ER] appendix C.3.1). X is in [1, Reach] and may be infinite, Y above 0 and may be
// infinite; NaN where the profile does not reach.
func (t Theory) Objective(p Point) float64 {
	m := t.TrainCost
	common := t.Correlation + 1/p.X // of a buffer, by which more draws do not help
	if common == 0 {
		return t.Profile.Mean(p.X) * (1/p.Y + m)
	}
	return t.Profile.Mean(p.X) * (1/p.Y + m + (1+m*p.Y)*common)
}

// BestReplay returns y*(x) = 1/sqrt(m (rho + 1/x)), the replay ratio at which J is least for a buffer of horizon x.
func (t Theory) BestReplay(x float64) float64 {
	return 1 / math.Sqrt(t.TrainCost*(t.Correlation+1/x))
}

// Envelope returns J(x, y*(x)) = sbar2(x) (sqrt m + sqrt(rho + 1/x))^2, the least that a buffer of horizon x allows. Its root is K(x) of
// [ER] equation 5 and figure 5, but for the factor sqrt(2a+1) that the figure drops.
func (t Theory) Envelope(x float64) float64 {
	return t.Profile.Mean(x) * square(math.Sqrt(t.TrainCost)+math.Sqrt(t.Correlation+1/x))
}

func square(x float64) float64 { return x * x }

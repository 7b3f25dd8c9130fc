package design

import (
	"math"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Conditions are what theorem 3.4 of [ER] needs besides the theory.
type Conditions struct {
	Gap        float64 `json:"gap"`        // F0, the objective at the start above its least, > 0
	Smoothness float64 `json:"smoothness"` // L, the Lipschitz constant of the gradient, > 0
	// kappa, bias of a gradient per distance that the weights have moved, >= 0
	Bias         float64 `json:"bias"`
	LearningRate float64 `json:"learning_rate"` // eta, of plain SGD, >= 0 [the greatest at which the theorem holds]
	Updates      int     `json:"updates"`       // T, > 0
}

// Bound is the bound of theorem 3.4 on a configuration.
type Bound struct {
	Conditions           // LearningRate is the one taken
	Batch        int     `json:"batch"`
	Capacity     int     `json:"capacity"`
	NewPerUpdate float64 `json:"new_per_update"`
	Most         float64 `json:"most_learning_rate"` // min(R/(2 sqrt2 kappa N), 1/(2L))
	Bound        float64 `json:"bound"`              // on the mean of |gradient|^2 over the updates
}

// Validate reports every condition out of its range.
func (c Conditions) Validate() error {
	var problems option.Problems
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	problems.Check(finite(c.Gap) && c.Gap > 0, "gap", c.Gap, "a finite number above 0")
	problems.Check(finite(c.Smoothness) && c.Smoothness > 0, "smoothness", c.Smoothness, "a finite number above 0")
	problems.Check(finite(c.Bias) && c.Bias >= 0, "bias", c.Bias, "a finite number of 0 or more")
	problems.Check(finite(c.LearningRate) && c.LearningRate >= 0, "learning_rate", c.LearningRate, "a finite number "+
		"above 0, or 0 for the greatest at which the bound holds")
	problems.Check(c.Updates > 0, "updates", c.Updates, "1 or more")
	return problems.Err()
}

// Bound returns the right side of theorem 3.4, an upper bound on the mean over T updates of the squared norm of the
// gradient:
//
//	12 F0/(eta T) + 8 eta (4 N^2 kappa^2 eta/R^2 + L) sbar2(N/R) (1/B + 1/N + rho/R)
//
// It holds up to the learning rate min(R/(2 sqrt2 kappa N), 1/(2L)). The second part is an erratum: [ER] prints L/2,
// its proof needs L eta < 1/2 (appendix C, equation 3).
func (t Theory) Bound(c Conditions, at Configuration) (Bound, error) {
	r, n, x := at.RolloutsPerUpdate, float64(at.Capacity), at.Horizon
	b := Bound{Conditions: c, Batch: at.Batch, Capacity: at.Capacity, NewPerUpdate: r, Most: 1 / (2 * c.Smoothness)}
	if c.Bias > 0 {
		b.Most = min(b.Most, r/(2*math.Sqrt2*c.Bias*n))
	}
	if c.LearningRate == 0 {
		b.LearningRate = b.Most
	}
	problems := option.Problems(option.Each(c.Validate()))
	problems.Check(!(c.LearningRate > b.Most), "learning_rate", c.LearningRate, "at most %.6g, where theorem 3.4 "+
		"holds for the configuration (N %d, R %.4g)", b.Most, at.Capacity, r)
	start := 12 * c.Gap / (b.LearningRate * float64(c.Updates))
	noise := t.Profile.Mean(x) * (1/float64(at.Batch) + 1/n + t.Correlation/r)
	b.Bound = start + 8*b.LearningRate*(4*square(x*c.Bias)*b.LearningRate+c.Smoothness)*noise
	return b, problems.Err()
}

// asymptotic returns the factor of sqrt(F0 L/C) in theorem 3.4 at its best learning rate: 12 F0/(eta T) + 8 eta L S is
// least at 2 sqrt(96 F0 L S/T) = 8 sqrt(6 F0 L S/T), and S/T is J over the compute C = (R + m B) T. [ER] appendix C.3.1
// prints half of it, 4 sqrt 6.
func asymptotic(objective float64) float64 { return 8 * math.Sqrt(6*objective) }

// NormalisedRewardWeight returns (1 - sigma)/sigma, the weight that [OG] theorem 1 gives a step away from the behaviour
// policy against the improvement that it promises; sigma = sqrt(p (1-p) + epsilon) for a reward that is 1 with
// probability p and else 0. [OG] figure 1 shows it over p. It does not print its epsilon; its ends are at 9, where 0.01
// puts them.
func NormalisedRewardWeight(p, epsilon float64) float64 {
	sigma := math.Sqrt(p*(1-p) + epsilon)
	return (1 - sigma) / sigma
}

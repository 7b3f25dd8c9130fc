// Package design computes how to use rollouts: each once, several times in a row, or from a buffer; in which batches,
// and with which split of the GPUs.
//
// [Recommend] does it all: it takes what is [Known] and a [Fleet], and returns a [Recommendation], which prints as text
// and as JSON. Beneath it, a [Theory] has a [Profile] of noise: a [PowerLaw] or a [Table]. [Fit] makes both from
// [Measurements] of a run. [Theory.Cost] prices a [Use] of rollouts, by an extension of [ER]'s theory of our own. Of
// [ER]'s theory itself, [Theory.Optimum] is the best [Point], [Theory.Configure] the best [Plan] for a fleet,
// [Theory.Bound] the bound of theorem 3.4.
//
// Everything is a pure function. Formulas, names and errata are those of docs/METHODS.md, Theory of design ([ER] §3,
// appendix C). Costs are in units of generating one rollout: m = training cost / rollout cost = 1/mu.
//
// # On-policy
//
// Savings are against J(1, 1), an on-policy batch as the analysis draws it: with replacement, from as many rollouts as
// the batch has. Training that uses each rollout exactly once does better: its J is sigma2(0)(1 + m), so the savings
// against it are much smaller. See [Theory.OnPolicyOnce].
//
// # Limits
//
// [ER]'s analysis is of plain SGD with unlimited compute, uniform draws with replacement, and noise that depends on
// staleness alone. It ignores Adam, clipping and stalls. Its bias term vanishes in the limit, so stale gradients cost
// it nothing but variance. [Theory.Cost] draws without replacement, counts the noise that returns with each use of a
// rollout, and knows the signal beside the noise, but waits and clipping no more than [ER] does.
package design

import (
	"math"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Theory is the calculator's parameters.
type Theory struct {
	TrainCost   float64 // m, cost of training on a rollout over the cost of generating it, 1/mu; in [1e-5, 1e3]
	Correlation float64 // rho, of the gradient noise of rollouts in a buffer, in [0, 1]
	Profile     Profile

	// What [Theory.Cost] needs beyond [ER].

	NoiseScale float64 // S, rollouts in whose mean gradient noise equals signal; 0: unknown
	// Coherence is psi, the correlation of a rollout's gradient noise before and after an update whose step is that of one
	// without noise, in [0, 1]; smaller steps keep more. 1: the noise returns whole with each use.
	Coherence float64
	Batch     int // of the run that the profile was measured in; 0: its versions are those of every use
}

// Point is a choice of buffer and replay: x = N/R versions, the staleness horizon, and y = B/R, the replay ratio.
type Point struct{ X, Y float64 }

// Validate reports every parameter out of its range. The other methods need a valid theory.
func (t Theory) Validate() error {
	var problems option.Problems
	problems.Check(t.TrainCost >= 1e-5 && t.TrainCost <= 1e3, "train_cost", t.TrainCost,
		"1e-05 to 1000, 1/rollout_cost")
	problems.Check(t.Correlation >= 0 && t.Correlation <= 1, "correlation", t.Correlation, "0 to 1")
	problems.Check(t.NoiseScale >= 0 && t.NoiseScale <= 1e12, "noise_scale", t.NoiseScale, "up to 1e12 rollouts, or 0 if "+
		"unknown")
	problems.Check(t.Coherence >= 0 && t.Coherence <= 1, "coherence", t.Coherence, "0 to 1")
	problems.Check(t.Batch >= 0, "measured_batch", t.Batch, "1 or more rollouts, or 0 if unknown")
	if t.Profile == nil {
		problems.Check(false, "profile", "none", "a PowerLaw or a Table")
	} else {
		problems.Add(t.Profile.validate())
	}
	return problems.Err()
}

// Objective returns J(x, y) = sbar2(x) (1 + m y)(1/y + 1/x + rho), the noise of an update times its cost. With plenty
// of compute, the compute to reach a given gradient is proportional to J ([ER] appendix C.3.1). X is in [1, Reach], Y
// is above 0, and both may be infinite. J is NaN beyond the profile's reach.
func (t Theory) Objective(p Point) float64 {
	m := t.TrainCost
	common := t.Correlation + 1/p.X // the noise that more draws from the buffer do not average out
	if common == 0 {
		return t.Profile.Mean(p.X) * (1/p.Y + m)
	}
	return t.Profile.Mean(p.X) * (1/p.Y + m + (1+m*p.Y)*common)
}

// bestReplay returns y*(x) = 1/sqrt(m (rho + 1/x)), the replay ratio with the least J for a buffer of horizon x.
func (t Theory) bestReplay(x float64) float64 {
	return 1 / math.Sqrt(t.TrainCost*(t.Correlation+1/x))
}

// Envelope returns J(x, y*(x)) = sbar2(x) (sqrt m + sqrt(rho + 1/x))^2, the least J with a buffer of horizon x. Its
// root is K(x) of [ER] equation 5 and figure 5, without the factor sqrt(2a+1) that the figure drops.
func (t Theory) Envelope(x float64) float64 {
	return t.Profile.Mean(x) * square(math.Sqrt(t.TrainCost)+math.Sqrt(t.Correlation+1/x))
}

func square(x float64) float64 { return x * x }

// OnPolicy returns J(1, 1): a batch drawn with replacement from as many rollouts, all of the current policy.
func (t Theory) OnPolicy() float64 { return t.Objective(Point{1, 1}) }

// savings returns 1 - J/J(1, 1), the share of compute that a cost of j saves against on-policy training by the same
// analysis.
func (t Theory) savings(j float64) float64 { return 1 - j/t.OnPolicy() }

// OnPolicyOnce returns sigma2(0)(1 + m), J of on-policy training that uses each rollout exactly once. It draws nothing
// twice, so it has no 1/N and no correlation.
//
// A power law that grows gives no sigma2(0). Its mean over the first version stands in; sigma2(0) cannot exceed it, so
// J is then an upper bound and exact is false.
func (t Theory) OnPolicyOnce() (j float64, exact bool) {
	return t.Profile.Mean(1) * (1 + t.TrainCost), !math.IsNaN(t.Profile.At(0))
}

// Where is the place of the least J.
type Where string

const (
	// Inside is a horizon at which J falls before and rises after.
	Inside Where = "inside"
	// AtOne is the horizon 1, the least that the theory covers: noise grows too fast to keep older rollouts.
	AtOne Where = "at one"
	// AtEnd is the end of a table: J may fall further beyond it.
	AtEnd Where = "at the end of the profile"
	// AtInfinity is no finite horizon: noise does not grow, and a larger buffer is always better.
	AtInfinity Where = "at infinity"
)

// Optimum is the least J.
type Optimum struct {
	Point             // x* and y*; either may be infinite
	Objective float64 // J(x*, y*)
	Savings   float64 // 1 - J/J(1, 1), in (-Inf, 1)
	Where     Where
}

// Optimum returns the least J over all x in [1, Reach] and y > 0: x* minimises [Theory.Envelope] and y* = y*(x*). A
// power law has [ER]'s closed form. For a table the minimum is exact, see [Table].
func (t Theory) Optimum() Optimum {
	x := t.Profile.bestHorizon(t.TrainCost, t.Correlation)
	o := Optimum{Point: Point{x, t.bestReplay(x)}, Objective: t.Envelope(x), Where: Inside}
	o.Savings = t.savings(o.Objective)
	switch {
	case math.IsInf(x, 1):
		o.Where = AtInfinity
	case x == t.Profile.Reach():
		o.Where = AtEnd
	case x == 1:
		o.Where = AtOne
	}
	return o
}

package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// The squared losses: the log-ratio of a whole rollout is fitted to its reward. They have no importance ratio, so
// rollouts of any age teach alike. Both hold for the optimum of reward - Beta KL(pi || pi_0), where
//
//	Beta (log pi - log pi_0) = reward - V, V = Beta log E exp(reward/Beta)
//
// over rollouts of pi_0. They differ in pi_0 and in how V is known.

// OAPL is the loss of arXiv 2602.19362, with pi_0 the policy b that sampled: the mean over rollouts of
//
//	(Beta sum_t (log pi - log b) - A)^2
//
// where A is reward - V at insertion, advantage log_mean_exp, which has a temperature of its own: 1.
type OAPL struct {
	Beta float64 // reward for a nat of log-ratio, above 0; 0: 0.001
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o OAPL) WithDefaults() OAPL { return OAPL{Beta: cmp.Or(o.Beta, 1e-3)} }

// Name returns "oapl".
func (OAPL) Name() string { return "oapl" }

// Needs implements Objective: nothing.
func (OAPL) Needs() Needs { return Needs{} }

// Validate implements Objective.
func (o OAPL) Validate() error { return validateBeta(o.WithDefaults().Beta) }

// Loss implements Objective. It reads Behaviour, and Advantage, of which it takes a rollout's mean over its tokens.
func (o OAPL) Loss(in Inputs) Output {
	s := newShard(in, o, "Behaviour", "Advantage")
	gain := MulScalar(ReduceSum(s.logRatio(), 1), o.WithDefaults().Beta)
	loss := s.meanOverRollouts(Square(Sub(gain, s.rowMean(s.masked(in.Advantage)))))
	return s.output(loss, diagnostics{})
}

// TrajectoryBalance is the loss of GFlowNets as TBA has it (arXiv 2503.18929), with pi_0 the reference policy: Beta^2
// times theirs, the mean over rollouts of
//
//	(Beta (log Z + sum_t (log pi - log pi_ref)) - reward)^2
//
// where Beta log Z is V, which [LogZ] estimates of the batch.
type TrajectoryBalance struct {
	Beta float64 // reward for a nat of log-ratio, above 0; 0: 0.012
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o TrajectoryBalance) WithDefaults() TrajectoryBalance {
	return TrajectoryBalance{Beta: cmp.Or(o.Beta, 0.012)}
}

// Name returns "trajectory_balance".
func (TrajectoryBalance) Name() string { return "trajectory_balance" }

// Needs implements Objective.
func (o TrajectoryBalance) Needs() Needs { return Needs{Reference: true, LogZ: o.WithDefaults().Beta} }

// Validate implements Objective.
func (o TrajectoryBalance) Validate() error { return validateBeta(o.WithDefaults().Beta) }

// Loss implements Objective. It reads Reference, Reward and LogZ, and Behaviour for metrics.
func (o TrajectoryBalance) Loss(in Inputs) Output {
	s := newShard(in, o, "Reference", "Reward", "LogZ")
	flow := Add(s.maskedRows(in.LogZ), ReduceSum(Sub(s.logp, s.masked(in.Reference)), 1))
	miss := Sub(MulScalar(flow, o.WithDefaults().Beta), s.maskedRows(in.Reward))
	return s.output(s.meanOverRollouts(Square(miss)), diagnostics{referenceKL: s.referenceKL()})
}

func validateBeta(beta float64) error {
	var p option.Problems
	p.Check(beta > 0 && finite(beta), "beta", beta, "a finite number above 0, or 0 for the default")
	return p.Err()
}

// Trajectory is a rollout as [LogZ] sees it.
type Trajectory struct {
	Prompt   string
	Reward   float64
	LogRatio float64 // sum over the policy's tokens of log pi - log pi_ref, pi the policy before the step
}

// LogZ returns Inputs.LogZ of the rollouts of a batch: for each the mean of reward/beta - LogRatio over those of its
// prompt, which makes their misses 0 in the mean (VarGrad). A prompt's only rollout has no miss, so it teaches nothing.
func LogZ(batch []Trajectory, beta float64) []float64 {
	type mean struct{ sum, n float64 }
	prompts := make(map[string]mean)
	for _, t := range batch {
		m := prompts[t.Prompt]
		prompts[t.Prompt] = mean{m.sum + t.Reward/beta - t.LogRatio, m.n + 1}
	}
	list := make([]float64, len(batch))
	for i, t := range batch {
		list[i] = prompts[t.Prompt].sum / prompts[t.Prompt].n
	}
	return list
}

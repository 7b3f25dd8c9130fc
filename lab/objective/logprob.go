package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// The objectives without importance ratios: weighted log-probs.

// AsymRE is the objective of [ER] App. E after Arnal et al.: minus the mean over rollouts of
//
//	(r - (V + Shift)) sum_t log pi(token t)
//
// where V is the group's mean reward stored at insertion. A baseline below the mean (Shift < 0) pushes good answers up
// harder than bad ones down, which keeps it stable on stale rollouts.
type AsymRE struct {
	Shift *float64 // dV in METHODS, any finite number; nil: -0.1
}

func (o AsymRE) shift() float64 {
	if o.Shift == nil {
		return -0.1
	}
	return *o.Shift
}

// Name returns "asymre".
func (AsymRE) Name() string { return "asymre" }

// Needs implements Objective: nothing.
func (AsymRE) Needs() Needs { return Needs{} }

// Validate implements Objective.
func (o AsymRE) Validate() error {
	var p option.Problems
	p.Check(finite(o.shift()), "shift", o.shift(), "a finite number")
	return p.Err()
}

// Loss implements Objective. It reads Reward and GroupMean, and Behaviour for metrics.
func (o AsymRE) Loss(in Inputs) Output {
	s := newShard(in, o, "Reward", "GroupMean")
	gain := AddScalar(Sub(s.maskedRows(in.Reward), s.maskedRows(in.GroupMean)), -o.shift())
	loss := Neg(s.meanOverRollouts(Mul(gain, ReduceSum(s.logp, 1))))
	return s.output(loss, diagnostics{})
}

// RAFT is supervised learning on the policy's own right answers (Dong et al. 2023, and one round of STaR in the limit
// of small steps): minus the mean over all rollouts of
//
//	max(r, 0) sum_t log pi(token t)
//
// Wrong answers, of reward 0 or less, teach nothing. There is no baseline: a prompt's right answers count alike however
// many there are.
type RAFT struct{}

// Name returns "raft".
func (RAFT) Name() string { return "raft" }

// Needs implements Objective: nothing.
func (RAFT) Needs() Needs { return Needs{} }

// Validate implements Objective: there is nothing to refuse.
func (RAFT) Validate() error { return nil }

// Loss implements Objective. It reads Reward, and Behaviour for metrics.
func (o RAFT) Loss(in Inputs) Output {
	s := newShard(in, o, "Reward")
	gain := MaxScalar(s.maskedRows(in.Reward), 0)
	loss := Neg(s.meanOverRollouts(Mul(gain, ReduceSum(s.logp, 1))))
	return s.output(loss, diagnostics{})
}

// SFT is cross-entropy: minus the mean of log pi over the tokens of demonstrations, at temperature 1.
type SFT struct {
	Normalisation Normalisation // PerSequence or PerToken; empty: PerSequence
}

// Name returns "sft".
func (SFT) Name() string { return "sft" }

// Needs implements Objective: nothing.
func (SFT) Needs() Needs { return Needs{} }

// Validate implements Objective.
func (o SFT) Validate() error {
	var p option.Problems
	n := cmp.Or(o.Normalisation, PerSequence)
	p.Check(n == PerSequence || n == PerToken, "normalisation", n, "%s or %s", PerSequence, PerToken)
	return p.Err()
}

// Loss implements Objective.
func (o SFT) Loss(in Inputs) Output {
	s := newShard(in, o)
	return s.output(Neg(o.Normalisation.reduce(s, s.logp, 0)), diagnostics{})
}

package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// PPO is proximal policy optimisation with a critic (Schulman et al. 2017): GRPO's surrogate with advantages by token,
// plus ValueCoef times the clipped value loss
//
//	max((V - R)^2, (clip(V, V_old - ValueClip, V_old + ValueClip) - R)^2) / 2
//
// averaged like the surrogate. V are the model's values now, V_old the values that the advantages were estimated with,
// and R = advantage + V_old, before the advantages are normalised, the returns that V is fitted to.
type PPO struct {
	Surrogate GRPO    // its Method is not read
	ValueCoef float64 // above 0; 0: 0.1
	ValueClip float64 // above 0, in units of reward; 0: 0.2
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o PPO) WithDefaults() PPO {
	o.Surrogate = o.Surrogate.WithDefaults()
	o.ValueCoef = cmp.Or(o.ValueCoef, 0.1)
	o.ValueClip = cmp.Or(o.ValueClip, 0.2)
	return o
}

// Name returns "ppo".
func (PPO) Name() string { return "ppo" }

// Needs implements Objective: a critic, and what the corrections read.
func (o PPO) Needs() Needs {
	n := o.Surrogate.Needs()
	n.Critic = true
	return n
}

// Validate implements Objective.
func (o PPO) Validate() error {
	o = o.WithDefaults()
	var p option.Problems
	p.Add(o.Surrogate.Validate())
	p.Check(o.Surrogate.Experts.Term == "", "experts", o.Surrogate.Experts.Term, "none with objective ppo, whose critic "+
		"takes the rollouts of the policy only")
	p.Check(o.ValueCoef > 0 && finite(o.ValueCoef), "value_coef",
		o.ValueCoef, "a finite number above 0, or 0 for the default 0.1")
	p.Check(o.ValueClip > 0 && finite(o.ValueClip), "value_clip",
		o.ValueClip, "a finite number above 0, or 0 for the default 0.2")
	return p.Err()
}

// Loss implements Objective. It reads Behaviour, Advantage, Values, OldValues, Returns, and what the corrections need.
func (o PPO) Loss(in Inputs) Output {
	s := newShard(in, o, append(o.Surrogate.Corrections.inputs(), "Behaviour", "Advantage", "Values", "OldValues",
		"Returns")...)
	o = o.WithDefaults()
	loss, d := o.Surrogate.loss(s)
	d.valueLoss, d.valueClipped = o.valueTerms(s)
	value := o.Surrogate.Normalisation.reduce(s, d.valueLoss, o.Surrogate.ConstantLength)
	return s.output(Add(loss, MulScalar(value, o.ValueCoef)), d)
}

// valueTerms returns the terms of the value loss [B, T], 0 where the token does not count, and where the clip decides
// them [B, T] bool. As in the surrogate, at a tie the gradient is that of the unclipped term.
func (o PPO) valueTerms(s shard) (terms, clipped *Node) {
	value, old, target := s.masked(s.in.Values), s.masked(s.in.OldValues), s.masked(s.in.Returns)
	near := StopGradient(Add(old, ClipScalar(Sub(value, old), -o.ValueClip, o.ValueClip)))
	free, bound := Square(Sub(value, target)), Square(Sub(near, target))
	clipped = GreaterThan(bound, free)
	return DivScalar(Where(clipped, bound, free), 2), clipped
}

package objective

import (
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// PPO is proximal policy optimisation with a critic (Schulman et al. 2017): GRPO's surrogate on advantages by token,
// plus ValueCoef times the clipped value loss
//
//	max((V - R)^2, (clip(V, V_old - ValueClip, V_old + ValueClip) - R)^2) / 2
//
// averaged as the surrogate is. V are the values that the model gives now, V_old those that the advantages were estimated
// with, and R = advantage + V_old, before the advantages are normalised, the returns that V is fitted to.
type PPO struct {
	Surrogate GRPO
	ValueCoef float64 // above 0; 0: 0.1
	ValueClip float64 // above 0, in units of reward; 0: 0.2
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o PPO) WithDefaults() PPO {
	o.Surrogate = o.Surrogate.WithDefaults()
	if o.ValueCoef == 0 {
		o.ValueCoef = 0.1
	}
	if o.ValueClip == 0 {
		o.ValueClip = 0.2
	}
	return o
}

// Name returns "ppo".
func (PPO) Name() string { return "ppo" }

// Needs implements Objective: a critic.
func (PPO) Needs() Needs { return Needs{Critic: true} }

// Validate reports every option out of its range.
func (o PPO) Validate() error {
	o = o.WithDefaults()
	errs := []error{o.Surrogate.Validate()}
	for _, v := range []struct {
		name     string
		value    float64
		standard float64
	}{{"value_coef", o.ValueCoef, 0.1}, {"value_clip", o.ValueClip, 0.2}} {
		if !(v.value > 0) || math.IsInf(v.value, 0) {
			errs = append(errs, fmt.Errorf("%s: %g: want a finite number above 0, or 0 for the default %g", v.name, v.value, v.standard))
		}
	}
	return errors.Join(errs...)
}

// Loss implements Objective. It reads Behaviour, Advantage, Values, OldValues and Returns.
func (o PPO) Loss(in Inputs) Output {
	s := prepare(in, o, "Behaviour", "Advantage", "Values", "OldValues", "Returns")
	o = o.WithDefaults()
	loss, clipped := o.Surrogate.loss(s)
	terms, held := o.valueTerms(s)
	value := o.Surrogate.Normalisation.reduce(s, terms, o.Surrogate.ConstantLength)
	return s.output(Add(loss, MulScalar(value, o.ValueCoef)), measured{clipped: clipped, valueLoss: terms, valueClipped: held})
}

// valueTerms returns the terms of the value loss [B, T], 0 where the token does not count, and where the clip decides
// them [B, T] bool. As in the surrogate, at a tie the gradient is that of the free term.
func (o PPO) valueTerms(s shard) (terms, clipped *Node) {
	value, old, target := s.only(s.in.Values), s.only(s.in.OldValues), s.only(s.in.Returns)
	held := StopGradient(Add(old, ClipScalar(Sub(value, old), -o.ValueClip, o.ValueClip)))
	free, bound := Square(Sub(value, target)), Square(Sub(held, target))
	clipped = GreaterThan(bound, free)
	return DivScalar(Where(clipped, bound, free), 2), clipped
}

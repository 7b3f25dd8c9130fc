package objective

import (
	"errors"
	"fmt"
)

// The methods whose loss is GRPO's surrogate and that differ in the advantages which it is given (Methods says which).
const (
	// ReinforcePP is REINFORCE++: rewards normalised over the training batch, less a KL penalty per token if there is one.
	ReinforcePP = "reinforce++"
	// ReinforcePPBaseline is REINFORCE++-baseline: the group's mean reward taken off before.
	ReinforcePPBaseline = "reinforce++-baseline"
	// RLOO takes the mean reward of the group's other rollouts off.
	RLOO = "rloo"
	// DrGRPO takes the group's mean off and divides by no standard deviation; its rollouts' terms are summed and divided by a
	// constant length, so that neither easy prompts nor short answers weigh more.
	DrGRPO = "dr_grpo"
)

// Variant is GRPO's surrogate under the name of one of these methods.
type Variant struct {
	Method    string
	Surrogate GRPO // of dr_grpo: Normalisation is PerConstant, also when empty, and ConstantLength is required
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o Variant) WithDefaults() Variant {
	if o.Method == DrGRPO && o.Surrogate.Normalisation == "" {
		o.Surrogate.Normalisation = PerConstant
	}
	o.Surrogate = o.Surrogate.WithDefaults()
	return o
}

// Name returns the method.
func (o Variant) Name() string { return o.Method }

// Needs implements Objective: nothing.
func (Variant) Needs() Needs { return Needs{} }

// Validate reports every option out of its range.
func (o Variant) Validate() error {
	o = o.WithDefaults()
	var errs []error
	switch o.Method {
	case ReinforcePP, ReinforcePPBaseline, RLOO:
	case DrGRPO:
		if n := o.Surrogate.Normalisation; n != PerConstant {
			errs = append(errs, fmt.Errorf("normalisation: %q: want %q, which makes it %s", n, PerConstant, DrGRPO))
		}
	default:
		errs = append(errs, fmt.Errorf("objective: %q: want %q, %q, %q or %q", o.Method, ReinforcePP, ReinforcePPBaseline, RLOO, DrGRPO))
	}
	return errors.Join(append(errs, o.Surrogate.Validate())...)
}

// Loss implements Objective. It reads Behaviour and Advantage.
func (o Variant) Loss(in Inputs) Output {
	s := prepare(in, o, "Behaviour", "Advantage")
	loss, clipped := o.WithDefaults().Surrogate.loss(s)
	return s.output(loss, measured{clipped: clipped})
}

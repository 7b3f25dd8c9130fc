package objective

import (
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// AsymRE is the objective of [ER] App. E after Arnal et al.: minus the mean over rollouts of
//
//	(r - (V + Shift)) sum_t log pi(token t)
//
// with V the group's mean reward stored at insertion. It needs no ratio. A baseline below the mean
// (Shift < 0) pushes good answers up harder than bad ones down, which is what keeps it stable on
// stale rollouts.
type AsymRE struct {
	Shift *float64 // dV in METHODS, any finite number; nil: -0.1
}

// DefaultShift is the Shift of a zero AsymRE.
const DefaultShift = -0.1

func (o AsymRE) shift() float64 {
	if o.Shift == nil {
		return DefaultShift
	}
	return *o.Shift
}

// Name returns "asymre".
func (AsymRE) Name() string { return "asymre" }

// Validate reports every option out of its range.
func (o AsymRE) Validate() error {
	if v := o.shift(); math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("shift: %g: want a finite number, or leave it out for %g", v, DefaultShift)
	}
	return nil
}

// Needs implements Objective: nothing.
func (AsymRE) Needs() Needs { return Needs{} }

// Loss implements Objective. It reads Reward and GroupMean; Behaviour, if given, is for metrics.
func (o AsymRE) Loss(in Inputs) Output {
	s := prepare(in, o, "Reward", "GroupMean")
	gain := AddScalar(Sub(s.rows(in.Reward), s.rows(in.GroupMean)), -o.shift())
	loss := Neg(s.meanOverRollouts(Mul(gain, ReduceSum(s.logp, 1))))
	return s.output(loss, measured{})
}

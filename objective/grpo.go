package objective

import (
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// GRPO is the clipped surrogate of METHODS section 5: with r = pi/b and A the advantage, minus the
// mean of
//
//	min(r A, clip(r, 1-ClipLow, 1+ClipHigh) A).
//
// With DualClip c the term of a token with A < 0 is at least c A, so that one token that became far
// more likely and was bad does not rule the step.
type GRPO struct {
	Ratio          Ratio         // empty: TokenRatio
	ClipLow        float64       // in (0, 1]; 0: 0.2
	ClipHigh       float64       // above 0; 0: 0.2
	Normalisation  Normalisation // empty: PerSequence
	ConstantLength int           // tokens, >= 1; for PerConstant only
	DualClip       float64       // above 1; 0: off
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o GRPO) WithDefaults() GRPO {
	if o.Ratio == "" {
		o.Ratio = TokenRatio
	}
	if o.ClipLow == 0 {
		o.ClipLow = 0.2
	}
	if o.ClipHigh == 0 {
		o.ClipHigh = 0.2
	}
	o.Normalisation = o.Normalisation.orDefault()
	return o
}

// Name returns "grpo".
func (GRPO) Name() string { return "grpo" }

// Validate reports every option out of its range.
func (o GRPO) Validate() error {
	o = o.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Ratio != TokenRatio && o.Ratio != SequenceRatio {
		bad("ratio: %q: want %q or %q", o.Ratio, TokenRatio, SequenceRatio)
	}
	if !(o.ClipLow > 0 && o.ClipLow <= 1) {
		bad("clip_low: %g: want above 0 to 1, or 0 for the default 0.2", o.ClipLow)
	}
	if !(o.ClipHigh > 0) || math.IsInf(o.ClipHigh, 0) {
		bad("clip_high: %g: want a finite number above 0, or 0 for the default 0.2", o.ClipHigh)
	}
	if o.DualClip != 0 && (!(o.DualClip > 1) || math.IsInf(o.DualClip, 0)) {
		bad("dual_clip: %g: want a finite number above 1, or 0 to leave it off", o.DualClip)
	}
	return errors.Join(append(errs, o.Normalisation.validate(o.ConstantLength))...)
}

// Needs implements Objective: nothing.
func (GRPO) Needs() Needs { return Needs{} }

// Loss implements Objective. It reads Behaviour and Advantage.
func (o GRPO) Loss(in Inputs) Output {
	s := prepare(in, o, "Behaviour", "Advantage")
	loss, clipped := o.WithDefaults().loss(s)
	return s.output(loss, measured{clipped: clipped})
}

// loss returns this shard's summand of the loss, and where a clip decides the terms [B, T] bool. The options have their
// defaults.
func (o GRPO) loss(s shard) (loss, clipped *Node) {
	ratio := exponentiate(s.logRatio())
	if o.Ratio == SequenceRatio {
		ratio = s.perToken(exponentiate(s.rowMean(s.logRatio())))
	}
	advantage := s.only(s.in.Advantage)
	terms, clipped := surrogate(ratio, ClipScalar(ratio, 1-o.ClipLow, 1+o.ClipHigh), advantage)
	if o.DualClip != 0 {
		least := MulScalar(advantage, o.DualClip)
		dual := LogicalAnd(LessThan(advantage, ZerosLike(advantage)), LessThan(terms, least))
		terms, clipped = Where(dual, least, terms), LogicalOr(clipped, dual)
	}
	return Neg(o.Normalisation.reduce(s, s.only(terms), o.ConstantLength)), clipped
}

// surrogate returns min(r A, held A) [B, T], held being the clipped ratio, and where the clip decides it [B, T] bool. The
// minimum is written as a choice, so that at a tie the gradient is that of r A: a ratio exactly at the bound is not yet
// clipped.
func surrogate(ratio, held, advantage *Node) (terms, clipped *Node) {
	free, bound := Mul(ratio, advantage), Mul(StopGradient(held), advantage)
	clipped = LessThan(bound, free)
	return Where(clipped, bound, free), clipped
}

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

// Loss implements Objective. It reads Behaviour and Advantage.
func (o GRPO) Loss(in Inputs) Output {
	s := prepare(in, o, "Behaviour", "Advantage")
	o = o.WithDefaults()
	ratio := exponentiate(s.logRatio())
	if o.Ratio == SequenceRatio {
		ratio = s.perToken(exponentiate(s.rowMean(s.logRatio())))
	}
	advantage := s.only(in.Advantage)
	terms, clipped := o.surrogate(ratio, advantage)
	loss := Neg(o.Normalisation.reduce(s, s.only(terms), o.ConstantLength))
	return s.output(loss, clipped)
}

// surrogate returns the terms [B, T] and where a clip decides them [B, T] bool. Min and Max are
// written as choices, so that at a tie the gradient is that of r A: a ratio of exactly 1+ClipHigh is
// not yet clipped.
func (o GRPO) surrogate(ratio, advantage *Node) (terms, clipped *Node) {
	free := Mul(ratio, advantage)
	held := Mul(StopGradient(ClipScalar(ratio, 1-o.ClipLow, 1+o.ClipHigh)), advantage)
	clipped = LessThan(held, free)
	terms = Where(clipped, held, free)
	if o.DualClip == 0 {
		return terms, clipped
	}
	least := MulScalar(advantage, o.DualClip)
	dual := LogicalAnd(LessThan(advantage, ZerosLike(advantage)), LessThan(terms, least))
	return Where(dual, least, terms), LogicalOr(clipped, dual)
}

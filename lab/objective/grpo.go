package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// The methods that use the surrogate of [GRPO] with other advantages (see [Methods]).
const (
	// REINFORCE++: rewards normalised over the batch, minus a KL penalty if there is one
	ReinforcePP         = "reinforce++"
	ReinforcePPBaseline = "reinforce++-baseline" // the same, with the group's mean reward subtracted first
	RLOO                = "rloo"                 // the mean reward of the group's other rollouts subtracted
	DrGRPO              = "dr_grpo"              // the group's mean subtracted, no standard deviation, PerConstant
	CISPO               = "cispo"                // log-probs weighted by the clipped ratio, PerToken (MiniMax-M1)
)

// GRPO is the clipped surrogate of METHODS section 5: with r = pi/b, or the r of Corrections, and A the advantage, minus
// the mean of
//
//	min(r A, clip(r, 1-ClipLow, 1+ClipHigh) A)
//
// With DualClip c the term of a token with A < 0 is at least c A, so that a single bad token whose probability rose
// much does not dominate the step. With method [CISPO] it is minus the mean of
//
//	sg(clip(r, 1-ClipLow, 1+ClipHigh)) A log pi
//
// instead (arXiv 2506.13585): a clipped token keeps a gradient.
type GRPO struct {
	Method         string        // grpo or one of the methods above; empty: grpo
	Ratio          Ratio         // empty: TokenRatio
	ClipLow        float64       // in (0, 1]; 0: 0.2; CISPO: 1, no lower bound
	ClipHigh       float64       // above 0; 0: 0.2; CISPO: 4
	Normalisation  Normalisation // empty: PerSequence; DrGRPO: PerConstant; CISPO: PerToken
	ConstantLength int           // tokens, >= 1; for PerConstant only
	DualClip       float64       // above 1; 0: off
	Corrections    Corrections
	Experts        Experts
}

// Ratio says what an importance ratio pi/b is taken over.
type Ratio string

const (
	// TokenRatio is pi(token)/b(token). It is the default.
	TokenRatio Ratio = "token"
	// SequenceRatio is one ratio for all tokens of a rollout, the geometric mean exp(mean_t (log pi - log b)) as in
	// GSPO. The variance of their product would grow with the length.
	SequenceRatio Ratio = "sequence"
)

// WithDefaults returns o with its zero options replaced by their defaults.
func (o GRPO) WithDefaults() GRPO {
	o.Method = o.Name()
	o.Ratio = cmp.Or(o.Ratio, TokenRatio)
	if o.Method == CISPO {
		o.ClipLow, o.ClipHigh = cmp.Or(o.ClipLow, 1), cmp.Or(o.ClipHigh, 4)
		o.Normalisation = cmp.Or(o.Normalisation, PerToken)
	}
	o.ClipLow = cmp.Or(o.ClipLow, 0.2)
	o.ClipHigh = cmp.Or(o.ClipHigh, 0.2)
	if o.Method == DrGRPO {
		o.Normalisation = cmp.Or(o.Normalisation, PerConstant)
	}
	o.Normalisation = cmp.Or(o.Normalisation, PerSequence)
	return o
}

// Name returns the method.
func (o GRPO) Name() string { return cmp.Or(o.Method, "grpo") }

// Needs implements Objective: what the corrections read.
func (o GRPO) Needs() Needs { return o.Corrections.needs() }

// Validate implements Objective.
func (o GRPO) Validate() error {
	o = o.WithDefaults()
	var p option.Problems
	switch o.Method {
	case "grpo", ReinforcePP, ReinforcePPBaseline, RLOO:
	case CISPO:
		p.Check(o.DualClip == 0, "dual_clip", o.DualClip, "0 with objective %s", CISPO)
	case DrGRPO:
		p.Check(o.Normalisation == PerConstant, "normalisation", o.Normalisation, "%s with objective %s",
			PerConstant, DrGRPO)
	default:
		p.Check(false, "objective", o.Method, "grpo, %s, %s, %s, %s or %s", ReinforcePP, ReinforcePPBaseline, RLOO,
			DrGRPO, CISPO)
	}
	p.Check(o.Ratio == TokenRatio || o.Ratio == SequenceRatio, "ratio", o.Ratio, "%s or %s", TokenRatio, SequenceRatio)
	p.Check(o.ClipLow > 0 && o.ClipLow <= 1, "clip_low", o.ClipLow, "above 0 to 1, or 0 for the default 0.2")
	p.Check(o.ClipHigh > 0 && finite(o.ClipHigh), "clip_high", o.ClipHigh,
		"a finite number above 0, or 0 for the default 0.2")
	p.Check(o.DualClip == 0 || o.DualClip > 1 && finite(o.DualClip), "dual_clip",
		o.DualClip, "a finite number above 1, or 0 for none")
	o.Normalisation.check(&p, o.ConstantLength)
	p.Add(o.Corrections.Validate())
	o.Experts.check(&p)
	return p.Err()
}

// Loss implements Objective. It reads Behaviour and Advantage, and what the corrections do.
func (o GRPO) Loss(in Inputs) Output {
	s := newShard(in, o, append(o.Corrections.inputs(), "Behaviour", "Advantage")...)
	loss, d := o.WithDefaults().loss(s)
	return s.output(loss, d)
}

// loss returns this shard's summand of the loss, and what clips and corrections decide. The options have their
// defaults.
func (o GRPO) loss(s shard) (loss *Node, d diagnostics) {
	c := o.Corrections.correct(s)
	ratio := boundedExp(c.logRatio)
	if o.Ratio == SequenceRatio {
		ratio = s.spread(boundedExp(s.rowMean(c.logRatio)))
	}
	advantage := s.masked(s.in.Advantage)
	clippedRatio := ClipScalar(ratio, 1-o.ClipLow, 1+o.ClipHigh)
	terms, clipped := surrogate(ratio, clippedRatio, advantage)
	if o.Method == CISPO {
		terms, clipped = Mul(Mul(StopGradient(clippedRatio), advantage), s.logp), NotEqual(ratio, clippedRatio)
	}
	if o.DualClip != 0 {
		least := MulScalar(advantage, o.DualClip)
		dual := LogicalAnd(LessThan(advantage, ZerosLike(advantage)), LessThan(terms, least))
		terms, clipped = Where(dual, least, terms), LogicalOr(clipped, dual)
	}
	terms, clipped = o.Experts.replace(s, c.of(terms), clipped)
	loss = Neg(o.Normalisation.reduce(s, s.masked(terms), o.ConstantLength))
	return loss, diagnostics{clipped: clipped, corrected: c.touched}
}

// surrogate returns min(r A, clippedRatio A) [B, T] and where the clip decides it [B, T] bool. The minimum is written
// as a choice, so that at a tie the gradient is that of r A: a ratio exactly at the bound is not yet clipped.
func surrogate(ratio, clippedRatio, advantage *Node) (terms, clipped *Node) {
	free, bound := Mul(ratio, advantage), Mul(StopGradient(clippedRatio), advantage)
	clipped = LessThan(bound, free)
	return Where(clipped, bound, free), clipped
}

// Normalisation says how the terms of tokens become the loss of a batch.
type Normalisation string

const (
	// PerSequence is the mean over rollouts of the mean over their tokens: every rollout counts the same. It is the
	// default.
	PerSequence Normalisation = "sequence"
	// PerToken is the mean over all tokens of the batch: every token counts the same.
	PerToken Normalisation = "token"
	// PerConstant is the mean over rollouts of the sum over tokens divided by a constant length, which neither favours
	// nor damps long answers (Dr. GRPO).
	PerConstant Normalisation = "constant"
)

// check reports an unknown normalisation, and a constant length that does not fit it.
func (n Normalisation) check(p *option.Problems, constantLength int) {
	switch n {
	case PerSequence, PerToken:
		p.Check(constantLength == 0, "constant_length", constantLength, "0: only normalisation %s reads it",
			PerConstant)
	case PerConstant:
		p.Check(constantLength >= 1, "constant_length", constantLength, "1 token or more with normalisation %s",
			PerConstant)
	default:
		p.Check(false, "normalisation", n, "%s, %s or %s", PerSequence, PerToken, PerConstant)
	}
}

// reduce returns this shard's summand of the batch's weighted mean of terms [B, T], which are 0 where the token does
// not count.
func (n Normalisation) reduce(s shard, terms *Node, constantLength int) *Node {
	switch n {
	case PerToken:
		return Div(ReduceAllSum(Mul(s.weight, ReduceSum(terms, 1))), MaxScalar(s.in.Tokens, 1))
	case PerConstant:
		return s.meanOverRollouts(DivScalar(ReduceSum(terms, 1), float64(constantLength)))
	}
	return s.meanOverRollouts(s.rowMean(terms))
}

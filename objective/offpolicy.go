package objective

import (
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// RPrime says what the clip of OffPolicyGRPO is centred on.
type RPrime string

const (
	// RPrimeOne takes r' as 1, which [OG] found more stable. It is the default.
	RPrimeOne RPrime = "one"
	// RPrimeExact computes r' = pi_k/b by token, pi_k being the policy at the start of the batch: Inputs.Anchor.
	RPrimeExact RPrime = "exact"
)

// OffPolicyGRPO is [OG] eq. 6 and 7: with r = pi/b and r' = pi_k/b by token, A the advantage and KL an estimate of
// KL(pi || pi_ref), minus the mean of
//
//	min(r A, clip(r, max(r'-Clip, 0), r'+Clip) A) - KLCoef KL.
//
// The estimate is k3 = exp(d) - 1 - d with d = log pi_ref - log pi, averaged over what the behaviour policy drew: never
// negative, but biased where b is not pi. KLWeighted multiplies it by r, which makes it unbiased.
type OffPolicyGRPO struct {
	Clip           float64       // above 0; 0: 0.2
	RPrime         RPrime        // empty: RPrimeOne
	KLCoef         float64       // 0 or more; 0: no KL term, and no reference policy is needed
	KLWeighted     bool          // with a KLCoef only
	Normalisation  Normalisation // empty: PerSequence
	ConstantLength int           // tokens, >= 1; for PerConstant only
}

// WithDefaults returns o with its zero options replaced by their defaults.
func (o OffPolicyGRPO) WithDefaults() OffPolicyGRPO {
	if o.Clip == 0 {
		o.Clip = 0.2
	}
	if o.RPrime == "" {
		o.RPrime = RPrimeOne
	}
	o.Normalisation = o.Normalisation.orDefault()
	return o
}

// Name returns "grpo_off".
func (OffPolicyGRPO) Name() string { return "grpo_off" }

// Needs implements Objective.
func (o OffPolicyGRPO) Needs() Needs {
	return Needs{Reference: o.KLCoef != 0, Anchor: o.RPrime == RPrimeExact}
}

// Validate reports every option out of its range.
func (o OffPolicyGRPO) Validate() error {
	o = o.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !(o.Clip > 0) || math.IsInf(o.Clip, 0) {
		bad("clip: %g: want a finite number above 0, or 0 for the default 0.2", o.Clip)
	}
	if o.RPrime != RPrimeOne && o.RPrime != RPrimeExact {
		bad("r_prime: %q: want %q or %q", o.RPrime, RPrimeOne, RPrimeExact)
	}
	if !(o.KLCoef >= 0) || math.IsInf(o.KLCoef, 0) {
		bad("kl_coef: %g: want a finite number of 0 or more", o.KLCoef)
	}
	if o.KLWeighted && o.KLCoef == 0 {
		bad("kl_weighted: true: want false, or a kl_coef above 0")
	}
	return errors.Join(append(errs, o.Normalisation.validate(o.ConstantLength))...)
}

// Loss implements Objective. It reads Behaviour and Advantage, with RPrimeExact Anchor, with a KLCoef Reference.
func (o OffPolicyGRPO) Loss(in Inputs) Output {
	needs := []string{"Behaviour", "Advantage"}
	if o.Needs().Reference {
		needs = append(needs, "Reference")
	}
	if o.Needs().Anchor {
		needs = append(needs, "Anchor")
	}
	s := prepare(in, o, needs...)
	o = o.WithDefaults()
	ratio := exponentiate(s.logRatio())
	terms, clipped := surrogate(ratio, o.hold(s, ratio), s.only(in.Advantage))
	seen := measured{clipped: clipped}
	if o.KLCoef != 0 {
		kl := s.referenceKL()
		if o.KLWeighted {
			kl = Mul(ratio, kl)
		}
		terms = Sub(terms, MulScalar(kl, o.KLCoef))
		seen.referenceKL = s.referenceKL()
	}
	return s.output(Neg(o.Normalisation.reduce(s, s.only(terms), o.ConstantLength)), seen)
}

// hold returns the ratio within Clip of r', never below 0.
func (o OffPolicyGRPO) hold(s shard, ratio *Node) *Node {
	if o.RPrime == RPrimeOne {
		return ClipScalar(ratio, max(1-o.Clip, 0), 1+o.Clip)
	}
	start := exponentiate(Sub(s.only(s.in.Anchor), s.only(s.in.Behaviour)))
	return Min(Max(ratio, MaxScalar(AddScalar(start, -o.Clip), 0)), AddScalar(start, o.Clip))
}

// referenceKL returns k3 = exp(d) - 1 - d with d = log pi_ref - log pi held within +-maxLogRatio, [B, T]: 0 where the token
// does not count, and nowhere negative. Its derivative by d, exp(d) - 1, is written out: both keep their digits near d = 0 by
// Expm1, which the library does not differentiate.
func (s shard) referenceKL() *Node {
	d := ClipScalar(Sub(s.only(s.in.Reference), s.logp), -maxLogRatio, maxLogRatio)
	slope := StopGradient(Expm1(d))
	return Add(StopGradient(Sub(slope, d)), Mul(slope, Sub(d, StopGradient(d))))
}

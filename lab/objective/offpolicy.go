package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// OffPolicyGRPO is [OG] eq. 6 and 7: with r = pi/b and r' = pi_k/b by token, A the advantage and KL an estimate of
// KL(pi || pi_ref), minus the mean of
//
//	min(r A, clip(r, max(r'-Clip, 0), r'+Clip) A) - KLCoef KL
//
// The estimate is k3 = exp(d) - 1 - d with d = log pi_ref - log pi, averaged over the tokens that b drew. It is never
// negative, but biased if b is not pi. KLWeighted multiplies it by r, which makes it unbiased. With a KLAnchor c the
// divergence is ReMix's convex combination, (1 - c) KL(pi || pi_ref) + c KL(pi || pi_k) (arXiv 2507.06892).
type OffPolicyGRPO struct {
	Clip           float64       // above 0; 0: 0.2
	RPrime         RPrime        // empty: RPrimeOne
	KLCoef         float64       // 0 or more; 0: no KL term, and no reference policy is needed
	KLWeighted     bool          // with a KLCoef only
	KLAnchor       float64       // in [0, 1]; with a KLCoef only
	Normalisation  Normalisation // empty: PerSequence
	ConstantLength int           // tokens, >= 1; for PerConstant only
	Corrections    Corrections   // with ProximalBehaviour: r' is the objective's own
}

// RPrime is the centre of the clip of OffPolicyGRPO.
type RPrime string

const (
	// RPrimeOne takes r' = 1, which [OG] found more stable. It is the default.
	RPrimeOne RPrime = "one"
	// RPrimeExact computes r' = pi_k/b by token, where pi_k is the policy at the start of the batch: Inputs.Anchor.
	RPrimeExact RPrime = "exact"
)

// WithDefaults returns o with its zero options replaced by their defaults.
func (o OffPolicyGRPO) WithDefaults() OffPolicyGRPO {
	o.Clip = cmp.Or(o.Clip, 0.2)
	o.RPrime = cmp.Or(o.RPrime, RPrimeOne)
	o.Normalisation = cmp.Or(o.Normalisation, PerSequence)
	return o
}

// Name returns "grpo_off".
func (OffPolicyGRPO) Name() string { return "grpo_off" }

// Needs implements Objective.
func (o OffPolicyGRPO) Needs() Needs {
	n := o.Corrections.needs()
	n.Reference, n.Anchor = o.KLCoef != 0, o.RPrime == RPrimeExact || o.KLAnchor != 0
	return n
}

// Validate implements Objective.
func (o OffPolicyGRPO) Validate() error {
	o = o.WithDefaults()
	var p option.Problems
	p.Check(o.Clip > 0 && finite(o.Clip), "clip", o.Clip, "a finite number above 0, or 0 for the default 0.2")
	p.Check(o.RPrime == RPrimeOne || o.RPrime == RPrimeExact, "r_prime", o.RPrime, "%s or %s", RPrimeOne, RPrimeExact)
	p.Check(o.KLCoef >= 0 && finite(o.KLCoef), "kl_coef", o.KLCoef, "a finite number of 0 or more")
	p.Check(!o.KLWeighted || o.KLCoef != 0, "kl_weighted", o.KLWeighted, "false, or a kl_coef above 0")
	p.Check(o.KLAnchor >= 0 && o.KLAnchor <= 1, "kl_anchor", o.KLAnchor, "a share in [0, 1]")
	p.Check(o.KLAnchor == 0 || o.KLCoef != 0, "kl_anchor", o.KLAnchor, "0, or a kl_coef above 0")
	o.Normalisation.check(&p, o.ConstantLength)
	p.Check(!o.Corrections.decouples(), "proximal", o.Corrections.Proximal, "%s with objective grpo_off",
		ProximalBehaviour)
	_, truncates := o.Corrections.find(Truncate)
	p.Check(!truncates, "correction", Truncate, "none of that kind with objective grpo_off: there is no factor k")
	if !truncates {
		p.Add(o.Corrections.Validate())
	}
	return p.Err()
}

// Loss implements Objective. It reads Behaviour and Advantage, with RPrimeExact or a KLAnchor also Anchor, with a
// KLCoef also Reference, and what the corrections need.
func (o OffPolicyGRPO) Loss(in Inputs) Output {
	required := append(o.Corrections.inputs(), "Behaviour", "Advantage")
	if o.Needs().Reference {
		required = append(required, "Reference")
	}
	if o.Needs().Anchor {
		required = append(required, "Anchor")
	}
	s := newShard(in, o, required...)
	o = o.WithDefaults()
	c := o.Corrections.correct(s)
	ratio := boundedExp(c.logRatio)
	terms, clipped := surrogate(ratio, o.clip(s, ratio), s.masked(in.Advantage))
	terms = c.of(terms)
	d := diagnostics{clipped: clipped, corrected: c.touched}
	if o.KLCoef != 0 {
		d.referenceKL = s.referenceKL()
		kl := d.referenceKL
		if o.KLAnchor != 0 {
			kl = Add(MulScalar(kl, 1-o.KLAnchor), MulScalar(s.klTo(s.in.Anchor), o.KLAnchor))
		}
		if o.KLWeighted {
			kl = Mul(ratio, kl)
		}
		terms = Sub(terms, MulScalar(kl, o.KLCoef))
	}
	return s.output(Neg(o.Normalisation.reduce(s, s.masked(terms), o.ConstantLength)), d)
}

// clip returns the ratio [B, T] clipped to within Clip of r', never below 0.
func (o OffPolicyGRPO) clip(s shard, ratio *Node) *Node {
	if o.RPrime == RPrimeOne {
		return ClipScalar(ratio, max(1-o.Clip, 0), 1+o.Clip)
	}
	centre := boundedExp(Sub(s.masked(s.in.Anchor), s.masked(s.in.Behaviour)))
	return Min(Max(ratio, MaxScalar(AddScalar(centre, -o.Clip), 0)), AddScalar(centre, o.Clip))
}

// referenceKL returns k3 of KL(pi || pi_ref) [B, T].
func (s shard) referenceKL() *Node { return s.klTo(s.in.Reference) }

// klTo returns k3 = exp(d) - 1 - d [B, T] with d = other - log pi clipped to +-maxLogRatio: never negative, and 0 where
// the token does not count. Expm1 keeps the digits near d = 0. The library does not differentiate it, so the derivative
// exp(d) - 1 is written out.
func (s shard) klTo(other *Node) *Node {
	d := ClipScalar(Sub(s.masked(other), s.logp), -maxLogRatio, maxLogRatio)
	slope := StopGradient(Expm1(d))
	return Add(StopGradient(Sub(slope, d)), Mul(slope, Sub(d, StopGradient(d))))
}

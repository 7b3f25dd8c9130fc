package objective

import (
	"cmp"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/rollout/option"
)

// Experts says how [GRPO] learns from rollouts without log-probs (Inputs.Expert): those of experts, chat logs and other
// offline data. They have no ratio. A term of their own takes the place of the surrogate's, and no clip or correction
// touches it.
type Experts struct {
	Term  ExpertTerm // empty: such rollouts are refused
	Gamma float64    // of ExpertShaped, above 0; 0: 0.1
}

// ExpertTerm is the term of a token, which is maximised.
type ExpertTerm string

const (
	// ExpertSFT is log pi, the supervised loss, as in CHORD-mu (arXiv 2508.11408).
	ExpertSFT ExpertTerm = "sft"
	// ExpertPhi is sg(pi (1 - pi)) log pi: least of tokens that are nearly certain or nearly impossible (CHORD-phi).
	ExpertPhi ExpertTerm = "phi"
	// ExpertShaped is A pi/(pi + Gamma): b is taken as 1, and the shape lets unlikely tokens learn (LUFFY, arXiv
	// 2504.14945). Its slope by log pi, A Gamma pi/(pi + Gamma)^2, is largest at pi = Gamma.
	ExpertShaped ExpertTerm = "shaped"
)

// TakesExperts reports whether an objective learns from rollouts without log-probs: by Experts, or because it reads
// none.
func TakesExperts(o Objective) bool {
	switch o := o.(type) {
	case GRPO:
		return o.Experts.Term != ""
	case AsymRE, RAFT, TrajectoryBalance, SFT:
		return true
	}
	return false
}

// gamma returns Gamma or its default.
func (e Experts) gamma() float64 { return cmp.Or(e.Gamma, 0.1) }

// check reports the options out of their ranges.
func (e Experts) check(p *option.Problems) {
	p.Check(e.Term == "" || e.Term == ExpertSFT || e.Term == ExpertPhi || e.Term == ExpertShaped, "experts", e.Term,
		"%s, %s or %s, or none", ExpertSFT, ExpertPhi, ExpertShaped)
	p.Check(e.gamma() > 0 && finite(e.gamma()), "expert_gamma", e.Gamma, "a finite number above 0, or 0 for the default 0.1")
	p.Check(e.Gamma == 0 || e.Term == ExpertShaped, "expert_gamma", e.Gamma, "0, or experts: %s, which reads it",
		ExpertShaped)
}

// replace puts the terms [B, T] of experts in the place of others, of which no clip decides any.
func (e Experts) replace(s shard, terms, clipped *Node) (_, _ *Node) {
	if s.expert == nil || e.Term == "" {
		return terms, clipped
	}
	own, p := s.logp, Exp(MinScalar(s.logp, 0)) // rounding may put it above 1
	switch e.Term {
	case ExpertPhi:
		own = Mul(StopGradient(Mul(p, OneMinus(p))), s.logp)
	case ExpertShaped:
		own = Mul(s.masked(s.in.Advantage), Div(p, AddScalar(p, e.gamma())))
	}
	return Where(s.expert, own, terms), LogicalAnd(clipped, LogicalNot(s.expert))
}

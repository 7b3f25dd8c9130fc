package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Learning says how a Learner turns batches into updates.
type Learning struct {
	Objective objective.Objective
	Optimizer Adam
	// MaskZeroVariance takes rollouts of groups whose rewards are all equal out of the loss, or with Regrouped those
	// whose advantage is 0.
	MaskZeroVariance bool
	// Regrouped says that advantages do not compare with the group that a rollout entered with.
	Regrouped bool
	// MaskedInDenominator keeps masked rollouts in the loss's denominators ([OG] eq. 8).
	MaskedInDenominator bool
	// PassElements bounds rows x positions x vocabulary of one forward and backward pass. Larger shards take several
	// passes, whose gradients are added. 0: 2^24.
	PassElements int
	// LogitGradients measures each rollout's [rollout.Feedback] GradNorm, a proxy for the norm of its gradient by the
	// parameters (Katharopoulos & Fleuret 2018, arXiv 1803.00942, bound the one by a multiple of the other for
	// feed-forward networks). With L the loss of the step, N the rollouts in its denominator, w the draw's importance
	// weight and z the logits of the rollout at all positions, before the temperature,
	//
	//	GradNorm = N/w ||dL/dz||
	//
	// which is ||dl_i/dz_i|| for L = 1/N sum_i w_i l_i. The factor N makes steps of any number of rollouts and trainers
	// comparable. 1/w keeps the priority of a rollout, which sets its weight, from acting on its next priority. A loss
	// that is normalised by token has l_i = (sum of the rollout's terms)/(mean tokens of the step's rollouts). A weight
	// of 0 gives NaN: not measured. It costs each pass two more arrays of PassElements, in memory and in time.
	LogitGradients bool

	// Advantage is the kind of the draws' advantages. With Critic, which only objectives with a critic take and which
	// they require, the learner estimates them token by token from the value head. The learner computes Batch and
	// GroupBatch only with a KLPenalty. All other kinds, and "", are the draws' own.
	Advantage advantage.Kind
	// GAE is the estimation for kind Critic. Zero: advantage.DefaultGAE(), gamma 1 and lambda 0.95 (METHODS section 5).
	GAE advantage.GAE
	// StoredValues estimates from the values stored at generation (rollout.Rollout.Values), which every draw must then
	// have, instead of those of the weights at the start of the batch.
	StoredValues bool
	// Updates is the number of consecutive steps on each batch, i of [OG]'s schedule (v, i), counted from step 0. The
	// policy and the critic at the start of the batch, pi_k, are those before the first of them. 0: 1.
	Updates int
	// MaxLogRatio takes rollouts whose mean log(pi/b) over their tokens is above it out of the loss and its
	// denominators, pi being the policy before the step (FreshPER's code drops above 3). In nats; 0: none.
	MaxLogRatio float64
	// Reference is the reference policy of objectives with a KL term and of KLPenalty.
	Reference Reference
	// KLPenalty is REINFORCE++'s coefficient of the KL divergence from the reference policy, subtracted from the reward
	// token by token, in units of reward per nat. With kinds Batch and GroupBatch, before the normalisation, the
	// advantage of token t is
	//
	//	A_t = r - KLPenalty sum_{t' >= t} (log pi - log pi_ref)_t'
	//
	// with r the reward, minus the group's mean with GroupBatch, pi the policy before the step and t' the tokens that
	// the policy produced (k1). All tokens that count in the step are normalised together. 0: no penalty, and no
	// reference.
	KLPenalty float64
	// ExpertWeight is mu, the weight of the mean over rollouts without log-probs, at each version of the weights before
	// a step; the mean over the others has 1 - mu. What is out of [0, 1] counts as its end. It is exact where the
	// objective is a mean over rollouts. A step fails where it is NaN. Only with an objective that has Experts. nil:
	// all rollouts weigh alike.
	ExpertWeight func(v rollout.Version) float64
	// BoundEvery is the number of steps after which [OG]'s improvement lower bound is measured, see [Learner.Step]. It
	// costs two forward passes over the batch, or one if pi_k is known already. 0: never.
	BoundEvery int
}

// Reference is the reference policy: the weights that learning began with, replaced after every Every-th step by the
// weights after it ([OG]: at the end of each epoch).
type Reference struct {
	Every int // M, in steps; 0: never replaced
	Swaps int // S, the most replacements; 0: no limit. With Every only
}

func (o Learning) withDefaults() Learning {
	o.PassElements = cmp.Or(o.PassElements, 1<<24)
	o.Updates = cmp.Or(o.Updates, 1)
	o.GAE = cmp.Or(o.GAE, advantage.DefaultGAE())
	o.Optimizer = o.Optimizer.withDefaults()
	return o
}

// Validate reports every option that is out of its range or does not fit the others.
func (o Learning) Validate() error {
	var p option.Problems
	p.Add(o.Optimizer.Validate())
	if o.Objective == nil {
		p.Check(false, "objective", "none", "one of package objective")
		return p.Err()
	}
	p.Add(o.Objective.Validate())
	p.Check(o.PassElements >= 0, "pass_elements", o.PassElements, "0 or more")
	p.Check(o.Updates >= 0, "batch_updates", o.Updates, "1 or more steps on each batch, or 0 for 1")
	p.Check(o.BoundEvery >= 0, "bound_every", o.BoundEvery, "a number of steps, or 0 for never")
	p.Check(finite(o.MaxLogRatio) && o.MaxLogRatio >= 0, "max_log_ratio",
		o.MaxLogRatio, "a number of nats above 0, or 0 for none")
	g, _ := o.Objective.(objective.GRPO)
	p.Check(o.ExpertWeight == nil || g.Experts.Term != "", "expert_weight", "given", "none, or experts")
	p.Check(o.ExpertWeight == nil || g.Normalisation != objective.PerToken, "expert_weight", "given",
		"none with normalisation %s: it weighs means over rollouts", objective.PerToken)
	r := o.Reference
	p.Check(r.Every >= 0, "reference_every", r.Every, "a number of steps, or 0 for never")
	p.Check(r.Swaps >= 0, "reference_swaps", r.Swaps, "1 or more, or 0 for no limit")
	p.Check(r.Swaps <= 0 || r.Every > 0, "reference_swaps", r.Swaps, "0, or a reference_every of 1 step or more")
	o.checkAdvantage(&p)
	return p.Err()
}

// checkAdvantage reports a kind of advantage that the objective does not take, and options that do not fit the kind.
func (o Learning) checkAdvantage(p *option.Problems) {
	kind, name := o.Advantage, o.Objective.Name()
	if kind != "" {
		if err := kind.Validate(); err != nil {
			p.Add(err)
			return
		}
	}
	if m, ok := objective.FindMethod(name); ok && kind != "" {
		p.Check(slices.Contains(m.Advantages, string(kind)), "advantage", kind, "%s for objective %s",
			strings.Join(m.Advantages, " or "), name)
	} else if o.Objective.Needs().Critic {
		p.Check(kind == advantage.Critic, "advantage", cmp.Or(kind, "none"), "%s for objective %s",
			advantage.Critic, name)
	}
	gae := o.withDefaults().GAE
	p.Check(gae.Gamma >= 0 && gae.Gamma <= 1, "gamma", gae.Gamma, "a value in [0, 1]")
	p.Check(gae.Lambda >= 0 && gae.Lambda <= 1, "lambda", gae.Lambda, "a value in [0, 1]")
	p.Check(!o.StoredValues || kind == advantage.Critic, "values", "stored", "recompute, or advantage %s",
		advantage.Critic)
	if p.Check(finite(o.KLPenalty) && o.KLPenalty >= 0, "kl_penalty", o.KLPenalty,
		"a finite number of 0 or more"); finite(o.KLPenalty) {
		p.Check(o.KLPenalty <= 0 || kind.UsesBatch(), "kl_penalty", o.KLPenalty, "0, or advantage %s or %s",
			advantage.Batch, advantage.GroupBatch)
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// needsReference reports whether the learner keeps a reference policy.
func (o Learning) needsReference() bool { return o.Objective.Needs().Reference || o.KLPenalty > 0 }

// recomputesValues reports whether the critic's values are those of the weights at the start of the batch.
func (o Learning) recomputesValues() bool { return o.Advantage == advantage.Critic && !o.StoredValues }

// needsAnchor reports whether the learner keeps the weights at the start of a batch for its later steps.
func (o Learning) needsAnchor() bool {
	return o.Updates > 1 && (o.Objective.Needs().Anchor || o.recomputesValues() || o.BoundEvery > 0)
}

// passNeeds returns the objective's needs for which passes have inputs: all, except the policy at the start of the
// batch if every step is the first on its batch. The gradient program computes that one itself.
func (o Learning) passNeeds() objective.Needs {
	n := o.Objective.Needs()
	n.Anchor = n.Anchor && o.Updates > 1
	return n
}

package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
)

// Learning says how a Learner turns batches into updates.
type Learning struct {
	Objective objective.Objective
	Optimizer Adam
	// MaskZeroVariance takes rollouts of groups whose rewards are all equal out of the loss.
	MaskZeroVariance bool
	// MaskedInDenominator keeps masked rollouts in the loss's denominators ([OG] eq. 8).
	MaskedInDenominator bool
	// PassElements bounds rows x positions x vocabulary of one forward and backward pass: larger shards
	// are taken in several, their gradients added. 0: 2^24.
	PassElements int
	// LogitGradients measures each rollout's [rollout.Feedback] GradNorm, a proxy of the norm of its gradient with
	// respect to the parameters (Katharopoulos & Fleuret 2018, arXiv 1803.00942, bound the one by a multiple of the
	// other for feed-forward networks). With L the loss of the step, N the rollouts in its denominator, w the draw's
	// importance weight and z the logits that the model gives for the rollout, before the temperature and at all
	// positions,
	//
	//	GradNorm = N/w ||dL/dz||,
	//
	// which is ||dl_i/dz_i|| for L = 1/N sum_i w_i l_i: N makes steps of any number of rollouts and trainers comparable,
	// and 1/w keeps the priority of a rollout, to which its weight answers, from acting on its next one. A loss that is
	// normalised by token has l_i = (sum of the rollout's terms)/(mean tokens of the step's rollouts). A weight of 0
	// gives NaN: not measured. It costs each pass two more arrays of PassElements, in memory and in time.
	LogitGradients bool

	// Advantage is the kind of the draws' advantages. Critic, which an objective with a critic needs and no other takes,
	// makes the learner estimate them from the value head, token by token. Batch and GroupBatch are made by the learner
	// with a KLPenalty only. Every other kind, and "", are the draws' own.
	Advantage advantage.Kind
	// GAE is the estimation with kind Critic. Zero: advantage.DefaultGAE(), gamma 1 and lambda 0.95 (METHODS section 5).
	GAE advantage.GAE
	// StoredValues estimates from the values that were stored at generation (rollout.Rollout.Values), which every draw
	// must have then, instead of those of the weights that the batch's first step begins with.
	StoredValues bool
	// Updates is the number of consecutive steps that each batch is learned from, i of [OG]'s schedule (v, i), counted
	// from step 0. The policy and the critic at the start of the batch, pi_k, are those before the first of them. 0: 1.
	Updates int
	// MaxLogRatio takes rollouts whose mean of log(pi/b) over their tokens is above it out of the loss and its
	// denominators, pi being the policy before the step (FreshPER's code drops above 3). In nats; 0: none.
	MaxLogRatio float64
	// Reference says what the reference policy is, for objectives with a KL term and for KLPenalty.
	Reference Reference
	// KLPenalty is REINFORCE++'s coefficient of the KL divergence from the reference policy, taken off the reward token
	// by token, in units of reward per nat: with kinds Batch and GroupBatch, before the normalisation, the advantage of
	// token t is
	//
	//	A_t = r - KLPenalty sum_{t' >= t} (log pi - log pi_ref)_t'
	//
	// with r the reward, less the group's mean with GroupBatch, pi the policy before the step and t' the tokens that the
	// policy produced (k1). All tokens that count in the step are normalised together. 0: no penalty, and no reference.
	KLPenalty float64
	// BoundEvery is the number of steps after which [OG]'s improvement lower bound is measured, see Learner.Step. It
	// costs two forward passes over the batch, or one where pi_k has been asked already. 0: never.
	BoundEvery int
}

// Reference says what the reference policy is: the weights that learning began with, and after every Every-th step the
// weights after it ([OG]: at each epoch's end).
type Reference struct {
	Every int // M, in steps; 0: never swapped
	Swaps int // S, at most as many swaps; 0: no limit. With Every only
}

// withDefaults returns o with its zero options replaced by their defaults.
func (o Learning) withDefaults() Learning {
	if o.PassElements == 0 {
		o.PassElements = 1 << 24
	}
	if o.Updates == 0 {
		o.Updates = 1
	}
	if o.GAE == (advantage.GAE{}) {
		o.GAE = advantage.DefaultGAE()
	}
	o.Optimizer = o.Optimizer.withDefaults()
	return o
}

// Validate reports every option that is out of its range or does not fit the others.
func (o Learning) Validate() error {
	errs := problems{o.Optimizer.Validate()}
	if o.Objective == nil {
		return errors.Join(append(errs, errors.New("objective: none: want one of package objective"))...)
	}
	errs = append(errs, o.Objective.Validate())
	check := errs.check
	check(o.PassElements >= 0, "pass_elements: %d: want 0 or more", o.PassElements)
	check(o.Updates >= 0, "batch_updates: %d: want 1 or more steps on each batch, or 0 for 1", o.Updates)
	check(o.BoundEvery >= 0, "bound_every: %d: want a number of steps, or 0 for never", o.BoundEvery)
	check(finite(o.MaxLogRatio) && o.MaxLogRatio >= 0, "max_log_ratio: %g: want a number of nats above 0, or 0 for none", o.MaxLogRatio)
	check(o.Reference.Every >= 0, "reference_every: %d: want a number of steps, or 0 for never", o.Reference.Every)
	check(o.Reference.Swaps >= 0, "reference_swaps: %d: want 1 or more, or 0 for no limit", o.Reference.Swaps)
	check(o.Reference.Swaps <= 0 || o.Reference.Every > 0, "reference_swaps: %d: want 0, or a reference_every of 1 step or more", o.Reference.Swaps)
	return errors.Join(append(errs, o.validateAdvantages()...)...)
}

func (o Learning) validateAdvantages() (errs problems) {
	check := errs.check
	name, kind := o.Objective.Name(), o.Advantage
	if kind != "" && kind.Validate() != nil {
		return problems{fmt.Errorf("advantage: %q: want one of %v", kind, advantage.Kinds())}
	}
	m, known := objective.FindMethod(name)
	if known && kind != "" {
		check(slices.Contains(m.Advantages, string(kind)), "advantage: %q: want %s for objective %s", kind, strings.Join(m.Advantages, " or "), name)
	}
	told := known && kind != "" // above
	check(told || !o.Objective.Needs().Critic || kind == advantage.Critic, "advantage: %q: want %q, which objective %s learns from", kind, advantage.Critic, name)
	gae := o.withDefaults().GAE
	check(gae.Gamma >= 0 && gae.Gamma <= 1, "gamma: %g: want a value in [0, 1]", gae.Gamma)
	check(gae.Lambda >= 0 && gae.Lambda <= 1, "lambda: %g: want a value in [0, 1]", gae.Lambda)
	check(!o.StoredValues || kind == advantage.Critic, "values: stored: want recompute, or advantage %q", advantage.Critic)
	check(finite(o.KLPenalty) && o.KLPenalty >= 0, "kl_penalty: %g: want a finite number of 0 or more", o.KLPenalty)
	check(!finite(o.KLPenalty) || o.KLPenalty <= 0 || kind.UsesBatch(), "kl_penalty: %g: want 0, or advantage %q or %q", o.KLPenalty, advantage.Batch, advantage.GroupBatch)
	return errs
}

// problems collects errors; nil is none.
type problems []error

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// needsReference tells whether a reference policy is kept.
func (o Learning) needsReference() bool { return o.Objective.Needs().Reference || o.KLPenalty > 0 }

// recomputesValues tells whether the critic's values are those of the weights at the start of the batch.
func (o Learning) recomputesValues() bool { return o.Advantage == advantage.Critic && !o.StoredValues }

// needsStart tells whether the weights at the start of a batch are kept for its later steps.
func (o Learning) needsStart() bool {
	return o.Updates > 1 && (o.Objective.Needs().Anchor || o.recomputesValues() || o.BoundEvery > 0)
}

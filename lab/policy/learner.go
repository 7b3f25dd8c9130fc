package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// Learner takes optimizer steps. It is used from one goroutine at a time. Within a step, the shards of the trainers are
// computed concurrently and added in order.
type Learner struct {
	model   *Model
	options Learning
	weights *Weights
	first   []*tensors.Tensor // Adam's moments, in the order of the parameters
	second  []*tensors.Tensor
	step    int // optimizer steps taken

	anchor    *Weights // at the start of the batch, pi_k; nil between batches, or if not needed
	reference *Weights // pi_ref; nil if not needed
	swaps     int      // of the reference policy so far
	previous  [][]pass // of the step before, if the next step is on the same batch; see reuseScores

	gradient *program
	update   *program
}

// NewLearner starts learning from weights w with fresh optimizer moments.
func (m *Model) NewLearner(w *Weights, o Learning) (*Learner, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("prepare the learner: %w", err)
	}
	if o.Objective.Needs().Critic && !m.config.ValueHead {
		return nil, fmt.Errorf("prepare the learner: objective %s needs a value head: give the model one with "+
			"Model.WithValueHead", o.Objective.Name())
	}
	o = o.withDefaults()
	l := &Learner{model: m, options: o, weights: w}
	if o.needsReference() {
		l.reference = w
	}
	params := len(m.config.Specs())
	var errs [4]error
	l.gradient, errs[0] = m.newProgram("gradient", l.gradientGraph)
	l.update, errs[1] = m.newProgram("update", func(in []*graph.Node) []*graph.Node {
		return o.Optimizer.updateGraph(in, params)
	})
	l.first, errs[2] = m.zeros()
	l.second, errs[3] = m.zeros()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return l, nil
}

// Weights returns the newest weights.
func (l *Learner) Weights() *Weights { return l.weights }

// SetVersion gives the newest weights another version, from which the next steps count on.
func (l *Learner) SetVersion(v rollout.Version) { l.weights = l.weights.WithVersion(v) }

// StepResult is the outcome of a step.
//
// Feedback has an entry for every draw, trainer by trainer in the order of the draws; a rollout drawn twice has two. It
// describes the weights that the step began with and the tokens that counted: a rollout that MaskZeroVariance or
// MaxLogRatio took out of the loss has 0 tokens, advantage 0 and gradient norm 0, so the entries add up to the batch's
// Metrics. A rollout without log-probs, whose ratios count as 1 there, has 0 tokens and no ratios.
//
// Advantage is the one that the step used, the draw's or, token by token, the rollout's, even if the objective reads
// rewards instead (asymre). With a critic or a KLPenalty it is the normalised one. TDError needs a critic: the mean of
// |delta_t| over the policy's tokens, delta_t = r_t + gamma V_{t+1} - V_t, with the values that the advantages come
// from. GradNorm needs [Learning.LogitGradients].
type StepResult struct {
	Metrics  map[string]float64
	Feedback []rollout.Feedback
}

// Step takes one optimizer step on the batches of all trainers, one each. Its metrics are those of [objective.Combine],
// and
//
//	grad_norm         of the gradient by the parameters, before clipping
//	zero_variance     share of draws whose group has one reward for all
//	response_length   mean policy tokens of a draw
//	fresh_share       share of draws that were drawn as fresh
//	weight_mean       mean importance weight of a draw
//	weight_min        the smallest of them
//	weight_ess        (sum w)^2 / (n sum w^2) of them, in (0, 1]; absent if all are 0
//
// and, if the options ask for them,
//
//	experts           Experts: share of draws without log-probs
//	expert_weight     ExpertWeight: mu
//	filtered          MaxLogRatio: share of draws that it took out of the loss
//	td_error          kind Critic: mean over the tokens that count of the critic's absolute one-step errors
//	kl_reference      KLPenalty: KL(pi || pi_ref) as mean over the tokens that count of k3, like the objective's metric
//	reference_swaps   Reference.Every: how often the reference policy was replaced before this step
//	bound             BoundEvery: the improvement lower bound, see measureBound
//	bound_gain        and its parts
//	bound_tv
//	bound_tv_start
//	bound_scale
func (l *Learner) Step(ctx context.Context, batches []*rollout.Batch) (StepResult, error) {
	shards, err := l.prepare(ctx, batches)
	if err != nil {
		return StepResult{}, fmt.Errorf("step %d: %w", l.step+1, err)
	}
	gradients := make([]shardGradient, len(shards))
	err = concurrently(len(shards), func(i int) (err error) {
		gradients[i], err = l.shardGradient(ctx, shards[i], batches[i].Draws)
		return err
	})
	if err != nil { // nothing has been donated: the learner is as it was
		return StepResult{}, fmt.Errorf("step %d: %w", l.step+1, err)
	}
	// Until here a failure leaves the learner as it was. apply donates the tensors of the old state to the program that
	// makes the new one, and counts the step: what is said of this step is taken down before.
	anchor, swaps, mu := l.anchorOrNewest(), l.swaps, l.expertWeight()
	norm, err := l.apply(gradients)
	if err != nil {
		return StepResult{}, err
	}
	var sums []objective.Sums
	var r StepResult
	for _, g := range gradients {
		sums = append(sums, g.sums...)
		r.Feedback = append(r.Feedback, g.feedback...)
	}
	r.Metrics = objective.Combine(sums)
	r.Metrics["grad_norm"] = norm
	measureBatches(r.Metrics, batches)
	l.measurePasses(r.Metrics, shards, batches)
	if l.options.ExpertWeight != nil {
		r.Metrics["expert_weight"] = mu
	}
	if l.options.Reference.Every > 0 && l.reference != nil {
		r.Metrics["reference_swaps"] = float64(swaps)
	}
	if n := l.options.BoundEvery; n > 0 && l.step%n == 0 {
		// The step is taken: a cancellation must not lose its measurements.
		if err := l.measureBound(context.WithoutCancel(ctx), r.Metrics, shards, batches, anchor); err != nil {
			return StepResult{}, fmt.Errorf("step %d: measure the bound: %w", l.step, err)
		}
	}
	l.keepScores(shards)
	return r, nil
}

// concurrently calls do for 0 .. n-1, each in a goroutine, and returns the first error in this order.
func concurrently(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = do(i) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// apply runs the optimizer on the gradients of all shards and makes the next version.
func (l *Learner) apply(gradients []shardGradient) (norm float64, err error) {
	args := l.weights.args()
	parts := [][]*tensors.Tensor{l.first, l.second}
	for _, g := range gradients {
		parts = append(parts, g.gradient)
	}
	for _, ts := range parts {
		if args, err = l.model.donate(args, ts); err != nil {
			return 0, err
		}
	}
	rate := l.options.Optimizer.rate(l.step + 1)
	args = append(args, tensors.FromScalar(float32(rate)), tensors.FromScalar(float32(l.step+1)))
	out, err := l.update.call(dims{rows: len(gradients)}, args)
	if err != nil {
		return 0, fmt.Errorf("step %d: update: %w", l.step+1, err)
	}
	params := len(l.first)
	norm = float64(tensors.ToScalar[float32](out[3*params]))
	if !finite(norm) {
		return 0, fmt.Errorf("step %d: the gradient's norm is %v: lower learner.learning_rate (%g) or "+
			"learner.clip_norm", l.step+1, norm, l.options.Optimizer.LearningRate)
	}
	if l.options.needsAnchor() {
		l.anchor = l.anchorOrNewest()
	}
	l.weights = &Weights{Version: l.weights.Version + 1, tensors: out[:params]}
	l.first, l.second = out[params:2*params], out[2*params:3*params]
	l.step++
	if l.step%l.options.Updates == 0 {
		l.anchor = nil
	}
	if r := l.options.Reference; l.reference != nil && r.Every > 0 && l.step%r.Every == 0 && (r.Swaps == 0 ||
		l.swaps < r.Swaps) {
		l.reference = l.weights
		l.swaps++
	}
	return norm, nil
}

// anchorOrNewest returns pi_k, the weights at the start of the present batch, if needsAnchor; else the newest.
func (l *Learner) anchorOrNewest() *Weights {
	if l.anchor == nil {
		return l.weights
	}
	return l.anchor
}

// Clone returns a learner that goes on from where this one is. Steps of one do not change the other.
func (l *Learner) Clone() (*Learner, error) {
	s, err := l.State()
	if err != nil {
		return nil, err
	}
	other, err := l.model.NewLearner(l.weights, l.options)
	if err != nil {
		return nil, err
	}
	return other, other.Restore(s, l.weights)
}

// LearnerState is what a Learner's checkpoint holds beside its Weights; parameters are in the order of
// [hf.Config.Specs].
type LearnerState struct {
	Version       rollout.Version
	Step          int         // optimizer steps taken; sets the bias correction, the warm-up and which steps begin a batch
	First, Second [][]float32 // Adam's moments
	Began         [][]float32 // weights at the start of a batch with steps to come (pi_k); nil: there is none
	Reference     [][]float32 // weights of the reference policy; nil: there is none
	Swaps         int         // of the reference policy so far
}

// State returns a copy of the learner's state.
func (l *Learner) State() (s LearnerState, err error) {
	s = LearnerState{Version: l.weights.Version, Step: l.step, Swaps: l.swaps}
	copyTo := func(dst *[][]float32, ts []*tensors.Tensor) {
		if err == nil {
			*dst, err = copyAll(ts)
		}
	}
	copyTo(&s.First, l.first)
	copyTo(&s.Second, l.second)
	if l.anchor != nil {
		copyTo(&s.Began, l.anchor.tensors)
	}
	if l.reference != nil {
		copyTo(&s.Reference, l.reference.tensors)
	}
	if err != nil {
		return LearnerState{}, fmt.Errorf("copy the learner's state: %w", err)
	}
	return s, nil
}

// Restore returns a learner to a state, with the weights of that time: it continues as if it had never stopped.
func (l *Learner) Restore(s LearnerState, w *Weights) error {
	if l.reference != nil && s.Reference == nil {
		return errors.New("restore the learner: its objective needs a reference policy, and the state has none: " +
			"continue with the objective that the state was saved with")
	}
	withinBatch := l.options.needsAnchor() && s.Step%l.options.Updates != 0
	if withinBatch && s.Began == nil {
		return fmt.Errorf("restore the learner: step %d is within a batch of %d, and the state lacks the weights at "+
			"its start: continue with the batch_updates that the state was saved with", s.Step, l.options.Updates)
	}
	var parts [4][]*tensors.Tensor
	for i, flat := range [][][]float32{s.First, s.Second, s.Began, s.Reference} {
		if flat == nil && i >= 2 {
			continue
		}
		var err error
		if parts[i], err = l.model.tensors(flat); err != nil {
			return fmt.Errorf("restore the learner: %w", err)
		}
	}
	l.weights, l.step, l.swaps = w.WithVersion(s.Version), s.Step, s.Swaps
	l.first, l.second = parts[0], parts[1]
	l.anchor, l.reference, l.previous = nil, nil, nil
	if withinBatch {
		l.anchor = &Weights{tensors: parts[2]}
	}
	if l.options.needsReference() {
		l.reference = &Weights{tensors: parts[3]}
	}
	return nil
}

package policy

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// Learner takes optimizer steps. It is used from one goroutine at a time; within a step the shards of
// different trainers are computed concurrently and added in order.
type Learner struct {
	model   *Model
	options Learning
	weights *Weights
	first   []*tensors.Tensor // Adam's moments, in the order of the parameters
	second  []*tensors.Tensor
	step    int // optimizer steps taken

	began     *Weights   // that the batch's first step began with, pi_k; nil between batches, and where nothing needs it
	reference *Weights   // pi_ref; nil where nothing needs it
	swaps     int        // of the reference policy so far
	memory    [][]memory // of the passes of the step before, if it was on the batch of the next one

	grad   *program
	update *program
}

// NewLearner starts learning from weights w with fresh optimizer moments.
func (m *Model) NewLearner(w *Weights, o Learning) (*Learner, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("prepare the learner: %w", err)
	}
	if o.Objective.Needs().Critic && !m.config.ValueHead {
		return nil, fmt.Errorf("prepare the learner: objective %s needs a value head: give the model one with Model.WithValueHead", o.Objective.Name())
	}
	o = o.withDefaults()
	l := &Learner{model: m, options: o, weights: w}
	if o.needsReference() {
		l.reference = w
	}
	var err error
	if l.grad, err = m.newProgram("gradient", l.gradientGraph); err != nil {
		return nil, err
	}
	params := len(m.config.Specs())
	l.update, err = m.newProgram("update", func(in []*graph.Node) []*graph.Node { return o.Optimizer.updateGraph(in, params) })
	if err != nil {
		return nil, err
	}
	if l.first, err = m.zeros(); err != nil {
		return nil, err
	}
	l.second, err = m.zeros()
	return l, err
}

// zeros returns one tensor of zeros for each parameter.
func (m *Model) zeros() ([]*tensors.Tensor, error) {
	var flat [][]float32
	for _, s := range m.config.Specs() {
		flat = append(flat, make([]float32, size(s.Shape)))
	}
	return m.tensors(flat)
}

// Weights returns the newest weights.
func (l *Learner) Weights() *Weights { return l.weights }

// Step takes one optimizer step on the batches of all trainers, one each. Its metrics are what
// [objective.Combine] gives, and
//
//	grad_norm         of the gradient with respect to the parameters, before clipping
//	zero_variance     share of draws whose group has one reward for all
//	response_length   mean policy tokens of a draw
//	fresh_share       share of draws that were drawn as fresh
//	weight_mean       mean importance weight of a draw
//	weight_min        the least of them
//	weight_ess        (sum w)^2 / (n sum w^2) of them, in (0, 1]; not there when all are 0
//
// and, of what the options ask for,
//
//	filtered          MaxLogRatio: share of draws that it took out of the loss
//	td_error          kind Critic: mean over the tokens that count of the critic's absolute one-step errors
//	kl_reference      KLPenalty: KL(pi || pi_ref) as mean over the tokens that count of k3, as the objective's metric of that name
//	reference_swaps   Reference.Every: how often the reference policy was swapped before this step
//	bound             BoundEvery: the improvement lower bound and its parts, see bound
//	bound_gain
//	bound_tv
//	bound_tv_start
//	bound_scale
func (l *Learner) Step(ctx context.Context, batches []*rollout.Batch) (Measured, error) {
	shards, err := l.prepare(ctx, batches)
	if err != nil {
		return Measured{}, fmt.Errorf("step %d: %w", l.step+1, err)
	}
	results := make([]shardResult, len(shards))
	var wait sync.WaitGroup
	for i := range shards {
		wait.Go(func() { results[i] = l.gradient(ctx, shards[i]) })
	}
	wait.Wait()
	for _, r := range results { // before anything is donated, so that the learner stays as it was
		if r.err != nil {
			return Measured{}, fmt.Errorf("step %d: %w", l.step+1, r.err)
		}
	}
	var sums []objective.Sums
	var feedback []rollout.Feedback
	args := l.weights.inputs(2 + (2+len(shards))*len(l.first))
	for _, ts := range [][]*tensors.Tensor{l.first, l.second} {
		if args, err = l.donate(args, ts); err != nil {
			return Measured{}, err
		}
	}
	for _, r := range results {
		sums = append(sums, r.sums...)
		feedback = append(feedback, r.feedback...)
		if args, err = l.donate(args, r.gradient); err != nil {
			return Measured{}, err
		}
	}
	start, swaps := l.startOfBatch(), l.swaps
	norm, err := l.apply(args)
	if err != nil {
		return Measured{}, err
	}
	measured := objective.Combine(sums)
	measured["grad_norm"] = norm
	measureBatches(measured, batches)
	l.measurePasses(measured, shards)
	if l.options.Reference.Every > 0 && l.reference != nil {
		measured["reference_swaps"] = float64(swaps)
	}
	if n := l.options.BoundEvery; n > 0 && l.step%n == 0 {
		// The step is taken: what it measured is not given up for a cancellation.
		if err := l.bound(context.WithoutCancel(ctx), measured, shards, start); err != nil {
			return Measured{}, fmt.Errorf("step %d: measure the bound: %w", l.step, err)
		}
	}
	l.remember(shards)
	return Measured{Metrics: measured, Feedback: feedback}, nil
}

// apply runs the optimizer and publishes the next version.
func (l *Learner) apply(args []any) (norm float64, err error) {
	rate := l.options.Optimizer.rate(l.step + 1)
	out, err := l.update.call(extent{rows: len(args)}, append(args, tensors.FromScalar(float32(rate)), tensors.FromScalar(float32(l.step+1))))
	if err != nil {
		return 0, fmt.Errorf("step %d: update: %w", l.step+1, err)
	}
	params := len(l.first)
	norm = float64(tensors.ToScalar[float32](out[3*params]))
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, fmt.Errorf("step %d: the gradient's norm is %v: lower learner.learning_rate (%g) or learner.clip_norm", l.step+1, norm, l.options.Optimizer.LearningRate)
	}
	if l.options.needsStart() {
		l.began = l.startOfBatch()
	}
	l.weights = &Weights{Version: l.weights.Version + 1, tensors: out[:params]}
	l.first, l.second = out[params:2*params], out[2*params:3*params]
	l.step++
	if l.step%l.options.Updates == 0 {
		l.began = nil
	}
	l.swapReference()
	return norm, nil
}

func (l *Learner) donate(args []any, ts []*tensors.Tensor) ([]any, error) {
	for _, t := range ts {
		d, err := graph.DonateTensorBuffer(t, l.model.backend, 0)
		if err != nil {
			return nil, fmt.Errorf("hand tensors to the backend: %w", err)
		}
		args = append(args, d)
	}
	return args, nil
}

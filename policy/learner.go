package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
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
}

// Learner takes optimizer steps. It is used from one goroutine at a time; within a step the shards of
// different trainers are computed concurrently and added in order.
type Learner struct {
	model   *Model
	options Learning
	weights *Weights
	first   []*tensors.Tensor // Adam's moments, in the order of the parameters
	second  []*tensors.Tensor
	step    int // optimizer steps taken
	grad    *program
	update  *program
}

// NewLearner starts learning from weights w with fresh optimizer moments.
func (m *Model) NewLearner(w *Weights, o Learning) (*Learner, error) {
	if o.PassElements == 0 {
		o.PassElements = 1 << 24
	}
	if err := o.Optimizer.Validate(); err != nil {
		return nil, fmt.Errorf("prepare the learner: %w", err)
	}
	if o.Objective == nil {
		return nil, errors.New("prepare the learner: no objective given")
	}
	if err := o.Objective.Validate(); err != nil {
		return nil, fmt.Errorf("prepare the learner: %w", err)
	}
	o.Optimizer = o.Optimizer.withDefaults()
	l := &Learner{model: m, options: o, weights: w}
	var err error
	if l.grad, err = m.newProgram("gradient", l.gradientGraph); err != nil {
		return nil, err
	}
	params := len(m.config.Specs())
	l.update, err = m.newProgram("update", func(in []*Node) []*Node { return o.Optimizer.updateGraph(in, params) })
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
func (l *Learner) Step(ctx context.Context, batches []*rollout.Batch) (Measured, error) {
	shards, err := l.pack(batches)
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
	norm, err := l.apply(args)
	if err != nil {
		return Measured{}, err
	}
	measured := objective.Combine(sums)
	measured["grad_norm"] = norm
	measureBatches(measured, batches)
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
	l.weights = &Weights{Version: l.weights.Version + 1, tensors: out[:params]}
	l.first, l.second = out[params:2*params], out[2*params:3*params]
	l.step++
	return norm, nil
}

func (l *Learner) donate(args []any, ts []*tensors.Tensor) ([]any, error) {
	for _, t := range ts {
		d, err := DonateTensorBuffer(t, l.model.backend, 0)
		if err != nil {
			return nil, fmt.Errorf("hand tensors to the backend: %w", err)
		}
		args = append(args, d)
	}
	return args, nil
}

// shardResult is the gradient of one trainer's shard.
type shardResult struct {
	gradient []*tensors.Tensor
	sums     []objective.Sums   // of each pass
	feedback []rollout.Feedback // of each draw
	err      error
}

// gradient runs a shard pass by pass, adding up the gradients.
func (l *Learner) gradient(ctx context.Context, passes []pass) shardResult {
	var r shardResult
	if r.gradient, r.err = l.model.zeros(); r.err != nil {
		return r
	}
	for _, p := range passes {
		if r.err = ctx.Err(); r.err != nil {
			return r
		}
		args, err := l.donate(l.weights.inputs(len(r.gradient)+inputCount), r.gradient)
		if err != nil {
			return shardResult{err: err}
		}
		out, err := l.grad.call(extent{rows: p.rows, length: p.length}, append(args, p.tensors()...))
		if err != nil {
			return shardResult{err: fmt.Errorf("gradient of %d rows x %d tokens: %w", p.rows, p.length, err)}
		}
		n := len(r.gradient)
		r.gradient = out[:n]
		if r.err = r.measure(p, out[n:]); r.err != nil {
			return r
		}
	}
	return r
}

// measure takes up what the gradient program measured of a pass.
func (r *shardResult) measure(p pass, out []*tensors.Tensor) error {
	flat, err := copyAll(out)
	if err != nil {
		return err
	}
	var norms []float32
	if len(flat) > 2 {
		norms = flat[2]
	}
	r.sums = append(r.sums, objective.ReadSums(flat[0]))
	r.feedback = append(r.feedback, p.feedback(objective.ReadRows(flat[1]), norms)...)
	return nil
}

// gradientGraph: parameters, gradients so far, the inputs of a pass -> gradients with this pass's added, sums, rows, and
// the norms of the gradients with respect to logits if they are asked for.
func (l *Learner) gradientGraph(in []*Node) []*Node {
	d, rest := l.model.split(in)
	params := len(in) - len(rest)
	sofar, x := rest[:params], rest[params:]
	tokens, temperature := x[0], x[1]
	logits, logprobs, entropy := d.score(tokens, temperature)
	out := l.options.Objective.Loss(objective.Inputs{
		Logprobs: logprobs, Entropy: entropy,
		Mask: x[2], Behaviour: x[3], Advantage: x[4],
		Weight: x[5], Keep: x[6], Reward: x[7], GroupMean: x[8],
		Rollouts: x[9], Tokens: x[10],
	})
	grads := Gradient(out.Loss, append(slices.Clone(in[:params]), logits)...)
	logitGradient := grads[params]
	for i := range sofar {
		grads[i] = Add(sofar[i], grads[i])
	}
	grads = append(grads[:params], out.Sums, out.Rows)
	if l.options.LogitGradients {
		grads = append(grads, logitGradientNorms(logitGradient, x[9], x[5]))
	}
	return grads
}

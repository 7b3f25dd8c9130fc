package policy

import (
	"context"
	"fmt"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

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
		args, err := l.donate(l.weights.inputs(len(r.gradient)+inputCount+6), r.gradient)
		if err != nil {
			return shardResult{err: err}
		}
		out, err := l.grad.call(extent{rows: p.rows, length: p.length}, append(args, p.tensors(l.given())...))
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
	inputs, seen := l.further(x[inputCount:])
	scored := d.score(x[0], x[1], d.seen(seen))
	inputs.Logprobs, inputs.Entropy = scored.logprobs, scored.entropy
	inputs.Mask, inputs.Behaviour, inputs.Advantage = x[2], x[3], x[4]
	inputs.Weight, inputs.Keep, inputs.Reward, inputs.GroupMean = x[5], x[6], x[7], x[8]
	inputs.Rollouts, inputs.Tokens = x[9], x[10]
	needs := l.options.Objective.Needs()
	if needs.Critic {
		inputs.Values = scored.values
	}
	if needs.Anchor && inputs.Anchor == nil { // the policy itself
		inputs.Anchor = StopGradient(scored.logprobs)
	}
	out := l.options.Objective.Loss(inputs)
	grads := Gradient(out.Loss, append(slices.Clone(in[:params]), scored.logits)...)
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

// given says which of the objective's needs the passes bring: all, but the policy at the start of a batch where every
// step is the first of its batch, as the pass itself computes that.
func (l *Learner) given() objective.Needs {
	n := l.options.Objective.Needs()
	n.Anchor = n.Anchor && l.options.Updates > 1
	return n
}

// further takes the inputs that pass.tensors appends for given needs, and returns what is left.
func (l *Learner) further(x []*Node) (in objective.Inputs, rest []*Node) {
	next := func(wanted bool) *Node {
		if !wanted {
			return nil
		}
		n := x[0]
		x = x[1:]
		return n
	}
	given := l.given()
	in.Reference = next(given.Reference)
	in.Anchor = next(given.Anchor)
	in.OldValues = next(given.Critic)
	in.Returns = next(given.Critic)
	return in, x
}

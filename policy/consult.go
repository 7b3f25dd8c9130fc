package policy

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// prepare lays out the batches of a step and finds out what the loss needs before the gradient: who is in it, with which
// denominators and which advantages.
func (l *Learner) prepare(ctx context.Context, batches []*rollout.Batch) ([][]pass, error) {
	shards, err := l.pack(batches)
	if err != nil {
		return nil, err
	}
	l.recall(shards)
	if err := l.consult(ctx, shards); err != nil {
		return nil, err
	}
	l.filter(shards)
	if err := l.estimate(shards); err != nil {
		return nil, err
	}
	l.penalise(shards)
	l.divide(shards)
	return shards, nil
}

// opinion is what weights say of a pass, see scored.
type opinion struct {
	logprobs []float32 // [rows, length]
	values   []float32 // [rows, length]; nil without a value head
}

// consult sets what the passes have to know of the policy, of the policy at the start of the batch and of the reference
// policy, by forward passes. The shards are computed concurrently; without a need there is no pass.
func (l *Learner) consult(ctx context.Context, shards [][]pass) error {
	errs := make([]error, len(shards))
	var wait sync.WaitGroup
	for i := range shards {
		wait.Go(func() {
			for j := range shards[i] {
				if errs[i] = l.consultPass(ctx, &shards[i][j]); errs[i] != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("trainer %d: %w", i, err)
		}
	}
	return nil
}

func (l *Learner) consultPass(ctx context.Context, p *pass) error {
	o := l.options
	ask := func(wanted bool, w *Weights) (opinion, error) {
		if !wanted {
			return opinion{}, nil
		}
		return l.ask(ctx, p, w)
	}
	current, err := ask(o.MaxLogRatio > 0 || o.KLPenalty > 0, l.weights)
	if err != nil {
		return err
	}
	start, err := ask(l.given().Anchor || o.recomputesValues(), l.startOfBatch())
	if err != nil {
		return err
	}
	reference, err := ask(o.needsReference(), l.reference)
	if err != nil {
		return err
	}
	p.current, p.start, p.reference = current.logprobs, start.logprobs, reference.logprobs
	if o.recomputesValues() {
		p.values = start.values
	}
	return nil
}

// ask returns what weights say of a pass, which is computed once: the policy, pi_k and the reference policy are often the same
// weights, and those of one step of a batch are among those of the next.
func (l *Learner) ask(ctx context.Context, p *pass, w *Weights) (opinion, error) {
	if said, ok := p.known[w]; ok {
		return said, nil
	}
	if err := ctx.Err(); err != nil {
		return opinion{}, err
	}
	said, err := l.model.ask(p, w)
	if err == nil {
		p.known[w] = said
	}
	return said, err
}

// ask runs a pass forward through weights.
func (m *Model) ask(p *pass, w *Weights) (opinion, error) {
	args := append(w.inputs(4), p.text()...)
	out, err := m.score.call(extent{rows: p.rows, length: p.length}, append(args, p.sight.tensors()...))
	if err != nil {
		return opinion{}, fmt.Errorf("score %d rows x %d tokens: %w", p.rows, p.length, err)
	}
	wanted := []*tensors.Tensor{out[0]}
	if m.config.ValueHead {
		wanted = append(wanted, out[2])
	}
	flat, err := copyAll(wanted)
	if err != nil {
		return opinion{}, err
	}
	for _, t := range out {
		t.FinalizeAll()
	}
	said := opinion{logprobs: flat[0]}
	if m.config.ValueHead {
		said.values = flat[1]
	}
	return said, nil
}

// startOfBatch returns the weights pi_k that the present batch's first step began, or begins, with, where Learning
// needsStart; the newest otherwise.
func (l *Learner) startOfBatch() *Weights {
	if l.began == nil {
		return l.weights
	}
	return l.began
}

// swapReference makes the policy the reference policy when that is due after a step.
func (l *Learner) swapReference() {
	r := l.options.Reference
	if l.reference != nil && r.Every > 0 && l.step%r.Every == 0 && (r.Swaps == 0 || l.swaps < r.Swaps) {
		l.reference = l.weights
		l.swaps++
	}
}

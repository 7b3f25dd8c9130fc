package policy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
)

// Gradients visits the gradient of each draw of a batch, in order: draw i's share of the gradient that [Learner.Step] would take of the
// batch, with everything that is common to its draws (denominators, normalised advantages, who is in the loss), times the number
// of draws. The mean of the gradients is thus the gradient of the step, before clipping, and their scatter its noise. A draw that
// MaskZeroVariance or MaxLogRatio takes out of the loss has gradient 0.
//
// A gradient holds all parameters in the order of the configuration's, d/d theta of the loss, which Step descends. The slice is
// valid during the visit only; an error of visit ends the walk. The learner stays as it is. It costs a pass of one row to each draw.
func (l *Learner) Gradients(ctx context.Context, b *rollout.Batch, visit func(i int, gradient []float32) error) error {
	each := *l // passes of one row, whose predecessors are of no step
	each.options.PassElements, each.memory = 1, nil
	shards, err := each.prepare(ctx, dealt(b, runtime.GOMAXPROCS(0)))
	if err != nil {
		return fmt.Errorf("gradients of single rollouts: %w", err)
	}
	i, all := 0, slices.Concat(shards...)
	for window := range slices.Chunk(all, runtime.GOMAXPROCS(0)) {
		gradients, err := each.alone(ctx, window, float32(len(all)))
		if err != nil {
			return fmt.Errorf("gradients of single rollouts: %w", err)
		}
		for _, g := range gradients {
			if err := visit(i, g); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// dealt cuts a batch into so many parts, or as many as it has draws, that are prepared at once.
func dealt(b *rollout.Batch, parts int) []*rollout.Batch {
	size := max((len(b.Draws)+parts-1)/parts, 1)
	var list []*rollout.Batch
	for draws := range slices.Chunk(b.Draws, size) {
		list = append(list, &rollout.Batch{ID: b.ID, Version: b.Version, Shard: b.Shard, Draws: draws})
	}
	return list
}

// alone computes the gradients of passes of one row, times a scale, at once.
func (l *Learner) alone(ctx context.Context, passes []pass, scale float32) ([][]float32, error) {
	gradients, errs := make([][]float32, len(passes)), make([]error, len(passes))
	var wait sync.WaitGroup
	for i := range passes {
		wait.Go(func() { gradients[i], errs[i] = l.single(ctx, &passes[i], scale) })
	}
	wait.Wait()
	return gradients, errors.Join(errs...)
}

// single computes the gradient of a pass of one row, times a scale.
func (l *Learner) single(ctx context.Context, p *pass, scale float32) ([]float32, error) {
	if p.keep[0] == 0 {
		return make([]float32, l.model.config.Parameters()), nil
	}
	r := l.gradient(ctx, []pass{*p})
	if r.err != nil {
		return nil, r.err
	}
	flat, err := copyAll(r.gradient)
	if err != nil {
		return nil, err
	}
	for _, t := range r.gradient {
		t.FinalizeAll()
	}
	g := slices.Concat(flat...)
	for i := range g {
		g[i] *= scale
	}
	return g, nil
}

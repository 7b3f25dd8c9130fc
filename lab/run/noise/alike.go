package noise

import (
	"context"
	"errors"
	"iter"
	"math"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/rollout"
)

// What [results.Noise.Alike] is measured from: the gradients of some rollouts, before and after a number of updates on
// others.
const (
	probed         = 512
	updatesBetween = 4
	rolloutsForAll = 8192
)

// gradients visits the gradient of each draw of a batch, in order.
type gradients func(ctx context.Context, b *rollout.Batch, visit func(i int, gradient []float32) error) error

// measureAlike fills in Alike and Batch. Both the rollouts that are probed and those of the updates are fresh ones, of
// different prompts. It passes gradients through take.
func measureAlike(ctx context.Context, c *run.Snapshot, n *results.Noise, seed uint64,
	take func(gradients) gradients) error {
	p := c.Config().Pipeline
	updates := min(max(rolloutsForAll/p.Batch, 1), updatesBetween)
	made, err := c.Generate(ctx, rollout.Stream(seed, "noise/alike", c.Config().Seed).Uint64(),
		(probed+updates*p.Batch+p.Group-1)/p.Group)
	if err != nil {
		return err
	}
	all := draws(c, made)
	if len(all) < probed+updates {
		return nil // groups of unfinished episodes can be smaller
	}
	var batches []*rollout.Batch
	rest := all[probed:]
	for i := range updates {
		batches = append(batches, &rollout.Batch{Draws: rest[i*len(rest)/updates : (i+1)*len(rest)/updates]})
	}
	after, err := c.After(ctx, batches)
	if err != nil {
		return err
	}
	r, err := correlation(ctx, &rollout.Batch{Draws: all[:probed]}, take(c.Gradients), take(after))
	if err != nil || math.IsNaN(r) {
		return err
	}
	n.Alike, n.Batch = results.Num(math.Pow(max(r, 0), 1/float64(updates))), p.Batch
	return nil
}

// correlation returns that of the deviations of gradients from their means, over all draws and parameters. It is NaN
// if the gradients do not differ. It keeps two vectors, whatever the number of draws.
func correlation(ctx context.Context, b *rollout.Batch, before, after gradients) (float64, error) {
	next, stop := iter.Pull2(after.all(ctx, b))
	defer stop()
	var sums [2][]float64
	var squares [2]float64
	products, n := 0.0, 0.0
	err := before(ctx, b, func(_ int, first []float32) error {
		second, err, _ := next()
		if err != nil {
			return err
		}
		n++
		for k, g := range [2][]float32{first, second} {
			if sums[k] == nil {
				sums[k] = make([]float64, len(g))
			}
			for i, x := range g {
				sums[k][i] += float64(x)
				squares[k] += float64(x) * float64(x)
			}
		}
		for i, x := range first {
			products += float64(x) * float64(second[i])
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, x := range sums[0] {
		y := sums[1][i]
		squares[0] -= x * x / n
		squares[1] -= y * y / n
		products -= x * y / n
	}
	return products / math.Sqrt(squares[0]*squares[1]), nil
}

var errEnough = errors.New("enough")

// all yields the gradients of a batch. Each is valid until the next.
func (of gradients) all(ctx context.Context, b *rollout.Batch) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		err := of(ctx, b, func(_ int, g []float32) error {
			if !yield(g, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

package pipeline_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// naive is the plainest buffer that keeps the contract: a slice per shard. With queue it is consumed
// from the front and bounded; without, the newest are kept and drawn with replacement, but for fresh draws, which are
// the oldest that were never given as fresh.
type naive struct {
	capacity int // rollouts per shard
	queue    bool
	seed     uint64
	order    []int // shards that the first groups are dealt to; the rest in turn

	Version        rollout.Version
	Shards         [][]kept
	Dealt          int // groups
	Next           rollout.ID
	Samples        uint64 // batches drawn
	Inserted, Left int
}

type kept struct {
	ID    rollout.ID
	Group uint64
	Mean  float32
	Given bool // as fresh
	R     *rollout.Rollout
}

func newNaive(shards, capacity int, queue bool) *naive {
	return &naive{capacity: capacity, queue: queue, Shards: make([][]kept, shards), seed: 1}
}

// clone is a snapshot of the buffer.
func (n *naive) clone() *naive {
	c := *n
	c.Shards = nil
	for _, s := range n.Shards {
		c.Shards = append(c.Shards, slices.Clone(s))
	}
	return &c
}

func (n *naive) present() int {
	sum := 0
	for _, s := range n.Shards {
		sum += len(s)
	}
	return sum
}

func (n *naive) Report(context.Context, ...rollout.Feedback) error { return nil }

func (n *naive) Len() int { return n.present() }

func (n *naive) Insert(_ context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	var ids []rollout.ID
	for _, g := range groups {
		s := &n.Shards[n.Dealt%len(n.Shards)]
		if n.Dealt < len(n.order) {
			s = &n.Shards[n.order[n.Dealt]]
		}
		if n.queue && len(*s)+len(g.Rollouts) > n.capacity {
			return nil, fmt.Errorf("insert group %d: %w", n.Dealt, rollout.ErrFull)
		}
		var mean float32
		for _, r := range g.Rollouts {
			if r.Version() > n.Version {
				return nil, fmt.Errorf("version %d: %w", r.Version(), rollout.ErrAhead)
			}
			mean += r.Reward / float32(len(g.Rollouts))
		}
		for _, r := range g.Rollouts {
			n.Next++
			*s = append(*s, kept{ID: n.Next, Group: uint64(n.Dealt), Mean: mean, R: r})
			ids = append(ids, n.Next)
			n.Inserted++
		}
		if over := len(*s) - n.capacity; over > 0 {
			*s = slices.Clone((*s)[over:])
			n.Left += over
		}
		n.Dealt++
	}
	return ids, nil
}

func (n *naive) Sample(_ context.Context, req rollout.Request) (*rollout.Batch, error) {
	s := &n.Shards[req.Shard]
	var fresh []int
	for i, k := range *s {
		if !k.Given && len(fresh) < req.Fresh {
			fresh = append(fresh, i)
		}
	}
	if len(*s) < req.Size || len(fresh) < req.Fresh {
		return nil, fmt.Errorf("%d of %d are there, %d of %d fresh: %w", len(*s), req.Size, len(fresh), req.Fresh, rollout.ErrStarved)
	}
	b := &rollout.Batch{ID: rollout.BatchID(n.Samples), Version: n.Version, Shard: req.Shard}
	rng := rollout.Stream(n.seed, "naive", n.Samples)
	n.Samples++
	for i := range req.Size {
		given := i < req.Fresh
		switch {
		case given:
			i = fresh[i]
			(*s)[i].Given = true
		case !n.queue:
			i = rng.IntN(len(*s))
		}
		b.Draws = append(b.Draws, n.draw((*s)[i], given))
	}
	if n.queue {
		*s = slices.Clone((*s)[req.Size:])
		n.Left += req.Size
	}
	return b, nil
}

func (n *naive) draw(k kept, fresh bool) rollout.Draw {
	return rollout.Draw{
		ID: k.ID, Group: k.Group, Rollout: k.R, Weight: 1, GroupMean: k.Mean, Fresh: fresh,
		Staleness: int32(n.Version - k.R.Version()),
	}
}

func (n *naive) Advance(_ context.Context, v rollout.Version) error {
	if v < n.Version {
		return fmt.Errorf("advance from %d back to %d", n.Version, v)
	}
	n.Version = v
	return nil
}

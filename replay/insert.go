package replay

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// idRange is the IDs that one insertion got. Fields are exported for encoding/gob.
type idRange struct {
	First rollout.ID
	Count int
}

func (r idRange) list() []rollout.ID {
	ids := make([]rollout.ID, r.Count)
	for i := range ids {
		ids[i] = r.First + rollout.ID(i)
	}
	return ids
}

// arrivals is the items of one insertion, worked out before any lock is taken.
type arrivals struct {
	items   []item
	rewards []float32 // of one group, then its advantages
	greater rollout.Version
	row     int // of the greatest version
}

// Insert adds whole groups and returns the IDs of their rollouts in order. All of them enter or none
// (invariants 8 and 9). An error wraps rollout.ErrFull if a queue has no room and rollout.ErrAhead if a
// token is newer than the table: both may be tried again and are not counted as refused. It wraps
// rollout.ErrInvalid if the groups can never enter; a *rollout.FieldError among them names the field, the
// row counted over all groups, and the value.
//
// The table shares the rollouts from now on: nobody may change them.
func (t *Table) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return t.InsertOnce(ctx, "", groups...)
}

// InsertOnce is [Table.Insert] under an id of the caller's choice: repeated with the same id, it adds
// nothing and returns the first IDs, so that a caller who got no answer can ask again. The last
// 100,000 ids are remembered; "" is none.
func (t *Table) InsertOnce(ctx context.Context, batchID string, groups ...rollout.Group) ([]rollout.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := t.check(groups); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, g := range groups {
			t.refused += uint64(len(g.Rollouts))
		}
		return nil, err
	}
	a := t.scratch.Get().(*arrivals)
	defer t.scratch.Put(a)
	t.prepare(a, groups)

	t.mu.Lock()
	defer t.mu.Unlock()
	if batchID != "" {
		if first, ok := t.inserted.get(batchID); ok {
			return first.list(), nil
		}
	}
	if a.greater > t.version {
		// Invariant 1: what the table holds is never newer than the table.
		return nil, fmt.Errorf("row %d has a token of version %d, the table is at %d; advance it first: %w", a.row, a.greater, t.version, rollout.ErrAhead)
	}
	if err := t.checkRoom(a, groups); err != nil {
		return nil, err
	}
	ids := idRange{First: t.lastID + 1, Count: len(a.items)}
	t.deal(a, groups)
	if batchID != "" {
		t.inserted.put(batchID, ids)
	}
	return ids.list(), nil
}

// check refuses what can never enter (invariants 8 and 9). It needs no lock.
func (t *Table) check(groups []rollout.Group) error {
	capacity := t.options.shardCapacity()
	row := 0
	for _, g := range groups {
		if err := g.Validate(t.limits); err != nil {
			var field *rollout.FieldError
			if errors.As(err, &field) {
				field.Row += row
			}
			return err
		}
		if len(g.Rollouts) > capacity {
			return &rollout.FieldError{
				Row: row, Field: "group", Value: fmt.Sprintf("%d rollouts", len(g.Rollouts)),
				Remedy: fmt.Sprintf("insert groups no larger than a shard's capacity %d, or raise capacity", capacity),
			}
		}
		row += len(g.Rollouts)
	}
	return nil
}

// prepare works out the items of the groups, IDs and group numbers apart.
func (t *Table) prepare(a *arrivals, groups []rollout.Group) {
	a.items, a.greater = a.items[:0], rollout.NoVersion
	for _, g := range groups {
		a.rewards = a.rewards[:0]
		for _, r := range g.Rollouts {
			a.rewards = append(a.rewards, r.Reward)
		}
		var m advantage.Moments
		if t.options.Advantage.GroupRelative() {
			m = advantage.OfGroup(a.rewards, a.rewards, t.options.Advantage)
		} else {
			m = advantage.MomentsOf(a.rewards)
			clear(a.rewards)
		}
		mean, std := float32(m.Mean), float32(m.Std())
		for i, r := range g.Rollouts {
			span := r.Span()
			if span.Greatest > a.greater {
				a.greater, a.row = span.Greatest, len(a.items)
			}
			adv := a.rewards[i]
			if r.Advantage != nil {
				adv = *r.Advantage
			}
			a.items = append(a.items, item{
				Version: span.Least, MeanCeil: span.MeanCeil(), Greatest: span.Greatest,
				LastUse: rollout.NoVersion, Advantage: adv, Mean: mean, Std: std, Bytes: r.Bytes(),
				Correct: r.Reward >= t.options.PositiveThreshold,
			})
		}
	}
}

// checkRoom refuses an insertion into queues that lack room (invariant 2): for good if it is larger than they are. Only
// insertions take room, and they hold Table.mu, so what it finds stays true.
func (t *Table) checkRoom(a *arrivals, groups []rollout.Group) error {
	if !t.options.Sampler.Consumes() {
		return nil
	}
	needs := t.needs(a, groups)
	for i, n := range needs {
		if n.count > t.options.shardCapacity() || n.bytes > t.options.shardBytes() {
			t.refused += uint64(len(a.items))
			return fmt.Errorf("inserting %s into shard %d, which holds at most %s; insert fewer groups at a time: %w",
				n, i, size{t.options.shardCapacity(), t.options.shardBytes()}, rollout.ErrInvalid)
		}
	}
	for i, s := range t.shards {
		s.mu.Lock()
		s.expire()
		room := size{t.options.shardCapacity() - s.present, t.options.shardBytes() - s.bytes}
		s.mu.Unlock()
		if n := needs[i]; n.count > room.count || n.bytes > room.bytes {
			return fmt.Errorf("inserting %s into shard %d with room for %s: %w", n, i, room, rollout.ErrFull)
		}
	}
	return nil
}

// size is what rollouts take or may take.
type size struct {
	count int
	bytes int64
}

func (s size) String() string {
	if s.bytes > math.MaxInt64/2 {
		return fmt.Sprintf("%d rollouts of any size", s.count)
	}
	return fmt.Sprintf("%d rollouts of %d bytes", s.count, s.bytes)
}

// needs is what each shard would get.
func (t *Table) needs(a *arrivals, groups []rollout.Group) []size {
	needs := make([]size, len(t.shards))
	next := 0
	for g, group := range groups {
		n := &needs[t.dealtTo(g)]
		for range group.Rollouts {
			n.count++
			n.bytes += a.items[next].Bytes
			next++
		}
	}
	return needs
}

// dealtTo returns the shard that the next group but g goes to: shards take turns.
func (t *Table) dealtTo(g int) int {
	return int((t.lastGroup + uint64(g)) % uint64(len(t.shards)))
}

// deal numbers the groups and rollouts and adds them to their shards.
func (t *Table) deal(a *arrivals, groups []rollout.Group) {
	next := 0
	for _, g := range groups {
		s := t.shards[t.dealtTo(0)]
		t.lastGroup++
		s.mu.Lock()
		s.expire()
		s.counts.Groups++
		for _, r := range g.Rollouts {
			it := &a.items[next]
			t.lastID++
			it.ID, it.Group = t.lastID, t.lastGroup
			s.add(it, r)
			next++
		}
		s.mu.Unlock()
	}
}

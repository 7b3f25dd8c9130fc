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
	items    []item
	bases    []float64 // of their priorities, where the sampler weighs
	rollouts []*rollout.Rollout
	sizes    []int     // of the groups, in items
	parts    []part    // of one group: what becomes its items
	rewards  []float32 // of one group, then its advantages
	greater  rollout.Version
	row      int // of the greatest version
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
		return nil, t.refuse(err, groups)
	}
	a := t.scratch.Get().(*arrivals)
	defer t.scratch.Put(a)
	if err := t.prepare(a, groups); err != nil {
		return nil, t.refuse(err, groups)
	}

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
	t.deal(a)
	if batchID != "" {
		t.inserted.put(batchID, ids)
		if t.notes != nil {
			t.notes.requests = append(t.notes.requests, Insertion{batchID, ids.First, ids.Count})
		}
	}
	return ids.list(), nil
}

// refuse counts the rollouts of an insertion that can never enter.
func (t *Table) refuse(err error, groups []rollout.Group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		t.refused += uint64(len(g.Rollouts))
	}
	return err
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
		if want := t.options.GroupSize; want > 0 && len(g.Rollouts) != want {
			return &rollout.FieldError{
				Row: row, Field: "group", Value: fmt.Sprintf("%d rollouts", len(g.Rollouts)),
				Remedy: fmt.Sprintf("insert groups of group_size %d, which unit group draws whole", want),
			}
		}
		if t.options.Unit != UnitGroup {
			row += len(g.Rollouts)
			continue
		}
		if bytes := groupBytes(g); bytes > t.options.recentBytes() {
			return &rollout.FieldError{
				Row: row, Field: "group", Value: fmt.Sprintf("%d bytes", bytes),
				Remedy: fmt.Sprintf("insert groups of at most a shard's %d bytes, or raise capacity_bytes", t.options.recentBytes()),
			}
		}
		row += len(g.Rollouts)
	}
	return nil
}

func groupBytes(g rollout.Group) int64 {
	sum := int64(0)
	for _, r := range g.Rollouts {
		sum += r.Bytes()
	}
	return sum
}

// prepare works out the items of the groups, IDs and group numbers apart. It refuses what makes no base or no steps.
func (t *Table) prepare(a *arrivals, groups []rollout.Group) error {
	a.items, a.bases, a.rollouts, a.sizes, a.greater = a.items[:0], a.bases[:0], a.rollouts[:0], a.sizes[:0], rollout.NoVersion
	row := 0
	for _, g := range groups {
		if err := t.split(a, g, row); err != nil {
			return err
		}
		m := t.compare(a, g)
		for k, p := range a.parts {
			whole := g.Rollouts[p.of]
			adv := a.rewards[p.of]
			if t.options.StepReturns != 0 {
				adv = a.rewards[k]
			}
			if whole.Advantage != nil {
				adv = *whole.Advantage
			}
			it := item{
				LastUse: rollout.NoVersion, Advantage: adv, Mean: float32(m.Mean), Std: float32(m.Std()),
				Flags: flagged(whole.Reward >= t.options.PositiveThreshold, correct),
			}
			if err := t.arrive(a, p.rollout, &it, row+p.of); err != nil {
				return err
			}
		}
		row += len(g.Rollouts)
		a.sizes = append(a.sizes, len(a.parts))
	}
	clear(a.parts)
	return nil
}

// compare takes the advantages of a group, into rewards: of its rollouts, or with step returns of its steps. It returns the
// moments of what was compared.
func (t *Table) compare(a *arrivals, g rollout.Group) advantage.Moments {
	a.rewards = a.rewards[:0]
	if t.options.StepReturns != 0 {
		for _, p := range a.parts {
			a.rewards = append(a.rewards, p.rollout.Reward)
		}
	} else {
		for _, r := range g.Rollouts {
			a.rewards = append(a.rewards, r.Reward)
		}
	}
	if t.options.Advantage.GroupRelative() {
		return advantage.OfGroup(a.rewards, a.rewards, t.options.Advantage)
	}
	m := advantage.MomentsOf(a.rewards)
	clear(a.rewards)
	return m
}

// arrive adds one item, after filling in what differs between steps.
func (t *Table) arrive(a *arrivals, r *rollout.Rollout, it *item, row int) error {
	span := r.Span()
	if span.Greatest > a.greater {
		a.greater, a.row = span.Greatest, row
	}
	it.Version, it.MeanCeil, it.Greatest, it.Bytes = span.Least, span.MeanCeil(), span.Greatest, r.Bytes()
	a.items = append(a.items, *it)
	a.rollouts = append(a.rollouts, r)
	p := t.options.Prioritization
	if p == nil {
		return nil
	}
	base := p.own(r, it.Advantage)
	switch {
	case p.Base == BaseTDError && p.Entry == EnterOwn && len(r.Values) == 0:
		return &rollout.FieldError{Row: row, Field: "values", Value: "absent", Remedy: "give the critic's values, or configure entry max: priority_base td_error is made of them"}
	case !(base <= math.MaxFloat64):
		return &rollout.FieldError{Row: row, Field: "priority", Value: fmt.Sprint(base), Remedy: "let the priority function return a finite number"}
	}
	a.bases = append(a.bases, base)
	return nil
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
	for g := range groups {
		n := &needs[t.dealtTo(g)]
		for range a.sizes[g] {
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
func (t *Table) deal(a *arrivals) {
	next := 0
	for _, n := range a.sizes {
		s := t.shards[t.dealtTo(0)]
		t.lastGroup++
		for i := range n {
			t.lastID++
			it := &a.items[next+i]
			it.ID, it.Group = t.lastID, t.lastGroup
		}
		s.mu.Lock()
		s.expire()
		s.counts.Groups++
		s.addGroup(a, next, next+n)
		s.mu.Unlock()
		next += n
	}
	clear(a.rollouts) // the table has them now, or nobody
}

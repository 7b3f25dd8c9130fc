package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// idRange is the IDs that one insertion got. Fields are exported for encoding/gob.
type idRange struct {
	First  rollout.ID
	Count  int
	Digest Digest
}

// Digest tells the contents of insertions apart: the XXH3-128 of their binary form.
type Digest struct{ Hi, Lo uint64 }

// repeated returns the IDs if the groups are those of the insertion. The error wraps rollout.ErrInvalid.
func (r idRange) repeated(batchID string, groups []rollout.Group) ([]rollout.ID, error) {
	digest, err := new(digester).of(groups)
	if err != nil {
		return nil, err
	}
	if digest != r.Digest {
		return nil, fmt.Errorf("batch_id: %q: it was used for an insertion of %d rollouts with other contents: "+
			"use a new id for each insertion: %w", batchID, r.Count, rollout.ErrInvalid)
	}
	return r.list(), nil
}

// digester computes digests. It keeps its memory for the next.
type digester struct {
	hash   xxh3.Hasher
	binary []byte // of a rollout
}

func (d *digester) of(groups []rollout.Group) (Digest, error) {
	d.hash.Reset()
	for _, g := range groups {
		b, err := binary.AppendUvarint(d.binary[:0], uint64(len(g.Rollouts))), error(nil)
		for _, r := range g.Rollouts {
			if b, err = r.AppendBinary(b); err != nil {
				return Digest{}, err
			}
			_, _ = d.hash.Write(b) // never fails
			b = b[:0]
		}
		d.binary = b
	}
	sum := d.hash.Sum128()
	return Digest{sum.Hi, sum.Lo}, nil
}

func (r idRange) list() []rollout.ID {
	ids := make([]rollout.ID, r.Count)
	for i := range ids {
		ids[i] = r.First + rollout.ID(i)
	}
	return ids
}

// arrivals is the items of one insertion, prepared before any lock is taken.
type arrivals struct {
	items    []item
	bases    []float64 // priority bases, with sampler prioritized
	rollouts []*rollout.Rollout
	sizes    []int     // items in each group
	parts    []part    // scratch: the parts of one group, each an item
	values   []float32 // rewards of one group, then its advantages
	selection
	digester digester
	greatest rollout.Version
	row      int // the one with the greatest version
}

// Insert adds whole groups and returns the IDs of their rollouts in order. All of them enter or none (invariants 8 and
// 9). An error wraps rollout.ErrFull if a queue has no room and rollout.ErrAhead if a token is newer than the table;
// both may be tried again and are not counted as refused. It wraps rollout.ErrInvalid if the groups can never enter; a
// *rollout.FieldError then names the field, the row counted over all groups, and the value.
//
// The table shares the rollouts from now on: nobody may change them.
func (t *Table) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return t.insert(ctx, "", groups)
}

// insert inserts under a batch id, or without one if it is empty: see [ServiceView.InsertOnce].
func (t *Table) insert(ctx context.Context, batchID string, groups []rollout.Group) ([]rollout.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// What takes long comes before the lock: checking, advantages and priority bases, and the digest.
	if err := t.validate(groups); err != nil {
		return nil, t.countRefused(err, groups)
	}
	a := t.arrivals.Get().(*arrivals)
	defer t.arrivals.Put(a)
	if err := t.prepare(a, groups); err != nil {
		return nil, t.countRefused(err, groups)
	}

	var digest Digest
	if batchID != "" {
		var err error
		if digest, err = a.digester.of(groups); err != nil {
			return nil, err
		}
	}

	// Under the lock all checks come before the first change, so that all groups enter or none.
	t.mu.Lock()
	defer t.mu.Unlock()
	if batchID != "" {
		if first, ok := t.insertedBefore.get(batchID); ok {
			return first.repeated(batchID, groups)
		}
	}
	if a.greatest > t.version { // invariant 1: nothing in the table is newer than the table
		return nil, fmt.Errorf("row %d has a token of version %d, the table is at %d; advance it first: %w", a.row,
			a.greatest, t.version, rollout.ErrAhead)
	}
	if err := t.checkRoom(a, groups); err != nil {
		return nil, err
	}
	if err := t.checkRecorded(len(a.items)); err != nil {
		return nil, err
	}
	ids := idRange{t.lastID + 1, len(a.items), digest}
	t.addToShards(ctx, a)
	if batchID != "" {
		t.rememberInsertion(batchID, ids)
		if t.changes != nil {
			t.changes.requests = append(t.changes.requests, Insertion{batchID, ids.First, ids.Count, ids.Digest})
		}
	}
	return ids.list(), nil
}

// countRefused counts the rollouts of an insertion that can never enter, and returns its error.
func (t *Table) countRefused(err error, groups []rollout.Group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		t.refused += uint64(len(g.Rollouts))
	}
	return err
}

// validate refuses what can never enter (invariants 8 and 9). It needs no lock.
func (t *Table) validate(groups []rollout.Group) error {
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
		if err := t.checkPendingFits(g, row); err != nil {
			return err
		}
		if bytes := groupBytes(g); t.options.Unit == UnitGroup && bytes > t.options.recentBytes() {
			return &rollout.FieldError{
				Row: row, Field: "group", Value: fmt.Sprintf("%d bytes", bytes),
				Remedy: fmt.Sprintf("insert groups of at most a shard's %d bytes, or raise capacity_bytes",
					t.options.recentBytes()),
			}
		}
		row += len(g.Rollouts)
	}
	return nil
}

// checkPendingFits refuses a group that would have to leave before it is whole, as it leaves whole while it waits for
// its rewards.
func (t *Table) checkPendingFits(g rollout.Group, row int) error {
	if t.options.PendingRewards == 0 || !slices.ContainsFunc(g.Rollouts, (*rollout.Rollout).Pending) {
		return nil
	}
	n, bytes := len(g.Rollouts), groupBytes(g)
	if n <= t.options.recentCapacity() && bytes <= t.options.recentBytes() {
		return nil
	}
	return &rollout.FieldError{Row: row, Field: "group", Value: fmt.Sprintf("%d rollouts of %d bytes", n, bytes),
		Remedy: fmt.Sprintf("insert groups with pending rewards of at most the %s that a shard has for others than "+
			"correct ones, or raise capacity and capacity_bytes",
			size{t.options.recentCapacity(), t.options.recentBytes()})}
}

func groupBytes(g rollout.Group) int64 {
	sum := int64(0)
	for _, r := range g.Rollouts {
		sum += r.Bytes()
	}
	return sum
}

// prepare computes the items of the groups, except for IDs and group numbers. It refuses what has no priority base or
// no steps.
func (t *Table) prepare(a *arrivals, groups []rollout.Group) error {
	a.items, a.bases = a.items[:0], a.bases[:0]
	a.rollouts, a.sizes = a.rollouts[:0], a.sizes[:0]
	a.greatest = rollout.NoVersion
	row := 0
	for _, g := range groups {
		if err := t.split(a, g, row); err != nil {
			return err
		}
		pending := t.options.PendingRewards > 0 && slices.ContainsFunc(g.Rollouts, (*rollout.Rollout).Pending)
		m := t.computeAdvantages(a, g, pending)
		entering := a.selection.chosen
		for k, p := range a.parts {
			whole := g.Rollouts[p.of]
			adv := a.values[p.of]
			if t.options.StepReturns != 0 {
				adv = a.values[k]
			}
			if whole.Advantage != nil {
				adv = *whole.Advantage
			}
			it := item{
				LastUse: rollout.NoVersion, Advantage: adv, Mean: float32(m.Mean), Std: float32(m.Std()),
				Flags: flagIf(!pending && whole.Reward >= *t.options.PositiveThreshold, correct) | flagIf(pending, waits),
			}
			if t.options.Select > 0 {
				if len(entering) == 0 || entering[0] != p.of {
					it.set(unselected)
				} else {
					entering = entering[1:]
				}
			}
			if err := t.prepareItem(a, p.rollout, &it, row+p.of); err != nil {
				return err
			}
		}
		row += len(g.Rollouts)
		a.sizes = append(a.sizes, len(a.parts))
	}
	clear(a.parts)
	return nil
}

// computeAdvantages computes the advantages of a group into a.values: of its rollouts, or with step returns of its
// steps. It returns the moments of the rewards. Of a group with pending rewards none is known.
func (t *Table) computeAdvantages(a *arrivals, g rollout.Group, pending bool) advantage.Moments {
	if pending {
		a.values = a.values[:0]
		for range g.Rollouts {
			a.values = append(a.values, float32(math.NaN()))
		}
		return advantage.Moments{Mean: math.NaN(), Var: math.NaN()}
	}
	if t.options.Select > 0 {
		t.choose(a, g)
		return t.advantagesOfChosen(a, g)
	}
	a.values = a.values[:0]
	if t.options.StepReturns != 0 {
		for _, p := range a.parts {
			a.values = append(a.values, p.rollout.Reward)
		}
	} else {
		for _, r := range g.Rollouts {
			a.values = append(a.values, r.Reward)
		}
	}
	if t.options.Advantage.GroupRelative() {
		return advantage.OfGroup(a.values, a.values, t.options.Advantage)
	}
	m := advantage.MomentsOf(a.values)
	clear(a.values)
	return m
}

// prepareItem completes an item with what differs between the steps of a rollout, and adds it.
func (t *Table) prepareItem(a *arrivals, r *rollout.Rollout, it *item, row int) error {
	span := r.Span()
	if span.Greatest > a.greatest {
		a.greatest, a.row = span.Greatest, row
	}
	it.Version, it.MeanCeil, it.Greatest, it.Bytes = span.Least, span.MeanCeil(), span.Greatest, r.Bytes()
	t.pinIfItHolds(it, r)
	a.items = append(a.items, *it)
	a.rollouts = append(a.rollouts, r)
	if t.options.Sampler != Prioritized {
		return nil
	}
	base := t.options.ownBase(r, it.Advantage)
	if it.is(waits) {
		base = t.options.PriorityEpsilon // for now
	}
	switch {
	case t.options.PriorityBase == BaseTDError && t.options.takesOwnBase() && len(r.Values) == 0:
		return &rollout.FieldError{Row: row, Field: "values", Value: "absent", Remedy: "give the critic's values, or " +
			"configure entry max with entry_until replay or report: priority_base td_error is made of them"}
	case !(base-t.options.PriorityEpsilon <= maxMeasurement):
		return &rollout.FieldError{Row: row, Field: "priority", Value: fmt.Sprint(base),
			Remedy: fmt.Sprintf("let the priority function return a number from %g to %g", -maxMeasurement,
				maxMeasurement)}
	}
	a.bases = append(a.bases, base)
	return nil
}

// pinIfItHolds pins a rollout that meets the condition for it.
func (t *Table) pinIfItHolds(it *item, r *rollout.Rollout) {
	if t.pin != nil && t.pin.Holds(&row{item: it, rollout: r}) {
		it.set(pinned)
	}
}

// checkRoom refuses an insertion into queues that lack room (invariant 2), for good if it is larger than they are. Only
// insertions take room, and they hold Table.mu, so the room it finds stays.
func (t *Table) checkRoom(a *arrivals, groups []rollout.Group) error {
	if !t.options.Sampler.Consumes() {
		return nil
	}
	needs := t.needs(a, groups)
	for i, n := range needs {
		if n.count > t.options.shardCapacity() || n.bytes > t.options.shardBytes() {
			t.refused += uint64(len(a.items))
			return fmt.Errorf("inserting %s into %s, which holds at most %s; insert fewer groups at a time: %w",
				n, t.shards[i].place(), size{t.options.shardCapacity(), t.options.shardBytes()}, rollout.ErrInvalid)
		}
	}
	for i, s := range t.shards {
		var room size
		s.do(func(s *shard) {
			s.expire()
			room = size{t.options.shardCapacity() - s.present, t.options.shardBytes() - s.bytes}
		})
		if n := needs[i]; n.count > room.count || n.bytes > room.bytes {
			return fmt.Errorf("inserting %s into %s with room for %s: %w", n, s.place(), room, rollout.ErrFull)
		}
	}
	return nil
}

// checkRecorded returns [ErrUnrecorded] if a recovered table might give n more ids again, and an error that wraps
// rollout.ErrInvalid if no table may give as many at once.
func (t *Table) checkRecorded(n int) error {
	switch {
	case t.changes == nil:
		return nil
	case n > unrecorded:
		t.refused += uint64(n)
		return fmt.Errorf("inserting %d rollouts at once; insert at most %d at a time: %w", n, unrecorded,
			rollout.ErrInvalid)
	case uint64(t.lastID)+uint64(n) > uint64(t.recorded)+unrecorded:
		return fmt.Errorf("inserting %d rollouts: %w", n, ErrUnrecorded)
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

// needs returns what each shard would get.
func (t *Table) needs(a *arrivals, groups []rollout.Group) []size {
	needs := make([]size, len(t.shards))
	next := 0
	for g := range groups {
		n := &needs[t.shardOfGroup(g)]
		for range a.sizes[g] {
			if it := &a.items[next]; !it.is(unselected) {
				n.count++
				n.bytes += it.Bytes
			}
			next++
		}
	}
	return needs
}

// shardOfGroup returns the shard of the g-th of the next groups: shards take turns.
func (t *Table) shardOfGroup(g int) int {
	return int((t.lastGroup + uint64(g)) % uint64(len(t.shards)))
}

// addToShards numbers the groups and rollouts and adds them to their shards.
func (t *Table) addToShards(ctx context.Context, a *arrivals) {
	next := 0
	if t.options.Entry == EnterMax { // all enter at the largest base, so each shard sees all of them before any enters
		for g, n := range a.sizes {
			t.shards[t.shardOfGroup(g)].do(func(s *shard) { s.seeBases(a, next, next+n) })
			next += n
		}
		next = 0
	}
	for _, n := range a.sizes {
		s := t.shards[t.shardOfGroup(0)]
		t.lastGroup++
		for i := range n {
			t.lastID++
			it := &a.items[next+i]
			it.ID, it.Group = t.lastID, t.lastGroup
		}
		s.do(func(s *shard) {
			s.expire()
			s.history.begin(ctx)
			s.counts.Groups++
			s.addGroup(a, next, next+n)
		})
		next += n
	}
	clear(a.rollouts) // so that the pool does not keep rollouts alive
}

// part is one future item: a rollout of a group, or a step of one.
type part struct {
	rollout *rollout.Rollout
	of      int // index in the group of the whole rollout
}

// split puts the parts of a group into a.parts: its rollouts, or their steps.
func (t *Table) split(a *arrivals, g rollout.Group, row int) error {
	a.parts = a.parts[:0]
	for i, r := range g.Rollouts {
		if t.options.Unit != UnitStep {
			a.parts = append(a.parts, part{r, i})
			continue
		}
		steps, err := t.steps(r)
		if err != nil {
			err.Row = row + i
			return err
		}
		for _, s := range steps {
			a.parts = append(a.parts, part{s, i})
		}
	}
	if capacity := t.options.shardCapacity(); len(a.parts) > capacity { // validate checked rollouts
		return &rollout.FieldError{
			Row: row, Field: "group", Value: fmt.Sprintf("%d steps", len(a.parts)),
			Remedy: fmt.Sprintf("insert groups of no more steps than a shard's capacity %d, or raise capacity",
				capacity),
		}
	}
	return nil
}

// steps returns the steps of a rollout, whose rewards are their turns', or what StepReturns makes of them.
func (t *Table) steps(r *rollout.Rollout) ([]*rollout.Rollout, *rollout.FieldError) {
	steps, err := r.Steps()
	if err != nil || t.options.StepReturns == 0 || len(r.Turns) == 0 {
		return steps, err
	}
	for i, reward := range r.Returns(t.options.StepReturns, t.options.StepDiscount) {
		if !(math.Abs(float64(reward)) <= rollout.MaxReward) {
			return nil, &rollout.FieldError{Field: "turns", Value: fmt.Sprintf("rewards whose return from turn %d "+
				"on is %v", i, reward), Remedy: "give rewards whose sums are within -1e9 to 1e9"}
		}
		steps[i].Reward, steps[i].Turns[0].Reward = reward, reward
	}
	return steps, nil
}

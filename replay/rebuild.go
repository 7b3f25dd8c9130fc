package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Recovered is what was read back of a table's cuts.
type Recovered struct {
	Books    *Books      // of the last cut; nil where they were lost, with Lossy only
	Kept     []Kept      // in any order, with their last uses
	Requests []Insertion // the oldest first

	// Lossy says that some of it may be lost. Then the books are made to balance: what is missing counts as evicted by damage,
	// and a group of unit group that is not whole is missing as a whole.
	Lossy bool
}

// Rebuilt says what a rebuilt table owes to the crash.
type Rebuilt struct {
	Returned uint64 // draws that were on lease and have gone back
	Lost     int    // rollouts that the books know and that could not be read; Lossy only
	Dropped  int    // rollouts that could be read and were left out all the same: of groups not whole, or beyond the capacity
}

// Rebuild gives an empty table the content of another one's cuts: rollouts with their uses, priorities and whether they are fresh,
// the version, the ids given, the insertions remembered, the statistics. Draws that were on lease have gone back, uncounted.
// Sampler epoch begins a new epoch, and batches remembered by request id are forgotten. Unless it is lossy, what does not
// fit together is refused, with an error that wraps rollout.ErrInvalid (invariants 1, 2 and 11).
//
// The table is tracked from then on, and what it was given counts as cut.
func (t *Table) Rebuild(r Recovered) (Rebuilt, error) {
	t.lockAll()
	defer t.unlockAll()
	var done Rebuilt
	if t.lastID != 0 || t.version != 0 {
		return done, fmt.Errorf("rebuilding a table that is at version %d with %d rollouts inserted: give it a new one: %w", t.version, t.lastID, rollout.ErrInvalid)
	}
	slices.SortFunc(r.Kept, func(a, b Kept) int { return cmp.Compare(a.ID, b.ID) })
	if r.Lossy {
		done.Dropped = t.mend(&r)
	}
	if err := t.checkRecovered(&r); err != nil {
		return done, fmt.Errorf("rebuilding a table: %w", err)
	}
	fresh := make([]*shard, len(t.shards))
	for i := range fresh {
		fresh[i] = newShard(t.options, i)
		fresh[i].begin(&r.Books.Shards[i], r.Books.Version)
	}
	if err := refill(fresh, r.Kept); err != nil {
		return done, fmt.Errorf("rebuilding a table: %w", err)
	}
	for _, s := range fresh {
		done.Returned += s.takeLeasesBack()
		if r.Lossy {
			done.Lost += s.mendBooks()
		}
		if err := s.balance(); err != nil {
			return done, fmt.Errorf("rebuilding shard %d: %w", s.number, err)
		}
		if s.weighing != nil {
			s.weighing.renew()
		}
	}
	t.adopt(fresh, &r)
	return done, nil
}

// adopt takes over what was rebuilt, and begins clean notes.
func (t *Table) adopt(fresh []*shard, r *Recovered) {
	b := r.Books
	t.version, t.lastID, t.lastGroup, t.refused, t.ignored = b.Version, b.LastID, b.LastGroup, b.Refused, b.Ignored
	t.ratios, t.moved = b.Ratios, b.Moved
	t.inserted = newMemory[idRange](rememberedInsertions)
	for _, q := range r.Requests {
		t.inserted.put(q.BatchID, idRange{q.First, q.Count})
	}
	t.notes = new(tableNotes)
	for i, s := range t.shards {
		s.shard = fresh[i]
		s.note(newNotes(len(s.items)))
	}
}

// checkRecovered refuses what no cut of a table with these options can have told.
func (t *Table) checkRecovered(r *Recovered) error {
	b := r.Books
	if b == nil {
		return fmt.Errorf("its books are missing: %w", rollout.ErrInvalid)
	}
	if err := sameOptions(b.Options, t.identity()); err != nil {
		return err
	}
	if len(b.Shards) != len(t.shards) {
		return fmt.Errorf("its books are of %d shards, the options say %d: %w", len(b.Shards), len(t.shards), rollout.ErrInvalid)
	}
	if !r.Lossy && len(r.Requests) != b.Requests {
		return fmt.Errorf("%d insertions are remembered, its books say %d: %w", len(r.Requests), b.Requests, rollout.ErrInvalid)
	}
	seen := make(map[string]bool, len(r.Requests))
	for _, q := range r.Requests {
		if seen[q.BatchID] || !q.possible(b) {
			return fmt.Errorf("the insertion %q of ids %d to %d is remembered, of %d given: %w", q.BatchID, q.First, uint64(q.First)+uint64(q.Count)-1, b.LastID, rollout.ErrInvalid)
		}
		seen[q.BatchID] = true
	}
	for i := range r.Kept {
		if i > 0 && r.Kept[i-1].ID == r.Kept[i].ID {
			return fmt.Errorf("rollout %d is there twice: %w", r.Kept[i].ID, rollout.ErrInvalid)
		}
		if err := t.checkKept(&r.Kept[i], b); err != nil {
			return err
		}
	}
	return nil
}

// checkKept refuses a rollout that no table with these options and books can hold.
func (t *Table) checkKept(k *Kept, b *Books) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("rollout %d %s: %w", k.ID, fmt.Sprintf(format, args...), rollout.ErrInvalid)
	}
	switch {
	case k.Rollout == nil:
		return bad("has no content")
	case k.ID == 0 || k.ID > b.LastID:
		return bad("is none of the %d given", b.LastID)
	case k.Group == 0 || k.Group > b.LastGroup || k.Shard != int((k.Group-1)%uint64(len(t.shards))):
		return bad("is of group %d of %d, in shard %d of %d", k.Group, b.LastGroup, k.Shard, len(t.shards))
	case k.Uses < 0 || t.options.MaxUses > 0 && int(k.Uses) >= t.options.MaxUses || t.options.Sampler.Consumes() && k.Uses > 0:
		return bad("has %d uses, max_uses is %d", k.Uses, t.options.MaxUses)
	case k.LastUse < rollout.NoVersion || k.LastUse > b.Version:
		return bad("was used at version %d, the table is at %d", k.LastUse, b.Version)
	case k.Marks&^allMarks != 0:
		return bad("has marks %b", k.Marks)
	case k.Marks&MarkKept != 0 && t.options.Retention != KeepPositive:
		return bad("is kept as correct with retention %s", t.options.Retention)
	case t.options.Prioritization != nil && !(k.Base > 0 && k.Base <= math.MaxFloat64):
		return bad("has priority %g", k.Base)
	}
	span := k.Rollout.Span()
	if span.Least < 0 || span.Greatest > b.Version {
		return bad("has tokens of versions %d to %d, the table is at %d", span.Least, span.Greatest, b.Version) // invariant 1
	}
	if s := t.options.MaxStaleness; s > 0 && int64(span.Least) < int64(b.Version)-int64(s) {
		return bad("is of version %d, max_staleness %d, and the table at %d", span.Least, s, b.Version)
	}
	return nil
}

// begin gives a new shard what stands in the books.
func (s *shard) begin(b *shardBooks, v rollout.Version) {
	s.version, s.batches, s.counts = v, b.Batches, b.Counts.clone()
	s.counts.UsesPresent = rollout.Histogram{}
	if w := s.weighing; w != nil {
		w.tau, w.rate = b.Tau, w.o.rate(b.Tau)
		w.largest = b.Largest
	}
}

// refill puts rollouts, in order of their ids, back where they were.
func refill(shards []*shard, all []Kept) error {
	for len(all) > 0 {
		s := shards[all[0].Shard]
		n := 1
		if s.units == groups {
			for n < len(all) && all[n].Group == all[0].Group {
				n++
			}
			if n != s.options.GroupSize {
				return fmt.Errorf("group %d has %d rollouts, group_size is %d: %w", all[0].Group, n, s.options.GroupSize, rollout.ErrInvalid)
			}
		}
		s.readmit(all[:n])
		all = all[n:]
	}
	for _, s := range shards {
		if r := s.retention; r != nil && (r.recent.Len > r.recentSize || r.kept.Len > r.keptSize || r.recent.Bytes > r.recentBytes || r.kept.Bytes > r.keptBytes) ||
			s.present > s.options.shardCapacity() || s.bytes > s.options.shardBytes() {
			return fmt.Errorf("shard %d has %d rollouts of %d bytes, more than its capacity: %w", s.number, s.present, s.bytes, rollout.ErrInvalid) // invariant 2
		}
	}
	return nil
}

// readmit takes a unit back.
func (s *shard) readmit(unit []Kept) {
	first, last := none, none
	for i := range unit {
		slot := s.readmitOne(&unit[i])
		if first == none {
			first, last = slot, slot
		}
		if s.units == groups {
			s.links[last].Mate, s.links[slot].Mate = slot, first
			last = slot
		}
	}
	s.sampler.add(first)
	if it := &s.items[first]; it.Uses > 0 {
		s.sampler.used(first, it.Uses)
	}
	if unit[0].Marks&MarkFresh != 0 && s.retention != nil {
		s.fresh.push(&s.store, first)
	}
}

func (s *shard) readmitOne(k *Kept) int32 {
	span := k.Rollout.Span()
	it := item{
		ID: k.ID, Group: k.Group, Bytes: k.Rollout.Bytes(), Version: span.Least, MeanCeil: span.MeanCeil(), Greatest: span.Greatest,
		Uses: k.Uses, LastUse: k.LastUse, Advantage: k.Advantage, Mean: k.Mean, Std: k.Std,
		Flags: flagged(k.Marks&MarkCorrect != 0, correct) | flagged(k.Marks&MarkKept != 0, kept) | flagged(k.Marks&MarkAtMax != 0, atMax),
	}
	slot := s.put(&it, k.Rollout)
	switch {
	case s.retention == nil:
	case it.is(kept):
		s.retention.kept.push(&s.store, slot)
	default:
		s.retention.recent.push(&s.store, slot)
	}
	if s.ages != nil {
		s.ages.add(slot)
	}
	s.index.add(slot)
	s.present++
	s.bytes += it.Bytes
	s.remaining += int64(s.maxUses) - int64(it.Uses)
	s.counts.UsesPresent.Add(int64(it.Uses))
	if s.weighing != nil {
		s.weighing.bases = append(s.weighing.bases, -k.Base)
	}
	return slot
}

// takeLeasesBack counts the draws that were on lease as returned.
func (s *shard) takeLeasesBack() uint64 {
	n := s.counts.onLease()
	s.counts.Returned += n
	return n
}

// balance checks that the books balance (invariant 11).
func (s *shard) balance() error {
	c := &s.counts
	uses := uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	if uint64(s.present) == c.present() && uses == c.Acknowledged && c.left() == c.UsesAtEviction.Count() {
		return nil
	}
	return fmt.Errorf("it holds %d rollouts, its books say %d; their uses and those of the %d evicted come to %d, its books say %d: %w",
		s.present, c.present(), c.left(), uses, c.Acknowledged, rollout.ErrInvalid)
}

package replay

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Changes is what became of a tracked table between two cuts, the state that the later one found. Applied in order to what
// the earlier ones left, changes give the table as of one moment: that is what a journal writes.
type Changes struct {
	// Anew tells that whatever was written before is void: the first cut since [Table.Track], or since [Table.Restore].
	// Inserted and Requests are then all that there is.
	Anew bool

	Inserted []Kept       // that are still present, by ascending ID; what came and went between two cuts is in neither list
	Removed  []rollout.ID // of earlier cuts, ascending
	Changed  []Use        // of rollouts of earlier cuts that are still present, by ascending ID
	Requests []Insertion  // remembered since, the oldest first
	Books    *Books
}

// Empty tells whether a cut found no rollout and no request that the one before did not. Books may differ all the same.
func (c *Changes) Empty() bool {
	return !c.Anew && len(c.Inserted)+len(c.Removed)+len(c.Changed)+len(c.Requests) == 0
}

// Kept is one rollout that a table holds, with all that the table knows of it.
type Kept struct {
	Use
	Group     uint64 // global number
	Shard     int
	Advantage float32
	Mean      float32 // of the group's rewards
	Std       float32 // population, of the group's rewards
	Rollout   *rollout.Rollout
}

// Use is what changes of a rollout while a table holds it. Draws on lease are not in it: in a table that is rebuilt they
// have gone back.
type Use struct {
	ID      rollout.ID
	Uses    int32           // acknowledged
	LastUse rollout.Version // of the table; rollout.NoVersion before the first
	Base    float64         // of its priority, epsilon included; 0 with a sampler that does not weigh
	Marks   Marks
}

// Marks are yes-or-no facts of a rollout that a table holds.
type Marks uint8

// The marks.
const (
	MarkCorrect Marks = 1 << iota // reward at or above the threshold, at insertion
	MarkKept                      // by retention, as correct
	MarkFresh                     // not handed out as fresh, acknowledged draws counting; of a group's first rollout for the group
	MarkAtMax                     // entered at the largest base, and no report came since
	allMarks    = 1<<iota - 1
)

// Insertion is one insertion that is remembered by the caller's batch id: see [Table.InsertOnce].
type Insertion struct {
	BatchID string
	First   rollout.ID
	Count   int
}

// Books is what a table carries beside its rollouts: its version, the numbers given last, what it counted, what trainers
// reported. Fields are exported for encoding/gob.
type Books struct {
	Options   identity
	Version   rollout.Version
	LastID    rollout.ID
	LastGroup uint64
	Refused   uint64
	Ignored   uint64
	Ratios    ratios
	Moved     rollout.Version
	Requests  int // insertions remembered, the latest so many
	Shards    []shardBooks
}

type shardBooks struct {
	Batches uint64
	Counts  counts
	Tau     float64
	Largest float64 // base known
}

// Present is how many rollouts the table held.
func (b *Books) Present() int {
	n := uint64(0)
	for i := range b.Shards {
		n += b.Shards[i].Counts.present()
	}
	return int(n)
}

// OnLease is how many draws were handed out and not settled.
func (b *Books) OnLease() uint64 {
	n := uint64(0)
	for i := range b.Shards {
		n += b.Shards[i].Counts.onLease()
	}
	return n
}

// AppendBinary appends the books' binary form.
func (b *Books) AppendBinary(to []byte) ([]byte, error) {
	w := bytes.NewBuffer(to)
	type plain Books // which has no methods that gob would call
	if err := gob.NewEncoder(w).Encode((*plain)(b)); err != nil {
		return nil, fmt.Errorf("encoding a table's books: %w", err)
	}
	return w.Bytes(), nil
}

// UnmarshalBinary reads what AppendBinary wrote.
func (b *Books) UnmarshalBinary(from []byte) error {
	type plain Books
	var read plain
	if err := gob.NewDecoder(bytes.NewReader(from)).Decode(&read); err != nil {
		return fmt.Errorf("decoding a table's books: %w", err)
	}
	*b = Books(read)
	return nil
}

// Track makes the table note from now on what changes, for [Table.Cut]. The next cut tells everything. A table that is not
// tracked spends nothing on it.
func (t *Table) Track() {
	t.lockAll()
	defer t.unlockAll()
	t.track()
}

// track starts the notes anew. It holds every lock.
func (t *Table) track() {
	t.notes = &tableNotes{anew: true}
	t.inserted.each(func(id string, r idRange) {
		t.notes.requests = append(t.notes.requests, Insertion{id, r.First, r.Count})
	})
	for _, s := range t.shards {
		s.note(newNotes(len(s.items)))
		for slot, r := range s.rollouts {
			if r != nil && !s.items[slot].is(gone) {
				s.notes.entered(int32(slot), s.items[slot].Bytes)
			}
		}
	}
}

// Cut returns what changed since the last cut, as of one moment: every lock is held, for the time that it takes to copy what
// changed. The rollouts are shared. It returns nil if the table is not tracked.
func (t *Table) Cut() *Changes {
	c := t.cut()
	if c == nil {
		return nil
	}
	slices.SortFunc(c.Inserted, func(a, b Kept) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Changed, func(a, b Use) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(c.Removed)
	return c
}

func (t *Table) cut() *Changes {
	t.lockAll()
	defer t.unlockAll()
	if t.notes == nil {
		return nil
	}
	c := &Changes{Anew: t.notes.anew, Requests: t.notes.requests, Books: t.books()}
	*t.notes = tableNotes{}
	for _, s := range t.shards {
		s.cut(c)
	}
	return c
}

// cut adds what the shard noted.
func (s *shard) cut(c *Changes) {
	n := s.notes
	c.Removed = append(c.Removed, n.removed...)
	n.removed = n.removed[:0]
	leased := s.freshOnLease()
	for _, slot := range n.slots {
		mark := n.marks[slot]
		n.marks[slot] = 0
		switch {
		case mark&noteEntered != 0:
			c.Inserted = append(c.Inserted, s.keptAt(slot, leased))
		case mark&noteChanged != 0:
			c.Changed = append(c.Changed, s.useAt(slot, leased))
		}
	}
	n.slots, n.bytes = n.slots[:0], 0
}

// freshOnLease is the slots whose draw as fresh is not settled: the rebuilt table has it back.
func (s *shard) freshOnLease() map[int32]bool {
	var slots map[int32]bool
	for _, l := range s.leases {
		for i, slot := range l.Slots {
			if !l.Batch.Draws[i].Fresh {
				break // they come first
			}
			if slots == nil {
				slots = make(map[int32]bool)
			}
			slots[slot] = true
		}
	}
	return slots
}

func (s *shard) keptAt(slot int32, leased map[int32]bool) Kept {
	it := &s.items[slot]
	return Kept{
		Use: s.useAt(slot, leased), Group: it.Group, Shard: s.number,
		Advantage: it.Advantage, Mean: it.Mean, Std: it.Std, Rollout: s.rollouts[slot],
	}
}

func (s *shard) useAt(slot int32, leased map[int32]bool) Use {
	it := &s.items[slot]
	u := Use{ID: it.ID, Uses: it.Uses, LastUse: it.LastUse}
	if s.weighing != nil {
		u.Base = math.Abs(s.weighing.bases[slot])
	}
	mark := func(holds bool, m Marks) {
		if holds {
			u.Marks |= m
		}
	}
	mark(it.is(correct), MarkCorrect)
	mark(it.is(kept), MarkKept)
	mark(it.is(fresh|shelved) || leased[slot] && s.units.isFirst(&s.store, slot), MarkFresh)
	mark(it.is(atMax), MarkAtMax)
	return u
}

// books copies what the table carries beside its rollouts. It holds every lock.
func (t *Table) books() *Books {
	b := &Books{
		Options: t.identity(), Version: t.version, LastID: t.lastID, LastGroup: t.lastGroup,
		Refused: t.refused, Ignored: t.ignored, Moved: t.moved, Requests: len(t.inserted.ring),
		Ratios: ratios{Bins: slices.Clone(t.ratios.Bins), Version: t.ratios.Version},
	}
	for _, s := range t.shards {
		sb := shardBooks{Batches: s.batches, Counts: s.counts.clone()}
		if w := s.weighing; w != nil {
			sb.Tau, sb.Largest = w.tau, w.largest
		}
		b.Shards = append(b.Shards, sb)
	}
	return b
}

// Noted returns the payload of the rollouts that came since the last cut, in bytes: what the next one has to write.
func (t *Table) Noted() int64 {
	var n int64
	for _, s := range t.shards {
		s.mu.Lock()
		if s.notes != nil {
			n += s.notes.bytes
		}
		s.mu.Unlock()
	}
	return n
}

func (t *Table) lockAll() {
	t.mu.Lock()
	for _, s := range t.shards {
		s.mu.Lock()
	}
}

func (t *Table) unlockAll() {
	for _, s := range t.shards {
		s.mu.Unlock()
	}
	t.mu.Unlock()
}

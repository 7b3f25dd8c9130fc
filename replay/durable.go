package replay

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// JournalView is what a journal needs of a table: everything that changed since the last look, and a table made of what
// was written. Its methods may be called concurrently.
type JournalView struct{ table *Table }

// JournalView returns the table as a journal uses it.
func (t *Table) JournalView() JournalView { return JournalView{t} }

// Changes is what changed in a tracked table between two cuts. Applied in order, changes give the table as of one
// moment.
type Changes struct {
	// Reset voids whatever was written before: it is set by the first cut since [JournalView.Track] or [Table.Restore].
	// Inserted, Requests and Consumed are then complete.
	Reset bool

	// still present, by ascending ID; what came and went between two cuts is in no list. A rollout known from earlier cuts
	// is among them again if its reward or advantage changed.
	Inserted []Stored
	Removed  []rollout.ID // known from earlier cuts, ascending
	Changed  []Usage      // known from earlier cuts and still present, by ascending ID
	Requests []Insertion  // remembered since, the oldest first
	Consumed []Consumed   // since, the oldest first
	Labelled []Labelling  // since, the oldest first; one without Labels is forgotten
	State    *State

	// OnDisk tells the table that the changes, and all before them, are on disk; see [ErrUnrecorded]. It may be called
	// late, or never if later ones are.
	OnDisk func()
}

// ErrUnrecorded is returned for insertions and draws in a tracked table that has given out as many ids as a recovered
// one passes over, 1,048,576, since the newest cut that is on disk ([Changes].OnDisk): write what was cut, and repeat
// the call.
var ErrUnrecorded = errors.New("the table's journal is behind: too many ids were given since its last write")

// unrecorded is how many ids of rollouts, and of a shard's batches, a table may give beyond those of a cut that is on
// disk. A table that is recovered from the cut passes over as many: callers may know them, and an id that has named one
// rollout or batch never names another.
const unrecorded = 1 << 20

// Stored is one rollout in a table, with all that the table knows of it.
type Stored struct {
	Usage
	Group     uint64 // global number
	Shard     int
	Advantage float32
	Mean      float32 // of the group's rewards
	Std       float32 // population, of the group's rewards
	Rollout   *rollout.Rollout
}

// Usage is what changes of a rollout while a table holds it. Draws on lease are not in it: a rebuilt table has them
// back.
type Usage struct {
	ID      rollout.ID
	Uses    int32           // acknowledged
	LastUse rollout.Version // of the table; rollout.NoVersion before the first
	Base    float64         // of its priority, epsilon included; 0 unless the sampler is prioritized
	Marks   Marks
}

// Marks are flags of a stored rollout.
type Marks uint8

// The marks.
const (
	MarkCorrect  Marks = 1 << iota // reward at or above the threshold, at insertion
	MarkReserved                   // in the part that retention positive reserves for correct rollouts
	// not handed out as fresh, counting acknowledged draws; a group's first rollout stands for the group
	MarkFresh
	MarkAtMax  // still at the largest base, at which it entered
	MarkPinned // max_staleness does not evict it
	MarkWaits  // for the rewards of its group
	allMarks   = 1<<iota - 1
)

// Insertion is one insertion remembered by its batch id: see [ServiceView.InsertOnce].
type Insertion struct {
	BatchID string
	First   rollout.ID
	Count   int
	Digest  Digest // of its contents
}

// possible reports whether a table in this state can have given the ids.
func (q *Insertion) possible(st *State) bool {
	return q.BatchID != "" && q.Count >= 0 && uint64(q.Count) <= uint64(st.LastID) &&
		q.First > 0 && uint64(q.First)-1 <= uint64(st.LastID)-uint64(q.Count) // does not overflow
}

// State is what a table carries besides its rollouts. Fields are exported for encoding/gob.
type State struct {
	Identity  string // see Options.identity
	Version   rollout.Version
	LastID    rollout.ID
	LastGroup uint64
	Refused   uint64
	Ignored   uint64
	Ratios    ratios
	Moved     rollout.Version // when the age decay last moved
	Requests  int             // how many of the latest insertions are remembered
	Shards    []shardState
}

type shardState struct {
	Batches uint64
	Skipped uint64
	Counts  counts
	Tau     float64
	Largest float64 // base known
}

// Present is the number of rollouts in the table.
func (st *State) Present() int {
	n := uint64(0)
	for i := range st.Shards {
		n += st.Shards[i].Counts.present()
	}
	return int(n)
}

// plainState has no methods for gob to call.
type plainState State

// StateEncoder encodes states one after another. gob describes its types once, which takes longer than a state: the
// encoder puts the description before each state, so that it can be read by itself. The zero value is ready.
type StateEncoder struct {
	gob   *gob.Encoder
	out   bytes.Buffer // of gob
	types []byte
}

// Encode returns the state's binary form.
func (e *StateEncoder) Encode(st *State) ([]byte, error) {
	if e.gob == nil {
		e.gob = gob.NewEncoder(&e.out)
		if err := e.encode(st); err != nil { // with the types
			return nil, err
		}
		e.types = bytes.Clone(e.out.Bytes())
		if err := e.encode(st); err != nil {
			return nil, err
		}
		e.types = e.types[:len(e.types)-e.out.Len()]
	} else if err := e.encode(st); err != nil {
		return nil, err
	}
	return slices.Concat(e.types, e.out.Bytes()), nil
}

func (e *StateEncoder) encode(st *State) error {
	e.out.Reset()
	if err := e.gob.Encode((*plainState)(st)); err != nil {
		return fmt.Errorf("encoding a table's state: %w", err)
	}
	return nil
}

// UnmarshalBinary reads what [StateEncoder] wrote.
func (st *State) UnmarshalBinary(from []byte) error {
	var read plainState
	if err := gob.NewDecoder(bytes.NewReader(from)).Decode(&read); err != nil {
		return fmt.Errorf("decoding a table's state: %w", err)
	}
	*st = State(read)
	return nil
}

// tableChanges is what a tracked table notes for the next cut, apart from its shards.
type tableChanges struct {
	reset    bool
	requests []Insertion
	labelled []Labelling
}

// changeLog is what a shard of a tracked table notes for the next cut: a byte per slot, and each changed slot once, so
// that it never takes more memory than the table.
type changeLog struct {
	marks    []uint8 // by slot
	slots    []int32 // that have a mark
	removed  []rollout.ID
	consumed []Consumed
}

const (
	changeListed  uint8 = 1 << iota // is in slots
	changeEntered                   // inserted since the last cut
	changeUsage                     // present at the last cut, with other uses, flags or base now
	changeReward                    // present at the last cut, with another reward or advantage now
)

func newChangeLog(slots int) *changeLog { return &changeLog{marks: make([]uint8, slots)} }

func (l *changeLog) mark(slot int32, mark uint8) {
	for int(slot) >= len(l.marks) {
		l.marks = append(l.marks, 0)
	}
	if l.marks[slot]&changeListed == 0 {
		l.slots = append(l.slots, slot)
	}
	l.marks[slot] |= changeListed | mark
}

func (l *changeLog) inserted(slot int32) { l.mark(slot, changeEntered) }

func (l *changeLog) changed(slot int32) { l.mark(slot, changeUsage) }

func (l *changeLog) rewritten(slot int32) { l.mark(slot, changeReward) }

// evicted notes an eviction. A rollout inserted since the last cut leaves no trace.
func (l *changeLog) evicted(slot int32, it *item) {
	if int(slot) < len(l.marks) {
		entered := l.marks[slot]&changeEntered != 0
		l.marks[slot] &= changeListed
		if entered {
			return
		}
	}
	l.removed = append(l.removed, it.ID)
}

// Track makes the table note what changes from now on, for [JournalView.Cut]; the next cut holds everything. A table
// that is not tracked spends nothing on it.
func (d JournalView) Track() {
	d.table.lockAll()
	defer d.table.unlockAll()
	d.table.track()
}

// track starts new change logs. What a table gave before it was tracked counts as recorded. The caller must hold every
// lock.
func (t *Table) track() {
	if t.changes == nil {
		t.recorded = t.lastID
		for _, s := range t.shards {
			s.recorded = s.given()
		}
	}
	t.changes = &tableChanges{reset: true}
	t.insertedBefore.each(func(id string, r idRange) {
		t.changes.requests = append(t.changes.requests, Insertion{id, r.First, r.Count, r.Digest})
	})
	t.changes.labelled = t.labels.list()
	for _, s := range t.shards {
		s.setChangeLog(newChangeLog(len(s.items)))
		s.changes.consumed = slices.Collect(maps.Values(s.consumed.bySlot))
		for slot, r := range s.rollouts {
			if r != nil && !s.items[slot].is(evicted) {
				s.changes.inserted(int32(slot))
			}
		}
	}
}

func (s *shard) setChangeLog(l *changeLog) {
	s.changes = l
	if s.retention != nil {
		s.retention.changes = l
	}
}

// Cut returns what changed since the last cut, as of one moment: every lock is held for the time it takes to copy what
// changed. The rollouts are shared. It returns nil if the table is not tracked. Those of again that are still present
// are in Inserted whether they changed or not.
func (d JournalView) Cut(again ...rollout.ID) *Changes {
	c := d.table.cut(again)
	if c == nil {
		return nil
	}
	slices.SortFunc(c.Inserted, func(a, b Stored) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Changed, func(a, b Usage) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(c.Removed)
	return c
}

func (t *Table) cut(again []rollout.ID) *Changes {
	t.lockAll()
	defer t.unlockAll()
	if t.changes == nil {
		return nil
	}
	c := &Changes{Reset: t.changes.reset, Requests: t.changes.requests, Labelled: t.changes.labelled, State: t.state()}
	c.OnDisk = t.recordedAs(c.State)
	*t.changes = tableChanges{}
	for _, s := range t.shards {
		s.noteAgain(again)
		s.cut(c)
	}
	return c
}

// recordedAs returns a function that notes that a state of the table is on disk.
func (t *Table) recordedAs(st *State) func() {
	last, given := st.LastID, make([]uint64, len(st.Shards))
	for i := range st.Shards {
		given[i] = st.Shards[i].Batches + st.Shards[i].Skipped
	}
	return func() {
		t.mu.Lock()
		t.recorded = max(t.recorded, last)
		t.mu.Unlock()
		for i, s := range t.shards {
			s.do(func(s *shard) { s.recorded = max(s.recorded, given[i]) })
		}
	}
}

// noteAgain notes rollouts that are present as inserted since the last cut.
func (s *shard) noteAgain(ids []rollout.ID) {
	for _, id := range ids {
		if slot := s.index.find(id); slot != none && !s.items[slot].is(evicted) {
			s.changes.inserted(slot)
		}
	}
}

// cut adds the shard's changes to c and empties its log.
func (s *shard) cut(c *Changes) {
	l := s.changes
	c.Removed = append(c.Removed, l.removed...)
	l.removed = l.removed[:0]
	c.Consumed = append(c.Consumed, l.consumed...)
	l.consumed = nil
	leased := s.freshOnLease()
	for _, slot := range l.slots {
		mark := l.marks[slot]
		l.marks[slot] = 0
		switch {
		case mark&(changeEntered|changeReward) != 0:
			c.Inserted = append(c.Inserted, s.storedAt(slot, leased))
		case mark&changeUsage != 0:
			c.Changed = append(c.Changed, s.usageAt(slot, leased))
		}
	}
	l.slots = l.slots[:0]
}

// freshOnLease is the slots with an unsettled draw as fresh: a rebuilt table has them back as fresh.
func (s *shard) freshOnLease() map[int32]bool {
	var slots map[int32]bool
	for _, l := range s.leases {
		for i, slot := range l.Slots {
			if !l.Batch.Draws[i].Fresh {
				break // fresh draws come first
			}
			if slots == nil {
				slots = make(map[int32]bool)
			}
			slots[slot] = true
		}
	}
	return slots
}

func (s *shard) storedAt(slot int32, leased map[int32]bool) Stored {
	it := &s.items[slot]
	return Stored{
		Usage: s.usageAt(slot, leased), Group: it.Group, Shard: s.number,
		Advantage: it.Advantage, Mean: it.Mean, Std: it.Std, Rollout: s.rollouts[slot],
	}
}

func (s *shard) usageAt(slot int32, leased map[int32]bool) Usage {
	it := &s.items[slot]
	u := Usage{ID: it.ID, Uses: it.Uses, LastUse: it.LastUse}
	if s.prioritized != nil {
		u.Base = math.Abs(s.prioritized.bases[slot])
	}
	mark := func(holds bool, m Marks) {
		if holds {
			u.Marks |= m
		}
	}
	mark(it.is(correct), MarkCorrect)
	mark(it.is(reserved), MarkReserved)
	mark(it.is(fresh|shelved) || leased[slot] && s.units.isFirst(&s.store, slot), MarkFresh)
	mark(it.is(atMax), MarkAtMax)
	mark(it.is(pinned), MarkPinned)
	mark(it.is(waits), MarkWaits)
	return u
}

// state copies what the table carries besides its rollouts. The caller must hold every lock.
func (t *Table) state() *State {
	st := &State{
		Identity: t.identity, Version: t.version, LastID: t.lastID, LastGroup: t.lastGroup,
		Refused: t.refused, Ignored: t.ignored, Moved: t.ageDecayMoved, Requests: len(t.insertedBefore.ring),
		Ratios: ratios{Bins: slices.Clone(t.ratios.Bins), Version: t.ratios.Version},
	}
	for _, s := range t.shards {
		sh := shardState{Batches: s.batches, Skipped: s.skipped, Counts: s.counts.clone()}
		if p := s.prioritized; p != nil {
			sh.Tau, sh.Largest = p.tau, p.largest
		}
		st.Shards = append(st.Shards, sh)
	}
	return st
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

// Recovered is what was read back of a table's cuts.
type Recovered struct {
	State    *State      // of the last cut; nil if it was lost, with Repair only
	Stored   []Stored    // in any order, with their last usage
	Requests []Insertion // the oldest first
	Consumed []Consumed  // in any order
	Labelled []Labelling // in any order

	// Repair says that some of it may be lost. The counts are then made to balance: what is missing counts as evicted
	// by damage, and with unit group an incomplete group is dropped whole.
	Repair bool
}

// RebuildResult says what a rebuilt table lost.
type RebuildResult struct {
	Returned uint64 // draws that were on lease and have gone back
	Lost     int    // rollouts that the state counts and that could not be read; Repair only
	Dropped  int    // rollouts that could be read and do not fit: of incomplete groups, or beyond the capacity
}

// Rebuild fills an empty table with the content of another one's cuts: rollouts with their uses, priorities and
// freshness, the version, the insertions remembered, the statistics. Its ids go on above all that the other one can
// have given, also since the last cut (see [ErrUnrecorded]). Draws that were on lease have gone back, uncounted, and
// all that a queue holds counts as redelivered: it may have been on lease. Sampler epoch begins a new epoch, and
// batches remembered by request id are forgotten, but a queue's acknowledged ones are still refused. Unless Repair is
// set, parts that do not fit together are refused with an error that wraps rollout.ErrInvalid (invariants 1, 2 and 11).
//
// The table is tracked from then on, and what it was given counts as cut. It gives no ids before a cut is on disk.
func (d JournalView) Rebuild(r Recovered) (RebuildResult, error) {
	t := d.table
	t.lockAll()
	defer t.unlockAll()
	var result RebuildResult
	if t.lastID != 0 || t.version != 0 {
		return result, fmt.Errorf("rebuilding a table that is at version %d with %d rollouts inserted: give it a new "+
			"one: %w", t.version, t.lastID, rollout.ErrInvalid)
	}
	slices.SortFunc(r.Stored, func(a, b Stored) int { return cmp.Compare(a.ID, b.ID) })
	if r.Repair {
		result.Dropped = t.repair(&r)
	}
	if err := t.checkRecovered(&r); err != nil {
		return result, fmt.Errorf("rebuilding a table: %w", err)
	}
	shards := make([]*shard, len(t.shards))
	for i := range shards {
		shards[i] = newShard(t.options, i)
		shards[i].setState(&r.State.Shards[i], r.State.Version)
	}
	if err := fillShards(shards, r.Stored); err != nil {
		return result, fmt.Errorf("rebuilding a table: %w", err)
	}
	for _, s := range shards {
		onLease := s.counts.onLease()
		s.counts.Returned += onLease
		result.Returned += onLease
		if r.Repair {
			result.Lost += s.repairCounts()
		}
		if err := s.checkBalance(); err != nil {
			return result, fmt.Errorf("rebuilding shard %d: %w", s.number, err)
		}
		if s.prioritized != nil {
			s.prioritized.renew()
		}
	}
	st := r.State
	t.version, t.refused, t.ignored = st.Version, st.Refused, st.Ignored
	t.recorded, t.lastID = st.LastID, st.LastID+unrecorded
	t.lastGroup = st.LastGroup + roundUp(unrecorded, uint64(len(shards))) // the next goes to the same shard
	t.ratios, t.ageDecayMoved = st.Ratios, st.Moved
	t.insertedBefore = newAnswers[idRange](rememberedInsertions)
	for _, q := range r.Requests {
		t.rememberInsertion(q.BatchID, idRange{q.First, q.Count, q.Digest})
	}
	for _, c := range r.Consumed {
		shards[uint64(c.Batch-1)%uint64(len(shards))].consumed.put(c)
	}
	slices.SortFunc(r.Labelled, func(a, b Labelling) int { return cmp.Compare(a.Number, b.Number) })
	t.setLabels(r.Labelled)
	t.changes = new(tableChanges)
	for i, s := range t.shards {
		s.shard = shards[i]
		s.setChangeLog(newChangeLog(len(s.items)))
	}
	return result, nil
}

// checkRecovered refuses what no cut of a table with these options can hold.
func (t *Table) checkRecovered(r *Recovered) error {
	st := r.State
	if st == nil {
		return fmt.Errorf("its state is missing: %w", rollout.ErrInvalid)
	}
	if err := sameIdentity(st.Identity, t.options); err != nil {
		return err
	}
	if len(st.Shards) != len(t.shards) {
		return fmt.Errorf("its state has %d shards, the options %d: %w", len(st.Shards), len(t.shards),
			rollout.ErrInvalid)
	}
	if !r.Repair && len(r.Requests) != st.Requests {
		return fmt.Errorf("%d insertions are remembered, its state says %d: %w", len(r.Requests), st.Requests,
			rollout.ErrInvalid)
	}
	seen := make(map[string]bool, len(r.Requests))
	for _, q := range r.Requests {
		if seen[q.BatchID] || !q.possible(st) {
			return fmt.Errorf("the insertion %q of ids %d to %d is remembered, of %d given: %w", q.BatchID, q.First,
				uint64(q.First)+uint64(q.Count)-1, st.LastID, rollout.ErrInvalid)
		}
		seen[q.BatchID] = true
	}
	for _, c := range r.Consumed {
		if c.Batch == 0 || c.Request == "" {
			return fmt.Errorf("the request id %q of batch %d is remembered: %w", c.Request, c.Batch, rollout.ErrInvalid)
		}
	}
	for i := range r.Stored {
		if i > 0 && r.Stored[i-1].ID == r.Stored[i].ID {
			return fmt.Errorf("rollout %d is recorded twice: %w", r.Stored[i].ID, rollout.ErrInvalid)
		}
		if err := t.checkStored(&r.Stored[i], st); err != nil {
			return err
		}
	}
	return nil
}

// checkStored refuses a rollout that no table with these options and this state can hold.
func (t *Table) checkStored(k *Stored, st *State) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("rollout %d %s: %w", k.ID, fmt.Sprintf(format, args...), rollout.ErrInvalid)
	}
	switch {
	case k.Rollout == nil:
		return bad("has no content")
	case k.ID == 0 || k.ID > st.LastID:
		return bad("is none of the %d given", st.LastID)
	case k.Group == 0 || k.Group > st.LastGroup || k.Shard != int((k.Group-1)%uint64(len(t.shards))):
		return bad("is of group %d of %d, in shard %d of %d", k.Group, st.LastGroup, k.Shard, len(t.shards))
	case k.Uses < 0 || t.options.MaxUses > 0 && int(k.Uses) >= t.options.MaxUses || t.options.Sampler.Consumes() &&
		k.Uses > 0:
		return bad("has %d uses, max_uses is %d", k.Uses, t.options.MaxUses)
	case k.LastUse < rollout.NoVersion || k.LastUse > st.Version:
		return bad("was used at version %d, the table is at %d", k.LastUse, st.Version)
	case k.Marks&^allMarks != 0:
		return bad("has marks %b", k.Marks)
	case k.Marks&MarkWaits != 0 && t.options.PendingRewards == 0:
		return bad("waits for rewards without pending_rewards")
	case k.Marks&MarkWaits == 0 && k.Rollout.Pending():
		return bad("has no reward and does not wait for one")
	case k.Marks&MarkPinned != 0 && t.pin == nil:
		return bad("is pinned without pin")
	case k.Marks&MarkReserved != 0 && t.options.Retention != KeepPositive:
		return bad("is reserved as correct with retention %s", t.options.Retention)
	case t.options.Sampler == Prioritized && !(k.Base > 0 && k.Base <= math.MaxFloat64):
		return bad("has priority %g", k.Base)
	}
	span := k.Rollout.Span()
	if span.Least < 0 || span.Greatest > st.Version {
		// invariant 1
		return bad("has tokens of versions %d to %d, the table is at %d", span.Least, span.Greatest, st.Version)
	}
	if s := t.options.MaxStaleness; s > 0 && k.Marks&MarkPinned == 0 && int64(span.Least) < int64(st.Version)-int64(s) {
		return bad("is of version %d, max_staleness %d, and the table at %d", span.Least, s, st.Version)
	}
	return nil
}

// setState gives a new shard its part of a saved state. Its batches go on above those that it can have given since,
// with streams of their own.
func (s *shard) setState(st *shardState, v rollout.Version) {
	s.batches, s.skipped = st.Batches, st.Skipped
	s.recorded = s.given()
	s.batches += roundUp(unrecorded, s.consumed.turn())
	s.version, s.counts = v, st.Counts.clone()
	s.counts.UsesPresent = rollout.Histogram{}
	if p := s.prioritized; p != nil {
		p.tau, p.rate = st.Tau, p.o.decayRate(st.Tau)
		p.largest = st.Largest
	}
}

// fillShards puts rollouts, in order of their ids, back into their shards.
func fillShards(shards []*shard, all []Stored) error {
	for len(all) > 0 {
		s := shards[all[0].Shard]
		n := 1
		if s.units == groups {
			for n < len(all) && all[n].Group == all[0].Group {
				n++
			}
			if n != s.options.GroupSize {
				return fmt.Errorf("group %d has %d rollouts, group_size is %d: %w", all[0].Group, n,
					s.options.GroupSize, rollout.ErrInvalid)
			}
		}
		s.readmit(all[:n])
		all = all[n:]
	}
	for _, s := range shards {
		if r := s.retention; r != nil && (r.recent.Len > r.recentSize || r.reserved.Len > r.reservedSize ||
			r.recent.Bytes > r.recentBytes || r.reserved.Bytes > r.reservedBytes) ||
			s.present > s.options.shardCapacity() || s.bytes > s.options.shardBytes() {
			return fmt.Errorf("shard %d has %d rollouts of %d bytes, more than its capacity: %w", s.number, s.present, s.bytes, rollout.ErrInvalid) // invariant 2
		}
	}
	return nil
}

// readmit takes a unit back.
func (s *shard) readmit(unit []Stored) {
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
	if s.items[first].is(waits) {
		if s.retention != nil && s.retention.scored != nil {
			s.retention.scored.weigh(first)
		}
		return
	}
	s.sampler.add(first)
	if it := &s.items[first]; it.Uses > 0 {
		s.sampler.setUses(first, it.Uses)
	}
	if s.retention != nil && s.retention.scored != nil {
		s.retention.scored.weigh(first)
	}
	if unit[0].Marks&MarkFresh != 0 && s.retention != nil {
		s.fresh.push(&s.store, first)
	}
}

func (s *shard) readmitOne(k *Stored) int32 {
	span := k.Rollout.Span()
	it := item{
		ID: k.ID, Group: k.Group, Bytes: k.Rollout.Bytes(), Version: span.Least, MeanCeil: span.MeanCeil(),
		Greatest: span.Greatest,
		Uses:     k.Uses, LastUse: k.LastUse, Advantage: k.Advantage, Mean: k.Mean, Std: k.Std,
		Flags: flagIf(k.Marks&MarkCorrect != 0, correct) | flagIf(k.Marks&MarkReserved != 0, reserved) |
			flagIf(k.Marks&MarkAtMax != 0, atMax) |
			flagIf(k.Marks&MarkPinned != 0, pinned) | flagIf(k.Marks&MarkWaits != 0, waits) |
			flagIf(s.retention == nil, redelivered),
	}
	slot := s.put(&it, k.Rollout)
	if s.retention != nil {
		s.retention.readmit(slot)
	}
	if s.ages != nil && !it.is(pinned) {
		s.ages.add(slot)
	}
	s.index.add(slot)
	if s.prompts != nil {
		s.prompts.add(slot)
	}
	s.present++
	s.bytes += it.Bytes
	if it.is(waits) {
		s.waiting.join(slot)
	} else {
		s.remaining += int64(s.maxUses) - int64(it.Uses)
	}
	s.counts.UsesPresent.Add(int64(it.Uses))
	if s.prioritized != nil {
		s.prioritized.readmit(slot, k.Base)
	}
	return slot
}

// checkBalance checks that the counts balance (invariant 11).
func (s *shard) checkBalance() error {
	c := &s.counts
	uses := uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	if uint64(s.present) == c.present() && uses == c.Acknowledged && c.left() == c.UsesAtEviction.Count() {
		return nil
	}
	return fmt.Errorf("it holds %d rollouts, its state says %d; their uses and those of the %d evicted come to %d, "+
		"its state says %d: %w",
		s.present, c.present(), c.left(), uses, c.Acknowledged, rollout.ErrInvalid)
}

// repair turns what is left of a damaged table into what a table can hold: a state that covers the rollouts, complete
// groups, no more than the capacity. Rollouts are in order of their ids. It returns the number it dropped.
func (t *Table) repair(r *Recovered) (dropped int) {
	before := len(r.Stored)
	r.Stored = slices.CompactFunc(r.Stored, func(a, b Stored) bool { return a.ID == b.ID })
	if r.State == nil {
		r.State = t.guessState(r.Stored)
	}
	st := r.State
	for i := range r.Stored {
		k := &r.Stored[i]
		st.LastID, st.LastGroup = max(st.LastID, k.ID), max(st.LastGroup, k.Group)
		if k.Rollout != nil {
			st.Version = max(st.Version, k.Rollout.Span().Greatest, k.LastUse)
		}
	}
	st.Ratios.Version = max(st.Ratios.Version, st.Version)
	r.Stored = slices.DeleteFunc(r.Stored, func(k Stored) bool { return t.checkStored(&k, st) != nil })
	if t.options.Unit == UnitGroup { // draws fall on whole groups (invariant 8)
		size := make(map[uint64]int)
		for i := range r.Stored {
			size[r.Stored[i].Group]++
		}
		r.Stored = slices.DeleteFunc(r.Stored, func(k Stored) bool { return size[k.Group] != t.options.GroupSize })
	}
	t.dropOldest(r)
	seen := make(map[string]bool)
	r.Requests = slices.DeleteFunc(r.Requests, func(q Insertion) bool {
		if seen[q.BatchID] || !q.possible(st) {
			return true
		}
		seen[q.BatchID] = true
		return false
	})
	return before - len(r.Stored)
}

// dropOldest drops what is beyond the capacity: rollouts that had been removed before the damage.
func (t *Table) dropOldest(r *Recovered) {
	type room struct{ recent, reserved size }
	o := &t.options
	left := make([]room, len(t.shards))
	for i := range left {
		left[i] = room{size{o.recentCapacity(), o.recentBytes()}, size{o.correctCapacity(), o.correctBytes()}}
	}
	partial := make(map[uint64]bool) // groups
	drop := make([]bool, len(r.Stored))
	for i := len(r.Stored) - 1; i >= 0; i-- {
		k := &r.Stored[i]
		at := &left[k.Shard].recent
		if k.Marks&MarkReserved != 0 {
			at = &left[k.Shard].reserved
		}
		at.count--
		at.bytes -= k.Rollout.Bytes()
		drop[i] = at.count < 0 || at.bytes < 0
		partial[k.Group] = partial[k.Group] || drop[i]
	}
	fits := r.Stored[:0]
	for i, k := range r.Stored {
		if !drop[i] && (o.Unit != UnitGroup || !partial[k.Group]) {
			fits = append(fits, k)
		}
	}
	r.Stored = fits
}

// guessState makes a state out of the rollouts that are left.
func (t *Table) guessState(all []Stored) *State {
	st := &State{Identity: t.identity, Shards: make([]shardState, len(t.shards))}
	seen := make(map[uint64]bool)
	for i := range all {
		k := &all[i]
		if k.Shard < 0 || k.Shard >= len(st.Shards) {
			continue // dropped later
		}
		s := &st.Shards[k.Shard]
		s.Largest = max(s.Largest, k.Base)
		s.Counts.Inserted++
		if !seen[k.Group] {
			seen[k.Group] = true
			s.Counts.Groups++
		}
	}
	for i := range st.Shards {
		st.Shards[i].Tau = float64(t.options.AgeDecay)
	}
	return st
}

// repairCounts makes a shard's counts balance (invariant 11). It returns the number of rollouts that are missing.
func (s *shard) repairCounts() (lost int) {
	c := &s.counts
	uses := uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	if missing := int64(c.present()) - int64(s.present); missing > 0 {
		lost = int(missing)
		c.loseRollouts(uint64(missing), c.Acknowledged-min(uses, c.Acknowledged))
	}
	c.Inserted = c.left() + uint64(s.present)
	c.Acknowledged = uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	c.Drawn = c.Acknowledged + c.Returned
	return lost
}

// loseRollouts counts n rollouts out, with the given uses in all; how many each had is unknown.
func (c *counts) loseRollouts(n, uses uint64) {
	c.Lost += n
	for i := range n {
		share := uses / n
		if i < uses%n {
			share++
		}
		c.UsesAtEviction.Add(int64(share))
		if share == 0 {
			c.NeverUsed++
		}
	}
}

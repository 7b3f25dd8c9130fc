package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// checkRequest returns an error if the shard cannot fill a batch. It wraps rollout.ErrStarved if more insertions help,
// and rollout.ErrInvalid if nothing does.
func (s *shard) checkRequest(req request) error {
	if len(req.Prompts) > 0 {
		return nil
	}
	n, o := req.Size, &s.options
	most := s.options.shardCapacity()
	each := 1 // rollouts per unit
	if s.units == groups {
		each = o.GroupSize
		if n%each != 0 || req.Fresh%each != 0 {
			return fmt.Errorf("size is %d with %d fresh: ask for whole groups of group_size %d: %w", n, req.Fresh, each,
				rollout.ErrInvalid)
		}
	}
	replayed := n - s.freshOf(req)
	need := n // fresh draws included, which no other draw of the batch repeats
	if o.Sampler.Replaces() {
		need = min(each, replayed)
		if s.maxUses > 0 && int64(n) > int64(most)*int64(s.maxUses) {
			return fmt.Errorf("size is %d: ask for at most capacity x max_uses = %d x %d: %w", n, most, s.maxUses,
				rollout.ErrInvalid)
		}
	}
	drawable := s.sampler.size() * each
	switch {
	case s.changes != nil && s.given() >= s.recorded+unrecorded:
		return fmt.Errorf("sampling shard %d: %w", s.number, ErrUnrecorded)
	case s.stuck(max(n, o.MinSize)):
		return fmt.Errorf("size is %d with min_size %d: the queue holds %d of %d, with no room for another group of "+
			"%d: ask for at most %d, or raise capacity: %w", n, o.MinSize, s.present, most, o.GroupSize, s.present,
			rollout.ErrInvalid)
	case need > most || s.freshOf(req) > most:
		return fmt.Errorf("size is %d: ask for at most the shard's capacity %d, or raise capacity: %w", n, most,
			rollout.ErrInvalid)
	case s.present < o.MinSize:
		return fmt.Errorf("sampling shard %d, which holds %d of min_size %d%s: %w", s.number, s.present, o.MinSize,
			s.losses(), rollout.ErrStarved)
	case s.fresh.Waiting.Len*each < s.freshOf(req):
		return fmt.Errorf("sampling %d fresh from shard %d, which holds %d never handed out as fresh%s: %w", req.Fresh,
			s.number, s.fresh.Waiting.Len*each, s.losses(), rollout.ErrStarved)
	case drawable < need:
		return fmt.Errorf("sampling %d from shard %d, where %d can be drawn%s: %w", n, s.number, drawable, s.losses(),
			rollout.ErrStarved)
	case s.maxUses > 0 && need < n && s.remaining < int64(n):
		return fmt.Errorf("sampling %d from shard %d, where max_uses allows %d more draws: %w", n, s.number,
			s.remaining, rollout.ErrStarved)
	}
	return nil
}

// losses says how many rollouts left the shard by a limit and what keeps the next ones, "" if none did.
func (s *shard) losses() string {
	var lost []string
	if n := s.counts.Evicted[byStaleness]; n > 0 {
		lost = append(lost, fmt.Sprintf("%d left because they were older than max_staleness %d at version %d: insert "+
			"rollouts of newer weights, or raise max_staleness", n, s.options.MaxStaleness, s.version))
	}
	if n := s.counts.Evicted[byUses]; n > 0 {
		lost = append(lost, fmt.Sprintf("%d left after max_uses %d: insert new rollouts, or raise max_uses", n,
			s.options.MaxUses))
	}
	if lost == nil {
		return ""
	}
	return " (" + strings.Join(lost, "; ") + ")"
}

// stuck reports whether a queue holds too little for a batch that needs the given number, and has no room for another
// group.
func (s *shard) stuck(needs int) bool {
	o := &s.options
	return s.retention == nil && o.GroupSize > 0 && o.Unit != UnitStep && o.MaxStaleness == 0 && len(s.leases) == 0 &&
		s.present < needs && s.present > o.shardCapacity()-o.GroupSize
}

// freshOf returns how many draws of a request come from the fresh queue. Queue samplers give each rollout once anyway,
// and need none.
func (s *shard) freshOf(req request) int {
	if s.retention == nil {
		return 0
	}
	return req.Fresh
}

// given is how many numbers of batches are taken: the next batch has this one.
func (s *shard) given() uint64 { return s.batches + s.skipped }

// skipTo passes over the numbers of batches below given, and perhaps some more.
func (s *shard) skipTo(given uint64) {
	if given > s.given() {
		s.skipped += roundUp(given-s.given(), s.consumed.turn())
	}
}

// roundUp returns the least multiple of unit that is not less than n.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// draw takes a batch after checkRequest, and leaves its slots in drawn. The batch's random stream derives from its
// number, so there is no generator state to keep (invariant 5).
func (s *shard) draw(req request) *rollout.Batch {
	random := rollout.Stream(s.options.Seed, s.purpose, s.batches)
	batch := &rollout.Batch{
		// Shards take turns, so that the numbers of one do not depend on the others.
		ID:      rollout.BatchID(s.given()*uint64(s.options.Shards) + uint64(s.number) + 1),
		Version: s.version,
		Shard:   s.number,
		Draws:   make([]rollout.Draw, req.Size),
	}
	s.batches++
	s.drawn = s.drawn[:0]
	if len(req.Prompts) > 0 {
		s.drawByPrompt(random, req, batch)
	}
	if s.freshOf(req) > 0 {
		s.refresh()
	}
	for n := s.freshOf(req); len(s.drawn) < n; {
		slot := s.fresh.pop(&s.store)
		s.sampler.holdForBatch(slot)
		s.addDraw(batch, slot, 1, true)
	}
	if s.retention != nil && s.retention.share > 0 && req.Size > 0 {
		s.retention.drawPositives(random, req.Size, s.drawn, func(slot int32, probability float64) {
			s.sampler.holdForBatch(slot)
			s.addDraw(batch, slot, probability, false)
		})
	}
	if left := req.Size - len(s.drawn); left > 0 {
		if s.units == groups {
			left /= s.options.GroupSize
		}
		s.sampler.begin(random, left)
		for range left {
			slot, probability := s.sampler.draw(random)
			s.addDraw(batch, slot, probability, false)
		}
	}
	s.sampler.end()
	for i, slot := range s.drawn {
		it := &s.items[slot]
		if s.maxUses == 0 {
			it.Leased++
		}
		s.fill(&batch.Draws[i], it, s.rollouts[slot])
	}
	if s.prioritized != nil && req.Size > 0 {
		batch.LogWeightScale = s.prioritized.importance(batch.Draws, s.version)
	}
	s.counts.Drawn += uint64(len(s.drawn))
	return batch
}

// addDraw adds the rollouts of a drawn unit to the batch.
func (s *shard) addDraw(batch *rollout.Batch, slot int32, probability float64, fresh bool) {
	if s.units != groups { // the common case, kept short
		d := &batch.Draws[len(s.drawn)]
		s.drawn = append(s.drawn, slot)
		d.Probability, d.Fresh = probability, fresh
		if s.maxUses > 0 && s.spend(slot) {
			s.exhaust(slot)
		}
		return
	}
	exhausted := false
	s.units.each(&s.store, slot, func(m int32) {
		d := &batch.Draws[len(s.drawn)]
		s.drawn = append(s.drawn, m)
		d.Probability, d.Fresh = probability, fresh
		exhausted = s.maxUses > 0 && s.spend(m) || exhausted
	})
	if exhausted {
		s.exhaust(slot)
	}
}

// spend counts a draw against max_uses, and reports whether the rollout's uses and draws on lease have reached it.
func (s *shard) spend(slot int32) bool {
	it := &s.items[slot]
	it.Leased++
	s.remaining--
	return it.Uses+it.Leased >= s.maxUses
}

// exhaust makes a unit that reached max_uses undrawable before the next draw, so that later probabilities are
// conditional on it (invariants 3 and 4).
func (s *shard) exhaust(slot int32) {
	s.sampler.remove(slot)
	s.fresh.shelve(&s.store, slot)
	if s.retention != nil {
		s.retention.exhaust(slot)
	}
}

// fill completes a draw with what the table knows of the rollout. Its probability is set already.
func (s *shard) fill(d *rollout.Draw, it *item, r *rollout.Rollout) {
	d.ID, d.Group, d.Rollout = it.ID, it.Group, r
	d.Advantage = it.Advantage
	d.Weight = 1
	d.Staleness = int32(s.version - it.Version)
	d.Uses = it.Uses
	d.Redelivered = it.is(redelivered)
	d.GroupMean, d.GroupStd = it.Mean, it.Std
}

// acknowledge turns draws made at a version of the table into uses, each counted once (invariant 3).
func (s *shard) acknowledge(slots []int32, at rollout.Version) {
	for _, slot := range slots {
		it := &s.items[slot]
		s.counts.used(it, at)
		it.LastUse = max(it.LastUse, at)
		it.Uses++
		it.Leased--
		if s.changes != nil && !it.is(evicted) {
			s.changes.changed(slot)
		}
		switch {
		case it.is(evicted):
			s.releaseIfUnleased(slot)
		case s.retention == nil:
			s.evict(slot, byConsume)
		case s.maxUses > 0 && it.Uses >= s.maxUses:
			s.evict(slot, byUses)
		}
	}
}

// undoDraws takes back draws that were not acknowledged. They count as no use, and the rollouts can be drawn again.
func (s *shard) undoDraws(slots []int32, draws []rollout.Draw) {
	s.counts.Returned += uint64(len(slots))
	for i, slot := range slots {
		it := &s.items[slot]
		it.Leased--
		if it.is(evicted) {
			s.releaseIfUnleased(slot)
			continue
		}
		if s.retention == nil {
			it.set(redelivered)
		}
		if s.maxUses > 0 {
			s.remaining++
		}
		if !s.units.isFirst(&s.store, slot) {
			continue
		}
		if draws[i].Fresh || it.is(shelved) {
			s.fresh.restore(&s.store, slot)
		}
		s.sampler.restore(slot)
		if s.retention != nil {
			s.retention.restore(slot)
		}
	}
}

// releaseIfUnleased frees the slot of an evicted rollout once none of its draws is on lease.
func (s *shard) releaseIfUnleased(slot int32) {
	if it := &s.items[slot]; it.Leased == 0 {
		s.pinned -= it.Bytes + RolloutOverhead
		s.release(slot)
	}
}

// freshQueue holds the units that were never handed out as fresh, the oldest first: what [FP] draws its fresh batches
// from. A unit is held by its first rollout's slot. Fields are exported for encoding/gob.
type freshQueue struct{ Waiting list }

// push adds a unit that has just entered.
func (q *freshQueue) push(st *store, s int32) {
	st.items[s].set(fresh)
	q.Waiting.push(st, s)
}

// pop returns the oldest unit. The queue is not empty.
func (q *freshQueue) pop(st *store) int32 {
	s := q.Waiting.Head
	q.forget(st, s)
	return s
}

// forget removes a slot, if the queue holds it.
func (q *freshQueue) forget(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		it.clear(fresh)
		q.Waiting.remove(st, s)
	}
	it.clear(shelved)
}

// shelve removes a slot, if the queue holds it, until restore brings it back.
func (q *freshQueue) shelve(st *store, s int32) {
	if st.items[s].is(fresh) {
		q.forget(st, s)
		st.items[s].set(shelved)
	}
}

// restore brings back a slot that was shelved, or whose draw as fresh was not acknowledged. Its place is near the head.
func (q *freshQueue) restore(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		return
	}
	it.clear(shelved)
	it.set(fresh)
	q.Waiting.insertByID(st, s, false)
}

// lease is a batch that was handed out and is not settled. Fields are exported for encoding/gob.
type lease struct {
	Request  string // id of the request; "": none
	Slots    []int32
	Batch    *rollout.Batch
	Deadline time.Time
}

// rememberedConsumed is how many acknowledged request ids a queue remembers: those of the latest batches, divided among
// the shards, but leastConsumed for each.
const (
	rememberedConsumed = 1 << 14
	leastConsumed      = 4
)

// Consumed is a request id of a queue whose batch was acknowledged. Its rollouts are gone, so a repeat of the request
// cannot get them: it gets an error that says so rather than other rollouts.
type Consumed struct {
	Request     string // "": forgotten
	Slot        uint64 // where it is remembered: another takes its place
	Batch       rollout.BatchID
	Version     rollout.Version // of the table at the draw
	Rollouts    int
	First, Last rollout.ID // of its rollouts, the least and the greatest
}

func (m *consumed) of(request string, b *rollout.Batch) Consumed {
	c := Consumed{Request: request, Slot: m.slot(b.ID), Batch: b.ID, Version: b.Version, Rollouts: len(b.Draws),
		First: b.Draws[0].ID}
	for i := range b.Draws {
		c.First, c.Last = min(c.First, b.Draws[i].ID), max(c.Last, b.Draws[i].ID)
	}
	return c
}

func (c Consumed) err() error {
	return fmt.Errorf("request id %q: its batch %d was acknowledged before, and the %d rollouts (of ids %d to %d) "+
		"have left the queue: sample under another id: %w", c.Request, c.Batch, c.Rollouts, c.First, c.Last,
		rollout.ErrNoLease)
}

// consumed remembers the latest Consumed of a shard, by request id. Each has a slot by the number of its batch, so that
// the journal overwrites the oldest too.
type consumed struct {
	slots  uint64 // of all shards
	shards uint64
	bytes  int64 // see idBytes
	bySlot map[uint64]Consumed
	byID   map[string]uint64 // slots
}

func newConsumed(shards int) consumed {
	return consumed{slots: uint64(max(rememberedConsumed, leastConsumed*shards) / shards * shards),
		shards: uint64(shards), bySlot: make(map[uint64]Consumed), byID: make(map[string]uint64)}
}

func (m *consumed) get(id string) (Consumed, bool) {
	slot, ok := m.byID[id]
	return m.bySlot[slot], ok
}

// turn is after how many of a shard's batches a slot is taken again. Numbers of batches are passed over by multiples of
// it, so that the oldest request is still the next to be forgotten.
func (m *consumed) turn() uint64 { return m.slots / m.shards }

func (m *consumed) slot(b rollout.BatchID) uint64 { return uint64(b-1) % m.slots }

func (m *consumed) put(c Consumed) {
	slot := m.slot(c.Batch)
	if old, ok := m.bySlot[slot]; ok {
		m.bytes -= idBytes(old.Request)
		if m.byID[old.Request] == slot {
			delete(m.byID, old.Request)
		}
	}
	m.bytes += idBytes(c.Request)
	m.bySlot[slot], m.byID[c.Request] = c, slot
}

// forgetNewer forgets the batches drawn after a version. It returns what replaces each.
func (m *consumed) forgetNewer(v rollout.Version) (gone []Consumed) {
	for slot, c := range m.bySlot {
		if c.Version > v {
			gone = append(gone, Consumed{Slot: slot})
			m.bytes -= idBytes(c.Request)
			delete(m.bySlot, slot)
			delete(m.byID, c.Request)
		}
	}
	return gone
}

// lease draws the batch of a request and puts it on lease, or returns the batch that the request got before. leased
// reports whether that batch is still on lease.
func (s *shard) lease(req request) (b *rollout.Batch, leased bool, err error) {
	s.expireLeases()
	if req.ID != "" {
		for _, l := range s.leases {
			if l.Request == req.ID {
				return l.Batch, true, sameSize(l.Batch, req)
			}
		}
		if b, ok := s.answered.get(req.ID); ok {
			return b, false, sameSize(b, req)
		}
		if c, ok := s.consumed.get(req.ID); ok {
			return nil, false, c.err()
		}
	}
	if err := s.checkRequest(req); err != nil {
		return nil, false, err
	}
	b = s.draw(req)
	s.leases = append(s.leases, &lease{
		Request: req.ID, Slots: slices.Clone(s.drawn), Batch: b,
		Deadline: s.options.Clock().Add(s.options.leaseTime()),
	})
	return b, true, nil
}

// sample leases and acknowledges in one. Without a request id it puts nothing on lease.
func (s *shard) sample(req request) (*rollout.Batch, error) {
	if req.ID != "" {
		b, leased, err := s.lease(req)
		if err != nil {
			return nil, err
		}
		if leased {
			i, err := s.findLease(b.ID)
			if err != nil {
				return nil, err
			}
			s.acknowledgeLease(i)
		}
		return b, nil
	}
	s.expireLeases()
	if err := s.checkRequest(req); err != nil {
		return nil, err
	}
	b := s.draw(req)
	s.acknowledge(s.drawn, b.Version)
	return b, nil
}

// sameSize refuses a request that repeats another's id with another size, or with other prompts.
func sameSize(b *rollout.Batch, req request) error {
	if len(req.Prompts) > 0 || b.PromptCounts != nil {
		return samePrompts(b, req)
	}
	if len(b.Draws) == req.Size {
		return nil
	}
	return fmt.Errorf("size is %d: request %q asked for %d before; give each request an id of its own: %w", req.Size,
		req.ID, len(b.Draws), rollout.ErrInvalid)
}

// findLease returns the index of a batch among the leases.
func (s *shard) findLease(id rollout.BatchID) (int, error) {
	i := slices.IndexFunc(s.leases, func(l *lease) bool { return l.Batch.ID == id })
	if i < 0 {
		return 0, fmt.Errorf("settling batch %d of shard %d: %w", id, s.number, rollout.ErrNoLease)
	}
	return i, nil
}

// acknowledgeLease counts the draws of the i-th lease as used. A repeat of its request gets the same batch.
func (s *shard) acknowledgeLease(i int) {
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	s.acknowledge(l.Slots, l.Batch.Version)
	if l.Request != "" {
		s.answered.put(l.Request, l.Batch)
		if s.retention == nil {
			c := s.consumed.of(l.Request, l.Batch)
			s.consumed.put(c)
			s.noteConsumed(c)
		}
	}
}

func (s *shard) noteConsumed(c Consumed) {
	if s.changes != nil {
		s.changes.consumed = append(s.changes.consumed, c)
	}
}

// releaseLease takes back the i-th lease and forgets its request: a repeat draws a new batch.
func (s *shard) releaseLease(i int) {
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	s.undoDraws(l.Slots, l.Batch.Draws)
}

// expireLeases takes back the leases whose time is over. All have one duration, so the earliest deadline comes first
// unless the clock was set back.
func (s *shard) expireLeases() {
	if len(s.leases) == 0 {
		return
	}
	now := s.options.Clock()
	for len(s.leases) > 0 && !now.Before(s.leases[0].Deadline) {
		s.releaseLease(0)
	}
}

// answers remembers the answers to the latest requests by id, so that a repeated request gets the same one. The oldest
// is forgotten first, in O(1).
type answers[V any] struct {
	limit   int
	bound   bound[V]
	answers map[string]V
	ring    []answerOf[V] // in order of arrival from next on, wrapping
	next    int
	gone    int   // entries from next on that were forgotten for their weight
	weight  int64 // of all answers
	ids     int64 // bytes, see idBytes
}

// idBytes is what a remembered id takes with its place in maps and rings: measured, and rounded up.
func idBytes(id string) int64 { return int64(len(id)) + 256 }

// answerOf is the answer to a request. Fields are exported for encoding/gob.
type answerOf[V any] struct {
	ID     string
	Answer V
}

// bound limits the total weight of the answers. The zero value is no limit.
type bound[V any] struct {
	weigh func(V) int64 // nil: no limit
	most  int64
	least int // always remember this many of the latest
}

func newAnswers[V any](limit int) *answers[V] {
	return &answers[V]{limit: limit, answers: make(map[string]V)}
}

func (m *answers[V]) get(id string) (V, bool) {
	v, ok := m.answers[id]
	return v, ok
}

// put remembers an answer under an id that has none.
func (m *answers[V]) put(id string, v V) {
	switch {
	case len(m.ring) < m.limit:
		m.ring = append(m.ring, answerOf[V]{id, v})
	case m.gone > 0:
		m.gone--
		m.replaceOldest(id, v)
	default:
		m.drop(m.next)
		m.replaceOldest(id, v)
	}
	m.answers[id] = v
	m.ids += idBytes(id)
	if m.bound.weigh == nil {
		return
	}
	m.weight += m.bound.weigh(v)
	for m.weight > m.bound.most && len(m.ring)-m.gone > m.bound.least {
		m.drop((m.next + m.gone) % len(m.ring))
		m.gone++
	}
}

func (m *answers[V]) replaceOldest(id string, v V) {
	m.ring[m.next] = answerOf[V]{id, v}
	m.next = (m.next + 1) % m.limit
}

// drop forgets one entry of the ring.
func (m *answers[V]) drop(at int) {
	a := &m.ring[at]
	if m.bound.weigh != nil {
		m.weight -= m.bound.weigh(a.Answer)
	}
	delete(m.answers, a.ID)
	m.ids -= idBytes(a.ID)
	*a = answerOf[V]{}
}

// forget drops the answers that match.
func (m *answers[V]) forget(match func(V) bool) {
	kept := newAnswers[V](m.limit)
	kept.bound = m.bound
	m.each(func(id string, v V) {
		if !match(v) {
			kept.put(id, v)
		}
	})
	*m = *kept
}

// each visits the answers, the oldest first.
func (m *answers[V]) each(visit func(id string, v V)) {
	for i := m.gone; i < len(m.ring); i++ {
		a := &m.ring[(m.next+i)%len(m.ring)]
		visit(a.ID, a.Answer)
	}
}

// list returns the answers, the oldest first.
func (m *answers[V]) list() []answerOf[V] {
	all := make([]answerOf[V], 0, len(m.answers))
	m.each(func(id string, v V) { all = append(all, answerOf[V]{id, v}) })
	return all
}

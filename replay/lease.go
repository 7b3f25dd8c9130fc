package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// Lease draws a batch that [Table.Acknowledge] turns into uses. Until then its draws count against max_uses; released,
// or not settled within lease_seconds, they go back uncounted, and a queue delivers them again. Errors and repeated
// request ids are as with [Table.Sample]; a batch that went back is forgotten, and its request draws a new one.
func (t *Table) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, r, err := t.shardOfRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.begin(ctx)
	b, _, err := s.lease(r)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Acknowledge counts the draws of leased batches as used, at the versions at which they were drawn. It settles all it
// can; the error wraps rollout.ErrNoLease if a batch is not on lease, and nothing is counted for that one.
func (t *Table) Acknowledge(ctx context.Context, batches ...rollout.BatchID) error {
	return t.settleAll(ctx, batches, func(s *shard, i int) { s.acknowledgeLease(i) })
}

// Release gives the draws of leased batches back, uncounted. Errors are as with [Table.Acknowledge].
func (t *Table) Release(ctx context.Context, batches ...rollout.BatchID) error {
	return t.settleAll(ctx, batches, func(s *shard, i int) { s.releaseLease(i) })
}

func (t *Table) settleAll(ctx context.Context, batches []rollout.BatchID, do func(s *shard, i int)) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	for _, id := range batches {
		if e := t.settleLease(id, do); err == nil {
			err = e
		}
	}
	return err
}

// settleLease does something with the lease of a batch, the i-th of its shard.
func (t *Table) settleLease(id rollout.BatchID, do func(s *shard, i int)) error {
	if id == 0 {
		return fmt.Errorf("settling batch 0, which no table hands out: %w", rollout.ErrNoLease)
	}
	s := t.shards[uint64(id-1)%uint64(len(t.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	i, err := s.findLease(id)
	if err == nil {
		do(s.shard, i)
	}
	return err
}

// lease is a batch that was handed out and is not settled. Fields are exported for encoding/gob.
type lease struct {
	Request  string // id of the request; "": none
	Slots    []int32
	Batch    *rollout.Batch
	Deadline time.Time
}

// rememberedConsumed is how many acknowledged request ids a queue remembers: those of the latest batches, divided among
// the shards, but minConsumed for each.
const (
	rememberedConsumed = 1 << 14
	minConsumed        = 4
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
	return consumed{slots: uint64(max(rememberedConsumed, minConsumed*shards) / shards * shards),
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
	s.expire()
	if req.ID != "" {
		for _, l := range s.leases {
			if l.Request == req.ID {
				return l.Batch, true, sameRequest(l.Batch, req)
			}
		}
		if b, ok := s.answered.get(req.ID); ok {
			return b, false, sameRequest(b, req)
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

// sameRequest refuses a request that repeats another's id with another size, or with other prompts.
func sameRequest(b *rollout.Batch, req request) error {
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
		return 0, fmt.Errorf("settling batch %d of %s: %w", id, s.place(), rollout.ErrNoLease)
	}
	return i, nil
}

// acknowledgeLease counts the draws of the i-th lease as used. A repeat of its request gets the same batch.
func (s *shard) acknowledgeLease(i int) {
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	s.history.settle(l.Batch, l.Slots, drawUsed)
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
	s.history.settle(l.Batch, l.Slots, drawReturned)
	s.undoDraws(l.Slots, l.Batch.Draws)
}

// expire takes back the leases whose time is over, and has the groups leave that waited too long for their rewards. All
// leases have one duration, so the earliest deadline comes first unless the clock was set back.
func (s *shard) expire() {
	if s.waiting != nil {
		s.waiting.expire()
	}
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

package service

import (
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// holder is a call that batches are leased to.
type holder struct{ _ byte } // not empty, so that each has an address of its own

// leases is to whom batches are leased. A batch that a request gets again passes to the later call, so that the end of
// the earlier one, which may be noticed later, does not take it back.
type leases struct {
	mu   sync.Mutex
	held map[rollout.BatchID]*holder
}

func (l *leases) give(id rollout.BatchID, to *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[rollout.BatchID]*holder)
	}
	l.held[id] = to
}

// take ends the lease of a batch to a holder, nil for whoever holds it, and tells whether there was one.
func (l *leases) take(id rollout.BatchID, from *holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	if !ok || from != nil && h != from {
		return false
	}
	delete(l.held, id)
	return true
}

// has tells whether a batch is leased to a holder, nil for anybody.
func (l *leases) has(id rollout.BatchID, to *holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	return ok && (to == nil || h == to)
}

// takeAll ends all leases.
func (l *leases) takeAll() []rollout.BatchID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]rollout.BatchID, 0, len(l.held))
	for id := range l.held {
		ids = append(ids, id)
	}
	clear(l.held)
	return ids
}

// acknowledge turns a batch leased to a holder, nil for anybody, into uses.
func (t *table) acknowledge(id rollout.BatchID, from *holder) error {
	return t.settle(id, from, true)
}

// release gives a batch leased to a holder, nil for anybody, back.
func (t *table) release(id rollout.BatchID, from *holder) error {
	return t.settle(id, from, false)
}

func (t *table) settle(id rollout.BatchID, from *holder, used bool) error {
	err := t.alive(func() error {
		if !t.leases.take(id, from) {
			return t.notOnLease(id)
		}
		if used {
			return t.store.Acknowledge(id)
		}
		return t.store.Release(id)
	})
	if used && err == nil && t.options.Sampler.Consumes() {
		t.consumed.Add(1)
	}
	t.room.wake()
	t.stock.wake()
	return err
}

// notOnLease says why a batch cannot be settled.
func (t *table) notOnLease(id rollout.BatchID) error {
	return fmt.Errorf("batch %d: it was settled before, or went back after %v seconds (lease_seconds) or at the end of its stream: sample another: %w", id, t.LeaseSeconds, rollout.ErrNoLease)
}

// settleAll settles batches, all or none: those of a holder, or of anybody.
func (t *table) settleAll(batches []uint64, from *holder, used bool) error {
	seen := make(map[uint64]bool)
	for _, b := range batches {
		if seen[b] {
			return wire.Errorf(wire.Invalid, "batches: %d: want each batch once", b)
		}
		seen[b] = true
		id := rollout.BatchID(b)
		err := t.alive(func() error {
			if !t.leases.has(id, from) {
				return t.notOnLease(id)
			}
			return t.store.Renew(id) // it stands, and will until it is settled below
		})
		if err != nil {
			return err
		}
	}
	for _, b := range batches {
		if err := t.settle(rollout.BatchID(b), from, used); err != nil {
			return err
		}
	}
	return nil
}

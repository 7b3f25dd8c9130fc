package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// holder is the call that a batch is leased to: one holder, by its address, is one call.
type holder struct {
	caller string // name of the token or certificate; "" if there is none
	any    bool   // stands for every call of the caller
}

// settles reports whether a holder may settle what another holds: itself, or any call of the same caller.
func (h *holder) settles(of *holder) bool { return h == of || h.any && h.caller == of.caller }

// leases maps leased batches to their holders. When a repeated request gets its batch again, the lease passes to the
// later call, so that the end of the earlier one, which may be noticed later, does not take the batch back. The zero
// value is ready.
type leases struct {
	mu   sync.Mutex
	held map[rollout.BatchID]held
}

// held is a leased batch.
type held struct {
	by      *holder
	release func() // gives back the memory reserved for it
}

// begin leases a batch to a holder. Release is called when the lease ends; at once if the batch was leased before.
func (l *leases) begin(id rollout.BatchID, h *holder, release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[rollout.BatchID]held)
	}
	if before, ok := l.held[id]; ok {
		release()
		release = before.release
	}
	l.held[id] = held{h, release}
}

// has reports whether a batch is on a lease that the holder settles.
func (l *leases) has(id rollout.BatchID, h *holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.held[id]
	return ok && h.settles(found.by)
}

// ofAnother reports whether a batch is leased to another caller than the holder's.
func (l *leases) ofAnother(id rollout.BatchID, h *holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.held[id]
	return ok && found.by.caller != h.caller
}

// end ends the lease of a batch if the holder settles it, and reports whether there was one.
func (l *leases) end(id rollout.BatchID, h *holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.held[id]
	if !ok || !h.settles(found.by) {
		return false
	}
	found.release()
	delete(l.held, id)
	return true
}

func (l *leases) endAll() []rollout.BatchID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := slices.Collect(maps.Keys(l.held))
	for _, lease := range l.held {
		lease.release()
	}
	clear(l.held)
	return ids
}

// acknowledge turns the draws of a batch that the holder settles into uses.
func (t *table) acknowledge(id rollout.BatchID, h *holder) error { return t.settle(id, h, true) }

// release returns the draws of a batch that the holder settles uncounted.
func (t *table) release(id rollout.BatchID, h *holder) error { return t.settle(id, h, false) }

// returnBatch releases a batch that was not delivered, if it is still on lease.
func (t *table) returnBatch(b *rollout.Batch, h *holder) {
	if err := t.release(b.ID, h); err != nil && !errors.Is(err, rollout.ErrNoLease) {
		t.service.log.Debug("releasing a batch", "table", t.Name, "batch", b.ID, "error", err)
	}
}

func (t *table) settle(id rollout.BatchID, h *holder, used bool) error {
	err := t.unlessDropped(func() error {
		if !t.leases.end(id, h) {
			return t.notLeased(id, h)
		}
		if used {
			return t.rollouts.Acknowledge(context.Background(), id)
		}
		return t.rollouts.Release(context.Background(), id)
	})
	if err != nil {
		return err
	}
	if used && t.Sampler.Consumes() {
		t.consumed.Add(1)
	}
	t.lines.roomChanged()
	switch {
	case used:
	case t.limiter != nil:
		t.lines.rolloutsChanged()
	default:
		t.lines.rolloutsChanged(place(uint64(id-1) % uint64(t.Shards)))
	}
	return nil
}

// notLeased says why a holder may not settle a batch.
func (t *table) notLeased(id rollout.BatchID, h *holder) error {
	if t.leases.ofAnother(id, h) {
		return wire.Errorf(wire.Denied,
			"batch %d: it is leased to another caller: want the token that it was drawn with", id)
	}
	return fmt.Errorf("batch %d: it was settled before, or went back after %v seconds (lease_seconds) or at the end "+
		"of its stream: sample another: %w", id, t.LeaseSeconds, rollout.ErrNoLease)
}

// settleAll acknowledges and releases batches that the holder settles: all or none.
func (t *table) settleAll(acknowledged, released []uint64, h *holder) error {
	batches := slices.Concat(acknowledged, released)
	seen := make(map[uint64]bool, len(batches))
	for _, b := range batches {
		if seen[b] {
			return wire.Errorf(wire.Invalid, "batches: %d: want each batch once", b)
		}
		seen[b] = true
		id := rollout.BatchID(b)
		err := t.unlessDropped(func() error {
			if !t.leases.has(id, h) {
				return t.notLeased(id, h)
			}
			return t.rollouts.ServiceView().Renew(id) // it is on lease, and stays so until it is settled below
		})
		if err != nil {
			return err
		}
	}
	for i, b := range batches {
		if err := t.settle(rollout.BatchID(b), h, i < len(acknowledged)); err != nil {
			return err
		}
	}
	return nil
}

package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// lease is a batch that was handed out and not settled. Fields are exported for encoding/gob.
type lease struct {
	Request  string // id of the request; "": none
	Slots    []int32
	Batch    *rollout.Batch
	Deadline time.Time
}

// take draws the batch of a request and puts it on lease, or returns the batch that the request got
// before; leased tells whether it still is on lease.
func (s *shard) take(req rollout.Request) (b *rollout.Batch, leased bool, err error) {
	s.expire()
	if req.ID != "" {
		for _, l := range s.leases {
			if l.Request == req.ID {
				return l.Batch, true, sameSize(l.Batch, req)
			}
		}
		if b, ok := s.answered.get(req.ID); ok {
			return b, false, sameSize(b, req)
		}
	}
	if err := s.checkFill(req); err != nil {
		return nil, false, err
	}
	b = s.draw(req)
	s.leases = append(s.leases, &lease{
		Request: req.ID, Slots: slices.Clone(s.scratch), Batch: b,
		Deadline: s.options.Clock().Add(s.options.LeaseTimeout),
	})
	return b, true, nil
}

// sample is take and its acknowledgement in one; without a request id nothing is put on lease.
func (s *shard) sample(req rollout.Request) (*rollout.Batch, error) {
	if req.ID != "" {
		b, leased, err := s.take(req)
		if err != nil {
			return nil, err
		}
		if leased {
			i, err := s.find(b.ID)
			if err != nil {
				return nil, err
			}
			s.acknowledgeLease(i)
		}
		return b, nil
	}
	s.expire()
	if err := s.checkFill(req); err != nil {
		return nil, err
	}
	b := s.draw(req)
	s.acknowledge(s.scratch, b.Version)
	return b, nil
}

// sameSize refuses a request that repeats another's id with another size.
func sameSize(b *rollout.Batch, req rollout.Request) error {
	if len(b.Draws) == req.Size {
		return nil
	}
	return fmt.Errorf("size is %d: request %q asked for %d before; give each request an id of its own: %w", req.Size, req.ID, len(b.Draws), rollout.ErrInvalid)
}

// find returns where a batch stands among the leases.
func (s *shard) find(id rollout.BatchID) (int, error) {
	i := slices.IndexFunc(s.leases, func(l *lease) bool { return l.Batch.ID == id })
	if i < 0 {
		return 0, fmt.Errorf("settling batch %d of shard %d: %w", id, s.number, rollout.ErrNoLease)
	}
	return i, nil
}

// acknowledgeLease counts the draws of the i-th lease as used; a repeat of its request gets the same batch.
func (s *shard) acknowledgeLease(i int) {
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	s.acknowledge(l.Slots, l.Batch.Version)
	if l.Request != "" {
		s.answered.put(l.Request, l.Batch)
	}
}

// giveBack takes back the i-th lease; its request is forgotten, so that a repeat draws anew.
func (s *shard) giveBack(i int) {
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	s.takeBack(l.Slots, l.Batch.Draws)
}

// expire takes back the leases whose time is over, in the order they were given. All have one timeout, so
// the earliest deadline comes first unless the clock was set back.
func (s *shard) expire() {
	if len(s.leases) == 0 {
		return
	}
	now := s.options.Clock()
	for len(s.leases) > 0 && !now.Before(s.leases[0].Deadline) {
		s.giveBack(0)
	}
}

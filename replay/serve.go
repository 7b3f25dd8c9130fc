package replay

import (
	"context"
	"time"

	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
)

// ServiceView is what a service needs of a table beyond its methods: insertions that are safe to repeat, leases that
// start when a batch is delivered, and counts that cost next to nothing. Its methods may be called concurrently.
type ServiceView struct{ table *Table }

// ServiceView returns the table as a service uses it.
func (t *Table) ServiceView() ServiceView { return ServiceView{t} }

// InsertOnce is [Table.Insert] under an id of the caller's choice: repeated with the same id, it adds nothing and
// returns the first IDs, so that a caller who got no answer can ask again. With other rollouts the error wraps
// rollout.ErrInvalid. The last 100,000 ids are remembered; "" is none.
func (v ServiceView) InsertOnce(ctx context.Context, batchID string, groups ...rollout.Group) ([]rollout.ID, error) {
	return v.table.insert(ctx, batchID, groups)
}

// Inserted returns the IDs that the insertion under a batch id got, false if none is remembered. The error wraps
// rollout.ErrInvalid if it was of other groups.
func (v ServiceView) Inserted(batchID string, groups ...rollout.Group) (ids []rollout.ID, ok bool, err error) {
	if batchID == "" {
		return nil, false, nil
	}
	v.table.mu.Lock()
	first, ok := v.table.insertedBefore.get(batchID)
	v.table.mu.Unlock()
	if ok {
		ids, err = first.repeated(batchID, groups)
	}
	return ids, ok, err
}

// Groups returns how many groups the table got. The g-th of them, from 0 on, went to shard g modulo the shards.
func (v ServiceView) Groups() uint64 {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.lastGroup
}

// Repeats reports whether a request would get the batch that an earlier one with its id got, so that nothing is drawn
// for it.
func (v ServiceView) Repeats(req rollout.Request) bool {
	if req.ID == "" || req.Shard < 0 || req.Shard >= len(v.table.shards) {
		return false
	}
	s := v.table.shards[req.Shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, l := range s.leases {
		if l.Request == req.ID {
			return true
		}
	}
	_, answered := s.answered.get(req.ID)
	_, consumed := s.consumed.get(req.ID)
	return answered || consumed
}

// Lease is [Table.Lease]. A batch that was acknowledged before has Repeated set, and is not on lease.
func (v ServiceView) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, r, err := v.table.shardOfRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.begin(ctx)
	b, leased, err := s.lease(r)
	if err == nil && !leased {
		repeated := *b
		repeated.Repeated = true
		b = &repeated
	}
	return b, err
}

// Renew restarts the lease of a batch: batches drawn ahead of demand are renewed when they are delivered. An error
// wraps rollout.ErrNoLease if the batch is no longer on lease.
func (v ServiceView) Renew(id rollout.BatchID) error {
	return v.table.settleLease(id, func(s *shard, i int) {
		l := s.leases[i]
		l.Deadline = s.options.Clock().Add(s.options.leaseTime())
		copy(s.leases[i:], s.leases[i+1:]) // the earliest deadline stays first
		s.leases[len(s.leases)-1] = l
	})
}

// LastID returns the id of the latest rollout that was inserted, 0 if none was.
func (v ServiceView) LastID() rollout.ID {
	v.table.mu.Lock()
	defer v.table.mu.Unlock()
	return v.table.lastID
}

// ReleaseAll takes back every lease, uncounted: after a restore nobody holds any.
func (v ServiceView) ReleaseAll() {
	for _, s := range v.table.shards {
		s.mu.Lock()
		for len(s.leases) > 0 {
			s.releaseLease(0)
		}
		s.mu.Unlock()
	}
}

// NextExpiry returns when the first lease of a shard ends, false if nothing is on lease. A sample that waits for
// rollouts may find some then.
func (v ServiceView) NextExpiry(shard int) (time.Time, bool) {
	s := v.table.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if len(s.leases) == 0 {
		return time.Time{}, false
	}
	return s.leases[0].Deadline, true
}

// NextDeadline returns when the first group leaves that waits for rewards, false if none waits. An insertion that waits
// for room may find some then.
func (v ServiceView) NextDeadline() (first time.Time, any bool) {
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			s.expire()
			if s.waiting == nil || s.waiting.order.Len() == 0 {
				return
			}
			if at := s.waiting.order.Front().Value.(*waitingGroup).deadline; !any || at.Before(first) {
				first, any = at, true
			}
		})
	}
	return first, any
}

// Totals returns what a shard, which the table must have, adds to a draw over several tables.
func (v ServiceView) Totals(shard int) parted.Totals {
	s := v.table.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	t := parted.Totals{Version: s.version, Units: s.sampler.size(), Fresh: s.fresh.Waiting.Len}
	switch d := s.sampler.(type) {
	case *epoch:
		t.EpochLeft = d.slotSet.ready
	case *prioritized:
		t.Beta = d.o.BetaAt(s.version)
		if d.count > 0 {
			t.LogMass, t.LogLargest = d.totals(s.version)
		}
	}
	t.Unused = s.unused()
	return t
}

// unused counts the units that can be drawn and have neither a use nor a draw on lease. Samplers that draw those first
// know how many there are.
func (s *shard) unused() int {
	switch d := s.sampler.(type) {
	case *unseen:
		return d.slotSet.ready
	case *leastUsed:
		if len(d.levels) > 0 {
			return len(d.levels[0])
		}
	}
	return 0
}

// Flow is what went into a table and out of it, and what is there: the part of rollout.Stats that costs next to
// nothing.
type Flow struct {
	Inserted                      uint64 // rollouts; with unit step, steps
	Drawn, Acknowledged, Returned uint64
	Rewound                       uint64 // evicted by [Table.Rewind]
	Present                       int
	Waiting                       int // of these, for the rewards of their group
	Bytes                         int64
	Pinned                        int64 // bytes of what left: evicted while on lease, or in remembered batches
	IDs                           int64 // bytes of remembered batch ids, request ids and labels
}

// Flow returns the present counts. It takes each shard's lock once.
func (v ServiceView) Flow() Flow {
	f := Flow{IDs: v.table.batchIDs.Load() + v.table.labelBytes.Load()}
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			s.expire()
			f.Inserted += s.counts.Inserted
			f.Drawn += s.counts.Drawn
			f.Acknowledged += s.counts.Acknowledged
			f.Returned += s.counts.Returned
			f.Rewound += s.counts.Evicted[byRewind]
			f.Present += s.present
			f.Waiting += s.waitingCount()
			f.Bytes += s.bytes
			f.Pinned += s.leftLeased + s.answered.weight
			f.IDs += s.answered.ids + s.consumed.bytes
		})
	}
	return f
}

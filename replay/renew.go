package replay

import (
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// Renew lets the lease of a batch run anew from now: for batches that were drawn before they were asked for, at their
// hand-over. An error wraps rollout.ErrNoLease if the batch is not on lease any more.
func (t *Table) Renew(id rollout.BatchID) error {
	return t.settle(id, func(s *shard, i int) {
		l := s.leases[i]
		l.Deadline = s.options.Clock().Add(s.options.LeaseTimeout)
		copy(s.leases[i:], s.leases[i+1:]) // the earliest deadline stays first
		s.leases[len(s.leases)-1] = l
	})
}

// NextExpiry returns when the first lease of a shard that stands now ends, false if none stands: those who wait for rollouts
// may find some then.
func (t *Table) NextExpiry(shard int) (time.Time, bool) {
	s := t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if len(s.leases) == 0 {
		return time.Time{}, false
	}
	return s.leases[0].Deadline, true
}

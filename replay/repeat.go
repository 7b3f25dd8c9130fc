package replay

import "github.com/reprise-rl/reprise/rollout"

// Inserted returns what an insertion under a batch id got ([Table.InsertOnce]), false if none is remembered.
func (t *Table) Inserted(batchID string) ([]rollout.ID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if batchID == "" {
		return nil, false
	}
	ids, ok := t.inserted.get(batchID)
	if !ok {
		return nil, false
	}
	return ids.list(), true
}

// Repeats tells whether a request would get the batch that one with its id got before, so that nothing is drawn for it.
func (t *Table) Repeats(req rollout.Request) bool {
	if req.ID == "" || req.Shard < 0 || req.Shard >= len(t.shards) {
		return false
	}
	s := t.shards[req.Shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, l := range s.leases {
		if l.Request == req.ID {
			return true
		}
	}
	_, ok := s.answered.get(req.ID)
	return ok
}

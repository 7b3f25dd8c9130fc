package replay

import (
	"context"
	"fmt"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
)

// rememberedInsertions is how many batch ids of insertions a table remembers.
const rememberedInsertions = 100_000

// Table keeps rollouts and hands out batches of them. Its methods may be called concurrently.
//
// Lock order: Table.mu, then shard.mu in ascending order of shards. Insertions and version changes hold
// Table.mu throughout; drawing and settling take only their shard's.
type Table struct {
	options Options
	limits  rollout.Limits
	shards  []*guarded
	scratch sync.Pool // of *arrivals

	mu        sync.Mutex
	version   rollout.Version
	lastID    rollout.ID
	lastGroup uint64
	refused   uint64
	ignored   uint64           // updates addressed to evicted rollouts
	ratios    ratios           // reported by age
	moved     rollout.Version  // when the age decay did last
	inserted  *memory[idRange] // by batch id
	notes     *tableNotes      // of what changed; nil if the table is not tracked
}

// New returns an empty table at version 0, or every problem of the options at once.
func New(o Options) (*Table, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	t := &Table{options: o.withDefaults(), inserted: newMemory[idRange](rememberedInsertions)}
	t.scratch.New = func() any { return new(arrivals) }
	for i := range t.options.Shards {
		t.shards = append(t.shards, &guarded{shard: newShard(t.options, i)})
	}
	t.limits = rollout.Limits{Vocab: t.options.Vocab, MaxTokens: t.options.MaxTokens}
	if t.options.CapacityBytes > 0 {
		t.limits.MaxBytes = t.options.recentBytes()
	}
	return t, nil
}

// Options returns the options with defaults filled in.
func (t *Table) Options() Options { return t.options.withDefaults() } // which copies what they point to

// Sample draws a batch and counts its draws as used: for a trainer in the same process, where a batch
// handed out is a batch delivered. An error wraps rollout.ErrStarved if the shard holds fewer than
// MinSize, too few that were never handed out as fresh for Request.Fresh, or too few to fill the batch: fewer than Size
// that can be drawn, with samplers uniform and prioritized none, or fewer draws than MaxUses still allows. A repeated request id gets the same batch, counted once,
// as long as it is among the shard's last 256 with an id.
func (t *Table) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, err := t.requested(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sample(req)
}

// Lease draws a batch that [Table.Acknowledge] turns into uses. Until then its draws count against
// MaxUses; released, or unsettled for longer than Options.LeaseTimeout, they go back uncounted, and
// a queue delivers them again. Errors and repeated request ids are as with [Table.Sample]; a batch
// that went back is forgotten, and its request draws anew.
func (t *Table) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, err := t.requested(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _, err := s.take(req)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// requested returns the shard of a request.
func (t *Table) requested(ctx context.Context, req rollout.Request) (*guarded, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Size < 1 {
		return nil, fmt.Errorf("size is %d: ask for at least 1 rollout: %w", req.Size, rollout.ErrInvalid)
	}
	if req.Fresh < 0 || req.Fresh > req.Size {
		return nil, fmt.Errorf("fresh is %d: ask for 0 to size (%d) rollouts: %w", req.Fresh, req.Size, rollout.ErrInvalid)
	}
	if req.Shard < 0 || req.Shard >= len(t.shards) {
		return nil, fmt.Errorf("shard is %d: name one of 0 to %d: %w", req.Shard, len(t.shards)-1, rollout.ErrInvalid)
	}
	return t.shards[req.Shard], nil
}

// Acknowledge counts the draws of a leased batch as used, at the version at which it was drawn. An error
// wraps rollout.ErrNoLease if the batch is not on lease, and nothing is counted.
func (t *Table) Acknowledge(id rollout.BatchID) error {
	return t.settle(id, func(s *shard, i int) { s.acknowledgeLease(i) })
}

// Release gives the draws of a leased batch back, uncounted. An error wraps rollout.ErrNoLease if the
// batch is not on lease.
func (t *Table) Release(id rollout.BatchID) error {
	return t.settle(id, func(s *shard, i int) { s.giveBack(i) })
}

// settle does something with the lease of a batch, the i-th of its shard.
func (t *Table) settle(id rollout.BatchID, do func(s *shard, i int)) error {
	s, err := t.shardOf(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	i, err := s.find(id)
	if err == nil {
		do(s.shard, i)
	}
	return err
}

func (t *Table) shardOf(id rollout.BatchID) (*guarded, error) {
	if id == 0 {
		return nil, fmt.Errorf("settling batch 0, which no table hands out: %w", rollout.ErrNoLease)
	}
	return t.shards[uint64(id-1)%uint64(len(t.shards))], nil
}

// Len returns the number of rollouts in the table, at the cost of a look at each shard.
func (t *Table) Len() int {
	n := 0
	for _, s := range t.shards {
		s.mu.Lock()
		n += s.present
		s.mu.Unlock()
	}
	return n
}

// Stats returns what the table has counted since it was made.
func (t *Table) Stats() rollout.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := rollout.Stats{Version: t.version, Refused: t.refused, UpdatesIgnored: t.ignored, Evicted: make(map[rollout.Cause]uint64)}
	for _, s := range t.shards {
		s.mu.Lock()
		s.expire()
		st.Present += s.present
		st.PresentBytes += s.bytes
		s.counts.addTo(&st)
		s.mu.Unlock()
	}
	return st
}

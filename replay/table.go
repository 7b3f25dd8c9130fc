package replay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// Table keeps rollouts and hands out batches of them. Its methods may be called concurrently. Those with a context are
// also those of a table in a service (*client.Table, *client.PartedTable): whoever uses either declares which of them.
//
// Lock order: Table.mu, then shard.mu in ascending order of shards. Insertions and version changes hold Table.mu
// throughout; drawing and settling take only their shard's.
type Table struct {
	options  Options
	identity string // Options.identity
	limits   rollout.Limits
	pin      *formula.Formula // nil: none
	shards   []*lockedShard
	arrivals sync.Pool // of *arrivals

	mu             sync.Mutex
	version        rollout.Version
	lastID         rollout.ID
	lastGroup      uint64
	refused        uint64            // rollouts of insertions that can never enter
	ignored        uint64            // updates addressed to evicted rollouts
	ratios         ratios            // reported by age
	ageDecayMoved  rollout.Version   // when the age decay last moved
	insertedBefore *answers[idRange] // by batch id; see rememberInsertion
	labels         labels            // who gave rewards
	changes        *tableChanges     // since the last cut; nil if nothing tracks the table
	recorded       rollout.ID        // the newest in a cut that is on disk; see unrecorded

	// bytes of insertedBefore and labels, for those who do not hold mu
	batchIDs, labelBytes atomic.Int64
}

// lockedShard is a shard with the lock for all of it. Restoring replaces the shard whole.
type lockedShard struct {
	mu sync.Mutex
	*shard
}

// do runs an operation under the shard's lock, which is free again even after a panic.
func (s *lockedShard) do(operation func(s *shard)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	operation(s.shard)
}

// rememberedInsertions is how many batch ids of insertions a table remembers.
const rememberedInsertions = 100_000

func (t *Table) rememberInsertion(batchID string, ids idRange) {
	t.insertedBefore.put(batchID, ids)
	t.batchIDs.Store(t.insertedBefore.ids)
}

// New returns an empty table at version 0, or every problem of the options at once.
func New(o Options) (*Table, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	t := &Table{options: o, identity: o.identity(), insertedBefore: newAnswers[idRange](rememberedInsertions)}
	t.arrivals.New = func() any { return new(arrivals) }
	if o.Pin != "" {
		t.pin, _ = formula.Condition(o.Pin) // Validate has parsed it
	}
	for i := range o.Shards {
		t.shards = append(t.shards, &lockedShard{shard: newShard(o, i)})
	}
	t.limits = o.Limits()
	return t, nil
}

// Limits returns the bounds on each rollout that enters. The defaults must be filled in.
func (o Options) Limits() rollout.Limits {
	l := rollout.Limits{Vocab: o.Vocab, MaxTokens: o.MaxTokens, UnknownLogprobs: o.UnknownLogprobs,
		PendingRewards: o.PendingRewards > 0}
	if o.CapacityBytes > 0 {
		l.MaxBytes = o.recentBytes()
	}
	return l
}

// Options returns the options with defaults filled in.
func (t *Table) Options() Options { return t.options.WithDefaults() } // a copy of what the pointers point to

// Version returns the table's version: the last one that Advance or Rewind set.
func (t *Table) Version() rollout.Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// Advance sets the table's version to v before the weights of that version are published. It is absolute and monotone:
// a v not above the table's changes nothing, so repeated and late calls are harmless. Rollouts older than max_staleness
// leave.
func (t *Table) Advance(ctx context.Context, v rollout.Version) error {
	if err := checkVersion(ctx, v); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v <= t.version {
		return nil
	}
	t.version, t.ratios.Version = v, v
	for _, s := range t.shards {
		s.do(func(s *shard) {
			s.expire()
			s.advance(v)
		})
	}
	t.adaptAgeDecay()
	return nil
}

// Rewind sets the table's version back to v, for a trainer restored from a checkpoint: rollouts with a token newer than
// v leave and are counted; batches drawn at a newer version go back if on lease, and are forgotten. It refuses a v
// above the table's.
func (t *Table) Rewind(ctx context.Context, v rollout.Version) error {
	if err := checkVersion(ctx, v); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v > t.version {
		return fmt.Errorf("version is %d: the table is at %d; rewind to a version not above it, or advance: %w", v,
			t.version, rollout.ErrInvalid)
	}
	t.version, t.ageDecayMoved = v, min(t.ageDecayMoved, v)
	t.ratios.rewind(v)
	for _, s := range t.shards {
		s.do(func(s *shard) {
			s.expire()
			s.rewind(v)
		})
	}
	return nil
}

func checkVersion(ctx context.Context, v rollout.Version) error {
	if v < 0 {
		return fmt.Errorf("version is %d: give the number of updates, at least 0: %w", v, rollout.ErrInvalid)
	}
	return ctx.Err()
}

// Len returns the number of rollouts in the table. It takes each shard's lock once.
func (t *Table) Len(ctx context.Context) (int, error) { return t.present(), ctx.Err() }

func (t *Table) present() int {
	n := 0
	for _, s := range t.shards {
		s.mu.Lock()
		n += s.present
		s.mu.Unlock()
	}
	return n
}

// Stats returns what the table has counted since it was made.
func (t *Table) Stats(ctx context.Context) (rollout.Stats, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := rollout.Stats{Version: t.version, Refused: t.refused, UpdatesIgnored: t.ignored,
		Evicted: make(map[rollout.Cause]uint64)}
	for _, s := range t.shards {
		s.do(func(s *shard) {
			s.expire()
			st.Present += s.present
			st.PresentBytes += s.bytes
			st.Waiting += s.waitingCount()
			s.counts.addTo(&st)
		})
	}
	return st, ctx.Err()
}

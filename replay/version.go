package replay

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// Version returns the table's version: the last one that Advance or Rewind set.
func (t *Table) Version() rollout.Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// Advance sets the table's version to v before the weights of that version are published. It is
// absolute and monotone: a v not above the table's changes nothing, so repeated and late calls are
// harmless. Rollouts that became older than MaxStaleness leave.
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
		s.mu.Lock()
		s.expire()
		s.advance(v)
		s.mu.Unlock()
	}
	t.adapt()
	return nil
}

// Rewind sets the table's version back to v, for a trainer restored from a checkpoint: rollouts with a
// token newer than v leave and are counted, batches drawn at a newer version go back if on lease and
// are forgotten. It refuses a v above the table's version.
func (t *Table) Rewind(ctx context.Context, v rollout.Version) error {
	if err := checkVersion(ctx, v); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v > t.version {
		return fmt.Errorf("version is %d: the table is at %d; rewind to a version not above it, or advance: %w", v, t.version, rollout.ErrInvalid)
	}
	t.version, t.moved = v, min(t.moved, v)
	t.ratios.rewind(v)
	for _, s := range t.shards {
		s.mu.Lock()
		s.expire()
		s.rewind(v)
		s.mu.Unlock()
	}
	return nil
}

func checkVersion(ctx context.Context, v rollout.Version) error {
	if v < 0 {
		return fmt.Errorf("version is %d: give the number of updates, at least 0: %w", v, rollout.ErrInvalid)
	}
	return ctx.Err()
}

package replay

import (
	"context"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// Priority is how much a trainer wants a rollout drawn again, for the samplers that weigh rollouts.
type Priority struct {
	ID    rollout.ID
	Value float64 // finite, >= 0
}

// Report tells the table what a trainer measured of its draws.
func (t *Table) Report(ctx context.Context, feedback ...rollout.Feedback) error { return ctx.Err() }

// Update gives rollouts new priorities, all or none. No sampler of [Samplers] weighs rollouts, so a
// priority of one that is present is checked and changes nothing. One addressed to a rollout that was
// evicted changes nothing either and is counted (invariant 7). An error wraps rollout.ErrInvalid if a
// value is out of range or an ID was never given.
func (t *Table) Update(ctx context.Context, priorities ...Priority) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range priorities {
		if !(p.Value >= 0 && p.Value <= math.MaxFloat64) {
			return &rollout.FieldError{Row: i, Field: "priority", Value: fmt.Sprint(p.Value), Remedy: "give a finite number, at least 0"}
		}
		if p.ID == 0 || p.ID > t.lastID {
			return &rollout.FieldError{Row: i, Field: "id", Value: fmt.Sprint(p.ID), Remedy: fmt.Sprintf("give an id that the table gave, 1 to %d", t.lastID)}
		}
	}
	missing := make([]bool, len(priorities))
	for i := range missing {
		missing[i] = true
	}
	for _, s := range t.shards {
		s.mu.Lock()
		for i, p := range priorities {
			missing[i] = missing[i] && s.index.find(p.ID) == none
		}
		s.mu.Unlock()
	}
	for i := range priorities {
		if missing[i] {
			t.ignored++
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// trainer takes a table through cycles.
type trainer struct {
	table   *replay.Table
	version rollout.Version
	bases   []float64   // [N] as the sequence and the followed updates have them
	values  [][]float64 // [rows][batch] for the updates, in turn
	row     int
	ids     []rollout.ID // of one update
}

// run times n cycles. What a trainer does with a batch to update its priorities is part of the update.
func (t *trainer) run(ctx context.Context, n int) (answer, error) {
	var sampling, updating, advancing time.Duration
	for range n {
		start := time.Now()
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return answer{}, err
		}
		sampled := time.Now()
		if err := t.update(ctx, batch); err != nil {
			return answer{}, err
		}
		updated := time.Now()
		if err := t.advance(ctx); err != nil {
			return answer{}, err
		}
		advanced := time.Now()
		sampling += sampled.Sub(start)
		updating += updated.Sub(sampled)
		advancing += advanced.Sub(updated)
	}
	return answer{Sample: sampling.Seconds(), Update: updating.Seconds(), Advance: advancing.Seconds()}, nil
}

// update gives the rollouts of a batch the next row of values.
func (t *trainer) update(ctx context.Context, batch *rollout.Batch) error {
	values := t.values[t.row]
	t.row = (t.row + 1) % len(t.values)
	for i := range batch.Draws {
		t.ids[i] = batch.Draws[i].ID
	}
	return t.table.Update(ctx, t.ids, values)
}

func (t *trainer) advance(ctx context.Context) error {
	t.version++
	return t.table.Advance(ctx, t.version)
}

// follow runs n cycles and keeps t.bases as the updates make them.
func (t *trainer) follow(ctx context.Context, n int) error {
	for range n {
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return err
		}
		values := t.values[t.row]
		if err := t.update(ctx, batch); err != nil {
			return err
		}
		for i, d := range batch.Draws {
			t.bases[d.ID-1] = values[i]
		}
		if err := t.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// draw counts the draws of n batches.
func (t *trainer) draw(ctx context.Context, n int) (answer, error) {
	a := answer{Counts: make([]int, len(t.bases))}
	for b := range n {
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return answer{}, err
		}
		for _, d := range batch.Draws {
			if d.Rollout == nil {
				return answer{}, fmt.Errorf("rollout %d was drawn without its contents", d.ID)
			}
			a.Counts[d.ID-1]++
			if b == 0 {
				a.IDs = append(a.IDs, int(d.ID-1))
				a.Weights = append(a.Weights, d.Weight)
			}
		}
	}
	return a, nil
}

package pipeline

import (
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Each batch is used for Options.BatchUpdates updates in a row. The version tells how many of them were taken: a batch is drawn
// at the versions that BatchUpdates divides.

// reuses reports whether the update after a version is on the batches of the one before it.
func (o Options) reuses(v rollout.Version) bool { return int(v)%o.BatchUpdates != 0 }

// nextBatch decides after an update whether its batches are used again. If they are, their draws are brought up to the
// trainers' version: older by one, and fresh no longer. Else the trainers miss them.
func (m *Machine) nextBatch() {
	t := &m.trainer
	if !m.opts.reuses(m.version) {
		clear(t.batches)
		t.drawn = 0
		return
	}
	for _, b := range t.batches {
		b.Version = m.version
		for i := range b.Draws {
			b.Draws[i].Staleness++
			b.Draws[i].Fresh = false
		}
	}
}

// heldBatches returns the batches that are used again, nil if the next update draws. Their draws are copies, as the trainers write
// to their own; the rollouts are shared.
func (m *Machine) heldBatches() []rollout.Batch {
	if !m.opts.reuses(m.version) {
		return nil
	}
	var held []rollout.Batch
	for _, b := range m.trainer.batches {
		c := *b
		c.Draws = slices.Clone(b.Draws)
		held = append(held, c)
	}
	return held
}

// hold takes up the batches of a state, of which it keeps a copy.
func (m *Machine) hold(batches []rollout.Batch) {
	t := &m.trainer
	for i := range batches {
		b := batches[i]
		b.Draws = slices.Clone(b.Draws)
		t.batches[i] = &b
		t.drawn++
	}
}

// acceptBatches reports batches that are missing, or there where the next update draws its own.
func (m *Machine) acceptBatches(s State) (found []error) {
	want := 0
	if m.opts.reuses(s.Version) {
		want = m.opts.Trainers
	}
	if len(s.Batches) != want {
		return []error{fmt.Errorf("state has %d batches at version %d, want %d with pipeline.batch_updates %d and %d trainers",
			len(s.Batches), s.Version, want, m.opts.BatchUpdates, m.opts.Trainers)}
	}
	for i, b := range s.Batches {
		if len(b.Draws) != m.perTrainer() {
			found = append(found, fmt.Errorf("state's batch of trainer %d has %d draws, want %d", i, len(b.Draws), m.perTrainer()))
		}
		for k, d := range b.Draws {
			if d.Rollout == nil {
				found = append(found, fmt.Errorf("draw %d of the state's batch of trainer %d has no rollout", k, i))
				break
			}
		}
	}
	return found
}

package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// trainer is the T trainer GPUs, which step together: one account stands for each of them.
type trainer struct {
	account Account
	batches []*rollout.Batch // of the next or present step by trainer; nil where missing
	drawn   int              // batches that are there
	asking  bool             // a draw is scheduled or under way

	hunger hunger // of those that miss a batch

	work     *work // the step under way; nil when none
	measured Measured
}

// perTrainer returns the rollouts that each trainer takes per update.
func (m *Machine) perTrainer() int { return m.opts.Batch / m.opts.Trainers }

// freshPerTrainer returns how many of them are to be fresh in the next update.
func (m *Machine) freshPerTrainer() int { return m.opts.freshOf(int(m.version)) }

// freshDraws counts the fresh draws of a batch.
func freshDraws(b *rollout.Batch) int {
	n := 0
	for _, d := range b.Draws {
		if d.Fresh {
			n++
		}
	}
	return n
}

// requestDraw makes trainers that are ready for an update draw, once at this instant and after all
// else that happens at it.
func (m *Machine) requestDraw() {
	t := &m.trainer
	if t.work != nil || t.asking {
		return
	}
	t.account.turn(m.now, Stalled)
	if m.holdsBack() {
		return // until weights arrive
	}
	t.asking = true
	m.schedule(Event{Time: m.now, Kind: TrainersDraw})
}

// draw fills the batches that are missing, admits the groups that find room thereby, and starts the
// step when all are there. Batches drawn are kept while others are missing.
func (m *Machine) draw() error {
	t := &m.trainer
	if err := m.admit(); err != nil { // the last version may have made room by what it made too old
		return err
	}
	for {
		before := m.books.Inserted
		if err := m.drawMissing(); err != nil {
			return err
		}
		if t.drawn == len(t.batches) {
			t.asking = false
			m.startStep()
			return nil
		}
		if m.books.Inserted == before {
			t.asking = false
			return m.starve()
		}
	}
}

// drawMissing draws for the trainers in order, up to the first that is starved: the step needs all
// of them, so that an insertion costs one try and not T. When groups wait for room the others draw too, as
// that may give it.
func (m *Machine) drawMissing() error {
	t := &m.trainer
	for shard, have := range t.batches {
		if have != nil {
			continue
		}
		b, err := m.parts.Buffer.Sample(m.pool.ctx, rollout.Request{Size: m.perTrainer(), Fresh: m.freshPerTrainer(), Shard: shard})
		if errors.Is(err, rollout.ErrStarved) {
			t.hunger.cause = err
			if len(m.line) == 0 {
				return nil
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("sample %d rollouts of shard %d for update %d: %w", m.perTrainer(), shard, m.version+1, err)
		}
		if len(b.Draws) != m.perTrainer() {
			return fmt.Errorf("batch of shard %d has %d draws, want %d", shard, len(b.Draws), m.perTrainer())
		}
		if n := freshDraws(b); n != m.freshPerTrainer() {
			return fmt.Errorf("batch of shard %d has %d fresh draws, want %d", shard, n, m.freshPerTrainer())
		}
		t.batches[shard] = b
		t.drawn++
		if err := m.admit(); err != nil {
			return err
		}
	}
	return nil
}

// startStep starts the update that the batches are for.
func (m *Machine) startStep() {
	t := &m.trainer
	t.hunger = hunger{}
	t.account.turn(m.now, Busy)
	due := m.now + m.opts.StepTime()
	t.work = m.pool.submit(due, &m.wall.Learn, func(ctx context.Context) error {
		if m.opts.Advantage.UsesBatch() {
			setAdvantages(t.batches, m.opts.Advantage)
		}
		var err error
		t.measured, err = m.parts.Learner.Step(ctx, t.batches)
		return err
	})
	m.schedule(Event{Time: due, Kind: StepEnd})
}

// endStep awaits the update: the buffer learns what was measured, then of the version, the workers get its
// weights, the books are written and the hook is called, in this order. It reports whether the run ends here.
func (m *Machine) endStep() (end bool, err error) {
	t := &m.trainer
	if err := m.pool.await(t.work); err != nil {
		return false, fmt.Errorf("take update %d: %w", m.version+1, err)
	}
	m.version++
	if err := m.parts.Buffer.Report(m.pool.ctx, t.measured.Feedback...); err != nil {
		return false, fmt.Errorf("report what update %d measured: %w", m.version, err)
	}
	if err := m.parts.Buffer.Advance(m.pool.ctx, m.version); err != nil {
		return false, fmt.Errorf("advance the buffer to version %d: %w", m.version, err)
	}
	if err := m.publish(); err != nil {
		return false, err
	}
	t.account.turn(m.now, Idle)
	t.work = nil
	u := m.update()
	t.measured = Measured{}
	m.nextBatch()
	m.nextTurn()

	m.boundary = true
	if m.hooks.OnUpdate != nil {
		err = m.hooks.OnUpdate(m, u)
	}
	switch {
	case errors.Is(err, ErrStop):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("observe update %d: %w", m.version, err)
	case m.Finished() || m.stop.Load():
		return true, nil
	}
	m.boundary = false
	return false, nil
}

// setAdvantages writes the advantages that are taken over the training batch, that of all trainers,
// to its draws.
func setAdvantages(batches []*rollout.Batch, kind advantage.Kind) {
	var rewards, means []float32
	for _, b := range batches {
		for _, d := range b.Draws {
			rewards = append(rewards, d.Rollout.Reward)
			means = append(means, d.GroupMean)
		}
	}
	advantage.OfBatch(rewards, rewards, means, kind)
	for _, b := range batches {
		for i := range b.Draws {
			b.Draws[i].Advantage = rewards[i]
		}
		rewards = rewards[len(b.Draws):]
	}
}

package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// Source is what trainers draw batches from, and tell what they learned. It is called from one goroutine.
type Source interface {
	// Sample draws a batch with exactly req.Fresh fresh draws, unless it composes batches ([Options.Composed]). An
	// error that wraps rollout.ErrStarved means that there are too few rollouts, or too few fresh ones: the trainer
	// tries again after the next insertion. A run that gets stuck ends with this error, so its text should say what is
	// missing.
	Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	// Report passes on what the learner measured of an update's draws. It is called at the end of every update, before
	// Advance, so that the buffer is still at the version the batches were trained at. There may be no feedback.
	Report(ctx context.Context, feedback ...rollout.Feedback) error
	// Advance sets the trainers' version, before its weights are published. It may evict rollouts.
	Advance(ctx context.Context, v rollout.Version) error
}

// Learner takes optimizer steps.
type Learner interface {
	// Step takes one optimizer step on the batches of all trainers, one each, in trainer order.
	Step(ctx context.Context, batches []*rollout.Batch) (Measured, error)
	// Weights returns the newest weights. Their version is the number of steps taken.
	Weights() Weights
}

// Measured is what a learner measured in one optimizer step.
type Measured struct {
	Metrics  map[string]float64 // by name
	Feedback []rollout.Feedback // of the draws, trainer by trainer; may be nil
}

// trainer is the T trainer GPUs. They step together, so one account stands for each of them.
type trainer struct {
	account   Account
	batches   []*rollout.Batch // of the next or current step, by trainer; nil: not drawn yet
	drawn     int              // batches that are not nil
	requested bool             // a draw is scheduled or under way

	starvation starvation

	work     *work // the current step; nil: none
	measured Measured
}

// perTrainer returns the size of each trainer's batch.
func (m *Machine) perTrainer() int { return m.opts.Batch / m.opts.Trainers }

// freshPerTrainer returns how many of its draws are fresh in the next update.
func (m *Machine) freshPerTrainer() int { return m.opts.freshDraws(int(m.version)) }

func countFresh(b *rollout.Batch) int {
	n := 0
	for _, d := range b.Draws {
		if d.Fresh {
			n++
		}
	}
	return n
}

// requestDraw schedules a draw, once per instant and after everything else that happens at it, unless a step is under
// way. While drawBatches runs, requested is still set, so that the insertions it makes do not ask for another draw.
func (m *Machine) requestDraw() {
	t := &m.trainer
	if t.work != nil || t.requested {
		return
	}
	t.account.switchTo(m.now, stalled)
	if m.tooManyInFlight() {
		return // until weights arrive
	}
	t.requested = true
	m.schedule(Event{Time: m.now, Kind: trainersDraw})
}

// drawBatches draws the missing batches, inserts groups that find room thereby, and starts the update once all batches
// are there. Batches drawn are kept while others are missing.
func (m *Machine) drawBatches() error {
	t := &m.trainer
	if err := m.insertGroups(); err != nil { // the new version may have expired rollouts and so made room
		return err
	}
	for {
		before := m.counts.Inserted
		if err := m.sampleMissing(); err != nil {
			return err
		}
		if t.drawn == len(t.batches) {
			t.requested = false
			m.startUpdate()
			return nil
		}
		if m.counts.Inserted == before {
			t.requested = false
			return m.checkStarvation()
		}
	}
}

// sampleMissing samples for the trainers in order, up to the first that is starved: as the step needs all batches, an
// insertion then costs one attempt and not T. When groups wait for room it tries the other trainers too, because that
// may make room.
func (m *Machine) sampleMissing() error {
	t, size, fresh := &m.trainer, m.perTrainer(), m.freshPerTrainer()
	for shard, have := range t.batches {
		if have != nil {
			continue
		}
		b, err := m.parts.Buffer.Sample(m.pool.ctx, m.opts.request(m.version, shard))
		if errors.Is(err, rollout.ErrStarved) {
			t.starvation.cause = err
			if len(m.waiting) == 0 {
				return nil
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("sample %d rollouts of shard %d for update %d: %w", size, shard, m.version+1, err)
		}
		if len(b.Draws) != size {
			return fmt.Errorf("batch of shard %d has %d draws, want %d", shard, len(b.Draws), size)
		}
		if n := countFresh(b); n > fresh || n < fresh && !m.opts.Composed {
			return fmt.Errorf("batch of shard %d has %d fresh draws, want %d", shard, n, fresh)
		}
		t.batches[shard] = b
		t.drawn++
		if err := m.insertGroups(); err != nil {
			return err
		}
	}
	return nil
}

// startUpdate starts the optimizer step on the batches in the pool.
func (m *Machine) startUpdate() {
	t := &m.trainer
	t.starvation = starvation{}
	t.account.switchTo(m.now, busy)
	due := m.now + m.opts.stepTime(int(m.version))
	t.work = m.pool.submit(due, &m.wall.Learn, func(ctx context.Context) error {
		rollout.NormaliseWeights(t.batches)
		if m.opts.Advantage.UsesBatch() {
			setAdvantages(t.batches, m.opts.Advantage)
		}
		var err error
		t.measured, err = m.parts.Learner.Step(ctx, t.batches)
		return err
	})
	m.schedule(Event{Time: due, Kind: stepEnd})
}

// setAdvantages writes advantages over the training batch, that of all trainers together, to its draws.
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

// endUpdate awaits the step, reports to the buffer, publishes the weights, records the update and calls the hook. It
// reports whether the run ends here. The order matters: the update is recorded before its batches are dropped, the
// trainers are idle before the next turn asks for a draw, and the hook may take a snapshot only after all of it.
func (m *Machine) endUpdate() (end bool, err error) {
	t := &m.trainer
	if err := m.pool.await(t.work); err != nil {
		return false, fmt.Errorf("take update %d: %w", m.version+1, err)
	}
	// The feedback is of draws at the version before, and the buffer is at that version until Advance. Weights are
	// published after it, so that no worker makes rollouts that are newer than the buffer (invariant 1).
	m.version++
	if err := m.parts.Buffer.Report(m.pool.ctx, t.measured.Feedback...); err != nil {
		return false, fmt.Errorf("report the measurements of update %d: %w", m.version, err)
	}
	if err := m.parts.Buffer.Advance(m.pool.ctx, m.version); err != nil {
		return false, fmt.Errorf("advance the buffer to version %d: %w", m.version, err)
	}
	if err := m.publishWeights(); err != nil {
		return false, err
	}
	t.account.switchTo(m.now, idle)
	t.work = nil
	u := m.recordUpdate()
	t.measured = Measured{}
	m.reuseOrDropBatches()
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

// reuseOrDropBatches drops the batches after their last update. Before that it ages their draws by a version; they are
// not fresh any more.
func (m *Machine) reuseOrDropBatches() {
	t := &m.trainer
	if !m.opts.reusesBatch(int(m.version)) {
		clear(t.batches)
		t.drawn = 0
		return
	}
	age(t.batches, m.version)
}

// age makes batches those of another update at the next version.
func age(batches []*rollout.Batch, v rollout.Version) {
	for _, b := range batches {
		b.Version = v
		for i := range b.Draws {
			b.Draws[i].Staleness++
			b.Draws[i].Fresh = false
		}
	}
}

// nextTurn decides after an update whose turn it is. The workers' turn begins when the last weights have reached them.
func (m *Machine) nextTurn() {
	if m.opts.Mode == Sync {
		m.turn.Updates--
		if m.turn.Updates == 0 {
			if len(m.weights.coming) == 0 {
				m.startWorkersTurn()
			}
			return
		}
	}
	m.requestDraw()
}

// starvation tracks trainers that wait for a batch. It is empty while they step, so that a State need not hold it.
type starvation struct {
	cause error  // the buffer's last answer
	held  int    // the most rollouts that the buffer held meanwhile
	until uint64 // number of insertions at which the run counts as stuck unless the buffer grows; 0: not set yet
}

// starvationBatches is how many batches of rollouts may enter in vain before a run counts as stuck. It leaves room for
// buffers that fill by chance, for example because they keep positive rewards only.
const starvationBatches = 64

// checkStarvation ends a run whose trainers would wait for ever although workers generate. While trainers wait, the
// version does not change. So once the newest weights have arrived and earlier jobs are in, all insertions are alike:
// if the buffer has not grown after starvationBatches batches of them, more will not help.
func (m *Machine) checkStarvation() error {
	s := &m.trainer.starvation
	held, err := m.parts.Buffer.Len(m.pool.ctx)
	if err != nil {
		return err
	}
	if s.until == 0 || held > s.held || len(m.weights.coming) > 0 {
		earlier := m.opts.Group * (len(m.workers) + len(m.groups)) // begun with older weights
		s.held = max(held, s.held)
		s.until = m.counts.Inserted + uint64(starvationBatches*m.opts.Batch+earlier)
		return nil
	}
	if m.counts.Inserted < s.until {
		return nil
	}
	return fmt.Errorf("%w at time %g: %s, and the buffer has not grown over the last %d batches of new rollouts (%w): "+
		"raise replay.max_staleness, capacity or bytes, or lower replay.min_size or positive_fraction, "+
		"pipeline.publish_every%s or batch", ErrStuck, m.now, m.missing(), starvationBatches, s.cause,
		m.lowerFreshShare())
}

// stuckError explains why no event is left.
func (m *Machine) stuckError() error {
	cause, o := m.trainer.starvation.cause, m.opts
	switch {
	case o.Mode == Sync && len(m.waiting) > 0:
		return fmt.Errorf("%w at time %g: the buffer has no room for %d groups of the workers' turn: "+
			"raise replay.capacity or bytes, or lower pipeline.sync_rollouts (%d)",
			ErrStuck, m.now, len(m.waiting), o.SyncRollouts)
	case len(m.waiting) > 0:
		return fmt.Errorf("%w at time %g: the buffer has no room for %d groups while %s (%w): "+
			"raise replay.capacity or bytes until each trainer's shard has room for a batch and a group",
			ErrStuck, m.now, len(m.waiting), m.missing(), cause)
	default:
		return fmt.Errorf("%w at time %g: %s and the workers' turn is over (%w): "+
			"raise pipeline.sync_rollouts (%d), replay.capacity or replay.max_staleness, "+
			"or lower pipeline.sync_updates (%d)%s or publish_every (%d)",
			ErrStuck, m.now, m.missing(), cause, o.SyncRollouts, o.SyncUpdates, m.lowerFreshShare(), o.PublishEvery)
	}
}

// missing describes what the trainers wait for.
func (m *Machine) missing() string {
	t, fresh := &m.trainer, ""
	if n := m.freshPerTrainer(); n > 0 {
		fresh = fmt.Sprintf(", %d of them fresh (%s),", n, m.freshBy())
	}
	return fmt.Sprintf("%d of %d trainers find too few rollouts for %d each%s in update %d",
		len(t.batches)-t.drawn, m.opts.Trainers, m.perTrainer(), fresh, m.version+1)
}

// freshBy names what decides how many draws are fresh.
func (m *Machine) freshBy() string {
	if m.opts.Composed {
		return "replay.sources"
	}
	return fmt.Sprintf("replay.mix %d, fresh_share %g", m.opts.Mix, m.opts.FreshShare)
}

// lowerFreshShare adds the fresh share to the options to lower, if it is set.
func (m *Machine) lowerFreshShare() string {
	switch {
	case m.opts.Composed:
		return ", the share of fresh sources"
	case m.opts.FreshShare == 0:
		return ""
	}
	return fmt.Sprintf(", fresh_share (%g)", m.opts.FreshShare)
}

package pipeline

import "fmt"

// hunger is what the machine knows of trainers that miss a batch. It is none while they step, so that states
// need not hold it.
type hunger struct {
	cause error  // the buffer's last answer
	held  int    // the most rollouts that it held meanwhile
	until uint64 // rollouts inserted by which they must have a batch unless the buffer grows; 0: not fixed yet
}

// patience is how many batches the workers may make in vain before a run counts as stuck: enough for a
// buffer whose contents hang on chance, such as that of rewards.
const patience = 64

// starve ends a run whose trainers wait for ever although workers go on. While they wait their version
// stands, so once the newest weights have come and what was begun before is in, all that enters is alike:
// if the buffer then takes patience batches and holds no more than before, more will not help.
func (m *Machine) starve() error {
	h := &m.trainer.hunger
	held := m.parts.Buffer.Len()
	if h.until == 0 || held > h.held || len(m.weights.coming) > 0 {
		begun := m.opts.Group * (len(m.workers) + len(m.groups)) // before the newest weights, or not yet in
		h.held = max(held, h.held)
		h.until = m.books.Inserted + uint64(patience*m.opts.Batch+begun)
		return nil
	}
	if m.books.Inserted < h.until {
		return nil
	}
	return fmt.Errorf("%w at time %g: %s and %d batches made since the buffer last grew have not helped (%w): raise replay.max_staleness, capacity or bytes, or lower replay.min_size or positive_fraction, pipeline.publish_every%s or batch",
		ErrStuck, m.now, m.missing(), patience, h.cause, m.lowerShare())
}

// missing words what the trainers wait for.
func (m *Machine) missing() string {
	t := &m.trainer
	fresh := ""
	if n := m.freshPerTrainer(); n > 0 {
		fresh = fmt.Sprintf(", %d of them fresh (pipeline.mix %d, fresh_share %g),", n, m.opts.Mix, m.opts.FreshShare)
	}
	return fmt.Sprintf("%d of %d trainers find too few rollouts for %d each%s in update %d",
		len(t.batches)-t.drawn, m.opts.Trainers, m.perTrainer(), fresh, m.version+1)
}

// lowerShare names the fresh share among the options to lower, if there is one.
func (m *Machine) lowerShare() string {
	if m.opts.FreshShare == 0 {
		return ""
	}
	return fmt.Sprintf(", fresh_share (%g)", m.opts.FreshShare)
}

// stuck explains why no event is left.
func (m *Machine) stuck() error {
	cause := m.trainer.hunger.cause
	switch {
	case m.opts.Mode == Sync && len(m.line) > 0:
		return fmt.Errorf("%w at time %g: the buffer has no room for %d groups of the workers' turn: raise replay.capacity or bytes, or lower pipeline.sync_rollouts (%d)",
			ErrStuck, m.now, len(m.line), m.opts.SyncRollouts)
	case len(m.line) > 0:
		return fmt.Errorf("%w at time %g: the buffer has no room for %d groups while %s (%w): raise replay.capacity or bytes until each trainer's part has room for a batch and a group",
			ErrStuck, m.now, len(m.line), m.missing(), cause)
	default:
		return fmt.Errorf("%w at time %g: %s and no worker makes more in their turn (%w): raise pipeline.sync_rollouts (%d), replay.capacity or replay.max_staleness, or lower pipeline.sync_updates (%d)%s or publish_every (%d)",
			ErrStuck, m.now, m.missing(), cause, m.opts.SyncRollouts, m.opts.SyncUpdates, m.lowerShare(), m.opts.PublishEvery)
	}
}

package pipeline

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// finished is a generated group that is not in the buffer yet: its rewards are on their way, or it
// waits for room.
type finished struct {
	worker   int
	prompt   uint64 // its number
	replayed bool
	rollouts []*rollout.Rollout
}

// hand sends a group on its way when its worker is done with it: it may enter the buffer when its last rollout has ended and its
// rewards are known.
func (m *Machine) hand(f *flight) error {
	n := f.job.Number
	latency := 0.0
	if m.opts.RewardLatency != nil {
		latency = m.opts.RewardLatency(n)
	}
	if !nonNegative(latency) {
		return fmt.Errorf("reward latency of job %d is %g: must be finite and at least 0", n, latency)
	}
	m.groups[n] = finished{f.job.Worker, f.job.PromptNumber, f.job.Replayed, f.rollouts}
	m.schedule(Event{Time: m.now + f.timing.Tail + latency, Kind: RewardArrive, Worker: f.job.Worker, Number: n})
	return nil
}

// rewarded puts a group at the end of the line for the buffer, which is ordered by time, then worker,
// as events are.
func (m *Machine) rewarded(e Event) error {
	m.line = append(m.line, e.Number)
	m.workers[e.Worker].waiting++
	if len(m.line) > 1 {
		return nil // the first has found no room
	}
	return m.admit()
}

// admit inserts the groups in line until the buffer has no room for the first.
func (m *Machine) admit() error {
	for len(m.line) > 0 {
		n := m.line[0]
		g := m.groups[n]
		ids, err := m.parts.Buffer.Insert(m.pool.ctx, rollout.Group{Rollouts: g.rollouts, Size: len(g.rollouts)})
		if errors.Is(err, rollout.ErrFull) {
			if m.opts.Mode == Async {
				m.requestDraw() // trainers that wait for another's shard may make room by drawing theirs
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("insert the group of job %d: %w", n, err)
		}
		m.line = m.line[1:]
		delete(m.groups, n)
		m.books.insert(g, len(ids))
		if m.parts.Prompts != nil {
			if err := m.parts.Prompts.Report(m.version, g.prompt, g.replayed, g.rollouts); err != nil {
				return fmt.Errorf("report what came of prompt %d, of job %d: %w", g.prompt, n, err)
			}
		}
		if m.hooks.OnInsert != nil {
			m.hooks.OnInsert(Insertion{m.now, n, g.worker, ids, g.rollouts, g.prompt, g.replayed})
		}
		m.release(g.worker)
		m.inserted()
	}
	return nil
}

// release lets a worker go on that stalled on its groups in line.
func (m *Machine) release(i int) {
	w := &m.workers[i]
	w.waiting--
	if w.waiting == 0 && w.account.Doing == Stalled {
		m.schedule(Event{Time: m.now, Kind: WorkerStart, Worker: i})
	}
}

// inserted tells the trainers of a new group: in asynchronous mode those who wait try again, in
// synchronous mode their turn comes with the last.
func (m *Machine) inserted() {
	if m.opts.Mode == Sync && !m.turn.inserted(m.opts.SyncUpdates) {
		return
	}
	m.requestDraw()
}

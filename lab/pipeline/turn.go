package pipeline

import (
	"cmp"
	"fmt"
	"slices"
)

// Turn is the state of synchronous mode. It is the workers' turn while it misses groups, the trainers' while Updates is
// above 0. When all are 0, weights are on their way to the workers. Asynchronous mode does not use it.
type Turn struct {
	Groups  int // to be begun or resumed
	Open    int // begun and not in the buffer, those parked in this turn included
	Extra   int // of Groups and Open, how many the turn does not need, see Options.OverProvision
	Parked  int // the first of Machine.parked, which are of earlier turns
	Updates int // to be taken
}

// missing returns how many groups the buffer lacks until the trainers' turn begins.
func (t *Turn) missing() int { return t.Groups + t.Open - t.Extra }

func (t *Turn) started() {
	if t.Groups > 0 {
		t.Groups--
		t.Open++
	}
}

// inserted counts a group that entered the buffer. It reports whether that was the turn's last.
func (t *Turn) inserted() bool {
	t.Open--
	return t.missing() == 0
}

// startWorkersTurn begins the workers' turn. Groups that were held come first, then the parked ones, then others.
func (m *Machine) startWorkersTurn() {
	needed, started := m.opts.turnGroups()
	open := len(m.groups)
	m.turn = Turn{Groups: max(started-open, 0), Open: open, Parked: len(m.parked)}
	m.turn.Extra = m.turn.Groups + m.turn.Open - needed
	m.release(m.nextJob)
	slices.SortFunc(m.parked, func(a, b *activeJob) int { return cmp.Compare(a.job.Number, b.job.Number) })
	for i := range min(len(m.workers), m.turn.Groups) {
		m.schedule(Event{Time: m.now, Kind: workerStart, Worker: i})
	}
}

// endWorkersTurn begins the trainers' turn. Nothing is generated in it: the time of what is not finished stands still
// until the next, be it a job on its worker or the tail of a group that its worker is done with.
func (m *Machine) endWorkersTurn() {
	m.turn = Turn{Updates: m.opts.SyncUpdates}
	unfinished := func(e Event) bool {
		return e.Kind == decodeEnd || e.Kind == rewardArrive && e.Time-m.opts.rewardLatency(e.Number) > m.now
	}
	for _, e := range m.events.remove(unfinished) {
		if e.Kind == rewardArrive {
			m.hold(e.Number, e.Time-m.now)
			continue
		}
		m.park(e.Worker, e.Time-m.now)
		m.workers[e.Worker].account.switchTo(m.now, idle)
	}
	m.requestDraw()
}

// park takes a worker's job from it. left is the time to the job's next event: 0 if it is between two chunks. What of
// a chunk is not decoded then keeps the weights that the chunk began with. It may still be computed: what that finds
// out is read at the event alone.
func (m *Machine) park(worker int, left float64) {
	a := m.workers[worker].job
	a.left, a.next = left/a.timing.Worker, m.opts.chunkShare(len(a.weights))
	if a.due >= a.end {
		a.next = 1
	}
	m.workers[worker].job = nil
	m.parked = append(m.parked, a)
}

// budgetSpent reports whether a job has decoded what it may in this turn.
func (m *Machine) budgetSpent(a *activeJob) bool {
	return m.opts.TokenBudget > 0 && (len(a.weights)-a.earlier)*m.opts.Chunk >= m.opts.TokenBudget
}

// mayStart reports whether the turn has anything for a worker to generate.
func (m *Machine) mayStart() bool { return m.turn.Groups > 0 || m.mayResume() }

// mayResume reports whether that is a parked job: one of an earlier turn, or if there is nothing else to begin one that
// spent its budget in this.
func (m *Machine) mayResume() bool {
	t := &m.turn
	return t.Parked > 0 || t.Groups == 0 && len(m.parked) > 0 && t.missing() > 0
}

// resumeJob gives a worker the first parked job, with a new budget.
func (m *Machine) resumeJob(worker int) error {
	a := m.parked[0]
	m.parked = slices.Delete(m.parked, 0, 1)
	if m.turn.Parked > 0 {
		m.turn.Parked--
		m.turn.started()
	}
	timing, err := m.opts.timing(a.job.Number, worker)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	m.counts.resumed++
	a.job.Worker, a.timing = worker, timing
	m.workers[worker].job = a
	a.start = m.now - float64(timing.Worker*(a.next-a.left))
	a.end = a.start + timing.Worker
	if a.earlier = len(a.weights); a.left == 0 {
		if err := m.pool.await(a.work); err != nil { // a resumed run may still be decoding the chunks before
			return fmt.Errorf("generate parked job %d: %w", a.job.Number, err)
		}
		m.decodeChunk(a)
		return nil
	}
	a.earlier-- // the chunk under way counts
	a.due = max(m.now, a.start+float64(timing.Worker*a.next))
	m.schedule(Event{Time: a.due, Kind: decodeEnd, Worker: worker, Number: a.job.Number})
	return nil
}

package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	// ErrStop is returned by an OnUpdate hook to end the run after its update. Run then returns nil.
	ErrStop = errors.New("stop after this update")
	// ErrStuck is returned when the trainers would wait for ever: no worker makes rollouts, the buffer has no room for
	// them or does not keep them, or Options.FilterGroups drops too many.
	ErrStuck = errors.New("pipeline is stuck")
	// ErrNoBoundary is returned by Snapshot while an update is under way.
	ErrNoBoundary = errors.New("snapshots are taken at the end of an update only")
)

// Parts is what a machine drives.
type Parts struct {
	Task      task.Task
	Buffer    Buffer
	Generator Generator
	Learner   Learner
	Prompts   Prompts // nil: job n generates for Task.Train(n)
	Answers   Answers // nil: jobs have no earlier rollouts
}

// Hooks are called from the goroutine that runs the machine, in the order of events. Any may be nil.
type Hooks struct {
	// OnInsert sees every group that the buffer took.
	OnInsert func(in Insertion)
	// OnDrop sees every group that Options.FilterGroups dropped, without IDs.
	OnDrop func(in Insertion)
	// OnUpdate sees every update at its end, when no step is under way. It may take a Snapshot. It ends the run by
	// returning ErrStop; any other error fails the run.
	OnUpdate func(m *Machine, u Update) error
}

// Insertion is a group that entered the buffer, or was dropped before it.
type Insertion struct {
	Time     float64
	Job      uint64
	Worker   int
	IDs      []rollout.ID
	Rollouts []*rollout.Rollout // shared with the buffer: read only

	PromptNumber uint64 // as in Job
	Replayed     bool
}

// Machine is one run of workers and trainers around a buffer. Make it with [New] or [Resume] and run it once. Only Stop
// may be called from other goroutines.
//
// Run takes events in order of time and process dispatches them. A rollout passes through startWorker, decodeChunk,
// endChunk, awaitReward, enqueueGroup and insertGroups in worker.go, then drawBatches, startUpdate and endUpdate in
// trainer.go. turn.go has whose turn it is in synchronous mode, and what is parked meanwhile.
type Machine struct {
	opts  Options
	parts Parts
	hooks Hooks

	now     float64
	events  heap[Event]
	version rollout.Version // of the trainers
	nextJob uint64
	workers []worker
	trainer trainer
	turn    Turn
	groups  map[uint64]generated // not in the buffer yet, by job
	waiting []uint64             // jobs whose groups wait for room, in order of arrival
	parked  []*activeJob         // begun and not finished, in the order in which they are resumed
	weights published
	counts  counts
	filling Filling

	pool     *pool
	wall     Wall
	stop     atomic.Bool
	ran      bool
	boundary bool // no step is under way: Snapshot is allowed
}

// New returns a machine at time 0, whose learner has taken no step yet.
func New(opts Options, parts Parts, hooks Hooks) (*Machine, error) {
	w := parts.Learner.Weights()
	if w.Version != 0 {
		return nil, fmt.Errorf("learner's weights have version %d, want 0 at the start of a run: resume from a state "+
			"instead", w.Version)
	}
	m, err := newIdle(opts, parts, hooks)
	if err != nil {
		return nil, err
	}
	m.weights.newest = w
	if m.opts.Mode == Sync {
		m.startWorkersTurn()
		return m, nil
	}
	for i := range m.workers {
		m.schedule(Event{Time: 0, Kind: workerStart, Worker: i})
	}
	m.requestDraw()
	return m, nil
}

// newIdle returns a machine without events.
func newIdle(opts Options, parts Parts, hooks Hooks) (*Machine, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.WithDefaults()
	return &Machine{
		opts: opts, parts: parts, hooks: hooks,
		workers:  make([]worker, opts.Workers),
		trainer:  trainer{batches: make([]*rollout.Batch, opts.Trainers)},
		groups:   make(map[uint64]generated),
		boundary: true,
	}, nil
}

// Options returns the options with their defaults.
func (m *Machine) Options() Options { return m.opts }

// Stop ends the run after the current update. It may be called from any goroutine.
func (m *Machine) Stop() { m.stop.Store(true) }

// Finished reports whether a limit of the options has been reached, as opposed to a stop.
func (m *Machine) Finished() bool { return m.opts.finished(m.version, m.compute()) }

// Run processes events until a limit of the options is reached, the run is stopped, something fails or the context is
// done. In the first two cases it returns nil, with the machine at the end of an update, ready for a Snapshot. No
// goroutine is left when it returns.
func (m *Machine) Run(ctx context.Context) error {
	if m.ran {
		return errors.New("machine has run already: take a snapshot and resume it")
	}
	m.ran = true
	m.pool = newPool(ctx, m.opts.Concurrency)
	defer m.pool.close()
	if m.Finished() {
		return nil
	}
	m.boundary = false
	if err := m.restartJobs(); err != nil {
		return err
	}
	for {
		if err := m.pool.ctx.Err(); err != nil {
			return err
		}
		if m.events.len() == 0 {
			return m.stuckError()
		}
		e := m.events.pop()
		m.now = e.Time
		end, err := m.process(e)
		if end || err != nil {
			m.boundary = end
			return err
		}
	}
}

// process handles one event and reports whether the run ends with it.
func (m *Machine) process(e Event) (end bool, err error) {
	switch e.Kind {
	case stepEnd:
		return m.endUpdate()
	case weightsArrive:
		m.receiveWeights()
	case decodeEnd:
		err = m.endChunk(e)
	case rewardArrive:
		err = m.enqueueGroup(e)
	case workerStart:
		err = m.startWorker(e.Worker)
	case trainersDraw:
		err = m.drawBatches()
	}
	return false, err
}

func (m *Machine) schedule(e Event) { m.events.push(e) }

// Kind is the kind of an event. At one instant lower kinds come first, so that whoever looks for weights, rollouts or
// room finds all that is there by that time.
type Kind uint8

const (
	stepEnd       Kind = iota + 1 // the trainers finish an update
	weightsArrive                 // the weights of version Number reach the workers
	decodeEnd                     // Worker reaches the end of a chunk, or of its group
	rewardArrive                  // the rewards of job Number, made by Worker, are known
	workerStart                   // Worker looks for its next job
	trainersDraw                  // the trainers draw the batches they lack
)

// Event is due at a virtual time.
type Event struct {
	Time   float64 // >= the clock, in the time one trainer takes for one rollout
	Kind   Kind
	Worker int    // 0 if none is concerned
	Number uint64 // version or job; 0 if neither is concerned
}

// Compare orders events by (time, kind, worker, number).
func (e Event) Compare(o Event) int {
	if c := cmp.Compare(e.Time, o.Time); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(e.Kind, o.Kind), cmp.Compare(e.Worker, o.Worker), cmp.Compare(e.Number, o.Number))
}

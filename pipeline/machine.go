package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

var (
	// ErrStop is what an OnUpdate hook returns to end the run after its update. Run then returns nil.
	ErrStop = errors.New("stop after this update")
	// ErrStuck is returned when the trainers miss rollouts for ever: no worker makes them, or the buffer
	// has no room for them or does not keep them.
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
	Prompts   Prompts // nil: job n is about Task.Train(n)
}

// Hooks are called from the goroutine that runs the machine, in the order of events. Any may be nil.
type Hooks struct {
	// OnInsert sees every group that the buffer took.
	OnInsert func(in Insertion)
	// OnUpdate sees every update at its end, when no step is under way: it may take a Snapshot, and
	// ends the run by returning ErrStop. Any other error fails the run.
	OnUpdate func(m *Machine, u Update) error
}

// Insertion is a group that entered the buffer.
type Insertion struct {
	Time     float64
	Job      uint64
	Worker   int
	IDs      []rollout.ID
	Rollouts []*rollout.Rollout // shared with the buffer: read only

	PromptNumber uint64 // of the group's prompt, as of the Job
	Replayed     bool
}

// Machine is one run of workers and trainers around a buffer. Make it with [New] or [Resume], run it
// once; only Stop may be called from other goroutines.
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
	groups  map[uint64]finished // generated and not in the buffer, by job
	line    []uint64            // jobs whose groups wait for room, first come first
	weights published
	books   books

	pool     *pool
	wall     Wall
	stop     atomic.Bool
	ran      bool
	boundary bool // no step is under way, and batches are held only for their next update
}

// New returns a machine at time 0 whose learner has taken no step yet.
func New(opts Options, parts Parts, hooks Hooks) (*Machine, error) {
	w := parts.Learner.Weights()
	if w.Version != 0 {
		return nil, fmt.Errorf("learner's weights have version %d at the start of a run, want 0: resume it from a state instead", w.Version)
	}
	m, err := assemble(opts, parts, hooks)
	if err != nil {
		return nil, err
	}
	m.weights.newest = w
	if m.opts.Mode == Sync {
		m.startRollouts()
		return m, nil
	}
	for i := range m.workers {
		m.schedule(Event{Time: 0, Kind: WorkerStart, Worker: i})
	}
	m.requestDraw()
	return m, nil
}

// assemble returns a machine without events.
func assemble(opts Options, parts Parts, hooks Hooks) (*Machine, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.WithDefaults()
	return &Machine{
		opts: opts, parts: parts, hooks: hooks,
		workers:  make([]worker, opts.Workers),
		trainer:  trainer{batches: make([]*rollout.Batch, opts.Trainers)},
		groups:   make(map[uint64]finished),
		boundary: true,
	}, nil
}

// Options returns the options with their defaults.
func (m *Machine) Options() Options { return m.opts }

// Stop makes the run end after the present update. It may be called from any goroutine.
func (m *Machine) Stop() { m.stop.Store(true) }

// Run processes events until a limit of the options is reached, the run is asked to stop, something
// fails or the context is done. It returns nil in the first two cases, the machine then being at the
// end of an update, fit for a Snapshot. No goroutine of it remains when it returns.
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
	if err := m.restart(); err != nil {
		return err
	}
	for {
		if err := m.pool.ctx.Err(); err != nil {
			return err
		}
		if m.events.len() == 0 {
			return m.stuck()
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

// process lets one event happen and reports whether the run ends with it.
func (m *Machine) process(e Event) (end bool, err error) {
	switch e.Kind {
	case StepEnd:
		return m.endStep()
	case WeightsArrive:
		m.arrive()
	case DecodeEnd:
		err = m.endDecode(e)
	case RewardArrive:
		err = m.rewarded(e)
	case WorkerStart:
		err = m.startWorker(e.Worker)
	case TrainersDraw:
		err = m.draw()
	}
	return false, err
}

func (m *Machine) schedule(e Event) { m.events.push(e) }

// Finished reports whether a limit of the options has been reached, which is why Run returns nil if nobody
// stopped it. Compute may miss its budget by what rounding does to a product.
func (m *Machine) Finished() bool {
	o := m.opts
	return o.Updates > 0 && int(m.version) >= o.Updates ||
		o.ComputeBudget > 0 && m.compute() >= o.ComputeBudget*(1-1e-12)
}

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// worker is one inference GPU.
type worker struct {
	account Account
	flight  *flight // the job it generates; nil when none
	waiting int     // of its groups, those in the line for room
}

// flight is a job being generated.
type flight struct {
	job     Job
	start   float64
	timing  Timing
	end     float64   // of the worker's time
	due     float64   // of its next event
	weights []Weights // of the chunks decoded so far, the one under way included
	gen     Generation
	work    *work // the chunk under way

	// Set by the work, read after it was awaited.
	done     bool
	rollouts []*rollout.Rollout
}

// startWorker gives a worker its next job, unless one of its groups waits for room (it stalls) or it
// is not the workers' turn.
func (m *Machine) startWorker(i int) error {
	w := &m.workers[i]
	switch {
	case w.flight != nil:
		return nil
	case w.waiting > 0:
		w.account.turn(m.now, Stalled)
		return nil
	case m.opts.Mode == Sync && m.turn.Groups == 0:
		w.account.turn(m.now, Idle)
		return nil
	}
	m.turn.started()
	job := m.nextOf(i)
	gen, err := m.parts.Generator.Start(job)
	if err != nil {
		return fmt.Errorf("start job %d on worker %d: %w", job.Number, i, err)
	}
	timing, err := m.opts.timing(job.Number, i)
	if err != nil {
		return err
	}
	w.flight = &flight{job: job, gen: gen, start: m.now, timing: timing, end: m.now + timing.Worker}
	w.account.turn(m.now, Busy)
	m.decode(w.flight)
	return nil
}

// nextOf returns the next job, a worker's, about the prompt that is chosen for it.
func (m *Machine) nextOf(worker int) Job {
	n := m.nextJob
	m.nextJob++
	prompt, replayed := n, false
	if m.parts.Prompts != nil {
		prompt, replayed = m.parts.Prompts.Choose(n, m.version)
	}
	return m.job(n, worker, prompt, replayed)
}

// job returns the n-th job, about the prompt of a number: states hold the number, not the prompt.
func (m *Machine) job(n uint64, worker int, prompt uint64, replayed bool) Job {
	return Job{
		Number: n, Worker: worker, Size: m.opts.Group,
		Prompt: m.parts.Task.Train(prompt), PromptNumber: prompt, Replayed: replayed,
	}
}

// decode starts the next chunk of a flight with the newest weights. Chunk k of n ends when the share
// k/n of the group's time has passed.
func (m *Machine) decode(f *flight) {
	k, n := len(f.weights), m.opts.chunks()
	f.weights = append(f.weights, m.weights.newest)
	f.due = f.end
	if k+1 < n {
		f.due = f.start + float64(f.timing.Worker*(float64(k+1)/float64(n)))
	}
	m.submit(f, k)
	m.schedule(Event{Time: f.due, Kind: DecodeEnd, Worker: f.job.Worker, Number: f.job.Number})
}

// submit starts the decoding of a flight's chunks from the given one on.
func (m *Machine) submit(f *flight, from int) {
	weights := slices.Clip(f.weights)
	f.work = m.pool.submit(f.due, &m.wall.Generate, func(ctx context.Context) error {
		return m.generate(ctx, f, weights, from)
	})
}

// generate decodes chunks from .. len(weights)-1 of a flight and, when every row has finished, has
// its rollouts verified. It runs beside the machine and touches nothing but the flight's results.
func (m *Machine) generate(ctx context.Context, f *flight, weights []Weights, from int) error {
	n := m.opts.chunks()
	for k := from; k < len(weights); k++ {
		if f.done {
			return fmt.Errorf("every row had finished before chunk %d, which was decoded when the state was taken", k)
		}
		positions := m.opts.Chunk
		if k == n-1 {
			positions = 0 // all that remain
		}
		done, err := f.gen.Continue(ctx, weights[k], positions)
		if err != nil {
			return err
		}
		f.done = done
	}
	if !f.done {
		if len(weights) == n {
			return errors.New("rows remain unfinished after all positions were decoded")
		}
		return nil
	}
	rs, err := f.gen.Rollouts()
	if err != nil {
		return err
	}
	if len(rs) != f.job.Size {
		return fmt.Errorf("generator returned %d rollouts for a group of %d", len(rs), f.job.Size)
	}
	if v, ok := m.parts.Task.(task.Verifier); ok {
		for _, r := range rs {
			r.Reward = v.Verify(f.job.Prompt, r.Text).Reward
		}
	}
	f.rollouts = rs
	return nil
}

// endDecode awaits a chunk: the worker goes on with the next, or hands the group over.
func (m *Machine) endDecode(e Event) error {
	w := &m.workers[e.Worker]
	f := w.flight
	if err := m.pool.await(f.work); err != nil {
		return fmt.Errorf("generate job %d on worker %d: %w", f.job.Number, e.Worker, err)
	}
	switch {
	case e.Time == f.end:
		w.flight = nil
		m.schedule(Event{Time: m.now, Kind: WorkerStart, Worker: e.Worker})
		return m.hand(f)
	case f.done: // early; the cost model counts the group's time all the same
		f.due = f.end
		m.schedule(Event{Time: f.end, Kind: DecodeEnd, Worker: e.Worker, Number: e.Number})
	default:
		m.decode(f)
	}
	return nil
}

package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Resume returns a machine that goes on from a state, with the options it had then (limits and
// Concurrency may differ), buffer, learner and Prompts as they were, and the weights the state refers to. Jobs that
// were being generated are generated anew from their start, about the prompts they had, with the weights they had,
// chunk by chunk.
func Resume(opts Options, parts Parts, hooks Hooks, s State, weights map[rollout.Version]Weights) (*Machine, error) {
	m, err := assemble(opts, parts, hooks)
	if err != nil {
		return nil, err
	}
	if err := m.accept(s, weights); err != nil {
		return nil, err
	}
	m.now, m.version, m.nextJob = s.Clock, s.Version, s.NextJob
	m.books.Inserted, m.books.Stored, m.books.Used = s.Inserted, s.Stored, s.Used
	for _, e := range s.Events {
		m.schedule(e)
	}
	m.trainer.account, m.trainer.asking, m.turn = s.Trainer, s.Asking, s.Turn
	m.line = slices.Clone(s.Line)
	m.hold(s.Batches)
	m.weights.newest = weights[s.Newest]
	for _, v := range s.Coming {
		m.weights.coming = append(m.weights.coming, weights[v])
	}
	for i, w := range s.Workers {
		m.workers[i] = worker{account: w.Account, waiting: w.Waiting}
		if w.Busy {
			if m.workers[i].flight, err = m.refly(i, w, weights); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range s.Groups {
		m.groups[g.Job] = finished{g.Worker, g.Prompt, g.Replayed, g.Rollouts}
	}
	return m, nil
}

// accept reports everything that the state does not fit.
func (m *Machine) accept(s State, weights map[rollout.Version]Weights) error {
	var found []error
	if len(s.Workers) != m.opts.Workers {
		found = append(found, fmt.Errorf("state has %d workers, pipeline.workers is %d", len(s.Workers), m.opts.Workers))
	}
	if v := m.parts.Learner.Weights().Version; v != s.Version {
		found = append(found, fmt.Errorf("learner's weights have version %d, the state's trainers are at %d", v, s.Version))
	}
	for _, v := range s.Versions() {
		if w, ok := weights[v]; !ok || w.Version != v {
			found = append(found, fmt.Errorf("weights of version %d, which the state refers to, are missing", v))
		}
	}
	for _, w := range s.Workers {
		if n := m.opts.chunks(); w.Busy && (len(w.Versions) == 0 || len(w.Versions) > n) {
			found = append(found, fmt.Errorf("state has job %d in chunk %d, the options have %d", w.Job, len(w.Versions), n))
		}
	}
	found = append(found, m.acceptBatches(s)...)
	return errors.Join(append(found, m.acceptPrompts(s)...)...)
}

// acceptPrompts reports jobs about prompts that somebody has chosen where nobody chooses.
func (m *Machine) acceptPrompts(s State) (found []error) {
	if m.parts.Prompts != nil {
		return nil
	}
	expect := func(job, prompt uint64) {
		if prompt != job {
			found = append(found, fmt.Errorf("state has job %d about prompt %d: without Prompts it is about prompt %d", job, prompt, job))
		}
	}
	for _, w := range s.Workers {
		if w.Busy {
			expect(w.Job, w.Prompt)
		}
	}
	for _, g := range s.Groups {
		expect(g.Job, g.Prompt)
	}
	return found
}

// refly returns the flight of a worker's job; restart has it generated.
func (m *Machine) refly(i int, w WorkerState, weights map[rollout.Version]Weights) (*flight, error) {
	timing, err := m.opts.timing(w.Job, i)
	if err != nil {
		return nil, err
	}
	f := &flight{job: m.job(w.Job, i, w.Prompt, w.Replayed), start: w.Start, timing: timing, end: w.Start + timing.Worker, due: w.Due}
	for _, v := range w.Versions {
		f.weights = append(f.weights, weights[v])
	}
	return f, nil
}

// restart begins to generate the jobs that a state had in flight.
func (m *Machine) restart() error {
	for i := range m.workers {
		f := m.workers[i].flight
		if f == nil {
			continue
		}
		gen, err := m.parts.Generator.Start(f.job)
		if err != nil {
			return fmt.Errorf("start job %d on worker %d anew: %w", f.job.Number, i, err)
		}
		f.gen = gen
		m.submit(f, 0)
	}
	return nil
}

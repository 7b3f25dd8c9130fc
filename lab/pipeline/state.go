package pipeline

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// State is a machine at the end of an update. Together with its weights, the options, the buffer, the learner and the
// Prompts it determines all that follows. encoding/gob can write it; renaming a field breaks the checkpoints of earlier
// builds.
type State struct {
	Clock    float64
	Version  rollout.Version // of the trainers
	NextJob  uint64
	Inserted uint64 // K_infer
	Stored   uint64 // what they became in the buffer
	Dropped  uint64 // rollouts, see Options.FilterGroups
	Used     uint64 // K_train

	Events  []Event // due, in order
	Workers []WorkerState
	Trainer Account // of each trainer
	Turn    Turn
	Asking  bool            // a draw is among the events
	Batches []rollout.Batch // with updates to come (Options.BatchUpdates), by trainer; else nil

	Parked  []ParkedState // in the order in which they are resumed
	Groups  []GroupState  // generated and not in the buffer, by job
	Filling Filling
	Line    []uint64 // jobs whose groups wait for room, in order of arrival

	Newest rollout.Version   // that the workers have
	Coming []rollout.Version // on their way to the workers, oldest first
}

// WorkerState is a worker and the job it generates.
type WorkerState struct {
	Account  Account
	Waiting  int // its groups that wait for room
	Busy     bool
	Job      uint64            // this and what follows only if Busy
	Prompt   uint64            // number of the job's prompt
	Replayed bool              // the prompt was asked before
	Start    float64           // time
	Due      float64           // end of the current chunk, or of the group
	Versions []rollout.Version // that its chunks were decoded with, the current one included
	Earlier  *rollout.Rollout  // see Job
}

// ParkedState is a job that was begun and taken from its worker.
type ParkedState struct {
	Job      uint64
	Prompt   uint64            // number
	Replayed bool              // the prompt was asked before
	Next     float64           // share of its time after which its next event is due
	Left     float64           // share of its time until then
	Versions []rollout.Version // that its chunks were decoded with, the current one included
	Earlier  *rollout.Rollout  // see Job
}

// GroupState is a generated group that is not in the buffer yet.
type GroupState struct {
	Job      uint64
	Worker   int
	Prompt   uint64 // number
	Replayed bool   // the prompt was asked before
	Rollouts []*rollout.Rollout
	Held     bool    // until the workers' next turn, or until the window reaches it
	Left     float64 // time until its rewards are known then
}

// Versions returns the versions of the weights that the state refers to, in ascending order.
func (s *State) Versions() []rollout.Version {
	vs := append([]rollout.Version{s.Newest}, s.Coming...)
	for _, w := range s.Workers {
		vs = append(vs, w.Versions...)
	}
	for _, a := range s.Parked {
		vs = append(vs, a.Versions...)
	}
	slices.Sort(vs)
	return slices.Compact(vs)
}

// Snapshot returns the machine's state and the weights it refers to. It may be called from an OnUpdate hook and after
// Run has returned nil; at other times it returns ErrNoBoundary. The caller saves buffer, learner and Prompts at the
// same time. The state shares only rollouts and weights with the machine, which are immutable.
func (m *Machine) Snapshot() (State, map[rollout.Version]Weights, error) {
	if !m.boundary {
		return State{}, nil, ErrNoBoundary
	}
	s := State{
		Clock: m.now, Version: m.version, NextJob: m.nextJob,
		Inserted: m.counts.Inserted, Stored: m.counts.Stored, Dropped: m.counts.Dropped, Used: m.counts.Used,
		Filling: m.filling,
		Events:  slices.SortedFunc(slices.Values(m.events.items), Event.Compare),
		Workers: make([]WorkerState, len(m.workers)),
		Trainer: m.trainer.account, Turn: m.turn, Asking: m.trainer.requested,
		Line: append([]uint64(nil), m.waiting...), Newest: m.weights.newest.Version,
		Batches: m.heldBatches(),
	}
	weights := map[rollout.Version]Weights{s.Newest: m.weights.newest}
	for _, w := range m.weights.coming {
		s.Coming = append(s.Coming, w.Version)
		weights[w.Version] = w
	}
	for i, w := range m.workers {
		s.Workers[i] = w.state()
		if w.job != nil {
			for _, used := range w.job.weights {
				weights[used.Version] = used
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[n]
		s.Groups = append(s.Groups, GroupState{n, g.worker, g.prompt, g.replayed, g.rollouts, g.held, g.left})
	}
	for _, a := range m.parked {
		s.Parked = append(s.Parked, ParkedState{a.job.Number, a.job.PromptNumber, a.job.Replayed, a.next, a.left,
			a.versions(), a.job.Earlier})
		for _, used := range a.weights {
			weights[used.Version] = used
		}
	}
	return s, weights, nil
}

func (w *worker) state() WorkerState {
	s := WorkerState{Account: w.account, Waiting: w.waiting}
	if a := w.job; a != nil {
		s.Busy, s.Job, s.Prompt, s.Replayed = true, a.job.Number, a.job.PromptNumber, a.job.Replayed
		s.Start, s.Due, s.Versions, s.Earlier = a.start, a.due, a.versions(), a.job.Earlier
	}
	return s
}

// versions returns those of the weights that a job's chunks were decoded with.
func (a *activeJob) versions() (list []rollout.Version) {
	for _, used := range a.weights {
		list = append(list, used.Version)
	}
	return list
}

// heldBatches returns the batches that the next update trains on again, nil if it draws. The draws are copied because
// the trainers write to theirs; the rollouts are shared.
func (m *Machine) heldBatches() []rollout.Batch {
	if !m.opts.reusesBatch(int(m.version)) {
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

// Resume returns a machine that continues from a state. It needs the options of that time (limits and Concurrency may
// differ), buffer, learner and Prompts as they were, and the weights that the state refers to. Jobs that were being
// generated are generated again from their start, for the prompts and with the weights they had, chunk by chunk.
func Resume(opts Options, parts Parts, hooks Hooks, s State, weights map[rollout.Version]Weights) (*Machine, error) {
	m, err := newIdle(opts, parts, hooks)
	if err != nil {
		return nil, err
	}
	if err := m.checkState(s, weights); err != nil {
		return nil, err
	}
	m.now, m.version, m.nextJob = s.Clock, s.Version, s.NextJob
	m.counts.Inserted, m.counts.Stored, m.counts.Dropped, m.counts.Used = s.Inserted, s.Stored, s.Dropped, s.Used
	m.filling = s.Filling
	for _, e := range s.Events {
		m.schedule(e)
	}
	m.trainer.account, m.trainer.requested, m.turn = s.Trainer, s.Asking, s.Turn
	m.waiting = slices.Clone(s.Line)
	m.restoreBatches(s.Batches)
	m.weights.newest = weights[s.Newest]
	for _, v := range s.Coming {
		m.weights.coming = append(m.weights.coming, weights[v])
	}
	for i, w := range s.Workers {
		m.workers[i] = worker{account: w.Account, waiting: w.Waiting}
		if w.Busy {
			if m.workers[i].job, err = m.restoreJob(i, w, weights); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range s.Parked {
		a := &activeJob{job: m.newJob(p.Job, 0, p.Prompt, p.Replayed), next: p.Next, left: p.Left}
		a.job.Earlier = p.Earlier
		a.restoreWeights(p.Versions, weights)
		m.parked = append(m.parked, a)
	}
	for _, g := range s.Groups {
		m.groups[g.Job] = generated{g.Worker, g.Prompt, g.Replayed, g.Rollouts, g.Held, g.Left}
	}
	return m, nil
}

// restoreBatches takes over copies of a state's batches.
func (m *Machine) restoreBatches(batches []rollout.Batch) {
	t := &m.trainer
	for i := range batches {
		b := batches[i]
		b.Draws = slices.Clone(b.Draws)
		t.batches[i] = &b
		t.drawn++
	}
}

// checkState reports every way in which a state does not fit the options, the parts and the weights.
func (m *Machine) checkState(s State, weights map[rollout.Version]Weights) error {
	var found option.Problems
	if len(s.Workers) != m.opts.Workers {
		found.Add(fmt.Errorf("state has %d workers, pipeline.workers is %d", len(s.Workers), m.opts.Workers))
	}
	if v := m.parts.Learner.Weights().Version; v != s.Version {
		found.Add(fmt.Errorf("learner's weights have version %d, the state's trainers are at %d", v, s.Version))
	}
	for _, v := range s.Versions() {
		if w, ok := weights[v]; !ok || w.Version != v {
			found.Add(fmt.Errorf("weights of version %d, which the state refers to, are missing", v))
		}
	}
	checkJob := func(job, prompt uint64, versions []rollout.Version) {
		if n := m.opts.chunks(); len(versions) == 0 || len(versions) > n {
			found.Add(fmt.Errorf("state has job %d in chunk %d, the options have %d", job, len(versions), n))
		}
		found.Add(m.checkPrompt(job, prompt))
	}
	for _, w := range s.Workers {
		if w.Busy {
			checkJob(w.Job, w.Prompt, w.Versions)
		}
	}
	for _, p := range s.Parked {
		checkJob(p.Job, p.Prompt, p.Versions)
	}
	for _, g := range s.Groups {
		found.Add(m.checkPrompt(g.Job, g.Prompt))
	}
	want := 0
	if m.opts.reusesBatch(int(s.Version)) {
		want = m.opts.Trainers
	}
	if len(s.Batches) != want {
		found.Add(fmt.Errorf("state has %d batches at version %d, want %d with pipeline.batch_updates %d and %d "+
			"trainers",
			len(s.Batches), s.Version, want, m.opts.BatchUpdates, m.opts.Trainers))
		return found.Err()
	}
	for i, b := range s.Batches {
		if len(b.Draws) != m.perTrainer() {
			found.Add(fmt.Errorf("state's batch of trainer %d has %d draws, want %d", i, len(b.Draws), m.perTrainer()))
		}
		if k := slices.IndexFunc(b.Draws, func(d rollout.Draw) bool { return d.Rollout == nil }); k >= 0 {
			found.Add(fmt.Errorf("draw %d of the state's batch of trainer %d has no rollout", k, i))
		}
	}
	return found.Err()
}

// checkPrompt refuses a job whose prompt was chosen by Prompts if there are none now.
func (m *Machine) checkPrompt(job, prompt uint64) error {
	if m.parts.Prompts == nil && prompt != job {
		return fmt.Errorf("state has job %d for prompt %d: without Prompts it would be for prompt %d", job, prompt, job)
	}
	return nil
}

// restoreJob returns a worker's job; restartJobs starts its generation.
func (m *Machine) restoreJob(i int, w WorkerState, weights map[rollout.Version]Weights) (*activeJob, error) {
	timing, err := m.opts.timing(w.Job, i)
	if err != nil {
		return nil, err
	}
	a := &activeJob{
		job: m.newJob(w.Job, i, w.Prompt, w.Replayed), timing: timing,
		start: w.Start, end: w.Start + timing.Worker, due: w.Due,
	}
	a.job.Earlier = w.Earlier
	a.restoreWeights(w.Versions, weights)
	return a, nil
}

func (a *activeJob) restoreWeights(versions []rollout.Version, weights map[rollout.Version]Weights) {
	for _, v := range versions {
		a.weights = append(a.weights, weights[v])
	}
}

// restartJobs starts to generate the jobs that a state was generating, or had parked.
func (m *Machine) restartJobs() error {
	jobs := slices.Clone(m.parked)
	for i := range m.workers {
		if a := m.workers[i].job; a != nil {
			jobs = append(jobs, a)
		}
	}
	for _, a := range jobs {
		gen, err := m.parts.Generator.Start(a.job)
		if err != nil {
			return fmt.Errorf("start job %d again: %w", a.job.Number, err)
		}
		a.gen = gen
		m.submitJob(a, 0)
	}
	return nil
}

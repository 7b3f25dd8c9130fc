package pipeline

import (
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// State is a machine at the end of an update. With the weights it refers to, the options, the
// buffer, the learner and the Prompts it determines everything that follows. encoding/gob can write it.
type State struct {
	Clock    float64
	Version  rollout.Version // of the trainers
	NextJob  uint64
	Inserted uint64 // K_infer
	Stored   uint64 // what they became in the buffer
	Used     uint64 // K_train

	Events  []Event // that are due, in order
	Workers []WorkerState
	Trainer Account // of each trainer
	Turn    Turn
	Asking  bool            // a draw is among the events
	Batches []rollout.Batch // drawn and with updates to come, by trainer: see Options.BatchUpdates; else nil

	Groups []GroupState // generated and not in the buffer, by job
	Line   []uint64     // jobs whose groups wait for room, first come first

	Newest rollout.Version   // that workers may take up
	Coming []rollout.Version // on their way to the workers, oldest first
}

// WorkerState is a worker and the job it generates.
type WorkerState struct {
	Account  Account
	Waiting  int // of its groups, those in line
	Busy     bool
	Job      uint64            // the rest speaks of it, where Busy
	Prompt   uint64            // the number of its prompt
	Replayed bool              // the prompt was asked before
	Start    float64           // time
	Due      float64           // end of the chunk under way, or of the group
	Versions []rollout.Version // that its chunks were decoded with, the one under way included
}

// GroupState is a generated group that is not in the buffer yet.
type GroupState struct {
	Job      uint64
	Worker   int
	Prompt   uint64 // the number of its prompt
	Replayed bool   // the prompt was asked before
	Rollouts []*rollout.Rollout
}

// Versions returns the versions of the weights that the state refers to, in ascending order.
func (s *State) Versions() []rollout.Version {
	vs := append([]rollout.Version{s.Newest}, s.Coming...)
	for _, w := range s.Workers {
		vs = append(vs, w.Versions...)
	}
	slices.Sort(vs)
	return slices.Compact(vs)
}

// Snapshot returns the machine's state and the weights it refers to. It may be called from an
// OnUpdate hook and after Run has returned nil; at other times it returns ErrNoBoundary. Buffer, learner
// and Prompts are to be saved by the caller at the same time. The state shares rollouts and weights,
// which are immutable, with the machine and nothing else.
func (m *Machine) Snapshot() (State, map[rollout.Version]Weights, error) {
	if !m.boundary {
		return State{}, nil, ErrNoBoundary
	}
	s := State{
		Clock: m.now, Version: m.version, NextJob: m.nextJob,
		Inserted: m.books.Inserted, Stored: m.books.Stored, Used: m.books.Used,
		Events:  slices.SortedFunc(slices.Values(m.events.items), Event.Compare),
		Workers: make([]WorkerState, len(m.workers)),
		Trainer: m.trainer.account, Turn: m.turn, Asking: m.trainer.asking,
		Line: append([]uint64(nil), m.line...), Newest: m.weights.newest.Version,
		Batches: m.heldBatches(),
	}
	weights := map[rollout.Version]Weights{s.Newest: m.weights.newest}
	for _, w := range m.weights.coming {
		s.Coming = append(s.Coming, w.Version)
		weights[w.Version] = w
	}
	for i, w := range m.workers {
		s.Workers[i] = WorkerState{Account: w.account, Waiting: w.waiting}
		if f := w.flight; f != nil {
			s.Workers[i].fly(f)
			for _, fw := range f.weights {
				weights[fw.Version] = fw
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[n]
		s.Groups = append(s.Groups, GroupState{n, g.worker, g.prompt, g.replayed, g.rollouts})
	}
	return s, weights, nil
}

// fly records a job being generated.
func (w *WorkerState) fly(f *flight) {
	w.Busy, w.Job, w.Prompt, w.Replayed = true, f.job.Number, f.job.PromptNumber, f.job.Replayed
	w.Start, w.Due = f.start, f.due
	for _, fw := range f.weights {
		w.Versions = append(w.Versions, fw.Version)
	}
}

package pipeline

import (
	"context"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// Buffer is where workers put rollouts and trainers take them. It is called from the event
// machine's goroutine only. *replay.Table is one.
type Buffer interface {
	// Insert adds whole groups. An error that wraps rollout.ErrFull means that nothing was added and
	// that room comes when trainers sample or versions advance: the worker stalls and tries again.
	Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error)
	// Sample draws a batch, of which exactly req.Fresh are fresh draws (rollout.Draw.Fresh). An error that
	// wraps rollout.ErrStarved means that too little is there yet, or too little that is fresh: the
	// trainer stalls and tries again after the next insertion. Its text says what is missing; a run that
	// gets no further ends with it.
	Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	// Report tells the buffer what the learner measured of the draws of an update, at its end and before
	// the buffer learns of the version after it: at a report the buffer's version is the one that the
	// batches were learned from at. It is called for every update, with nothing where nothing was measured.
	Report(ctx context.Context, feedback ...rollout.Feedback) error
	// Advance tells the buffer the trainer's version before its weights are published. Rollouts may leave
	// thereby.
	Advance(ctx context.Context, v rollout.Version) error
	// Len returns how many rollouts the buffer holds. While it grows, trainers wait for it to fill; when
	// it does not, they may wait for ever.
	Len() int
}

// Prompts chooses what is generated next. It is called from the event machine's goroutine only.
// *prompts.Chooser of package replay/prompts is one.
type Prompts interface {
	// Choose returns the number of the training prompt (task.Task.Train) of a job, and whether the prompt
	// was asked before and is replayed. It is called once for each job, in order of their numbers, at
	// the trainers' version v; jobs that a resumed run generates anew are not chosen for again.
	Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool)
	// Report tells what came of a prompt: its group, with its rewards, entered the buffer at version v.
	// Replayed is what Choose said of its job. The rollouts are shared with the buffer: read only.
	Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error
}

// Weights is an immutable set of parameters under its version. Tensors is opaque to the pipeline.
type Weights struct {
	Version rollout.Version
	Tensors any
}

// Job is one group of rollouts to generate.
type Job struct {
	Number       uint64 // of the group within the run, from 0; random streams derive from it
	Worker       int
	Size         int // rollouts in the group
	Prompt       task.Prompt
	PromptNumber uint64 // of Prompt in task.Task.Train; Number where there are no Prompts
	Replayed     bool   // Prompts chose the prompt from those asked before
}

// Generator makes groups of rollouts. Start may be called from one goroutine, the Generations it
// returns from others, each from one at a time.
type Generator interface {
	Start(job Job) (Generation, error)
}

// Generation is a group being generated. What it produces is a function of the job and of the
// sequence of (weights, positions) given to Continue, and of nothing else.
type Generation interface {
	// Continue decodes up to n further positions of every unfinished row with weights w, all of them
	// when n <= 0. It reports whether every row has finished.
	Continue(ctx context.Context, w Weights, n int) (done bool, err error)
	// Rollouts returns the finished group, Text filled. Rewards are set if the task is no task.Verifier, which
	// the machine asks for them otherwise.
	Rollouts() ([]*rollout.Rollout, error)
}

// Measured is what a learner saw in one optimizer step.
type Measured struct {
	Metrics  map[string]float64 // by name
	Feedback []rollout.Feedback // of the draws, trainer by trainer; nil: the learner gives none
}

// Learner takes optimizer steps.
type Learner interface {
	// Step takes one optimizer step on the batches of all trainers, one each, in trainer order.
	Step(ctx context.Context, batches []*rollout.Batch) (Measured, error)
	// Weights returns the newest weights; their version is the number of steps taken.
	Weights() Weights
}

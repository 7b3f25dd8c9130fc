package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// Counted is a buffer that counts what becomes of its rollouts; *replay.Table is one.
type Counted interface {
	pipeline.Buffer
	Stats(ctx context.Context) (rollout.Stats, error)
}

// Trial is a schedule around a buffer, without a model.
type Trial struct {
	Options  pipeline.Options // asynchronous; Updates and ComputeBudget do not count: Rollouts ends the trial
	Workload Workload         // its Workers, Group and RolloutCost are the options' where they are 0
	Buffer   Counted          // empty, with a shard for each trainer
	Rollouts int              // ends it, with the first update by which so many are in the buffer, >= 1
	Skip     int              // rollouts before which nothing is measured, while buffers fill, in [0, Rollouts)
	Pieces   int              // in which workers that take weights up token by token do so; 0: 16
}

// Run runs the trial to its end and returns what it showed. The same trial shows the same, whatever the machine.
func (t Trial) Run(ctx context.Context) (*Record, error) {
	o, w, err := t.settle()
	if err != nil {
		return nil, err
	}
	watch := watch{trial: t, options: o, measuring: t.Skip == 0}
	watch.began.Workers = make([]pipeline.GPUTime, o.Workers)
	machine, err := pipeline.New(o, pipeline.Parts{
		Task:   Task{Seed: w.Seed, Accept: 0.5},
		Buffer: t.Buffer, Learner: &Learner{},
		Generator: Sparse{Seed: w.Seed, Lengths: w.Lengths, Pieces: o.MaxTokens},
	}, pipeline.Hooks{OnUpdate: watch.update})
	if err != nil {
		return nil, err
	}
	if err := machine.Run(ctx); err != nil {
		return nil, err
	}
	return watch.record()
}

// settle returns the options with the workload's part in them, and the workload.
func (t Trial) settle() (pipeline.Options, Workload, error) {
	o, w := t.Options, t.Workload
	o.Updates, o.ComputeBudget = 0, 0
	o = o.WithDefaults()
	orElse(&w.Workers, o.Workers)
	orElse(&w.Group, o.Group)
	orElse(&w.RolloutCost, o.RolloutCost)
	o.Chunk, o.MaxTokens = 1, 1
	if o.WeightSync == pipeline.ByToken {
		o.MaxTokens = t.Pieces
		orElse(&o.MaxTokens, 16)
	}
	var found []error
	if o.Mode != pipeline.Async {
		found = append(found, fmt.Errorf("mode: %s: want %s", o.Mode, pipeline.Async))
	}
	if t.Rollouts < 1 {
		found = append(found, fmt.Errorf("rollouts: %d: want 1 or more", t.Rollouts))
	}
	if t.Skip < 0 || t.Skip >= max(1, t.Rollouts) {
		found = append(found, fmt.Errorf("skip: %d: want 0 or more, below the rollouts (%d)", t.Skip, t.Rollouts))
	}
	if t.Pieces < 0 {
		found = append(found, fmt.Errorf("pieces: %d: want 1 or more, or 0 for 16", t.Pieces))
	}
	if err := w.Apply(&o); err != nil {
		found = append(found, err)
	}
	if err := o.Validate(); err != nil {
		found = append(found, err)
	}
	return o, w, errors.Join(found...)
}

func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// watch notes what a trial shows.
type watch struct {
	trial   Trial
	options pipeline.Options

	began, last pipeline.Update // the update that measuring begins after, and the newest
	before      rollout.Stats   // as of began
	measuring   bool
	waits       []float64
}

func (w *watch) update(m *pipeline.Machine, u pipeline.Update) error {
	if w.measuring {
		w.waits = append(w.waits, max(0, u.Time-w.last.Time-w.options.StepTime()))
	}
	w.last = u
	if !w.measuring && u.Inserted >= uint64(w.trial.Skip) {
		w.measuring, w.began = true, u
		var err error
		if w.before, err = w.trial.Buffer.Stats(context.Background()); err != nil {
			return err
		}
	}
	if u.Inserted >= uint64(w.trial.Rollouts) && u.Version > w.began.Version {
		return pipeline.ErrStop
	}
	return nil
}

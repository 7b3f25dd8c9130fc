package sim

import (
	"cmp"
	"context"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// CountingBuffer is a buffer with statistics. *replay.Table implements it.
type CountingBuffer interface {
	pipeline.Buffer
	Stats(ctx context.Context) (rollout.Stats, error)
}

// Trial is a schedule around a buffer, without a model.
type Trial struct {
	Options  pipeline.Options // asynchronous; Updates and ComputeBudget are ignored, Rollouts ends the trial
	Workload Workload         // Workers, Group and RolloutCost default to those of the options
	Buffer   CountingBuffer   // empty, with a shard for each trainer
	Rollouts int              // in the buffer at the update with which the trial ends, >= 1
	Skip     int              // rollouts before measuring starts, when buffers have filled, in [0, Rollouts)
	Pieces   int              // per group, in which workers switch weights with pipeline.ByToken; 0: 16
}

// Run runs the trial and returns what it measured, a pure function of the trial.
func (t Trial) Run(ctx context.Context) (*Record, error) {
	o, w, err := t.resolve()
	if err != nil {
		return nil, err
	}
	observed := observer{trial: t, options: o, measuring: t.Skip == 0}
	observed.began.Workers = make([]pipeline.GPUTime, o.Workers)
	machine, err := pipeline.New(o, pipeline.Parts{
		Task:   Task{Seed: w.Seed, Accept: 0.5},
		Buffer: t.Buffer, Learner: &Learner{},
		Generator: Sparse{Seed: w.Seed, Lengths: w.Lengths, Pieces: o.MaxTokens},
	}, pipeline.Hooks{OnUpdate: observed.update})
	if err != nil {
		return nil, err
	}
	if err := machine.Run(ctx); err != nil {
		return nil, err
	}
	return observed.record(ctx)
}

// resolve returns the workload and the options with the workload applied, or every problem with them.
func (t Trial) resolve() (pipeline.Options, Workload, error) {
	o, w := t.Options, t.Workload
	o.Updates, o.ComputeBudget = 0, 0
	o = o.WithDefaults()
	w.Workers, w.Group = cmp.Or(w.Workers, o.Workers), cmp.Or(w.Group, o.Group)
	w.RolloutCost = cmp.Or(w.RolloutCost, o.RolloutCost)
	o.Chunk, o.MaxTokens = 1, 1
	if o.WeightSync == pipeline.ByToken {
		o.MaxTokens = cmp.Or(t.Pieces, 16)
	}
	var p option.Problems
	p.Check(o.Mode == pipeline.Async, "mode", o.Mode, "%s", pipeline.Async)
	p.Check(t.Rollouts >= 1, "rollouts", t.Rollouts, "1 or more")
	p.Check(t.Skip >= 0 && t.Skip < max(1, t.Rollouts), "skip", t.Skip, "0 or more, below the rollouts (%d)",
		t.Rollouts)
	p.Check(t.Pieces >= 0, "pieces", t.Pieces, "1 or more, or 0 for 16")
	p.Add(w.Apply(&o))
	p.Add(o.Validate())
	return o, w, p.Err()
}

// observer watches a trial.
type observer struct {
	trial   Trial
	options pipeline.Options

	began, last pipeline.Update // the update after which measuring began, and the newest
	before      rollout.Stats   // as of began
	measuring   bool
	waits       []float64
}

func (w *observer) update(m *pipeline.Machine, u pipeline.Update) error {
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

// record returns what was measured.
func (w *observer) record(ctx context.Context) (*Record, error) {
	a, b := w.began, w.last
	end, err := w.trial.Buffer.Stats(ctx)
	if err != nil {
		return nil, err
	}
	before := w.before
	r := &Record{
		Options: w.options, Time: b.Time - a.Time, Updates: int(b.Version - a.Version),
		Rollouts: b.Inserted - a.Inserted, Used: b.Used - a.Used,
		Trainer: spentSince(a.Trainer, b.Trainer), Waits: w.waits,
		WorkerStalls:  make([]float64, len(b.Workers)),
		Staleness:     countedSince(before.Staleness, end.Staleness),
		MeanStaleness: countedSince(before.MeanStaleness, end.MeanStaleness),
		Uses:          countedSince(before.UsesAtEviction, end.UsesAtEviction),
		SinceLastUse:  countedSince(before.SinceLastUse, end.SinceLastUse),
		End:           end,
	}
	n := float64(len(b.Workers))
	for i := range b.Workers {
		d := spentSince(a.Workers[i], b.Workers[i])
		r.WorkerStalls[i] = d.Stalled / r.Time
		r.Workers.Busy += d.Busy
		r.Workers.Stalled += d.Stalled
		r.Workers.Idle += d.Idle
	}
	r.Workers = pipeline.GPUTime{Busy: r.Workers.Busy / n, Stalled: r.Workers.Stalled / n, Idle: r.Workers.Idle / n}
	return r, nil
}

func spentSince(a, b pipeline.GPUTime) pipeline.GPUTime {
	return pipeline.GPUTime{Busy: b.Busy - a.Busy, Stalled: b.Stalled - a.Stalled, Idle: b.Idle - a.Idle}
}

// countedSince returns what a histogram has counted since before. Counts only grow, except that a rollout evicted with
// a draw under way moves up by a use.
func countedSince(before, after rollout.Histogram) rollout.Histogram {
	var h rollout.Histogram
	for _, b := range after.Bins() {
		for range b.Count - min(b.Count, before.Of(b.Value)) {
			h.Add(b.Value)
		}
	}
	return h
}

// Record is what a trial measured after its first Skip rollouts. Times are in the time one trainer takes for one
// rollout.
type Record struct {
	Options  pipeline.Options // as run
	Time     float64          // that passed
	Updates  int
	Rollouts uint64 // that entered the buffer
	Used     uint64 // draws that were trained on

	Workers      pipeline.GPUTime // mean over workers
	WorkerStalls []float64        // share of the time that each worker stalled
	Trainer      pipeline.GPUTime // of each trainer
	Waits        []float64        // of the trainers before each update

	Staleness     rollout.Histogram // of draws, in versions
	MeanStaleness rollout.Histogram // the same, mean over a rollout's tokens
	Uses          rollout.Histogram // of the rollouts that left the buffer
	SinceLastUse  rollout.Histogram // in updates, of draws that were not the first
	End           rollout.Stats     // of the buffer, over the whole trial
}

// TrainersStalled returns the share of the time that trainers waited.
func (r *Record) TrainersStalled() float64 { return r.Trainer.Stalled / r.Time }

// WorkersStalled returns the share of the time that workers waited, mean over workers.
func (r *Record) WorkersStalled() float64 { return r.Workers.Stalled / r.Time }

// Speed returns the updates taken relative to trainers that never wait.
func (r *Record) Speed() float64 { return float64(r.Updates) * r.Options.StepTime() / r.Time }

// NewPerUpdate returns the measured R: the rollouts that entered the buffer per update.
func (r *Record) NewPerUpdate() float64 { return float64(r.Rollouts) / float64(r.Updates) }

// ReplayRatio returns the uses per rollout that entered.
func (r *Record) ReplayRatio() float64 { return float64(r.Used) / float64(r.Rollouts) }

// BusyCompute returns the busy GPU time per update, in units of an update without replay, B(1 + mu).
func (r *Record) BusyCompute() float64 {
	return r.compute(float64(r.Options.Trainers)*r.Trainer.Busy + float64(r.Options.Workers)*r.Workers.Busy)
}

// AllCompute returns the GPU time per update, stalls included, in the same unit.
func (r *Record) AllCompute() float64 {
	return r.compute(float64(r.Options.Trainers+r.Options.Workers) * r.Time)
}

func (r *Record) compute(spent float64) float64 {
	return spent / float64(r.Updates) / r.Options.QueueCompute()
}

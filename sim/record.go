package sim

import (
	"context"
	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// Record is what a trial showed after its first Skip rollouts. Times are in the time one trainer takes for one rollout.
type Record struct {
	Options  pipeline.Options // as run
	Time     float64          // that passed
	Updates  int
	Rollouts uint64 // that entered the buffer
	Used     uint64 // that were trained on, repeats counted

	Workers      pipeline.GPUTime // the time of a worker, in the mean over workers
	WorkerStalls []float64        // share of the time that each worker stalled, by worker
	Trainer      pipeline.GPUTime // the time of each trainer
	Waits        []float64        // of the trainers before each update

	Staleness     rollout.Histogram // of draws, in versions
	MeanStaleness rollout.Histogram // the same in the mean over a rollout's tokens
	Uses          rollout.Histogram // of the rollouts that left the buffer
	SinceLastUse  rollout.Histogram // in updates, of draws that were not the first
	End           rollout.Stats     // of the buffer, since the trial's beginning
}

// record returns what was seen since measuring began.
func (w *watch) record() (*Record, error) {
	a, b := w.began, w.last
	end, err := w.trial.Buffer.Stats(context.Background())
	if err != nil {
		return nil, err
	}
	r := &Record{
		Options: w.options, Time: b.Time - a.Time, Updates: int(b.Version - a.Version),
		Rollouts: b.Inserted - a.Inserted, Used: b.Used - a.Used,
		Trainer: less(b.Trainer, a.Trainer), Waits: w.waits,
		WorkerStalls: make([]float64, len(b.Workers)),
		Staleness:    since(w.before.Staleness, end.Staleness), MeanStaleness: since(w.before.MeanStaleness, end.MeanStaleness),
		Uses: since(w.before.UsesAtEviction, end.UsesAtEviction), SinceLastUse: since(w.before.SinceLastUse, end.SinceLastUse),
		End: end,
	}
	for i := range b.Workers {
		d := less(b.Workers[i], a.Workers[i])
		r.WorkerStalls[i] = d.Stalled / r.Time
		r.Workers.Busy += d.Busy
		r.Workers.Stalled += d.Stalled
		r.Workers.Idle += d.Idle
	}
	n := float64(len(b.Workers))
	r.Workers = pipeline.GPUTime{Busy: r.Workers.Busy / n, Stalled: r.Workers.Stalled / n, Idle: r.Workers.Idle / n}
	return r, nil
}

// less returns what was spent between two times.
func less(b, a pipeline.GPUTime) pipeline.GPUTime {
	return pipeline.GPUTime{Busy: b.Busy - a.Busy, Stalled: b.Stalled - a.Stalled, Idle: b.Idle - a.Idle}
}

// since returns what a histogram counted between two times. Nothing is taken back from these histograms meanwhile, but that a rollout
// which left with a draw under way moves up by a use.
func since(before, after rollout.Histogram) rollout.Histogram {
	var h rollout.Histogram
	for _, b := range after.Bins() {
		for range b.Count - min(b.Count, before.Of(b.Value)) {
			h.Add(b.Value)
		}
	}
	return h
}

// TrainersStalled returns the share of the time that trainers waited.
func (r *Record) TrainersStalled() float64 { return r.Trainer.Stalled / r.Time }

// WorkersStalled returns the share of the time that workers waited, in the mean over workers.
func (r *Record) WorkersStalled() float64 { return r.Workers.Stalled / r.Time }

// Speed returns the updates taken as a share of those that trainers take who never wait.
func (r *Record) Speed() float64 { return float64(r.Updates) * r.Options.StepTime() / r.Time }

// NewPerUpdate returns R as it was: the rollouts that entered the buffer during an update.
func (r *Record) NewPerUpdate() float64 { return float64(r.Rollouts) / float64(r.Updates) }

// ReplayRatio returns the uses of a rollout that entered.
func (r *Record) ReplayRatio() float64 { return float64(r.Used) / float64(r.Rollouts) }

// BusyCompute returns the compute of an update by the clock, the time that GPUs were busy, in updates of the baseline without
// replay, B(1 + mu).
func (r *Record) BusyCompute() float64 {
	return r.compute(float64(r.Options.Trainers)*r.Trainer.Busy + float64(r.Options.Workers)*r.Workers.Busy)
}

// AllCompute returns the time of all GPUs that an update took, stalls included, in the same unit.
func (r *Record) AllCompute() float64 {
	return r.compute(float64(r.Options.Trainers+r.Options.Workers) * r.Time)
}

func (r *Record) compute(spent float64) float64 {
	return spent / float64(r.Updates) / r.Options.QueueCompute()
}

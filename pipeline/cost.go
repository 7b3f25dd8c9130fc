package pipeline

import (
	"fmt"
	"math"
)

// The cost model, METHODS 1. Times are in the time one trainer takes for one rollout; compute is in
// the same unit times GPUs. The conversions to float64 around products keep compilers from fusing
// them with the sums around, so that clocks agree across architectures.

// StepTime is the duration of an update, B/T.
func (o Options) StepTime() float64 { return float64(o.Batch) / float64(o.Trainers) }

// GroupTime is the duration of a group's generation, G mu, where GroupTiming does not tell another.
func (o Options) GroupTime() float64 { return float64(float64(o.Group) * o.RolloutCost) }

// timing returns how long the group of a job takes on a worker.
func (o Options) timing(job uint64, worker int) (Timing, error) {
	if o.GroupTiming == nil {
		return Timing{Worker: o.GroupTime()}, nil
	}
	t := o.GroupTiming(job, worker)
	if !(t.Worker > 0) || math.IsInf(t.Worker, 0) {
		return t, fmt.Errorf("job %d takes worker %d the time %g: must be finite and above 0", job, worker, t.Worker)
	}
	if !nonNegative(t.Tail) {
		return t, fmt.Errorf("job %d has a tail of %g on worker %d: must be finite and at least 0", job, t.Tail, worker)
	}
	return t, nil
}

// QueueCompute is the compute of an update without replay on a batch of its own, B(1 + mu). It is the unit of compute whatever
// BatchUpdates is.
func (o Options) QueueCompute() float64 { return float64(float64(o.Batch) * (1 + o.RolloutCost)) }

// ReplayCompute is the compute of an update with replay, B(1 + W/T).
func (o Options) ReplayCompute() float64 {
	return float64(float64(o.Batch) * (1 + float64(o.Workers)/float64(o.Trainers)))
}

// ComputeRatio is gamma = (1 + W/T)/(1 + mu), what an update with replay costs beside one without.
func (o Options) ComputeRatio() float64 { return o.ReplayCompute() / o.QueueCompute() }

// NewPerUpdate is R = B (W/T)/mu, the rollouts generated during one update when nobody stalls.
func (o Options) NewPerUpdate() float64 {
	return float64(o.Batch) * float64(o.Workers) / float64(o.Trainers) / o.RolloutCost
}

// ExpectedReplayRatio is mu T/W, the uses per rollout generated when nobody stalls, every update on a batch counted. Where trainers
// wait for fresh draws it is less: B over [Options.FreshPerUpdate].
func (o Options) ExpectedReplayRatio() float64 {
	return o.RolloutCost * float64(o.Trainers) / float64(o.Workers)
}

// GroupUpdates is D = G mu T/B, the updates that pass while a group is generated.
func (o Options) GroupUpdates() float64 { return o.GroupTime() / o.StepTime() }

// StalenessBound is N/R + 2D + 1, about the greatest staleness in a FIFO of the newest n rollouts.
func (o Options) StalenessBound(n int) float64 {
	return float64(n)/o.NewPerUpdate() + 2*o.GroupUpdates() + 1
}

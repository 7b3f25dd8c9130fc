package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/sim"
)

// simArms are what stands between workers and trainers, in the order in which they are shown.
func simArms() []replay.Sampler { return []replay.Sampler{replay.LIFO, replay.FIFO, replay.Distinct} }

// schedules is a schedule that is run with each of the arms.
type schedules struct {
	options  pipeline.Options
	workload sim.Workload
	capacity int // of the buffer
	queue    int // of the queues
	rollouts int
	skip     int
	raised   string // why the capacity is not what was wanted; empty: it is
}

// run runs the schedule with every arm, side by side.
func (f simFlags) run(ctx context.Context, plan simPlan) (*simulated, error) {
	s, err := f.schedules(plan)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	samplers := simArms()
	records, errs := make([]*sim.Record, len(samplers)), make([]error, len(samplers))
	var arms sync.WaitGroup
	for i, sampler := range samplers {
		arms.Go(func() { records[i], errs[i] = s.try(ctx, sampler) })
	}
	arms.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return newSimulated(s, records, time.Since(began).Seconds()), nil
}

// try runs it with one arm.
func (s schedules) try(ctx context.Context, sampler replay.Sampler) (*sim.Record, error) {
	table, err := replay.New(replay.Options{Sampler: sampler, Capacity: s.room(sampler), Shards: s.options.Trainers, Seed: s.workload.Seed})
	if err != nil {
		return nil, err
	}
	r, err := sim.Trial{
		Options: s.options, Workload: s.workload, Buffer: table, Rollouts: s.rollouts, Skip: s.skip,
	}.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("simulate a schedule with the %s: %w", armName(sampler), err)
	}
	return r, nil
}

// room returns the rollouts that an arm holds.
func (s schedules) room(sampler replay.Sampler) int {
	if sampler.Consumes() {
		return s.queue
	}
	return s.capacity
}

// armName is how an arm is called.
func armName(sampler replay.Sampler) string {
	if sampler.Consumes() {
		return string(sampler) + " queue"
	}
	return "buffer"
}

// schedules returns what is to be run.
func (f simFlags) schedules(plan simPlan) (schedules, error) {
	lengths, err1 := f.lengths()
	share, slowness, err2 := f.stragglers()
	rewards, err3 := f.rewards()
	if err := errors.Join(err1, err2, err3); err != nil {
		return schedules{}, err
	}
	s := schedules{rollouts: f.Rollouts}
	s.options = pipeline.Options{
		Workers: valueOr(f.Workers, plan.Workers), Trainers: valueOr(f.Trainers, plan.Trainers), Batch: plan.Batch, Group: plan.Group,
		RolloutCost: plan.RolloutCost, WeightTransfer: f.WeightTransfer, WeightSync: pipeline.WeightSync(f.WeightSync), UpdatesInFlight: f.InFlight,
	}
	o := s.options
	if o.Batch%o.Trainers != 0 {
		return s, fmt.Errorf("--trainers: %d: want a number that divides the %d rollouts of a batch: give another, or another --batch", o.Trainers, o.Batch)
	}
	s.workload = sim.Workload{
		Seed: f.Seed, Workers: o.Workers, Group: o.Group, RolloutCost: o.RolloutCost, Lengths: lengths, Batching: sim.Batching(f.Batching), Stragglers: share, Slowness: slowness, Rewards: rewards,
	}
	s.queue = max(2*o.Batch, o.Batch+o.Group*o.Trainers)
	s.size(f, plan)
	s.skip = min(max(f.Rollouts/4, s.settled()), f.Rollouts/2)
	return s, s.longEnough()
}

// longEnough reports a trial that would show nothing but its beginning, and one without an end in sight.
func (s schedules) longEnough() error {
	o := s.options
	perUpdate := s.perTime() * s.updateTime()
	least := 8 * max(float64(o.Batch), float64(o.Group)*float64(o.Workers), math.Ceil(perUpdate))
	uses := float64(s.rollouts) * float64(o.Batch) / perUpdate
	most := math.Floor(mostSimUses * perUpdate / float64(o.Batch) * (1 + 1e-12))
	switch {
	case least > mostSimRollouts:
		return fmt.Errorf("--workers: %d: want fewer, or updates that follow one another sooner: eight groups of each and what all make in eight updates are %.3g rollouts, a schedule has %d at most",
			o.Workers, least, mostSimRollouts)
	case float64(s.rollouts) < least:
		return fmt.Errorf("--rollouts: %d: want at least %.0f, eight batches, eight groups of each worker and what all make in eight updates, or there is nothing but the beginning to be seen", s.rollouts, least)
	case most < least:
		return fmt.Errorf("--trainers: %d: want fewer, or more workers than %d, which make %.3g rollouts in an update: it would have to use each too often to show anything but its beginning", o.Trainers, o.Workers, perUpdate)
	case uses > mostSimUses:
		return fmt.Errorf("--rollouts: %d: want at most %.0f: the buffer's trainers use each %.4g times, which takes too long", s.rollouts, most, uses/float64(s.rollouts))
	}
	return nil
}

// perTime is how many rollouts all workers make in a unit of time, if they never wait.
func (s schedules) perTime() float64 {
	return float64(s.options.Workers) / s.options.RolloutCost * s.workload.Pace()
}

// updateTime is the time from one update to the next, if trainers wait for nothing but weights that are in flight: n of these pass in the time
// of an update and a transfer.
func (s schedules) updateTime() float64 {
	o := s.options
	if o.UpdatesInFlight == 0 {
		return o.StepTime()
	}
	return max(o.StepTime(), (o.StepTime()+o.WeightTransfer)/float64(o.UpdatesInFlight))
}

// settled returns about how many rollouts have entered when the schedule shows no more of its beginning: when the buffer is full, and
// twice the time has passed that a group takes to enter it.
func (s schedules) settled() int {
	return int(min(max(float64(s.capacity), 2*s.perTime()*s.workload.Delay()), math.MaxInt32))
}

// size sets the capacity of the buffer: what was asked for, as far as every trainer's part has room for its share of a batch
// and for a group.
func (s *schedules) size(f simFlags, plan simPlan) {
	o := s.options
	wanted := float64(plan.Capacity)
	switch {
	case f.Capacity != nil:
		wanted = float64(*f.Capacity)
	case o.Workers != plan.Workers || o.Trainers != plan.Trainers:
		wanted = min(plan.Horizon*o.NewPerUpdate(), math.MaxInt32/2)
	}
	parts := int(math.Ceil(wanted/float64(o.Trainers) - 1e-9))
	least := max(o.Batch/o.Trainers, o.Group)
	s.capacity = o.Trainers * max(parts, least)
	if parts < least {
		s.raised = fmt.Sprintf("the buffer holds %d rollouts, not %.0f: each trainer's part must have room for its %d of a batch and for a group of %d",
			s.capacity, wanted, o.Batch/o.Trainers, o.Group)
	}
}

// valueOr returns what was given, or else another value.
func valueOr(given *int, or int) int {
	if given == nil {
		return or
	}
	return *given
}

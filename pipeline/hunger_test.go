package pipeline_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

func TestWhatAVersionMakesTooOldMakesRoomForWhoWaits(t *testing.T) {
	// Twelve workers outrun the trainer: the queue is full when an update makes all in it too old. No draw
	// makes room then, and the trainer needs the groups in line.
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO} {
		opts := pipeline.Options{Workers: 12, Trainers: 1, Batch: 256, Group: 16, RolloutCost: 5.28, Updates: 200}
		table := newTable(t, replay.Options{Capacity: 512, Sampler: sampler, MaxStaleness: 1})
		run(t, opts, parts(table))
		if table.Stats().Evicted[rollout.EvictedByStaleness] == 0 {
			t.Errorf("%s: nothing became too old: the test shows nothing", sampler)
		}
	}
}

func TestRandomQueuesWithABoundOnStalenessNeverGetStuck(t *testing.T) {
	expired, stalled := 0, 0
	for seed := range uint64(200) {
		r := rollout.Stream(seed, "test/stale", 0)
		s := randomSetup(seed)
		o := &s.opts
		o.Mode, o.PublishEvery, o.Workers = pipeline.Async, 1, 1+r.IntN(12)
		o.Mix, o.FreshShare = 0, 0 // a queue gives each rollout once: there is nothing to replay
		// Rewards that come late, and groups that take long, make rollouts too old on arrival: those take their turn in the deal without
		// filling their shard, and a queue's other shards may be full by then.
		o.RewardLatency, o.GroupTiming = nil, nil
		o.WeightTransfer = pick(r, 0, o.StepTime()/2)
		o.Batch *= 2
		table := newTable(t, replay.Options{
			Capacity: o.Batch + o.Trainers*(o.Group+r.IntN(o.Batch)), Shards: o.Trainers, Seed: seed,
			Sampler: pick(r, replay.LIFO, replay.FIFO), MaxStaleness: 1 + r.IntN(2) + int(math.Ceil(2*o.GroupUpdates())),
		})
		var rec record
		m, err := pipeline.New(*o, s.parts(table, &sim.Learner{}, s.chooser(t)), rec.hooks())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := m.Run(context.Background()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		last, stats := rec.last(), table.Stats()
		batches := (o.Updates + o.BatchUpdates - 1) / o.BatchUpdates // the table counts a use for each
		if stats.Inserted != last.Inserted || stats.Acknowledged != uint64(o.Batch*batches) || last.Used != uint64(o.Batch*o.Updates) || !m.Finished() {
			t.Fatalf("seed %d: the table counts %d inserted and %d uses in %d batches, the pipeline %d and %d; finished: %t",
				seed, stats.Inserted, stats.Acknowledged, batches, last.Inserted, last.Used, m.Finished())
		}
		if stats.Evicted[rollout.EvictedByStaleness] > 0 {
			expired++
			if last.Workers[0].Stalled > 0 {
				stalled++
			}
		}
	}
	t.Logf("rollouts expired in %d of 200 configurations; workers stalled too in %d", expired, stalled)
	if expired < 20 || stalled < 10 {
		t.Errorf("rollouts expired in %d of 200 configurations, workers stalled too in %d: the test shows little", expired, stalled)
	}
}

// hopeless gives the parts a task that nobody ever solves.
func hopeless(p pipeline.Parts) pipeline.Parts {
	p.Task = sim.Task{}
	return p
}

func TestTrainersThatWaitForEverEndTheRunAndSayWhy(t *testing.T) {
	opts := pipeline.Options{Workers: 4, Trainers: 2, Batch: 16, Group: 4, RolloutCost: 1}
	seldom, turns := opts, opts
	seldom.PublishEvery = 10
	turns.Mode, turns.PublishEvery, turns.SyncRollouts = pipeline.Sync, 10, 16
	for name, c := range map[string]struct {
		opts pipeline.Options
		o    replay.Options
		says []string
	}{
		"weights published more seldom than rollouts age": {
			seldom, replay.Options{Capacity: 64, MaxStaleness: 5},
			[]string{"in update 7", "where 0 can be drawn", "raise replay.max_staleness", "lower", "pipeline.publish_every"},
		},
		"the same with a queue": {
			seldom, replay.Options{Capacity: 64, MaxStaleness: 5, Sampler: replay.FIFO},
			[]string{"where 0 can be drawn", "pipeline.publish_every"},
		},
		"the same in turns": {
			turns, replay.Options{Capacity: 64, MaxStaleness: 5},
			[]string{"where 0 can be drawn", "replay.max_staleness", "publish_every (10)"},
		},
		"recent rollouts fewer than a batch": {
			opts, replay.Options{Capacity: 20, Retention: replay.KeepPositive, PositiveFraction: 0.5},
			[]string{"where 5 can be drawn", "replay.min_size or positive_fraction"},
		},
		"bytes for fewer than a batch": {
			opts, replay.Options{Capacity: 64, CapacityBytes: 600},
			[]string{"sampling 8 from shard 0, where", "capacity or bytes"},
		},
	} {
		c.o.Shards = opts.Trainers
		var r record
		m, err := pipeline.New(c.opts, hopeless(parts(newTable(t, c.o))), r.hooks())
		if err != nil {
			t.Fatal(err)
		}
		err = m.Run(context.Background())
		if !errors.Is(err, pipeline.ErrStuck) || !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("%s: error is %v, want one that wraps ErrStuck and ErrStarved", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error is %q, want it to say %q", name, err, part)
			}
		}
		if made := len(r.inserts) * c.opts.Group; made > 100*c.opts.Batch {
			t.Errorf("%s: %d rollouts were made before, more than 100 batches", name, made)
		}
	}
}

func TestABufferThatFillsForLongIsNotStuck(t *testing.T) {
	// 200 batches are to be there before the first is drawn.
	opts := small(1)
	opts.Batch, opts.Updates = 8, 3
	r := run(t, opts, hopeless(parts(newTable(t, replay.Options{Capacity: 1600, MinSize: 1600}))))
	expect(t, "first update ends", r.times()[0], 1608.0)

	// Weights take 1,000 while rollouts are too old for two versions: 4,000 are made and dropped meanwhile.
	opts = pipeline.Options{Workers: 4, Trainers: 1, Batch: 4, Group: 4, RolloutCost: 1, Updates: 12, WeightTransfer: 1000}
	table := newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})
	run(t, opts, parts(table))
	if dropped := table.Stats().Evicted[rollout.EvictedByStaleness]; dropped < 8000 {
		t.Errorf("%d rollouts were too old, want thousands: the test shows little", dropped)
	}

	// No rewards are known from 500 to 1,100, and then those of 2,000 rollouts of the old weights in a row:
	// jobs n to n+3 end at n+4.
	opts.RewardLatency = func(job uint64) float64 {
		switch {
		case job < 500:
			return 0
		case job < 1100:
			return 1100 + float64(job)/100 - float64(job-job%4)
		default:
			return 20 // after those
		}
	}
	run(t, opts, parts(newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})))

	// Rewards that take 1,000 hold back as many rollouts of the old weights.
	opts.WeightTransfer, opts.Updates = 0, 12
	opts.RewardLatency = func(uint64) float64 { return 1000 }
	run(t, opts, parts(newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})))

	// One rollout in a hundred is kept beyond the recent ones, which are fewer than a batch.
	opts = small(1)
	opts.Batch, opts.Updates = 8, 3
	p := parts(newTable(t, replay.Options{Capacity: 40, Retention: replay.KeepPositive, PositiveFraction: 0.9}))
	p.Task = sim.Task{Accept: 0.01}
	run(t, opts, p)
}

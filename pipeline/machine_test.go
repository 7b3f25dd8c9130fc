package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

func TestStopEndsTheRunAfterThePresentUpdate(t *testing.T) {
	opts := small(1)
	opts.Updates = 0
	var r record
	hooks := r.hooks()
	var m *pipeline.Machine
	hooks.OnInsert = func(in pipeline.Insertion) {
		if in.Job == 7 {
			m.Stop()
		}
	}
	m, err := pipeline.New(opts, parts(newNaive(1, 16, false)), hooks)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	// Group 7 arrives at 32; the update from 32 is under way then, or the one that ends at 32 has ended.
	expect(t, "ends at", r.last().Time, 36.0)
	if err := m.Run(context.Background()); err == nil {
		t.Error("a machine ran twice")
	}
}

func TestAComputeBudgetEndsTheRunAtTheFirstUpdateThatReachesIt(t *testing.T) {
	opts := pipeline.Options{Workers: 6, Trainers: 2, Batch: 8, Group: 4, RolloutCost: 3, ComputeBudget: 100}
	r := run(t, opts, parts(newNaive(2, 16, false)))
	expect(t, "compute", r.last().Compute, 128.0) // 8 (1 + 6/2) = 32 per update
	opts.UpdateCompute = opts.QueueCompute()
	opts.ComputeBudget = 100 - 4
	r = run(t, opts, parts(newNaive(2, 16, false)))
	expect(t, "compute by the given unit", r.last().Compute, 96.0)
}

func TestABudgetIsReachedWhateverRoundingDoesToTheProduct(t *testing.T) {
	// Ten updates of 0.1 + 0.2 and the like: the product may end a rounding below the budget that was meant.
	for seed := range uint64(200) {
		r := rollout.Stream(seed, "test/budget", 0)
		n := 1 + r.IntN(9)
		opts := small(1)
		opts.Updates, opts.UpdateCompute = 0, 0.01+r.Float64()
		for range n {
			opts.ComputeBudget += opts.UpdateCompute // rounded n times
		}
		var rec record
		m, err := pipeline.New(opts, parts(newNaive(1, 16, false)), rec.hooks())
		if err != nil {
			t.Fatal(err)
		}
		if m.Finished() {
			t.Fatal("finished before the first update")
		}
		if err := m.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(rec.updates) != n || !m.Finished() {
			t.Errorf("seed %d: %d updates of %v, want %d for a budget of %v; finished: %t",
				seed, len(rec.updates), opts.UpdateCompute, n, opts.ComputeBudget, m.Finished())
		}
	}
}

func TestARunThatCanNeverGoOnSaysWhy(t *testing.T) {
	opts := small(1)
	opts.Batch = 8
	m, err := pipeline.New(opts, parts(newNaive(1, 7, true)), pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Run(context.Background())
	if !errors.Is(err, pipeline.ErrStuck) || !strings.Contains(err.Error(), "no room for 1 groups") {
		t.Errorf("too small a buffer: %v", err)
	}
	opts.Mode, opts.SyncRollouts, opts.SyncUpdates = pipeline.Sync, 8, 2
	m, err = pipeline.New(opts, parts(newNaive(1, 100, true)), pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Run(context.Background())
	if !errors.Is(err, pipeline.ErrStuck) || !strings.Contains(err.Error(), "sync_rollouts (8)") {
		t.Errorf("more updates than rollouts for them: %v", err)
	}
}

func TestAnErrorOfTheHookFailsTheRun(t *testing.T) {
	m, err := pipeline.New(small(1), parts(newNaive(1, 16, false)), pipeline.Hooks{
		OnUpdate: func(*pipeline.Machine, pipeline.Update) error { return fmt.Errorf("write metrics: %w", errBroken) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); !errors.Is(err, errBroken) {
		t.Errorf("run ended with %v", err)
	}
}

// advantages is a learner that keeps what it was given.
type advantages struct {
	sim.Learner
	given [][]float32
}

func (a *advantages) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	var as []float32
	for _, b := range bs {
		for _, d := range b.Draws {
			as = append(as, d.Advantage)
		}
	}
	a.given = append(a.given, as)
	return a.Learner.Step(ctx, bs)
}

func TestBatchAdvantagesAreTakenOverTheBatchesOfAllTrainers(t *testing.T) {
	opts := small(1)
	opts.Trainers, opts.Group, opts.Updates, opts.Advantage = 2, 2, 4, advantage.Batch
	p := parts(newNaive(2, 8, true))
	var l advantages
	p.Learner = &l
	var rewards [][]float32
	r := record{}
	hooks := r.hooks()
	m, err := pipeline.New(opts, p, hooks)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	// Groups are dealt to the two shards in turn and consumed in order: update k is on groups 2k, 2k+1.
	varied := false
	for k := range l.given {
		var rs []float32
		for _, in := range r.inserts[2*k : 2*k+2] {
			for _, x := range in.Rollouts {
				rs = append(rs, x.Reward)
			}
		}
		rewards = append(rewards, rs)
		want := make([]float32, len(rs))
		if !advantage.OfBatch(want, rs, nil, advantage.Batch).Zero {
			varied = true
		}
		expect(t, fmt.Sprintf("advantages of update %d", k), l.given[k], want)
	}
	if !varied {
		t.Errorf("rewards never vary: %v", rewards)
	}
}

func TestBatchesDrawnAreKeptWhileAnotherTrainerIsStarved(t *testing.T) {
	// Two shards, groups of 2 dealt in turn, B/T = 2: shard 0 can be drawn when group 0 arrives, shard 1
	// when group 1 does. A queue with room for one group each: group 2 would not find room in shard 0
	// had its batch not been taken and kept.
	opts := pipeline.Options{Workers: 1, Trainers: 2, Batch: 4, Group: 2, RolloutCost: 1, Updates: 3}
	r := run(t, opts, parts(newNaive(2, 2, true)))
	expect(t, "updates end", r.times(), []float64{6, 10, 14})
	expect(t, "trainers", r.last().Trainer, pipeline.Spent{Busy: 6, Stalled: 8})
	expect(t, "workers", r.last().Workers, []pipeline.Spent{{Busy: 14}})
}

func TestATrainerDrawsAheadOfAStarvedOneWhereThatMakesRoom(t *testing.T) {
	// Room for one group per shard; groups 0 and 1 go to shard 1, group 2 to shard 0. Group 1, at 4, finds
	// room only if trainer 1 draws although trainer 0 is starved until 6.
	opts := pipeline.Options{Workers: 1, Trainers: 2, Batch: 4, Group: 2, RolloutCost: 1, Updates: 1}
	b := newNaive(2, 2, true)
	b.order = []int{1, 1, 0}
	r := run(t, opts, parts(b))
	expect(t, "groups arrive", r.arrivals(), []float64{2, 4, 6})
	expect(t, "updates end", r.times(), []float64{8})
}

func TestWhatCannotBeginIsRefused(t *testing.T) {
	p := parts(newNaive(1, 8, true))
	p.Learner = &sim.Learner{Version: 3}
	if _, err := pipeline.New(small(1), p, pipeline.Hooks{}); err == nil || !strings.Contains(err.Error(), "version 3") {
		t.Errorf("a learner that has learned: %v", err)
	}
	bad := small(1)
	bad.Trainers = 3
	if _, err := pipeline.New(bad, parts(newNaive(1, 8, true)), pipeline.Hooks{}); err == nil {
		t.Error("bad options were accepted by New")
	}
	if _, err := pipeline.Resume(bad, parts(newNaive(1, 8, true)), pipeline.Hooks{}, pipeline.State{}, nil); err == nil {
		t.Error("bad options were accepted by Resume")
	}
	opts := small(1)
	opts.RewardLatency = func(uint64) float64 { return -1 }
	m, err := pipeline.New(opts, parts(newNaive(1, 8, true)), pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "reward latency of job 0 is -1") {
		t.Errorf("a negative latency: %v", err)
	}
}

func TestARunThatHasReachedItsLimitDoesNothing(t *testing.T) {
	s := setup{seed: 7, opts: small(1)}
	state := s.interruptedState(t, 4)
	s.opts.Updates = 4
	weights := map[rollout.Version]pipeline.Weights{}
	for _, v := range state.Versions() {
		weights[v] = pipeline.Weights{Version: v}
	}
	var r record
	m, err := pipeline.Resume(s.opts, s.parts(s.buffer(), &sim.Learner{Version: 4}, nil), r.hooks(), state, weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil || len(r.updates)+len(r.inserts) > 0 {
		t.Errorf("error %v, %d updates, %d insertions", err, len(r.updates), len(r.inserts))
	}
	if again, _, err := m.Snapshot(); err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", state) {
		t.Errorf("state has changed (error %v)", err)
	}
}

// timed is a learner whose steps take a second.
type timed struct{ sim.Learner }

func (l *timed) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	<-time.After(time.Second) // of the bubble's clock
	return l.Learner.Step(ctx, bs)
}

func TestWallIsTheRealTimeSpentInTheParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parts(newNaive(1, 16, false))
		p.Learner = &timed{}
		m, err := pipeline.New(small(1), p, pipeline.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "before", m.Wall(), pipeline.Wall{})
		if err := m.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		expect(t, "after ten updates", m.Wall(), pipeline.Wall{Learn: 10 * time.Second})
	})
}

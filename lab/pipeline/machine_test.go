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
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/rollout"
)

func TestStopEndsTheRunAfterTheCurrentUpdate(t *testing.T) {
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

func TestRoundingDoesNotMissABudget(t *testing.T) {
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

func TestAStuckRunSaysWhy(t *testing.T) {
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
	expect(t, "trainers", r.last().Trainer, pipeline.GPUTime{Busy: 6, Stalled: 8})
	expect(t, "workers", r.last().Workers, []pipeline.GPUTime{{Busy: 14}})
}

func TestATrainerDrawsAheadOfAStarvedOneIfThatMakesRoom(t *testing.T) {
	// Room for one group per shard; groups 0 and 1 go to shard 1, group 2 to shard 0. Group 1, at 4, finds
	// room only if trainer 1 draws although trainer 0 is starved until 6.
	opts := pipeline.Options{Workers: 1, Trainers: 2, Batch: 4, Group: 2, RolloutCost: 1, Updates: 1}
	b := newNaive(2, 2, true)
	b.order = []int{1, 1, 0}
	r := run(t, opts, parts(b))
	expect(t, "groups arrive", r.arrivals(), []float64{2, 4, 6})
	expect(t, "updates end", r.times(), []float64{8})
}

func TestInvalidStartsAreRefused(t *testing.T) {
	p := parts(newNaive(1, 8, true))
	p.Learner = &sim.Learner{Version: 3}
	if _, err := pipeline.New(small(1), p, pipeline.Hooks{}); err == nil ||
		!strings.Contains(err.Error(), "version 3") {
		t.Errorf("a learner that has learned: %v", err)
	}
	bad := small(1)
	bad.Trainers = 3
	if _, err := pipeline.New(bad, parts(newNaive(1, 8, true)), pipeline.Hooks{}); err == nil {
		t.Error("bad options were accepted by New")
	}
	if _, err := pipeline.Resume(bad, parts(newNaive(1, 8, true)), pipeline.Hooks{}, pipeline.State{},
		nil); err == nil {
		t.Error("bad options were accepted by Resume")
	}
	opts := small(1)
	opts.RewardLatency = func(uint64) float64 { return -1 }
	m, err := pipeline.New(opts, parts(newNaive(1, 8, true)), pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "reward latency of job 0: -1") {
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

var errBroken = errors.New("broken")

// faulty is every part, failing where and when told.
type faulty struct {
	pipeline.Parts
	where string
	after int
	calls int
}

func (f *faulty) fail(where string) error {
	if f.where != where {
		return nil
	}
	if f.calls++; f.calls > f.after {
		return errBroken
	}
	return nil
}

func (f *faulty) parts() pipeline.Parts {
	return pipeline.Parts{Task: f.Task, Buffer: faultyBuffer{f}, Generator: faultyGenerator{f},
		Learner: faultyLearner{f}, Prompts: faultyPrompts{f}}
}

type faultyBuffer struct{ *faulty }

func (f faultyBuffer) Insert(ctx context.Context, gs ...rollout.Group) ([]rollout.ID, error) {
	if err := f.fail("insert"); err != nil {
		return nil, err
	}
	return f.Buffer.Insert(ctx, gs...)
}

func (f faultyBuffer) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if err := f.fail("sample"); err != nil {
		return nil, err
	}
	b, err := f.Buffer.Sample(ctx, req)
	if err == nil && f.fail("short batch") != nil {
		b.Draws = b.Draws[1:]
	}
	if err == nil && f.fail("stale batch") != nil {
		b.Draws[0].Fresh = false
	}
	return b, err
}

func (f faultyBuffer) Advance(ctx context.Context, v rollout.Version) error {
	if err := f.fail("advance"); err != nil {
		return err
	}
	return f.Buffer.Advance(ctx, v)
}

func (f faultyBuffer) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if err := f.fail("report"); err != nil {
		return err
	}
	return f.Buffer.Report(ctx, feedback...)
}

func (f faultyBuffer) Len(ctx context.Context) (int, error) { return f.Buffer.Len(ctx) }

type faultyGenerator struct{ *faulty }

func (f faultyGenerator) Start(job pipeline.Job) (pipeline.Generation, error) {
	if err := f.fail("start"); err != nil {
		return nil, err
	}
	g, err := f.Generator.Start(job)
	return faultyGeneration{g, f.faulty}, err
}

type faultyGeneration struct {
	pipeline.Generation
	f *faulty
}

func (g faultyGeneration) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	if err := g.f.fail("continue"); err != nil {
		return false, err
	}
	done, err := g.Generation.Continue(ctx, w, n)
	return done && g.f.fail("unfinished") == nil, err
}

func (g faultyGeneration) Rollouts() ([]*rollout.Rollout, error) {
	if err := g.f.fail("rollouts"); err != nil {
		return nil, err
	}
	rs, err := g.Generation.Rollouts()
	if g.f.fail("short group") != nil {
		rs = rs[1:]
	}
	return rs, err
}

// faultyPrompts chooses as if it were not there.
type faultyPrompts struct{ *faulty }

func (f faultyPrompts) Choose(job uint64, _ rollout.Version) (uint64, bool) { return job, false }

func (f faultyPrompts) Report(rollout.Version, uint64, bool, []*rollout.Rollout) error {
	return f.fail("prompt report")
}

type faultyLearner struct{ *faulty }

func (f faultyLearner) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	if err := f.fail("step"); err != nil {
		return pipeline.Measured{}, err
	}
	return f.Learner.Step(ctx, bs)
}

func (f faultyLearner) Weights() pipeline.Weights {
	w := f.Learner.Weights()
	if f.fail("weights") != nil {
		w.Version += 5
	}
	return w
}

func TestAFaultInAnyPartEndsTheRunAndSaysWhere(t *testing.T) {
	for where, says := range map[string]string{
		"insert":        "insert the group of job 3: broken",
		"prompt report": "report the group of prompt 3, job 3: broken",
		"sample":        "sample 2 rollouts of shard 1 for update 1: broken",
		"report":        "report the measurements of update 4: broken",
		"advance":       "advance the buffer to version 4: broken",
		"start":         "start job 3 on worker 0: broken",
		"continue":      "generate job 3 on worker 0: broken",
		"rollouts":      "generate job 3 on worker 0: broken",
		"step":          "take update 4: broken",
		"short batch":   "batch of shard 1 has 1 draws, want 2",
		"stale batch":   "batch of shard 1 has 0 fresh draws, want 1",
		"short group":   "generator returned 3 rollouts for a group of 4",
		"unfinished":    "rows remain unfinished",
		"weights":       "learner's weights have version 8 after update 3",
	} {
		opts := small(1)
		opts.Trainers, opts.Concurrency, opts.FreshShare = 2, 1, 0.5
		f := &faulty{Parts: parts(newNaive(2, 16, false)), where: where, after: 3}
		m, err := pipeline.New(opts, f.parts(), pipeline.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		err = m.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error is %v, want one that says %q", where, err, says)
		}
		if strings.HasSuffix(says, ": broken") && !errors.Is(err, errBroken) {
			t.Errorf("%s: error does not wrap its cause: %v", where, err)
		}
	}
}

// patient is a generator that never ends by itself, but announces that it has begun.
type patient struct {
	pipeline.Generator
	begun chan struct{} // with room for all
}

func (p patient) Start(job pipeline.Job) (pipeline.Generation, error) {
	g, err := p.Generator.Start(job)
	return patientGeneration{g, p.begun}, err
}

type patientGeneration struct {
	pipeline.Generation
	begun chan struct{}
}

func (p patientGeneration) Continue(ctx context.Context, _ pipeline.Weights, _ int) (bool, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return false, ctx.Err()
}

func TestCancellationEndsWhatRunsAndWhatWaits(t *testing.T) {
	opts := small(1)
	opts.Workers, opts.Concurrency = 5, 2
	p := parts(newNaive(1, 16, false))
	begun := make(chan struct{}, 5)
	p.Generator = patient{p.Generator, begun}
	m, err := pipeline.New(opts, p, pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; <-begun; cancel() }()
	if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run ended with %v, want context.Canceled", err)
	}
	if len(begun) > 0 {
		t.Errorf("%d generations began beyond the two that may run at a time", len(begun))
	}
	if _, _, err := m.Snapshot(); !errors.Is(err, pipeline.ErrNoBoundary) {
		t.Errorf("snapshot after cancellation: %v, want ErrNoBoundary", err)
	}
}

package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is W=1, T=1, B=4, G=4: an update takes 4, a group 4 mu.
func small(mu float64) pipeline.Options {
	return pipeline.Options{Workers: 1, Trainers: 1, Batch: 4, Group: 4, RolloutCost: mu, Updates: 10}
}

func parts(b pipeline.Buffer) pipeline.Parts {
	return pipeline.Parts{
		Task:      sim.Task{Accept: 0.5},
		Buffer:    b,
		Generator: &sim.Generator{Seed: 7},
		Learner:   &sim.Learner{},
	}
}

// record is what a run showed.
type record struct {
	updates []pipeline.Update
	inserts []pipeline.Insertion
}

func (r *record) hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnInsert: func(in pipeline.Insertion) { r.inserts = append(r.inserts, in) },
		OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error { r.updates = append(r.updates, u); return nil },
	}
}

func (r *record) last() pipeline.Update { return r.updates[len(r.updates)-1] }

// times returns when updates ended.
func (r *record) times() []float64 {
	var ts []float64
	for _, u := range r.updates {
		ts = append(ts, u.Time)
	}
	return ts
}

// arrivals returns when groups entered the buffer.
func (r *record) arrivals() []float64 {
	var ts []float64
	for _, in := range r.inserts {
		ts = append(ts, in.Time)
	}
	return ts
}

// versions returns the version of the first token of each group, in order of insertion.
func (r *record) versions() []rollout.Version {
	var vs []rollout.Version
	for _, in := range r.inserts {
		vs = append(vs, in.Rollouts[0].Versions[0])
	}
	return vs
}

// run runs to the end and returns what it showed.
func run(t *testing.T, opts pipeline.Options, p pipeline.Parts) *record {
	t.Helper()
	var r record
	m, err := pipeline.New(opts, p, r.hooks())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &r
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestSlowWorkerStarvesTheTrainer(t *testing.T) {
	// mu = 2: a group takes 8, an update 4. Groups arrive at 8, 16, 24, …; update k starts at 8k and
	// ends at 8k+4. The trainer waits 8 at first and 4 between updates; the worker never.
	opts := small(2)
	opts.Updates = 4
	r := run(t, opts, parts(newNaive(1, 8, true)))
	expect(t, "updates end", r.times(), []float64{12, 20, 28, 36})
	expect(t, "groups arrive", r.arrivals(), []float64{8, 16, 24, 32})
	expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 16, Stalled: 20})
	expect(t, "worker", r.last().Workers, []pipeline.Spent{{Busy: 36}})
	// The group that arrives at 8k was started at 8(k-1), when update k-2 had ended at 8(k-2)+4:
	// versions 0, 0, 1, 2; they are used at versions 0, 1, 2, 3.
	expect(t, "versions", r.versions(), []rollout.Version{0, 0, 1, 2})
	expect(t, "greatest staleness", r.last().StalenessMax, 1)
}

func TestFullQueueStallsTheWorker(t *testing.T) {
	// mu = 1/2: a group takes 2, an update 4; the queue holds two groups. Groups end at 2, 4, 6; the
	// first is drawn at 2, so the queue is full at 6. The one ending at 8 waits from 8, but at 6 the
	// trainer draws (the update from 2 ends): at 6 arrives the third group, queue [2nd, 3rd], draw
	// takes the 2nd. At 8 the 4th enters, queue [3rd, 4th]. At 10 the 5th ends and the trainer draws:
	// the 5th is refused, the draw makes room at the same instant. From 12 on every second group
	// waits: the 6th ends at 12, enters at 14; the 7th starts then, ends at 16, enters at 18; …
	opts := small(0.5)
	opts.Updates = 5
	r := run(t, opts, parts(newNaive(1, 8, true)))
	expect(t, "updates end", r.times(), []float64{6, 10, 14, 18, 22})
	expect(t, "groups arrive", r.arrivals(), []float64{2, 4, 6, 8, 10, 14, 18})
	// The worker is busy 0-12, 14-16, 18-20 and stalls 12-14, 16-18, 20-22.
	expect(t, "worker", r.last().Workers, []pipeline.Spent{{Busy: 16, Stalled: 6}})
	expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 20, Stalled: 2})
	expect(t, "clock-busy compute", r.last().ComputeBusy(), 36)
	expect(t, "all-GPU compute", r.last().ComputeAll(), 44)
}

func TestReplayNeitherStallsNorStarvesOnceFilled(t *testing.T) {
	for _, mu := range []float64{0.5, 2} {
		r := run(t, small(mu), parts(newNaive(1, 16, false)))
		last := r.last()
		expect(t, "trainer", last.Trainer, pipeline.Spent{Busy: 40, Stalled: 4 * mu})
		expect(t, "worker", last.Workers, []pipeline.Spent{{Busy: last.Time}})
	}
}

func TestRewardsArriveLateWhileTheWorkerGoesOn(t *testing.T) {
	// A group takes 8; group 0's rewards take 20, the others' 1. Group 0 arrives at 28, after group 1
	// at 17 and group 2 at 25. Updates run 17-21, 25-29 and, on group 0, 29-33.
	opts := small(2)
	opts.Updates = 3
	opts.RewardLatency = func(job uint64) float64 {
		if job == 0 {
			return 20
		}
		return 1
	}
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "groups arrive", r.arrivals(), []float64{17, 25, 28})
	expect(t, "first jobs", []uint64{r.inserts[0].Job, r.inserts[1].Job, r.inserts[2].Job}, []uint64{1, 2, 0})
	expect(t, "updates end", r.times(), []float64{21, 29, 33})
	expect(t, "worker", r.last().Workers, []pipeline.Spent{{Busy: 33}})
}

func TestAWorkerWithAGroupInLineFinishesTheOtherAndStalls(t *testing.T) {
	// mu = 1/2, latency 1, room for one group. Groups end at 2, 4, …, rewards at 3, 5, …. Draw at 3
	// (update 3-7), group 1 enters at 5, group 2 (rewards at 7) is refused at 7 before the draw
	// at 7 makes room. Group 3, ended at 8, is refused at 9, while the worker makes group 4 until 10. It
	// then stalls until the draw at 11 admits group 3; group 4's rewards come at 11 too, behind it in
	// line, so the worker goes on waiting until 15, when group 4 enters. It then works until 19: group
	// 5 is refused at 18, within group 6.
	opts := small(0.5)
	opts.Updates = 4
	opts.RewardLatency = func(uint64) float64 { return 1 }
	r := run(t, opts, parts(newNaive(1, 4, true)))
	expect(t, "updates end", r.times(), []float64{7, 11, 15, 19})
	expect(t, "groups arrive", r.arrivals(), []float64{3, 5, 7, 11, 15})
	expect(t, "worker", r.last().Workers, []pipeline.Spent{{Busy: 14, Stalled: 5}})
}

func TestWeightsTakeTheirTimeToReachWorkers(t *testing.T) {
	// mu = 1: groups and updates take 4. Group k starts at 4k; update k ends at 4k+8 as version k+1.
	// Without transfer time, group k takes version k-1 (published at 4(k-2)+8 = 4k). With 5, version v
	// (published at 4v+4) arrives at 4v+9, so group k takes the largest v with 4v+9 <= 4k: k-3.
	opts := small(1)
	opts.Updates = 6
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "versions at once", r.versions()[:6], []rollout.Version{0, 0, 1, 2, 3, 4})
	opts.WeightTransfer = 5
	r = run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "versions after 5", r.versions()[:6], []rollout.Version{0, 0, 0, 0, 1, 2})
}

func TestOnlyEveryThirdVersionReachesWorkers(t *testing.T) {
	opts := small(1)
	opts.Updates = 9
	opts.PublishEvery = 3
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "versions", r.versions()[:9], []rollout.Version{0, 0, 0, 0, 3, 3, 3, 6, 6})
}

func TestTokensBearTheVersionsOfTheirChunks(t *testing.T) {
	// mu = 3: a group takes 12 in chunks of 2 of 8 positions: boundaries 3, 6, 9, 12. The buffer has a
	// batch at 12, updates end at 16, 20, 24, … as versions 1, 2, 3, …. Group 1 decodes 12-24: chunks
	// start at 12, 15, 18, 21 with versions 0, 0, 1, 2. Group 2 at 24, 27, 30, 33: versions 3, 3, 4, 5.
	opts := small(3)
	opts.WeightSync, opts.Chunk, opts.MaxTokens = pipeline.ByToken, 2, 8
	r := run(t, opts, parts(newNaive(1, 100, false)))
	expect(t, "group 0", r.inserts[0].Rollouts[0].Versions, []rollout.Version{0, 0, 0, 0, 0, 0, 0, 0})
	expect(t, "group 1", r.inserts[1].Rollouts[3].Versions, []rollout.Version{0, 0, 0, 0, 1, 1, 2, 2})
	expect(t, "group 2", r.inserts[2].Rollouts[0].Versions, []rollout.Version{3, 3, 3, 3, 4, 4, 5, 5})
}

func TestAGroupThatFinishesEarlyCostsItsTimeAllTheSame(t *testing.T) {
	opts := small(3)
	opts.WeightSync, opts.Chunk, opts.MaxTokens = pipeline.ByToken, 2, 64
	r := run(t, opts, parts(newNaive(1, 100, false))) // completions of 8
	expect(t, "groups arrive", r.arrivals()[:3], []float64{12, 24, 36})
}

func TestSynchronousModeTakesTurns(t *testing.T) {
	// W = 2, G = 4, mu = 1: a group takes 4. Turns of R = 12 (3 groups: 8 time units, the second worker
	// is idle for the last 4) and 2 updates of B/T = 4. Weights need 1 to arrive: a cycle takes 17.
	opts := pipeline.Options{
		Workers: 2, Trainers: 2, Batch: 8, Group: 4, RolloutCost: 1, Mode: pipeline.Sync,
		SyncRollouts: 12, SyncUpdates: 2, WeightTransfer: 1, Updates: 4,
	}
	r := run(t, opts, parts(newNaive(2, 12, false)))
	expect(t, "groups arrive", r.arrivals(), []float64{4, 4, 8, 21, 21, 25})
	expect(t, "updates end", r.times(), []float64{12, 16, 29, 33})
	expect(t, "versions", r.versions(), []rollout.Version{0, 0, 0, 2, 2, 2})
	expect(t, "trainers", r.last().Trainer, pipeline.Spent{Busy: 16, Idle: 17})
	expect(t, "workers", r.last().Workers, []pipeline.Spent{{Busy: 16, Idle: 17}, {Busy: 8, Idle: 25}})
	expect(t, "workers at 12", slices.Concat(r.updates[0].Workers), []pipeline.Spent{{Busy: 8, Idle: 4}, {Busy: 4, Idle: 8}})
}

package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
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
	drops   []pipeline.Insertion
}

func (r *record) hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnInsert: func(in pipeline.Insertion) { r.inserts = append(r.inserts, in) },
		OnDrop:   func(in pipeline.Insertion) { r.drops = append(r.drops, in) },
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
	expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 16, Stalled: 20})
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: 36}})
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
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: 16, Stalled: 6}})
	expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 20, Stalled: 2})
	expect(t, "clock-busy compute", r.last().ComputeBusy(), 36)
	expect(t, "all-GPU compute", r.last().ComputeAll(), 44)
}

func TestReplayNeitherStallsNorStarvesOnceFilled(t *testing.T) {
	for _, mu := range []float64{0.5, 2} {
		r := run(t, small(mu), parts(newNaive(1, 16, false)))
		last := r.last()
		expect(t, "trainer", last.Trainer, pipeline.GPUTime{Busy: 40, Stalled: 4 * mu})
		expect(t, "worker", last.Workers, []pipeline.GPUTime{{Busy: last.Time}})
	}
}

func TestWorkersContinueWhileRewardsAreLate(t *testing.T) {
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
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: 33}})
}

func TestAWorkerWithAWaitingGroupFinishesItsJobAndStalls(t *testing.T) {
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
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: 14, Stalled: 5}})
}

func TestWeightsReachWorkersAfterTheTransferTime(t *testing.T) {
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

func TestForwardPassesLengthenTheUpdatesThatTheyPrecede(t *testing.T) {
	// mu = 1: group k arrives at 4(k+1). Updates take 4, with a forward pass of half an update 6.
	opts := small(1)
	opts.Updates, opts.BatchUpdates, opts.ForwardCost = 6, 3, new(0.5)
	for passes, want := range map[int][]float64{
		0: {8, 12, 16, 20, 24, 28},
		1: {10, 14, 18, 24, 28, 32},
		2: {10, 16, 20, 26, 32, 36},
		3: {10, 16, 22, 28, 34, 40},
	} {
		opts.ForwardPasses = passes
		r := run(t, opts, parts(newNaive(1, 100, true)))
		expect(t, fmt.Sprint("updates end with ", passes), r.times(), want)
		expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: want[5] - 4, Stalled: 4})
		// all GPUs were busy but for the trainer's wait for the first batch
		expect(t, "busy compute", r.last().ComputeBusy(), 2*want[5]-4)
		expect(t, "compute by formula", r.last().Compute, 6*8*(1+0.5*float64(passes)/3))
	}
}

func TestForwardPassesMakeRolloutsOfAQueueOlder(t *testing.T) {
	// mu = 1, a forward pass of half an update before each. Group k is made from 4k on and arrives at 4k+4. Update k+1
	// trains on it. Without passes it ends at 4k+8 and group k has version k-1: staleness 1. With them it ends at
	// 6k+10, so that the groups from 0, 4, 8, 12, 16, 20 have versions 0, 0, 0, 1, 2, 2.
	opts := small(1)
	opts.Updates, opts.ForwardCost = 6, new(0.5)
	for passes, want := range map[int][]int32{0: {0, 1, 1, 1, 1, 1}, 1: {0, 1, 2, 2, 2, 3}} {
		opts.ForwardPasses = passes
		r := run(t, opts, parts(newTable(t, replay.Options{Capacity: 400, Sampler: replay.FIFO})))
		var stale []int32
		for _, u := range r.updates {
			stale = append(stale, u.StalenessMax)
		}
		expect(t, fmt.Sprint("staleness with ", passes), stale, want)
	}
}

func TestOnlyEveryThirdVersionReachesWorkers(t *testing.T) {
	opts := small(1)
	opts.Updates = 9
	opts.PublishEvery = 3
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "versions", r.versions()[:9], []rollout.Version{0, 0, 0, 0, 3, 3, 3, 6, 6})
}

func TestTokensHaveTheVersionsOfTheirChunks(t *testing.T) {
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

func TestAGroupThatFinishesEarlyStillTakesItsTime(t *testing.T) {
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
	expect(t, "trainers", r.last().Trainer, pipeline.GPUTime{Busy: 16, Idle: 17})
	expect(t, "workers", r.last().Workers, []pipeline.GPUTime{{Busy: 16, Idle: 17}, {Busy: 8, Idle: 25}})
	expect(t, "workers at 12", slices.Concat(r.updates[0].Workers),
		[]pipeline.GPUTime{{Busy: 8, Idle: 4}, {Busy: 4, Idle: 8}})
}

func TestGroupsEnterOutOfOrderWithinAWindowOnly(t *testing.T) {
	// Worker 0 makes job 0 until 12, worker 1 jobs 1 to 4 until 3, 6, 9 and 12.
	opts := small(1)
	opts.Workers, opts.Updates = 2, 4
	opts.GroupTiming = func(job uint64, _ int) pipeline.Timing {
		if job == 0 {
			return pipeline.Timing{Worker: 12}
		}
		return pipeline.Timing{Worker: 3}
	}
	for window, want := range map[int]string{
		0: "[1 2 3 0 4] at [3 6 9 12 12]", 1: "[0 1 2 3 4] at [12 12 12 12 12]", 2: "[1 0 2 3 4] at [3 12 12 12 12]",
		3: "[1 2 0 3 4] at [3 6 12 12 12]", 4: "[1 2 3 0 4] at [3 6 9 12 12]",
	} {
		opts.Window = window
		r := run(t, opts, parts(newNaive(1, 100, true)))
		expect(t, fmt.Sprint("groups with a window of ", window),
			fmt.Sprint(jobs(r.inserts[:5]), " at ", r.arrivals()[:5]), want)
	}
}

func TestGroupTimingSetsTheTimeOfEachGroup(t *testing.T) {
	// Two workers, an update takes 4. Job 0 takes worker 0 the time 8, job 1 worker 1 twice as long as its 3, and so
	// on: worker 1 is slow. Worker 0: job 0 to 8, job 3 (4) to 12, then job 5; worker 1: job 1 (2 x 3) to 6, job 2 (2 x
	// 2) to 10, job 4 (2 x 5) to 20.
	opts := small(1)
	opts.Workers, opts.Updates = 2, 4
	lasts := []float64{8, 3, 2, 4, 5, 50, 50, 50}
	opts.GroupTiming = func(job uint64, worker int) pipeline.Timing {
		return pipeline.Timing{Worker: lasts[job] * float64(1+worker)}
	}
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "groups arrive", r.arrivals()[:5], []float64{6, 8, 10, 12, 20})
	var jobs []uint64
	for _, in := range r.inserts[:5] {
		jobs = append(jobs, in.Job)
	}
	expect(t, "jobs", jobs, []uint64{1, 0, 2, 3, 4})
	expect(t, "updates end", r.times(), []float64{10, 14, 18, 22})
}

func TestATailDelaysTheGroupAndNotItsWorker(t *testing.T) {
	// A group takes its worker 8, and job 0's last rollout ends 20 later, on top of which its rewards take 1. Jobs 1
	// and 2, at 16 and 24, have no tail, and arrive before it.
	opts := small(2)
	opts.Updates = 3
	opts.RewardLatency = func(uint64) float64 { return 1 }
	opts.GroupTiming = func(job uint64, _ int) pipeline.Timing {
		if job == 0 {
			return pipeline.Timing{Worker: 8, Tail: 20}
		}
		return pipeline.Timing{Worker: 8}
	}
	r := run(t, opts, parts(newNaive(1, 100, true)))
	expect(t, "groups arrive", r.arrivals(), []float64{17, 25, 29})
	expect(t, "first jobs", []uint64{r.inserts[0].Job, r.inserts[1].Job, r.inserts[2].Job}, []uint64{1, 2, 0})
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: r.last().Time}})
}

func TestChunksDivideTheTimeOfTheirGroup(t *testing.T) {
	// Chunks of 2 of 8 positions; updates take 4 from the first group on. Job 0 takes 12, job 1, from 12, takes 24: its
	// chunks begin at 12, 18, 24, 30, when versions 0, 1 (at 16), 3 (at 24) and 4 (at 28) are the newest.
	opts := small(3)
	opts.WeightSync, opts.Chunk, opts.MaxTokens = pipeline.ByToken, 2, 8
	opts.GroupTiming = func(job uint64, _ int) pipeline.Timing { return pipeline.Timing{Worker: 12 * float64(1+job)} }
	r := run(t, opts, parts(newNaive(1, 100, false)))
	expect(t, "groups arrive", r.arrivals(), []float64{12, 36})
	expect(t, "group 1", r.inserts[1].Rollouts[0].Versions, []rollout.Version{0, 0, 1, 1, 3, 3, 4, 4})
}

func TestATimingOfTheMeanIsTheCostModel(t *testing.T) {
	tests.OneGoroutine(t)
	for seed := range uint64(tests.Count(40, 10)) {
		s := randomSetup(seed)
		s.opts.GroupTiming = nil
		want := s.run(t, nil)
		mean := float64(s.opts.Group) * s.opts.RolloutCost
		s.opts.GroupTiming = func(uint64, int) pipeline.Timing { return pipeline.Timing{Worker: mean} }
		same(t, seed, s.run(t, nil), want)
	}
}

func TestAnInvalidTimingFailsTheRun(t *testing.T) {
	for want, timing := range map[string]pipeline.Timing{
		"time of job 2 on worker 0: 0: want a finite number above 0":     {},
		"time of job 2 on worker 0: NaN: want a finite number above 0":   {Worker: math.NaN()},
		"time of job 2 on worker 0: +Inf: want a finite number above 0":  {Worker: math.Inf(1)},
		"tail of job 2 on worker 0: -1: want a finite number, 0 or more": {Worker: 1, Tail: -1},
	} {
		opts := small(1)
		opts.GroupTiming = func(job uint64, _ int) pipeline.Timing {
			if job == 2 {
				return timing
			}
			return pipeline.Timing{Worker: 4}
		}
		m, err := pipeline.New(opts, parts(newNaive(1, 100, true)), pipeline.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run ended with %v, want %q", err, want)
		}
	}
	s := setup{seed: 7, opts: small(1)}
	state := s.interruptedState(t, 2)
	s.opts.GroupTiming = func(uint64, int) pipeline.Timing { return pipeline.Timing{Worker: -1} }
	weights := map[rollout.Version]pipeline.Weights{}
	for _, v := range state.Versions() {
		weights[v] = pipeline.Weights{Version: v}
	}
	learner := parts(nil).Learner
	for range 2 {
		if _, err := learner.Step(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pipeline.Resume(s.opts, s.parts(s.buffer(), learner, nil), pipeline.Hooks{}, state,
		weights); err == nil || !strings.Contains(err.Error(), "on worker 0: -1") {
		t.Errorf("resumed with %v", err)
	}
}

func TestTrainersWaitForWeightsWhereTooManyUpdatesAreInFlight(t *testing.T) {
	// The buffer has a batch from 4 on and an update takes 4; weights travel 6. With one update in flight each waits
	// for the transfer of the last: a cycle of 10. With two, update k begins when that of k-2 has arrived and k-1 has
	// ended: 4-8, 8-12, and the third not before 8+6 = 14, 14-18, the fourth not before 12+6 = 18, the fifth not before
	// 18+6 = 24, … With three nobody waits.
	for _, c := range []struct {
		inFlight int
		ends     []float64
		stalled  float64
	}{
		{1, []float64{8, 18, 28, 38, 48, 58}, 4 + 5*6},
		{2, []float64{8, 12, 18, 22, 28, 32}, 4 + 2 + 2},
		{3, []float64{8, 12, 16, 20, 24, 28}, 4},
		{0, []float64{8, 12, 16, 20, 24, 28}, 4},
	} {
		opts := small(1)
		opts.Updates, opts.WeightTransfer, opts.UpdatesInFlight = 6, 6, c.inFlight
		r := run(t, opts, parts(newNaive(1, 16, false)))
		expect(t, "updates end", r.times(), c.ends)
		expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 24, Stalled: c.stalled})
	}
}

func TestUpdatesInFlightIsNoLimitIfWeightsArriveAtOnce(t *testing.T) {
	for seed := range uint64(40) {
		s := randomSetup(seed)
		s.opts.WeightTransfer, s.opts.UpdatesInFlight = 0, 0
		want := s.run(t, nil)
		s.opts.UpdatesInFlight = 1
		got := s.run(t, nil)
		got.state = want.state // before the last weights have arrived: they are waited for in the one alone
		same(t, seed, got, want)
	}
}

func TestUpdatesThatAreNotPublishedAreNotWaitedFor(t *testing.T) {
	// Every second version travels, for 6: updates 3, 5, … wait for it, updates 2, 4, … do not.
	opts := small(1)
	opts.Updates, opts.WeightTransfer, opts.UpdatesInFlight, opts.PublishEvery = 6, 6, 1, 2
	r := run(t, opts, parts(newNaive(1, 16, false)))
	expect(t, "updates end", r.times(), []float64{8, 12, 22, 26, 36, 40})
}

func TestTrainersInTheirTurnWaitForWeightsToo(t *testing.T) {
	// A turn is a group (4) and two updates of 4, and weights travel 6: 4-8, wait to 14, 14-18, and the workers wait
	// until 24.
	opts := small(1)
	opts.Mode, opts.SyncRollouts, opts.SyncUpdates = pipeline.Sync, 4, 2
	opts.Updates, opts.WeightTransfer, opts.UpdatesInFlight = 4, 6, 1
	r := run(t, opts, parts(newNaive(1, 16, false)))
	expect(t, "updates end", r.times(), []float64{8, 18, 32, 42})
	expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 16, Stalled: 12, Idle: 14})
}

func newTable(t testing.TB, o replay.Options) *replay.Table {
	t.Helper()
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestScheduleOfEightGPUsKeepsToTheMethods(t *testing.T) {
	tests.Long(t)
	// B = 240, G = 16, mu = 6.84 (Qwen3-0.6B in [ER]), FIFO of N = 1008, 1,000 updates. The replay ratio
	// is uses/insertions over the whole run, the filling of the buffer included; the greatest staleness
	// is that of any use in the run.
	const capacity, mu = 1008, 6.84
	for _, gpus := range [][2]int{{6, 2}, {5, 3}, {4, 4}} {
		for _, sampler := range []replay.Sampler{replay.Uniform, replay.Distinct} {
			opts := pipeline.Options{
				Workers: gpus[0], Trainers: gpus[1], Batch: 240, Group: 16, RolloutCost: mu, Updates: 1000,
			}
			table := newTable(t, replay.Options{Capacity: capacity, Sampler: sampler, Shards: opts.Trainers, Seed: 1})
			r := run(t, opts, parts(table))
			w, tr := float64(opts.Workers), float64(opts.Trainers)
			last := r.last()

			expected := mu * tr / w
			if ratio := last.ReplayRatio(); math.Abs(ratio/expected-1) > 0.05 {
				t.Errorf("%v %s: replay ratio is %.3f, want %.3f within 5%%", gpus, sampler, ratio, expected)
			}
			greatest := 0.0
			for _, u := range r.updates {
				greatest = max(greatest, float64(u.StalenessMax))
			}
			perUpdate, generation := 240*w/tr/mu, 16*mu*tr/240 // R, D
			horizon := capacity / perUpdate
			if greatest < horizon || greatest > horizon+2*generation+1 {
				t.Errorf("%v %s: greatest staleness is %g, want %.2f to %.2f", gpus, sampler, greatest, horizon,
					horizon+2*generation+1)
			}
			if g := last.Compute / (1000 * 240 * (1 + mu)); math.Abs(g-(1+w/tr)/(1+mu)) > 1e-12 {
				t.Errorf("%v %s: gamma is %.4f, want %.4f", gpus, sampler, g, (1+w/tr)/(1+mu))
			}
			if est := last.RolloutCost(); math.Abs(est/mu-1) > 0.05 {
				t.Errorf("%v %s: mu is estimated at %.3f, want %.2f within 5%%", gpus, sampler, est, mu)
			}
			stats := statsOf(table)
			if stats.Inserted != last.Inserted || stats.Acknowledged != last.Used ||
				float64(stats.Staleness.Max()) != greatest {
				t.Errorf("%v %s: the table counts %d inserted, %d uses, staleness %d; the pipeline %d, %d, %g",
					gpus, sampler,
					stats.Inserted, stats.Acknowledged, stats.Staleness.Max(), last.Inserted, last.Used, greatest)
			}
			t.Logf("%v %-8s replay ratio %.3f (expected %.3f), greatest staleness %g (%.2f to %.2f), gamma %.3f, mu "+
				"estimate %.3f, trainers stalled %.2f%%",
				gpus, sampler, last.ReplayRatio(), expected, greatest, horizon, horizon+2*generation+1,
				(1+w/tr)/(1+mu), last.RolloutCost(), 100*last.Trainer.Stalled/last.Time)
		}
	}
}

func TestAQueueTableMakesWhoeverIsFasterStall(t *testing.T) {
	tests.Long(t)
	// Without replay, mu = 6.84: with W/T = 6 workers fall short of what trainers take (W/T < mu), with 8
	// they exceed it. The queue holds 2B.
	for _, c := range []struct{ workers, trainers int }{{6, 1}, {8, 1}} {
		for _, sampler := range []replay.Sampler{replay.FIFO, replay.LIFO} {
			opts := pipeline.Options{Workers: c.workers, Trainers: c.trainers, Batch: 240, Group: 16, RolloutCost: 6.84,
				Updates: 400}
			r := run(t, opts, parts(newTable(t, replay.Options{Capacity: 480, Sampler: sampler, Shards: c.trainers})))
			last := r.last()
			var busy, stalled float64
			for _, w := range last.Workers {
				busy += w.Busy / last.Time / float64(c.workers)
				stalled += w.Stalled / last.Time / float64(c.workers)
			}
			trainer := last.Trainer.Busy / last.Time
			// The slower side is always busy, the faster its share: trainers (W/T)/mu, workers mu T/W.
			ratio := float64(c.workers) / float64(c.trainers) / 6.84
			wantTrainer, wantWorker := min(1, ratio), min(1, 1/ratio)
			if math.Abs(trainer-wantTrainer) > 0.02 || math.Abs(busy-wantWorker) > 0.02 ||
				math.Abs(busy+stalled-1) > 1e-9 {
				t.Errorf("%+v %s: trainers busy %.3f, want %.3f; workers busy %.3f, want %.3f, stalled %.3f",
					c, sampler, trainer, wantTrainer, busy, wantWorker, stalled)
			}
		}
	}
}

func TestAnInterruptedRunOnATableEndsInTheSameTable(t *testing.T) {
	for _, sampler := range replay.Samplers() {
		opts := pipeline.Options{
			Workers: 3, Trainers: 2, Batch: 24, Group: 4, RolloutCost: 2.5, Updates: 60, WeightTransfer: 3,
			WeightSync: pipeline.ByToken, Chunk: 3, MaxTokens: 8,
			RewardLatency: func(job uint64) float64 { return float64(job * 7 % 5) },
		}
		o := replay.Options{Capacity: 64, Sampler: sampler, Shards: 2, Seed: 3}
		if !sampler.Consumes() {
			opts.Mix = 2 // a queue has nothing to replay
		}
		whole, wholeTable := playTable(t, opts, o, 0)
		parted, partedTable := playTable(t, opts, o, 23)
		if got, want := fmt.Sprintf("%+v", parted), fmt.Sprintf("%+v", whole); got != want {
			t.Errorf("%s: records differ after the interruption", sampler)
		}
		if got, want := statsOf(partedTable), statsOf(wholeTable); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: tables differ at the end:\n got %+v\nwant %+v", sampler, got, want)
		}
		var got, want bytes.Buffer
		if err := partedTable.Snapshot(&got); err != nil {
			t.Fatal(err)
		}
		if err := wholeTable.Snapshot(&want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: snapshots of the tables differ", sampler)
		}
	}
}

// playTable runs on a table, interrupted after an update where kill is above 0.
func playTable(t *testing.T, opts pipeline.Options, o replay.Options, kill int) ([]pipeline.Update, *replay.Table) {
	t.Helper()
	var r record
	hooks := r.hooks()
	observe := hooks.OnUpdate
	hooks.OnUpdate = func(m *pipeline.Machine, u pipeline.Update) error {
		if int(u.Version) == kill {
			m.Stop()
		}
		return observe(m, u)
	}
	table := newTable(t, o)
	m, err := pipeline.New(opts, parts(table), hooks)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if kill == 0 {
		return r.updates, table
	}
	state, weights, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := table.Snapshot(&saved); err != nil {
		t.Fatal(err)
	}
	table = newTable(t, o)
	if err := table.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	p := parts(table)
	p.Learner = &sim.Learner{Version: state.Version}
	if m, err = pipeline.Resume(opts, p, hooks, state, weights); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r.updates, table
}

// statsOf returns a table's statistics.
func statsOf(table *replay.Table) rollout.Stats {
	stats, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats
}

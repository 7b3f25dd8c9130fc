package pipeline_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

func TestGroupsTakeTheTimeThatTheirTimingSays(t *testing.T) {
	// Two workers, an update takes 4. Job 0 takes worker 0 the time 8, job 1 worker 1 twice as long as its 3, and so on: worker 1 is
	// slow. Worker 0: job 0 to 8, job 3 (4) to 12, then job 5; worker 1: job 1 (2 x 3) to 6, job 2 (2 x 2) to 10, job 4 (2 x 5) to 20.
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
	// A group takes its worker 8, and job 0's last rollout ends 20 later, on top of which its rewards take 1. Jobs 1 and 2, at 16 and 24,
	// have no tail, and arrive before it.
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
	expect(t, "worker", r.last().Workers, []pipeline.Spent{{Busy: r.last().Time}})
}

func TestChunksDivideTheTimeOfTheirGroup(t *testing.T) {
	// Chunks of 2 of 8 positions; updates take 4 from the first group on. Job 0 takes 12, job 1, from 12, takes 24: its chunks begin at 12,
	// 18, 24, 30, when versions 0, 1 (at 16), 3 (at 24) and 4 (at 28) are the newest.
	opts := small(3)
	opts.WeightSync, opts.Chunk, opts.MaxTokens = pipeline.ByToken, 2, 8
	opts.GroupTiming = func(job uint64, _ int) pipeline.Timing { return pipeline.Timing{Worker: 12 * float64(1+job)} }
	r := run(t, opts, parts(newNaive(1, 100, false)))
	expect(t, "groups arrive", r.arrivals(), []float64{12, 36})
	expect(t, "group 1", r.inserts[1].Rollouts[0].Versions, []rollout.Version{0, 0, 1, 1, 3, 3, 4, 4})
}

func TestATimingOfTheMeanIsTheCostModel(t *testing.T) {
	for seed := range uint64(40) {
		s := randomSetup(seed)
		s.opts.GroupTiming = nil
		want := s.run(t, nil)
		mean := s.opts.GroupTime()
		s.opts.GroupTiming = func(uint64, int) pipeline.Timing { return pipeline.Timing{Worker: mean} }
		same(t, seed, s.run(t, nil), want)
	}
}

func TestATimingThatNoGroupCanHaveFailsTheRun(t *testing.T) {
	for want, timing := range map[string]pipeline.Timing{
		"job 2 takes worker 0 the time 0: must be finite and above 0":       {},
		"job 2 takes worker 0 the time NaN: must be finite and above 0":     {Worker: math.NaN()},
		"job 2 takes worker 0 the time +Inf: must be finite and above 0":    {Worker: math.Inf(1)},
		"job 2 has a tail of -1 on worker 0: must be finite and at least 0": {Worker: 1, Tail: -1},
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
	if _, err := pipeline.Resume(s.opts, s.parts(s.buffer(), learner, nil), pipeline.Hooks{}, state, weights); err == nil || !strings.Contains(err.Error(), "the time -1") {
		t.Errorf("resumed with %v", err)
	}
}

func TestTrainersWaitForWeightsWhereTooManyUpdatesAreInFlight(t *testing.T) {
	// The buffer has a batch from 4 on and an update takes 4; weights travel 6. With one update in flight each waits for the transfer of
	// the last: a cycle of 10. With two, update k begins when that of k-2 has arrived and k-1 has ended: 4-8, 8-12, and the third not
	// before 8+6 = 14, 14-18, the fourth not before 12+6 = 18, the fifth not before 18+6 = 24, … With three nobody waits.
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
		expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 24, Stalled: c.stalled})
	}
}

func TestALimitToUpdatesInFlightIsNoneWhereWeightsArriveAtOnce(t *testing.T) {
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
	// A turn is a group (4) and two updates of 4, and weights travel 6: 4-8, wait to 14, 14-18, and the workers wait until 24.
	opts := small(1)
	opts.Mode, opts.SyncRollouts, opts.SyncUpdates = pipeline.Sync, 4, 2
	opts.Updates, opts.WeightTransfer, opts.UpdatesInFlight = 4, 6, 1
	r := run(t, opts, parts(newNaive(1, 16, false)))
	expect(t, "updates end", r.times(), []float64{8, 18, 32, 42})
	expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 16, Stalled: 12, Idle: 14})
}

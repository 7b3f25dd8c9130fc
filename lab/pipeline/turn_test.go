package pipeline_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// parking is turns of one group of 4 with two under way, in chunks of 2 of 8 positions, on two workers. An update takes
// 4, and job n the n-th time.
func parking(times ...float64) pipeline.Options {
	return pipeline.Options{Workers: 2, Trainers: 1, Batch: 4, Group: 4, RolloutCost: 1, Mode: pipeline.Sync,
		OverProvision: 1, WeightSync: pipeline.ByToken, Chunk: 2, MaxTokens: 8, Updates: 3,
		GroupTiming: func(job uint64, _ int) pipeline.Timing {
			return pipeline.Timing{Worker: times[min(int(job), len(times)-1)]}
		}}
}

func TestATurnParksWhatIsNotFinishedAndTheNextResumesIt(t *testing.T) {
	// Turn 1, to 4, when job 1 is in: job 0 has decoded 4 of its 12, a chunk and a third of the next. The update takes to
	// 8. Turn 2, to 12, when job 2 is in: job 0 ends its second chunk at 10, with the weights it began it with, and
	// begins the third with version 1, of which it decodes two thirds. Turn 3 begins at 16: the third chunk ends at 17
	// and the fourth, with version 2, at 20.
	r := run(t, parking(12, 4, 4, 8), parts(newNaive(1, 100, true)))
	expect(t, "jobs", jobs(r.inserts), []uint64{1, 2, 0})
	expect(t, "groups arrive", r.arrivals(), []float64{4, 12, 20})
	expect(t, "updates end", r.times(), []float64{8, 16, 24})
	expect(t, "versions of job 0", r.inserts[2].Rollouts[3].Versions, []rollout.Version{0, 0, 0, 0, 1, 1, 2, 2})
	// Job 0 cost its 12, in three pieces; job 3 has cost 4 of its 8.
	expect(t, "workers", r.last().Workers, []pipeline.GPUTime{{Busy: 12, Idle: 12}, {Busy: 12, Idle: 12}})
	expect(t, "compute", r.last().Compute, 24.0+12)
	var parked, resumed []int
	for _, u := range r.updates {
		parked, resumed = append(parked, u.Parked), append(resumed, u.Resumed)
	}
	expect(t, "parked", parked, []int{1, 1, 1})
	expect(t, "resumed", resumed, []int{0, 1, 1})

	without := parking(12, 4, 4, 8)
	without.OverProvision = 0
	r = run(t, without, parts(newNaive(1, 100, true)))
	expect(t, "updates end without", r.times(), []float64{16, 24, 32})
}

func TestWhicheverWorkerIsFreeResumesAGroup(t *testing.T) {
	// Worker 1 takes twice as long. Job 1 has decoded 4 of its 24 there when job 0 is in, at 4; worker 0 takes it up at
	// 8, and has 5/6 of 12 left: to 18, if worker 1 does not have job 2, which takes it 16, in before.
	o := parking(4, 12, 8)
	times := o.GroupTiming
	o.GroupTiming = func(job uint64, worker int) pipeline.Timing {
		return pipeline.Timing{Worker: times(job, worker).Worker * float64(1+worker)}
	}
	o.Updates = 2
	r := run(t, o, parts(newNaive(1, 100, true)))
	expect(t, "jobs", jobs(r.inserts), []uint64{0, 1})
	expect(t, "worker of job 1", r.inserts[1].Worker, 0)
	expect(t, "groups arrive", r.arrivals(), []float64{4, 18})
}

func TestARolloutThatHasSpentItsBudgetMakesWayForOthers(t *testing.T) {
	// One worker, jobs of 8, a budget of half of one. Jobs 0 and 1 are parked at 4 and 8. There is nothing else to begin,
	// so job 0 goes on, to 12. The update takes to 16, when job 1 is resumed with version 1; it is in at 20.
	o := parking(8)
	o.Workers, o.TokenBudget, o.Updates = 1, 4, 2
	r := run(t, o, parts(newNaive(1, 100, true)))
	expect(t, "jobs", jobs(r.inserts), []uint64{0, 1})
	expect(t, "groups arrive", r.arrivals(), []float64{12, 20})
	expect(t, "versions of job 1", r.inserts[1].Rollouts[0].Versions, []rollout.Version{0, 0, 0, 0, 1, 1, 1, 1})
	expect(t, "worker", r.last().Workers, []pipeline.GPUTime{{Busy: 16, Idle: 8}})
}

func TestNothingIsGeneratedInTheTrainersTurn(t *testing.T) {
	// Job 0 keeps its worker to 2 and its longest rollout ends at 10: at 6, when job 1 is in, 4 of that are left, and 3
	// until its reward. The update takes to 10, and job 0 is in at 17. Job 2, whose tail is over at 6 but whose reward is
	// not known before 9, enters at the beginning of the next turn.
	o := parking(2)
	o.SyncRollouts, o.OverProvision, o.Batch, o.Updates, o.Workers = 4, 2, 4, 3, 3
	o.GroupTiming = func(job uint64, _ int) pipeline.Timing {
		return []pipeline.Timing{{Worker: 2, Tail: 8}, {Worker: 3}, {Worker: 6}, {Worker: 100}}[min(job, 3)]
	}
	o.RewardLatency = func(uint64) float64 { return 3 }
	r := run(t, o, parts(newNaive(1, 100, true)))
	expect(t, "jobs", jobs(r.inserts), []uint64{1, 2, 0})
	expect(t, "groups arrive", r.arrivals(), []float64{6, 10, 14 + 7})
	expect(t, "updates end", r.times(), []float64{10, 14, 25})
}

func TestParkedWorkCostsWhatItDecodedAndNothingTwice(t *testing.T) {
	pieces := 0
	for seed := range uint64(tests.Count(60, 20)) {
		r := rollout.Stream(seed, "test/parked", 0)
		times := make([]float64, 4000)
		for i := range times {
			times[i] = 0.1 + 10*r.ExpFloat64()
		}
		o := parking(times...)
		o.Workers, o.Updates, o.OverProvision = 1+r.IntN(6), 30, 0.1+3*r.Float64()
		o.SyncRollouts = o.Group * (1 + r.IntN(6))
		o.TokenBudget = pick(r, 0, 0, 2, 4, 6)
		s := setup{seed: seed, opts: o}
		out := s.run(t, nil)
		want := 0.0
		for _, in := range out.inserts {
			want += times[in.Job]
		}
		for _, g := range out.state.Groups {
			want += times[g.Job]
		}
		for _, p := range out.state.Parked {
			want += times[p.Job] * (p.Next - p.Left)
		}
		got := 0.0
		for _, w := range out.last().Workers {
			got += w.Busy
		}
		if math.Abs(got-want) > 1e-9*want {
			t.Errorf("seed %d: workers were busy for %.12g, what they decoded took %.12g", seed, got, want)
		}
		needed := o.SyncRollouts / o.Group
		if most := needed + int(math.Ceil(o.OverProvision*float64(needed))); len(out.state.Parked)+len(out.state.Groups) > most-needed {
			t.Errorf("seed %d: %d groups are parked and %d held, of at most %d begun for %d", seed, len(out.state.Parked),
				len(out.state.Groups), most, needed)
		}
		for _, u := range out.updates {
			pieces += u.Resumed
			if u.Inserted != uint64(u.Version)*uint64(o.SyncRollouts) {
				t.Fatalf("seed %d: %d rollouts after %d turns of %d", seed, u.Inserted, u.Version, o.SyncRollouts)
			}
		}
		for _, in := range out.inserts {
			for _, one := range in.Rollouts {
				if !slices.IsSorted(one.Versions[2:]) { // after the prompt
					t.Fatalf("seed %d: job %d was decoded with versions %v", seed, in.Job, one.Versions)
				}
			}
		}
	}
	if pieces < 500 {
		t.Errorf("%d groups were resumed: the test shows little", pieces)
	}
}

func TestParkingIsRefusedWhereItCannotWork(t *testing.T) {
	for want, change := range map[string]func(*pipeline.Options){
		"over_provision: 1: want 0 with mode async, whose workers go on while trainers train, or mode sync": func(o *pipeline.Options) { o.Mode = pipeline.Async },
		"over_provision: 1: want 0 with weight_sync group, or weight_sync token":                            func(o *pipeline.Options) { o.WeightSync = pipeline.ByGroup },
		"over_provision: -1: want 0 (nothing is parked) to 100":                                             func(o *pipeline.Options) { o.OverProvision = -1 },
		"over_provision: NaN: want 0":                                                                       func(o *pipeline.Options) { o.OverProvision = math.NaN() },
		"token_budget: 3: want a multiple of chunk (2)":                                                     func(o *pipeline.Options) { o.TokenBudget = 3 },
		"token_budget: -2: want 0 (none) or more":                                                           func(o *pipeline.Options) { o.TokenBudget = -2 },
		"token_budget: 4: want 0 with over_provision 0, or over_provision above 0": func(o *pipeline.Options) {
			o.OverProvision, o.TokenBudget = 0, 4
		},
	} {
		o := parking(1)
		change(&o)
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", fmt.Sprint(err), want)
		}
	}
}

package pipeline_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// plainTask rewards the first response of every group with 1 and the others with 0, but with 0 alike for the dull
// prompts.
type plainTask struct {
	sim.Task
	dull func(prompt int) bool
}

func (p plainTask) Verify(of task.Prompt, response string) task.Verdict {
	n, err := strconv.Atoi(strings.TrimPrefix(of.ID, "sim-"))
	if err != nil || p.dull(n) || response != "0" {
		return task.Verdict{}
	}
	return task.Verdict{Reward: 1, Correct: true}
}

// numbered makes groups whose texts are "0", "1", and so on.
type numbered struct{ sim.Generator }

func (n *numbered) Start(job pipeline.Job) (pipeline.Generation, error) {
	g, err := n.Generator.Start(job)
	return numberedGeneration{g}, err
}

type numberedGeneration struct{ pipeline.Generation }

func (n numberedGeneration) Rollouts() ([]*rollout.Rollout, error) {
	rs, err := n.Generation.Rollouts()
	for i, r := range rs {
		r.Text = strconv.Itoa(i)
	}
	return rs, err
}

// filtering returns parts around a buffer, with groups of equal rewards for the dull prompts.
func filtering(b pipeline.Buffer, dull func(prompt int) bool) pipeline.Parts {
	return pipeline.Parts{Task: plainTask{dull: dull}, Buffer: b, Generator: &numbered{sim.Generator{Seed: 7}},
		Learner: &sim.Learner{}}
}

func jobs(ins []pipeline.Insertion) (list []uint64) {
	for _, in := range ins {
		list = append(list, in.Job)
	}
	return list
}

func TestATurnGeneratesUntilItIsFullOfGroupsWithSignal(t *testing.T) {
	// Two workers, groups of 4 at mu = 1, turns of 3 groups. Jobs 0, 1 end at 4; 1 is dropped. Jobs 2, 3 end at 8; 2 is
	// dropped. Job 4, which only that drop started, ends at 12, with one worker idle from 8. The update takes 12.
	opts := pipeline.Options{Workers: 2, Trainers: 1, Batch: 12, Group: 4, RolloutCost: 1, Mode: pipeline.Sync,
		FilterGroups: true, Updates: 2}
	r := run(t, opts, filtering(newNaive(1, 12, true), func(p int) bool { return p == 1 || p == 2 }))
	expect(t, "inserted", jobs(r.inserts), []uint64{0, 3, 4, 5, 6, 7})
	expect(t, "dropped", jobs(r.drops), []uint64{1, 2})
	expect(t, "times", r.times(), []float64{24, 24 + 8 + 12})
	u := r.updates[0]
	expect(t, "rollouts dropped", u.Dropped, 8)
	expect(t, "groups dropped", u.DroppedGroups, 2)
	expect(t, "generated for each inserted", u.GeneratedPerInserted(), 20.0/12)
	expect(t, "reward of all that was generated", u.NewReward, 3.0/20)
	expect(t, "compute charges what was dropped", u.Compute, 20.0+12)
	expect(t, "mu counts what was dropped", u.RolloutCost(), 12.0/(20.0/2))
	expect(t, "groups dropped, second update", r.last().DroppedGroups, 0)
	expect(t, "compute, second update", r.last().Compute, 32.0+24)
	expect(t, "workers idle in the end", r.last().Workers[1].Idle, 4.0+12+4+12)

	plain := opts
	plain.FilterGroups, plain.UpdateCompute = false, opts.QueueCompute()
	p := run(t, plain, filtering(newNaive(1, 12, true), func(p int) bool { return p == 1 || p == 2 }))
	expect(t, "inserted without", jobs(p.inserts), []uint64{0, 1, 2, 3, 4, 5})
	expect(t, "compute by formula and by the clock agree without", p.last().Compute, p.last().ComputeBusy())
}

func TestADropWakesAWorkerThatIsIdle(t *testing.T) {
	// Rewards take 10: both workers are idle when those of the two groups of the turn are known, at 14.
	opts := pipeline.Options{Workers: 2, Trainers: 1, Batch: 8, Group: 4, RolloutCost: 1, Mode: pipeline.Sync,
		FilterGroups: true, Updates: 1, RewardLatency: func(uint64) float64 { return 10 }}
	r := run(t, opts, filtering(newNaive(1, 8, true), func(p int) bool { return p < 2 }))
	expect(t, "inserted", jobs(r.inserts), []uint64{2, 3})
	expect(t, "time", r.last().Time, 14.0+14+8)
}

func TestAnAsynchronousQueueHoldsGroupsWithSignalOnly(t *testing.T) {
	// mu = 1, one worker, every second group dropped: a batch of 4 is there every 8, and an update takes 4.
	opts := small(1)
	opts.FilterGroups = true
	r := run(t, opts, filtering(newNaive(1, 8, true), func(p int) bool { return p%2 == 0 }))
	expect(t, "times", r.times()[:3], []float64{12, 20, 28})
	expect(t, "dropped", jobs(r.drops)[:3], []uint64{0, 2, 4})
	expect(t, "compute of the first update: three groups and the update", r.updates[0].Compute, 12.0+4)
}

func TestABudgetCountsDroppedRollouts(t *testing.T) {
	opts := pipeline.Options{Workers: 2, Trainers: 1, Batch: 8, Group: 4, RolloutCost: 1, Mode: pipeline.Sync,
		ComputeBudget: 4 * 16, UpdateCompute: 16}
	dull := func(p int) bool { return p%2 == 0 }
	expect(t, "updates", len(run(t, opts, filtering(newNaive(1, 8, true), dull)).updates), 4)
	opts.FilterGroups = true // 24 each
	expect(t, "updates, filtered", len(run(t, opts, filtering(newNaive(1, 8, true), dull)).updates), 3)
}

func TestAPromptWhoseGroupIsDroppedIsReported(t *testing.T) {
	opts := small(1)
	opts.FilterGroups, opts.Updates = true, 2
	p := filtering(newNaive(1, 8, true), func(p int) bool { return p == 1 })
	seen := &reported{}
	p.Prompts = seen
	run(t, opts, p)
	expect(t, "prompts reported", seen.prompts[:3], []uint64{0, 1, 2})
}

// reported is Prompts in order that remember what was reported.
type reported struct{ prompts []uint64 }

func (r *reported) Choose(job uint64, _ rollout.Version) (uint64, bool) { return job, false }

func (r *reported) Report(_ rollout.Version, prompt uint64, _ bool, _ []*rollout.Rollout) error {
	r.prompts = append(r.prompts, prompt)
	return nil
}

func TestAFaultOfPromptsOnADroppedGroupEndsTheRun(t *testing.T) {
	opts := small(1)
	opts.FilterGroups = true
	p := filtering(newNaive(1, 8, true), func(int) bool { return true })
	p.Prompts = faultyPrompts{&faulty{where: "prompt report"}}
	m, err := pipeline.New(opts, p, pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); !errors.Is(err, errBroken) {
		t.Errorf("run ended with %v", err)
	}
}

func TestARunThatDropsTooMuchSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		mode      pipeline.Mode
		limit     int
		generated uint64 // groups, when the run ends
	}{{pipeline.Async, 0, 2 * 10}, {pipeline.Async, 3, 2 * 3}, {pipeline.Sync, 3, 2 * 3}} {
		// The first batch, of two groups, is filled at once; of the second only one group has signal.
		opts := pipeline.Options{Workers: 1, Trainers: 1, Batch: 8, Group: 4, RolloutCost: 1, Mode: c.mode, Updates: 9,
			FilterGroups: true, MaxGenBatches: c.limit}
		var r record
		m, err := pipeline.New(opts, filtering(newNaive(1, 16, true), func(p int) bool { return p > 2 }), r.hooks())
		if err != nil {
			t.Fatal(err)
		}
		err = m.Run(context.Background())
		if !errors.Is(err, pipeline.ErrStuck) || !strings.Contains(err.Error(), "a batch of 8, 4 are in groups") ||
			!strings.Contains(err.Error(), "raise pipeline.max_gen_batches ("+strconv.Itoa(int(c.generated/2))+")") {
			t.Errorf("%s: %v", c.mode, err)
		}
		if n := uint64(len(r.inserts) + len(r.drops)); n != 2+c.generated {
			t.Errorf("%s: ended after %d groups, want %d", c.mode, n, 2+c.generated)
		}
	}
}

func TestTheLimitBeginsAnewWithEachBatch(t *testing.T) {
	opts := small(1)
	opts.Batch, opts.FilterGroups, opts.MaxGenBatches, opts.Updates = 8, true, 3, 20
	r := run(t, opts, filtering(newNaive(1, 16, true), func(p int) bool { return p%5 < 3 })) // 4 to 5 groups for 2
	if n := r.last().GeneratedPerInserted(); math.Abs(n-2.5) > 0.1 {
		t.Errorf("%g rollouts generated for each inserted, want about 2.5", n)
	}
}

func TestFilteringIsRefusedWhereEqualRewardsTeach(t *testing.T) {
	valid := pipeline.Options{FilterGroups: true}
	for _, kind := range []advantage.Kind{advantage.Group, advantage.NoStd, advantage.LeaveOneOut, advantage.GroupBatch} {
		o := valid
		o.Advantage = kind
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for want, change := range map[string]func(*pipeline.Options){
		"filter_groups: true: want false with advantage batch": func(o *pipeline.Options) { o.Advantage = advantage.Batch },
		"filter_groups: true: want false with advantage gae":   func(o *pipeline.Options) { o.Advantage = advantage.Critic },
		"filter_groups: true: want false with group 1":         func(o *pipeline.Options) { o.Group = 1 },
		"max_gen_batches: -1: want 1":                          func(o *pipeline.Options) { o.MaxGenBatches = -1 },
	} {
		o := valid
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	_, err := pipeline.NewLive(pipeline.Options{Trainers: 1, FilterGroups: true}, pipeline.LiveParts{}, pipeline.LiveState{})
	if err == nil || !strings.Contains(err.Error(), "filter_groups: true: want false on the real clock") {
		t.Errorf("live: %v", err)
	}
}

package run

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
)

func TestAFilledBatchHasSignalAndIsChargedForWhatWasDropped(t *testing.T) {
	tests.Long(t)
	for name, set := range map[string][]string{
		"turns, queue":  {"pipeline.mode=sync", "replay.sampler=fifo", "replay.capacity=0"},
		"turns, replay": {"pipeline.mode=sync", "pipeline.sync_updates=2"},
		"queue":         {"replay.sampler=lifo", "replay.capacity=0"},
		"replay":        {"replay.sampler=distinct"},
		"steps":         {"replay.unit=step"},
	} {
		c := small(t, append([]string{"task.random_rewards=0.4", "pipeline.filter_groups=true", "budget.updates=0",
			"budget.compute=12"}, set...)...)
		dir := filepath.Join(t.TempDir(), "run")
		sum := train(t, c, dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		mu, dropped := c.Pipeline.RolloutCost, 0.0
		for _, u := range r.Updates {
			dropped += float64(c.Pipeline.Group) * u.DroppedGroups.Float()
			generated := float64(u.Inserted) + u.Dropped.Float()
			switch {
			case u.ZeroVariance.Float() != 0:
				t.Errorf("%s: update %d has zero variance in %v of its batch", name, u.Update, u.ZeroVariance)
			case u.Dropped.Float() != dropped || u.GeneratedPerInserted.Float() != generated/float64(u.Inserted):
				t.Errorf("%s: update %d has %v dropped, %v generated per inserted", name, u.Update, u.Dropped,
					u.GeneratedPerInserted)
			case u.Compute != u.ComputeBusy:
				t.Errorf("%s: update %d counts %g of compute, busy %g", name, u.Update, u.Compute, u.ComputeBusy)
			case c.Pipeline.Mode == pipeline.Sync &&
				math.Abs(u.Compute-float64(u.Update*c.Pipeline.Batch)-mu*generated) > 1e-9*u.Compute:
				t.Errorf("%s: update %d counts %g of compute for %g rollouts", name, u.Update, u.Compute, generated)
			}
		}
		unit, last := c.pipelineOptions().QueueCompute(), r.Updates[len(r.Updates)-1]
		if n := len(r.Updates); sum.Compute < 12*unit*(1-1e-9) || n < 2 || r.Updates[n-2].Compute >= 12*unit {
			t.Errorf("%s: ended at compute %g after %d updates, want the first above %g", name, sum.Compute, n, 12*unit)
		}
		if sum.BudgetUnit() != unit {
			t.Errorf("%s: the summary's unit of the budget is %g, the schedule's %g", name, sum.BudgetUnit(), unit)
		}
		if dropped == 0 || sum.Dropped != last.Dropped || sum.GeneratedPerInserted != last.GeneratedPerInserted ||
			math.Abs(sum.ComputeRatio*unit*float64(sum.Updates)-sum.Compute) > 1e-9*sum.Compute {
			t.Errorf("%s: dropped %g; the summary has %v, %v generated per inserted, compute ratio %g", name, dropped,
				sum.Dropped, sum.GeneratedPerInserted, sum.ComputeRatio)
		}
	}
}

func TestFilledBatchesCostNothingMoreWhereEveryGroupHasSignal(t *testing.T) {
	// Groups of 16 with random rewards of 0.5 have one reward for all once in 32,768 times.
	set := []string{"task.random_rewards=0.5", "pipeline.group=16", "pipeline.batch=32", "pipeline.mode=sync",
		"replay.sampler=fifo", "replay.capacity=0", "budget.updates=5"}
	plain := train(t, small(t, set...), filepath.Join(t.TempDir(), "plain"))
	filled := train(t, small(t, append(set, "pipeline.filter_groups=true")...), filepath.Join(t.TempDir(), "filled"))
	if filled.GeneratedPerInserted.Float() != 1 || math.Abs(filled.Compute-plain.Compute) > 1e-9*plain.Compute ||
		filled.Clock != plain.Clock || filled.Pass1Last != plain.Pass1Last {
		t.Errorf("filled: %g of compute at %g, %v generated per inserted; plain: %g at %g", filled.Compute, filled.Clock,
			filled.GeneratedPerInserted, plain.Compute, plain.Clock)
	}
	if plain.GeneratedPerInserted.Known() || plain.Dropped.Known() {
		t.Error("a run that drops nothing says how much it dropped")
	}
}

func TestFillingIsRefusedWhereItMeansNothing(t *testing.T) {
	for want, set := range map[string][]string{
		"pipeline.filter_groups: true: want false with learner.objective asymre": {"learner.objective=asymre"},
		"pipeline.filter_groups: true: want false with learner.objective raft":   {"learner.objective=raft"},
		"pipeline.filter_groups: true: want false with advantage gae":            {"learner.objective=ppo"},
		"pipeline.max_gen_batches: -2: want 1":                                   {"pipeline.max_gen_batches=-2"},
	} {
		_, err := Load("", append([]string{"pipeline.filter_groups=true"}, set...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	c := small(t, "pipeline.filter_groups=true", "pipeline.trainers=1")
	err := c.WithBuffer(Remote{Publish: t.TempDir()}).Validate()
	if err == nil || !strings.Contains(err.Error(), "pipeline.filter_groups: true: want false on the real clock") {
		t.Errorf("on the real clock: %v", err)
	}
}

func TestABatchThatCannotBeFilledEndsTheRun(t *testing.T) {
	c := small(t, "task.random_rewards=1e-9", "pipeline.filter_groups=true", "pipeline.max_gen_batches=2")
	_, err := Train(context.Background(), c, begin(t, c), filepath.Join(t.TempDir(), "run"), Hooks{})
	if err == nil || !strings.Contains(err.Error(), "raise pipeline.max_gen_batches (2)") {
		t.Errorf("the run ended with %v", err)
	}
}

func TestLengthsVaryTheTimeOfAGroupAndNotItsMean(t *testing.T) {
	const n = 40000
	c := small(t, "pipeline.length_sigma=1", "pipeline.rollout_cost=3")
	timing := c.pipelineOptions().GroupTiming
	var sum, squares, whole float64
	for job := range uint64(n) {
		x := timing(job, int(job%3))
		sum, squares, whole = sum+x.Worker, squares+x.Worker*x.Worker, whole+x.Worker+x.Tail
		if x != timing(job, 0) || x.Tail < 0 {
			t.Fatalf("job %d takes %+v, then %+v", job, x, timing(job, 0))
		}
	}
	// Four lognormal lengths of mean 1 and variance e - 1, of which the worker sums; the longest of four, by simulation
	// elsewhere, has mean 2.203 (with a standard deviation of about 2, that of a mean of 40,000 is 0.01).
	mean, sd := sum/n, math.Sqrt(squares/n-sum/n*sum/n)
	if want := 12 * math.Sqrt((math.E-1)/4); math.Abs(mean-12) > 4*want/math.Sqrt(n) || math.Abs(sd/want-1) > 0.05 {
		t.Errorf("a group takes %g on average with standard deviation %g, want 12 and %g", mean, sd, want)
	}
	if longest := whole / n / 12; longest < 2.15 || longest > 2.26 {
		t.Errorf("the longest rollout takes %g times the mean, want about 2.203", longest)
	}
	if small(t).pipelineOptions().GroupTiming != nil {
		t.Error("lengths vary by default")
	}
	for _, bad := range []string{"-1", "5"} {
		if _, err := Load("", []string{"pipeline.length_sigma=" + bad}); err == nil ||
			!strings.Contains(err.Error(), "pipeline.length_sigma: "+bad+": want 0 (all alike) to 4") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestVaryingLengthsStallAQueueAndNotABuffer(t *testing.T) {
	tests.Long(t)
	stalled := func(set ...string) float64 {
		c := small(t, append([]string{"pipeline.workers=5", "pipeline.trainers=1", "pipeline.rollout_cost=5",
			"budget.updates=60", "warmup.steps=0", "evaluate.every=100"}, set...)...)
		sum := train(t, c, filepath.Join(t.TempDir(), "run"))
		waited, all := 0.0, 0.0
		for _, g := range append(sum.WorkerTimes, sum.TrainerTimes...) {
			waited, all = waited+g.Stalled, all+g.Busy+g.Stalled+g.Idle
		}
		return waited / all
	}
	queue := []string{"replay.sampler=lifo", "replay.capacity=0"}
	alike, varied := stalled(queue...), stalled(append(queue, "pipeline.length_sigma=1")...)
	buffer := stalled("replay.sampler=distinct", "pipeline.length_sigma=1")
	if varied < 2*alike || buffer > alike+0.001 {
		t.Errorf("GPUs of a queue stall for %.3f of the time with lengths that vary, %.3f with lengths alike; those of a "+
			"buffer for %.3f", varied, alike, buffer)
	}
}

// A gate lets as much start for each update as the trainer waits for, or both would wait for ever.
func TestTheGateOfARunOnTheRealClockLetsEnoughStart(t *testing.T) {
	const fresh = "replay.sources=[{name: a, pool: fresh, wait: true, share: "
	for set, want := range map[string]float64{ // batches of 256, by two engines to a trainer at mu 5.28: 97
		"":                        256 * 2 / 5.28,
		"replay.fresh_share=0.25": 256 * 2 / 5.28,
		"replay.fresh_share=0.5":  128,
		"replay.fresh_share=0.51": 136, // 131 rollouts
		fresh + "0.75}]":          192,
		"replay.mix=1":            128,
		"replay.sampler=fifo":     256,
		"pipeline.batch_updates=2;" + fresh + "1}]": 128,
		// of groups of 8 this number enters or stays
		"replay.sampler=fifo;replay.select=2":                          4 * 256,
		"replay.fresh_share=0.5;replay.select=2":                       4 * 128,
		fresh + "0.75}];replay.kept_per_prompt=3":                      64 * 8,
		"replay.fresh_share=0.25;replay.select=4":                      2 * 64,
		"replay.sampler=fifo;replay.select=9;pipeline.batch_updates=2": 128,
	} {
		c, err := liveConfig(t, set)
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		if got := c.gate().RolloutsPerUpdate; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %g rollouts per update, want %g", set, got, want)
		}
	}
	for set, want := range map[string]string{
		"replay.mix=2;live.max_staleness=1":            "live.max_staleness: 1: want 2 or more with pipeline.batch_updates",
		"replay.sampler=lifo;pipeline.batch_updates=4": "live.max_staleness: 2: want 3 or more with pipeline.batch_updates 4",
		"replay.sampler=fifo;replay.select=3;live.max_staleness=0": "live.max_staleness: 0: want 1 or more with " +
			"pipeline.batch_updates 1 and replay.mix 0, and 3 rollouts of each group in batches of 256",
		fresh + "version / 9}]": "live.max_staleness: 2: want none where the share of fresh sources",
	} {
		if _, err := liveConfig(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %s", set, err, want)
		}
	}
}

func liveConfig(t *testing.T, set string) (Config, error) {
	all := []string{"pipeline.workers=2", "pipeline.trainers=1", "pipeline.batch=256", "live.max_staleness=2"}
	if set != "" {
		all = append(all, strings.Split(set, ";")...)
	}
	c, err := Load("", all)
	if err != nil {
		return c, err
	}
	c = c.WithBuffer(Remote{Publish: t.TempDir()})
	return c, c.Validate()
}

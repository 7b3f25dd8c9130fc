package sim_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// moments returns the mean of n values and its standard error.
func moments(n int, value func(i int) float64) (mean, sd float64) {
	var sum, squares float64
	for i := range n {
		x := value(i)
		sum += x
		squares += x * x
	}
	mean = sum / float64(n)
	return mean, math.Sqrt((squares/float64(n) - mean*mean) / float64(n))
}

func TestMeansOfDistributionsAreThoseOfTheirDraws(t *testing.T) {
	const n = 20000
	for _, d := range []sim.Distribution{
		sim.Lognormal{Median: 200, Sigma: 0.5, Max: 1000}, sim.Lognormal{Median: 1.4, Sigma: 1, Max: 9},
		sim.Lognormal{Median: 1000, Sigma: 2, Max: 16384}, sim.Lognormal{Median: 30, Max: 40}, sim.Constant(7),
		sim.Constant(0),
	} {
		rng := rollout.Stream(1, "test/means", 0)
		one := func(int) float64 { return float64(max(1, d.Draw(rng))) }
		if mean, sd := moments(n, one); math.Abs(mean-sim.Mean(d)) > 4*sd {
			t.Errorf("%+v: the mean is %g, of draws %g +- %g", d, sim.Mean(d), mean, sd)
		}
		longest := func(int) float64 {
			x := 0.0
			for range 16 {
				x = max(x, one(0))
			}
			return x
		}
		if mean, sd := moments(n, longest); math.Abs(mean-sim.MeanLongest(d, 16)) > 4*sd {
			t.Errorf("%+v: the mean of the longest of 16 is %g, of draws %g +- %g", d, sim.MeanLongest(d, 16), mean, sd)
		}
	}
	cut := sim.Lognormal{Median: 10, Sigma: 1, Max: 20}
	if at, beyond := cut.AtLeast(20), cut.AtLeast(21); !(at > 0.2) || beyond != 0 || cut.AtLeast(0) != 1 ||
		sim.Constant(5).AtLeast(6) != 0 {
		t.Errorf("20 tokens or more have the probability %g, 21 %g", at, beyond)
	}
	// Far below the cut the mean is median exp(sigma^2/2).
	if got, want := sim.Mean(sim.Lognormal{Median: 1000, Sigma: 0.5, Max: 1 << 20}),
		1000*math.Exp(0.125); math.Abs(got-want) > 1e-6*want {
		t.Errorf("the mean of a lognormal is %g, want %g", got, want)
	}
}

// heavy is a workload with a heavy tail.
func heavy() sim.Workload {
	return sim.Workload{Seed: 3, Workers: 50, Group: 16, RolloutCost: 6.84,
		Lengths: sim.Lognormal{Median: 1000, Sigma: 1, Max: 16384}}
}

// timing returns what a workload makes of the options of a schedule.
func timing(t *testing.T, w sim.Workload) pipeline.Options {
	t.Helper()
	var o pipeline.Options
	if err := w.Apply(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestARolloutTakesMuInTheMeanHoweverLengthsVary(t *testing.T) {
	const n = 20000
	for _, batching := range []sim.Batching{sim.Continuous, sim.Static} {
		w := heavy()
		w.Batching = batching
		o := timing(t, w)
		mean, sd := moments(n, func(i int) float64 { return o.GroupTiming(uint64(i), 0).Worker / 16 })
		if math.Abs(mean-6.84) > 4*sd || sd > 0.03 || sd == 0 {
			t.Errorf("%s: the mean time of a rollout is %g +- %g, want 6.84", batching, mean, sd)
		}
		entry, sd := moments(n, func(i int) float64 {
			x := o.GroupTiming(uint64(i), 0)
			return x.Worker + x.Tail
		})
		if math.Abs(entry-w.Delay()) > 4*sd {
			t.Errorf("%s: groups are whole after %g +- %g, want %g", batching, entry, sd, w.Delay())
		}
	}
}

func TestAGroupIsWholeWhenItsLongestHasEnded(t *testing.T) {
	w := heavy()
	o := timing(t, w)
	static := w
	static.Batching = sim.Static
	s := timing(t, static)
	g := &sim.Generator{Seed: w.Seed, Lengths: w.Lengths}
	mean, meanLongest := sim.Mean(w.Lengths), sim.MeanLongest(w.Lengths, w.Group)
	for job := range uint64(100) {
		gen, err := g.Start(pipeline.Job{Number: job, Size: w.Group})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gen.Continue(context.Background(), pipeline.Weights{}, 0); err != nil {
			t.Fatal(err)
		}
		rs, err := gen.Rollouts()
		if err != nil {
			t.Fatal(err)
		}
		tokens, longest := 0.0, 0.0
		for _, r := range rs {
			tokens += float64(len(r.Tokens))
			longest = max(longest, float64(len(r.Tokens)))
		}
		x := o.GroupTiming(job, 0)
		near(t, "time of the worker", x.Worker, 6.84*tokens/mean)
		near(t, "time until the longest has ended", x.Worker+x.Tail, 16*6.84*longest/mean)
		near(t, "time of the worker, static", s.GroupTiming(job, 0).Worker, 16*6.84*longest/meanLongest)
		near(t, "tail, static", s.GroupTiming(job, 0).Tail, 0)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestStragglersAreTheirShareOfTheWorkersAndSlowInEverything(t *testing.T) {
	w := heavy()
	fast := timing(t, w)
	w.Stragglers, w.Slowness = 0.1, 3
	o := timing(t, w)
	slow := 0
	for worker := range w.Workers {
		a, b := fast.GroupTiming(9, worker), o.GroupTiming(9, worker)
		switch {
		case b == a:
		case b == pipeline.Timing{Worker: 3 * a.Worker, Tail: 3 * a.Tail}:
			slow++
		default:
			t.Errorf("worker %d takes %+v, want %+v or three times that", worker, b, a)
		}
	}
	if slow != 5 {
		t.Errorf("%d of 50 workers are slow, want 5", slow)
	}
	near(t, "pace", w.Pace(), 0.9+0.1/3)
	// Slow workers make a third of the groups that others make, each in three times the time.
	near(t, "delay", w.Delay(), heavy().Delay()*(0.9+0.1)/(0.9+0.1/3))
	w.Seed = 4
	other := timing(t, w)
	differ := false
	for worker := range w.Workers {
		differ = differ || (other.GroupTiming(9, worker) == other.GroupTiming(9, 0)) != (o.GroupTiming(9,
			worker) == o.GroupTiming(9, 0))
	}
	if !differ {
		t.Error("another seed has the same stragglers")
	}
}

func TestRewardsTakeTheirLatency(t *testing.T) {
	w := heavy()
	if o := timing(t, w); o.RewardLatency != nil {
		t.Error("rewards take time although there is no latency")
	}
	w.Rewards = task.Latency{Distribution: task.Exponential, Mean: 20}
	o := timing(t, w)
	for job := range uint64(20) {
		near(t, "latency", o.RewardLatency(job), w.Rewards.Draw(w.Seed, job))
	}
}

func TestAWorkloadReportsEveryProblem(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		w    sim.Workload
		want []string
	}{
		{sim.Workload{Workers: -1, Group: -2, RolloutCost: nan},
			[]string{"workers: -1", "group: -2", "rollout_cost: NaN"}},
		{sim.Workload{Workers: 1, Group: 1, RolloutCost: 1, Lengths: sim.Lognormal{Median: 0.5, Sigma: -1},
			Batching: "none"}, []string{"lengths: 0.5", "lengths: -1", "lengths: 0: want a maximum", "batching: none"}},
		{sim.Workload{Workers: 1, Group: 1, RolloutCost: 1, Lengths: sim.Constant(1 << 25), Stragglers: nan,
			Slowness: 0.5}, []string{"lengths: 33554432", "stragglers: NaN", "stragglers: 0.5"}},
		{sim.Workload{Workers: 1, Group: 1, RolloutCost: 1, Rewards: task.Latency{Mean: -1}},
			[]string{"reward_latency", "mean"}},
	} {
		err := c.w.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error does not say %q: %v", c.w, want, err)
			}
		}
		if applied := c.w.Apply(&pipeline.Options{}); applied == nil {
			t.Errorf("%+v was applied", c.w)
		}
	}
}

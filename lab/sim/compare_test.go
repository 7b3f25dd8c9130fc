package sim

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// smallTrial takes well under a second: batches of 64 in groups of 8, all lengths equal.
func smallTrial(workers, trainers int, rolloutCost float64, rollouts int) Trial {
	return Trial{
		Options:  pipeline.Options{Workers: workers, Trainers: trainers, RolloutCost: rolloutCost, Batch: 64, Group: 8},
		Workload: Workload{Seed: 1, Lengths: Lognormal{Median: 10, Max: 10}, Slowness: 1},
		Rollouts: rollouts,
	}
}

func compared(t *testing.T, trial Trial, capacity int) *Comparison {
	t.Helper()
	x, err := Compare(t.Context(), trial, capacity, InParts{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestAComparisonShowsTheStallsOfQueuesAndOfTheBuffer(t *testing.T) {
	x := compared(t, smallTrial(6, 2, 5.28, 20_000), 512)
	// With equal lengths: 1 - (W/T)/mu, mu T/W, (1 + W/T)/(1 + mu).
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO} {
		queue := x.arm(sampler)
		tests.Near(t, "stall of a queue's trainers", queue.TrainersStalled, 1-3/5.28, 0.005)
		tests.Near(t, "uses of a queue's rollouts", queue.ReplayRatio, 1, 0.01)
		if queue.Capacity != 128 || queue.Uses.Max != 1 || queue.SinceLastUse.Count != 0 {
			t.Errorf("a queue of %d rollouts gives them up to %d times", queue.Capacity, queue.Uses.Max)
		}
	}
	buffer := x.arm(replay.Distinct)
	tests.Near(t, "stall of the buffer's trainers", buffer.TrainersStalled, 0, 0)
	tests.Near(t, "uses of the buffer's rollouts", buffer.ReplayRatio, 5.28/3, 0.01)
	tests.Near(t, "compute", buffer.ComputeAll, 4/6.28, 1e-9)
	tests.Near(t, "gamma", x.ComputeRatio, 4/6.28, 1e-9)
	tests.Near(t, "mean length", x.Lengths.Mean, 10, 1e-9)
	if buffer.Capacity != 512 || buffer.Staleness.Max > int64(x.StalenessBound) ||
		buffer.Staleness.Max < int64(x.StalenessBound/2) || buffer.SinceLastUse.Count == 0 {
		t.Errorf("in a buffer of %d rollouts the oldest is %d versions old, want about %g", buffer.Capacity,
			buffer.Staleness.Max, x.StalenessBound)
	}
	if n := buffer.Staleness.Histogram.Count(); n != buffer.Staleness.Count || n != uint64(buffer.Updates*64) {
		t.Errorf("%d ages are in the histogram, %d counted, in %d updates of 64", n, buffer.Staleness.Count,
			buffer.Updates)
	}
	text := x.Text()
	for _, want := range []string{"lifo queue", "fifo queue", "trainers waited", "staleness, versions, mean",
		"updates since the last use", "With the first-in, first-out queue"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

func TestAComparisonRunsTheScheduleItIsGiven(t *testing.T) {
	tests.Long(t)
	trial := smallTrial(6, 2, 6, 20_000)
	trial.Options.WeightTransfer, trial.Options.WeightSync, trial.Options.UpdatesInFlight = 16, pipeline.ByToken, 1
	trial.Workload = Workload{
		Seed: 7, Lengths: Lognormal{Median: 500, Sigma: 1, Max: 4000}, Batching: Static, Stragglers: 0.5, Slowness: 2,
		Rewards: task.Latency{Distribution: task.Lognormal, Mean: 10, Sigma: 1},
	}
	x := compared(t, trial, 512)
	if x.Pace != 0.75 || math.Abs(x.Delay-(8*6/0.75+10)) > 1e-9 || x.Seed != 7 || x.Batching != Static {
		t.Errorf("pace is %g and a group takes %g, want 0.75 and 74: %+v", x.Pace, x.Delay, x)
	}
	// Each update takes 32 and waits for a transfer of 16. The buffer makes trainers wait for nothing else.
	buffer := x.arm(replay.Distinct)
	if math.Abs(buffer.TrainersStalled-1.0/3) > 1e-9 || math.Abs(buffer.Waits.Median-0.5) > 1e-9 {
		t.Errorf("trainers wait %g of the time and %g updates in the median, want 1/3 and 1/2", buffer.TrainersStalled,
			buffer.Waits.Median)
	}
	if buffer.MeanStaleness.Mean >= buffer.Staleness.Mean {
		t.Errorf("tokens are %g versions old, the oldest of each rollout %g", buffer.MeanStaleness.Mean,
			buffer.Staleness.Mean)
	}
	if !strings.Contains(strings.Join(x.Warnings, "\n"), "--in-flight 2") {
		t.Errorf("no warning about the transfers: %q", x.Warnings)
	}
	again := compared(t, trial, 512)
	x.Seconds, again.Seconds = 0, 0
	a, err1 := json.Marshal(x)
	b, err2 := json.Marshal(again)
	if err1 != nil || err2 != nil || string(a) != string(b) {
		t.Error("the same schedule twice differs")
	}
}

func TestABufferTooSmallForItsTrainersIsRaised(t *testing.T) {
	c, err := newComparer(smallTrial(10, 2, 5, 100_000), 1, InParts{})
	if err != nil {
		t.Fatal(err)
	}
	if c.capacity != 64 || !strings.Contains(c.raised, "The buffer holds 64 rollouts, not 1:") {
		t.Errorf("too small a buffer has room for %d: %q", c.capacity, c.raised)
	}
}

func TestTrialsThatShowNothingOrNeverEndAreRefused(t *testing.T) {
	big := smallTrial(7, 1, 1e5, 1_000_000)
	big.Options.Batch = 1024
	many := smallTrial(1, 1024, 1e5, 1_000_000)
	many.Options.Batch = 1024
	transfer := smallTrial(40, 1, 0.1, 1_000_000) // 40/0.1 in the time of an update and a transfer, 64 + 6336
	transfer.Options.WeightTransfer, transfer.Options.UpdatesInFlight = 6336, 1
	for want, trial := range map[string]Trial{
		"trainers: 3: want a divisor of the 64 rollouts":  smallTrial(6, 3, 5, 100_000),
		"rollouts: 500: want at least 512":                smallTrial(6, 2, 5, 500),
		"rollouts: 100000: want at least 204800":          smallTrial(40, 1, 0.1, 100_000), // R = 64 x 40 / 0.1
		"rollouts: 1000000: want at least 20480000":       transfer,
		"workers: 40000: want fewer":                      smallTrial(40_000, 1, 1e-3, 1_000_000),
		"rollouts: 1000000: want at most 350000: the buf": big,
		"trainers: 1024: want fewer":                      many,
	} {
		if _, err := newComparer(trial, 0, InParts{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", trial.Options, err, want)
		}
	}
}

// The machine's errors name the configuration's keys, which a comparison does not have. None of them may come from its
// trials.
func TestNoComparisonGetsStuck(t *testing.T) {
	rng := rollout.Stream(1, "test/schedules", 0)
	for range tests.Count(20, 3) {
		trainers := 1 + rng.IntN(6)
		trial := smallTrial(1+rng.IntN(12), trainers, 0.3+10*rng.Float64(), 3000)
		o, w := &trial.Options, &trial.Workload
		o.Batch, o.Group = trainers*(1+rng.IntN(8)), 1+rng.IntN(9)
		capacity := 1 + rng.IntN(200)
		w.Seed, o.UpdatesInFlight = rng.Uint64(), rng.IntN(3)
		o.WeightTransfer = float64(rng.IntN(3)) * 4
		w.Stragglers, w.Slowness, w.Lengths = 0.3, 5, Lognormal{Median: 10, Sigma: 2, Max: 500}
		w.Rewards = task.Latency{Distribution: task.Lognormal, Mean: 20, Sigma: 2}
		w.Batching, o.WeightSync = []Batching{Continuous, Static}[rng.IntN(2)],
			[]pipeline.WeightSync{pipeline.ByGroup, pipeline.ByToken}[rng.IntN(2)]
		d := InParts{Parts: 2 + rng.IntN(9), Scope: []Scope{Own, Global}[rng.IntN(2)], LostEvery: 3 + rng.IntN(20),
			LostUpdates: rng.IntN(3), ForGood: rng.IntN(2) == 0}
		c, err := newComparer(trial, capacity, d)
		if err != nil {
			t.Fatalf("%+v: %v", trial.Options, err)
		}
		for _, arm := range c.arms() {
			err := c.run(t.Context(), &arm)
			if err != nil || arm.record.End.Inserted < 3000 {
				t.Fatalf("%+v in %+v ends with %v", trial.Options, d, err)
			}
		}
	}
}

func TestQuantilesAndRounding(t *testing.T) {
	for n, want := range map[int]int{7: 7, 99: 99, 100: 100, 101: 110, 1964558: 2000000} {
		if got := roundUp(n); got != want {
			t.Errorf("%d is rounded up to %d, want %d", n, got, want)
		}
	}
	values := []float64{4, 1, 3, 2}
	if got := spreadOf(values); got != (Spread{2, 4, 4, 4}) || !slices.Equal(values, []float64{4, 1, 3, 2}) {
		t.Errorf("quantiles of 1 to 4 are %+v", got)
	}
}

func TestParseWorkloadRefusesAMalformedNotation(t *testing.T) {
	for _, lengths := range []string{"0.5,1,100", "10,-1,100", "10,5,100", "10,1,9", "10,1,99.5", "10,1,2e6",
		"NaN,1,100", "10,1,100,2", "10,x,100", ""} {
		_, err := ParseWorkload(lengths, "2,1", "1")
		for _, want := range []string{"lengths: " + cmp.Or(lengths, `""`) + ": want MEDIAN,SIGMA,MAX",
			"stragglers: 2,1: want SHARE,FACTOR", "reward_latency: 1: want MEAN,SIGMA"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("lengths %q: error %v, want %q", lengths, err, want)
			}
		}
	}
	w, err := ParseWorkload("500, 1, 4000", "0.5,2", "10,0")
	if err != nil || w.Lengths != (Lognormal{500, 1, 4000}) || w.Stragglers != 0.5 || w.Slowness != 2 ||
		w.Rewards != (task.Latency{Distribution: task.Constant, Mean: 10}) {
		t.Errorf("parsed %+v, %v", w, err)
	}
}

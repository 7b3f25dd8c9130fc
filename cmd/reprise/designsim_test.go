package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// smallSim is a schedule that is run within a second: 6 workers and 2 trainers, mu 5.28, batches of 64 in groups of 8.
func smallSim(more ...string) []string {
	return append([]string{"design", "--sim", "--gpus", "8", "--batch", "64", "--group", "8", "--workers", "6", "--trainers", "2", "--rollouts", "40000", "--json"}, more...)
}

// simulation returns what the program prints of a schedule.
func simulation(t *testing.T, args ...string) simulated {
	t.Helper()
	var found struct {
		Schedule *simulated `json:"schedule"`
	}
	if err := json.Unmarshal([]byte(succeeds(t, "", args...)), &found); err != nil {
		t.Fatal(err)
	}
	if found.Schedule == nil || len(found.Schedule.Arms) != 3 {
		t.Fatalf("reprise %v prints no schedule with three arms", args)
	}
	return *found.Schedule
}

func TestDesignSimShowsTheStallsOfQueuesBesideTheBuffer(t *testing.T) {
	s := simulation(t, smallSim("--lengths", "500,0,1000", "--capacity", "512")...)
	near := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	// Lengths that are alike: 1 - (W/T)/mu, mu T/W, (1 + W/T)/(1 + mu).
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO} {
		queue := s.arm(sampler)
		near("stall of a queue's trainers", queue.TrainersStalled, 1-3/5.28, 0.005)
		near("uses of a queue's rollouts", queue.ReplayRatio, 1, 0.01)
		if queue.Capacity != 128 || queue.Uses.Max != 1 || queue.SinceLastUse.Count != 0 {
			t.Errorf("a queue of %d rollouts gives them up to %d times", queue.Capacity, queue.Uses.Max)
		}
	}
	buffer := s.arm(replay.Distinct)
	near("stall of the buffer's trainers", buffer.TrainersStalled, 0, 0)
	near("uses of the buffer's rollouts", buffer.ReplayRatio, 5.28/3, 0.01)
	near("compute", buffer.ComputeAll, 4/6.28, 1e-9)
	near("gamma", s.ComputeRatio, 4/6.28, 1e-9)
	near("mean length", s.Lengths.Mean, 500, 1e-9)
	if buffer.Capacity != 512 || buffer.Staleness.Max > int64(s.StalenessBound) || buffer.Staleness.Max < int64(s.StalenessBound/2) || buffer.SinceLastUse.Count == 0 {
		t.Errorf("in a buffer of %d rollouts the oldest is %d versions old, want about %g", buffer.Capacity, buffer.Staleness.Max, s.StalenessBound)
	}
	if n := buffer.Staleness.Histogram.Count(); n != buffer.Staleness.Count || n != uint64(buffer.Updates*64) {
		t.Errorf("%d ages are in the histogram, %d counted, in %d updates of 64", n, buffer.Staleness.Count, buffer.Updates)
	}
}

func TestDesignSimTakesWhatItIsTold(t *testing.T) {
	s := simulation(t, smallSim("--lengths", "500,1,4000", "--batching", "static", "--stragglers", "0.5,2", "--reward-latency", "10,1",
		"--weight-transfer", "16", "--weight-sync", "token", "--in-flight", "1", "--seed", "7", "--rollout-cost", "6")...)
	if s.Lengths.Median != 500 || s.Lengths.Sigma != 1 || s.Lengths.Max != 4000 || s.Batching != "static" || s.Stragglers != (simStragglers{0.5, 2}) ||
		s.RewardLatency != (simLatency{10, 1}) || s.WeightTransfer != 16 || s.WeightSync != "token" || s.InFlight != 1 || s.Seed != 7 || s.RolloutCost != 6 ||
		s.Workers != 6 || s.Trainers != 2 || s.Rollouts != 40000 {
		t.Errorf("the schedule was another: %+v", s)
	}
	if s.Pace != 0.75 || math.Abs(s.Delay-(8*6/0.75+10)) > 1e-9 {
		t.Errorf("pace is %g and a group takes %g, want 0.75 and 74", s.Pace, s.Delay)
	}
	// Each update, of 32, waits for a transfer of 16, with the buffer for nothing else.
	buffer := s.arm(replay.Distinct)
	if math.Abs(buffer.TrainersStalled-1.0/3) > 1e-9 || math.Abs(buffer.Waits.Median-0.5) > 1e-9 {
		t.Errorf("trainers wait %g of the time and %g updates in the median, want 1/3 and 1/2", buffer.TrainersStalled, buffer.Waits.Median)
	}
	if buffer.MeanStaleness.Mean >= buffer.Staleness.Mean {
		t.Errorf("tokens are %g versions old, the oldest of each rollout %g", buffer.MeanStaleness.Mean, buffer.Staleness.Mean)
	}
	if !strings.Contains(strings.Join(s.Warnings, "\n"), "--in-flight 2") {
		t.Errorf("nobody warns of the transfers: %q", s.Warnings)
	}
	other := simulation(t, smallSim("--seed", "8")...)
	again := simulation(t, smallSim("--seed", "8")...)
	other.Seconds, again.Seconds = 0, 0
	if text(mustJSON(t, other)) != text(mustJSON(t, again)) {
		t.Error("the same schedule twice differs")
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDesignSimKeepsTheHorizonWithOtherGPUs(t *testing.T) {
	flags := bare(100_000)
	plan := simPlan{RolloutCost: 5, Workers: 5, Trainers: 1, Batch: 64, Group: 8, Capacity: 512, Horizon: 8}
	capacity := func(f simFlags) int {
		s, err := f.schedules(plan)
		if err != nil {
			t.Fatal(err)
		}
		return s.capacity
	}
	if got := capacity(flags); got != 512 {
		t.Errorf("the plan's capacity became %d, want 512", got)
	}
	two, ten, least := 2, 10, 1
	flags.Workers = &ten // R is 64 x 10/5
	if got := capacity(flags); got != 8*128 {
		t.Errorf("with twice the workers the capacity is %d, want 1024", got)
	}
	flags.Trainers = &two
	if got := capacity(flags); got != 512 {
		t.Errorf("with twice the GPUs the capacity is %d, want 512", got)
	}
	flags.Capacity = &least
	s, err := flags.schedules(plan)
	if err != nil {
		t.Fatal(err)
	}
	if s.capacity != 64 || !strings.Contains(s.raised, "the buffer holds 64 rollouts, not 1:") {
		t.Errorf("too small a buffer has room for %d: %q", s.capacity, s.raised)
	}
}

func TestDesignSimRefusesWhatMakesNoSchedule(t *testing.T) {
	fails(t, call(t, "", "design", "--sim", "--workers", "0", "--trainers=-1", "--capacity", "0", "--rollouts", "5", "--lengths", "10,x", "--batching", "none",
		"--stragglers", "2,1", "--reward-latency", "1", "--weight-transfer=-1", "--weight-sync", "never", "--in-flight=-2"),
		"--workers: 0: want 1", "--trainers: -1: want 1", "--capacity: 0: want 1", "--rollouts: 5: want 1000", "--lengths: 10,x: want MEDIAN,SIGMA,MAX", "--batching: none: want continuous or static",
		"--stragglers: 2,1: want SHARE,FACTOR", "--reward-latency: 1: want MEAN,SIGMA", "--weight-transfer: -1: want 0", "--weight-sync: never: want group or token", "--in-flight: -2: want")
	for _, lengths := range []string{"0.5,1,100", "10,-1,100", "10,5,100", "10,1,9", "10,1,99.5", "10,1,2e6", "NaN,1,100", "10,1,100,2", ""} {
		fails(t, call(t, "", "design", "--sim", "--lengths", lengths), "--lengths: "+lengths)
	}
	fails(t, call(t, "", smallSim("--trainers", "3")...), "--trainers: 3: want a number that divides the 64 rollouts")
	fails(t, call(t, "", smallSim("--workers", "6000")...), "--rollouts: 40000: want at least 384000")
}

func TestDesignRefusesTheFlagsOfAScheduleThatNobodyAskedFor(t *testing.T) {
	fails(t, call(t, "", "design", "--workers", "6", "--rollouts", "5", "--lengths", "10,1,20", "--reward-latency", "3,0", "--weight-transfer", "2", "--in-flight", "2", "--seed", "9"),
		"--workers: 6: want it beside --sim", "--rollouts: 5: want it beside", "--lengths: 10,1,20: want", "--reward-latency: 3,0: want", "--weight-transfer: 2: want", "--in-flight: 2: want", "--seed: 9: want")
	succeeds(t, "", "design")
}

// bare is the flags of --sim with nothing special in the schedule.
func bare(rollouts int) simFlags {
	return simFlags{On: true, Rollouts: rollouts, Lengths: "10,0,10", Stragglers: "0,1", RewardLatency: "0,0", Batching: "continuous", WeightSync: "group", Seed: 1}
}

func TestDesignSimRefusesSchedulesThatShowNothingOrNeverEnd(t *testing.T) {
	for _, c := range []struct {
		plan     simPlan
		rollouts int
		transfer float64
		want     string
	}{
		{simPlan{RolloutCost: 5, Workers: 6, Trainers: 2, Batch: 64, Group: 8}, 500, 0, "--rollouts: 500: want at least 512"},
		// R = 64 x 40 / 0.1
		{simPlan{RolloutCost: 0.1, Workers: 40, Trainers: 1, Batch: 64, Group: 8}, 100_000, 0, "--rollouts: 100000: want at least 204800"},
		// 40/0.1 in the time of an update and a transfer, 64 + 6336
		{simPlan{RolloutCost: 0.1, Workers: 40, Trainers: 1, Batch: 64, Group: 8}, 1_000_000, 6336, "--rollouts: 1000000: want at least 20480000"},
		{simPlan{RolloutCost: 1e-3, Workers: 40_000, Trainers: 1, Batch: 64, Group: 8}, 1_000_000, 0, "--workers: 40000: want fewer"},
		{simPlan{RolloutCost: 1e5, Workers: 7, Trainers: 1, Batch: 1024, Group: 8}, 1_000_000, 0, "--rollouts: 1000000: want at most 350000: the buffer's trainers use each 1.429e+04 times"},
		{simPlan{RolloutCost: 1e5, Workers: 1, Trainers: 1024, Batch: 1024, Group: 8}, 1_000_000, 0, "--trainers: 1024: want fewer"},
	} {
		flags := bare(c.rollouts)
		flags.WeightTransfer, flags.InFlight = c.transfer, 1
		if _, err := flags.schedules(c.plan); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.plan, err, c.want)
		}
	}
}

// The machine's errors name the configuration's keys, which a schedule has not: none of them may come of its flags.
func TestNoScheduleGetsStuck(t *testing.T) {
	rng := rollout.Stream(1, "test/schedules", 0)
	for range 60 {
		trainers := 1 + rng.IntN(6)
		plan := simPlan{
			RolloutCost: 0.3 + 10*rng.Float64(), Workers: 1 + rng.IntN(12), Trainers: trainers, Batch: trainers * (1 + rng.IntN(8)), Group: 1 + rng.IntN(9), Capacity: 1 + rng.IntN(200),
		}
		flags := bare(3000)
		flags.Seed, flags.InFlight = rng.Uint64(), rng.IntN(3)
		flags.WeightTransfer = float64(rng.IntN(3)) * 4
		flags.Stragglers, flags.RewardLatency, flags.Lengths = "0.3,5", "20,2", "10,2,500"
		flags.Batching, flags.WeightSync = []string{"continuous", "static"}[rng.IntN(2)], []string{"group", "token"}[rng.IntN(2)]
		s, err := flags.schedules(plan)
		if err != nil {
			t.Fatalf("%+v: %v", plan, err)
		}
		for _, sampler := range simArms() {
			r, err := s.try(t.Context(), sampler)
			if err != nil || r.End.Inserted < 3000 {
				t.Fatalf("%+v of %+v ends after %+v with %v", flags, plan, r, err)
			}
		}
	}
}

func TestDesignSimIsInTheTextAndOnThePage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "design.html")
	args := smallSim("--html", page)
	var said []string
	for _, a := range args {
		if a != "--json" {
			said = append(said, a)
		}
	}
	printed := succeeds(t, "", said...)
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"lifo queue", "fifo queue", "trainers waited", "staleness, versions, mean", "updates since the last use", "With the queue, first in first out"} {
		if !strings.Contains(printed, want) || !strings.Contains(string(html), want) {
			t.Errorf("text or page does not say %q", want)
		}
	}
	for _, want := range []string{"Staleness", "Uses", "Time since last use"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page has no figure %q", want)
		}
	}
}

func TestFiguresOfAScheduleShowEveryShareOnce(t *testing.T) {
	var a simArm
	for v := range int64(1000) {
		a.Staleness.Histogram.Add(v)
	}
	a.Staleness = countsOf(a.Staleness.Histogram)
	s := &simulated{Arms: []simArm{a, {}}}
	f := s.figure("t", "u", "n", func(a simArm) simCounts { return a.Staleness })
	if len(f.Curves) != 1 || len(f.Curves[0].At) > mostBars+1 {
		t.Fatalf("%d curves, the first of %d points", len(f.Curves), len(f.Curves[0].At))
	}
	sum, x := 0.0, -1.0
	for _, p := range f.Curves[0].At {
		if p.X <= x {
			t.Fatalf("points go back from %g to %g", x, p.X)
		}
		sum, x = sum+p.Y.Float(), p.X
	}
	if math.Abs(sum-0.999) > 1e-9 {
		t.Errorf("shares add up to %g, want 0.999", sum)
	}
}

func TestNumbersOfAScheduleAreWrittenToBeRead(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]int{7: 7, 99: 99, 100: 100, 101: 110, 1964558: 2000000} {
		if got := roundUp(n); got != want {
			t.Errorf("%d is rounded up to %d, want %d", n, got, want)
		}
	}
	if got := spreadOf([]float64{4, 1, 3, 2}); got != (simSpread{2, 4, 4, 4}) {
		t.Errorf("quantiles of 1 to 4 are %+v", got)
	}
}

func TestTheDocumentationShowsWhatDesignSimPrints(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "\n## A schedule without a model\n")
	blocks := strings.Split(section, "```\n")
	if !found || len(blocks) < 4 {
		t.Fatal("docs/design.md has no section with a command and what it prints")
	}
	command := strings.Fields(blocks[1])
	printed := succeeds(t, "", command[1:]...)
	_, schedule, _ := strings.Cut(printed, "\na schedule without a model\n")
	want := "a schedule without a model\n" + schedule[:strings.LastIndex(schedule, "  simulated in")]
	if blocks[3] != want {
		t.Errorf("%v prints\n%s\nthe documentation has\n%s", command, want, blocks[3])
	}
}

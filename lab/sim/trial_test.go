package sim_test

import (
	"context"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

func table(t testing.TB, sampler replay.Sampler, capacity, shards int) *replay.Table {
	t.Helper()
	b, err := replay.New(replay.Options{Sampler: sampler, Capacity: capacity, Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func try(t testing.TB, x sim.Trial) *sim.Record {
	t.Helper()
	r, err := x.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cluster is 48 workers and 8 trainers, whose queue is just fed at mu = 6.
func cluster(mu float64) pipeline.Options {
	return pipeline.Options{Workers: 48, Trainers: 8, Batch: 512, Group: 16, RolloutCost: mu}
}

func TestConstantLengthsGiveTheScheduleOfTheCostModel(t *testing.T) {
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO, replay.Distinct} {
		for _, batching := range []sim.Batching{sim.Continuous, sim.Static} {
			o := cluster(6.84)
			o.WeightTransfer = 30
			got := try(t, sim.Trial{
				Options: o, Buffer: table(t, sampler, 1024, 8), Rollouts: 30_000,
				Workload: sim.Workload{Seed: 1, Lengths: sim.Constant(500), Batching: batching},
			})
			want := table(t, sampler, 1024, 8)
			var last pipeline.Update
			m, err := pipeline.New(o, pipeline.Parts{
				Task: sim.Task{Seed: 1, Accept: 0.5}, Buffer: want, Learner: &sim.Learner{},
				Generator: &sim.Generator{Seed: 1},
			}, pipeline.Hooks{OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error {
				if last = u; u.Inserted >= 30_000 {
					return pipeline.ErrStop
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			stats := countsOf(t, want)
			if got.Time != last.Time || got.Updates != int(last.Version) || got.Used != last.Used ||
				got.Rollouts != last.Inserted || got.Trainer != last.Trainer ||
				!reflect.DeepEqual(got.Staleness, stats.Staleness) || !reflect.DeepEqual(got.Uses.Bins(),
				stats.UsesAtEviction.Bins()) ||
				!reflect.DeepEqual(got.SinceLastUse.Bins(), stats.SinceLastUse.Bins()) {
				t.Errorf("%s, %s: a schedule of %d updates ends at %g with %d rollouts and %+v, want %d, %g, %d and "+
					"%+v; or histograms differ",
					sampler, batching, got.Updates, got.Time, got.Rollouts, got.Trainer, last.Version, last.Time,
					last.Inserted, last.Trainer)
			}
		}
	}
}

func TestStallsAndReplayAreThoseOfTheClosedForms(t *testing.T) {
	tests.Long(t)
	within := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s is %g, want %g +- %g", what, got, want, within)
		}
	}
	for _, c := range []struct {
		mu       float64
		slow     float64 // share of the workers, that take three times as long
		trainers float64 // stalled, with a queue
		workers  float64
	}{
		{8, 0, 1 - 6.0/8, 0}, {4, 0, 0, 1 - 4.0/6}, {6, 0, 0, 0},
		{8, 0.25, 1 - 6*(0.75+0.25/3)/8, 0},
	} {
		w := sim.Workload{Seed: 1, Lengths: sim.Constant(1), Stragglers: c.slow, Slowness: 3}
		queue := try(t, sim.Trial{Options: cluster(c.mu), Workload: w, Buffer: table(t, replay.FIFO, 1024, 8),
			Rollouts: 100_000, Skip: 30_000})
		within("trainers' stall", queue.TrainersStalled(), c.trainers, 0.01)
		within("workers' stall", queue.WorkersStalled(), c.workers, 0.01)
		within("speed", queue.Speed(), 1-c.trainers, 0.01)
		// Rollouts enter whole groups at a time: the window's edges may cut one batch or queue.
		within("uses of each", queue.ReplayRatio(), 1, 1024.0/70_000)
		if most := queue.Uses.Max(); most != 1 {
			t.Errorf("a queue gave a rollout %d times", most)
		}

		const capacity = 4096
		buffer := try(t, sim.Trial{Options: cluster(c.mu), Workload: w, Buffer: table(t, replay.Distinct, capacity, 8),
			Rollouts: 100_000, Skip: 30_000})
		pace := 1 - c.slow*(1-1.0/3)
		within("trainers' stall with a buffer", buffer.TrainersStalled(), 0, 0)
		within("workers' stall with a buffer", buffer.WorkersStalled(), 0, 0)
		ratio := buffer.Options.ExpectedReplayRatio() / pace
		within("replay ratio", buffer.ReplayRatio(), ratio, 0.02*ratio)
		gamma := buffer.Options.ComputeRatio()
		within("compute", buffer.AllCompute(), gamma, 1e-9)
		within("busy compute", buffer.BusyCompute(), gamma, 1e-9)
		bound := capacity/(buffer.Options.NewPerUpdate()*pace) + 2*3*buffer.Options.GroupUpdates() + 1
		if c.slow == 0 {
			bound = buffer.Options.StalenessBound(capacity)
		}
		if most := float64(buffer.Staleness.Max()); most > bound || most < bound/2 {
			t.Errorf("mu %g: the greatest staleness is %g, want at most %g and not half as much", c.mu, most, bound)
		}
	}
}

func TestHeavierTailsStallTheQueueAndNotTheBuffer(t *testing.T) {
	tests.Long(t)
	// W/T = mu: with lengths that are alike nobody waits ([ER] app. D).
	var stalls []float64
	for _, sigma := range []float64{0, 0.5, 1, 1.5} {
		w := sim.Workload{Seed: 1, Lengths: sim.Lognormal{Median: 1000, Sigma: sigma, Max: 1 << 17},
			Batching: sim.Static}
		queue := try(t, sim.Trial{Options: cluster(6), Workload: w, Buffer: table(t, replay.FIFO, 1024, 8),
			Rollouts: 100_000, Skip: 25_000})
		buffer := try(t, sim.Trial{Options: cluster(6), Workload: w, Buffer: table(t, replay.Distinct, 4096, 8),
			Rollouts: 100_000, Skip: 25_000})
		stalls = append(stalls, queue.TrainersStalled()+queue.WorkersStalled())
		if buffer.TrainersStalled() != 0 || buffer.WorkersStalled() != 0 {
			t.Errorf("sigma %g: with the buffer trainers wait %g and workers %g", sigma, buffer.TrainersStalled(),
				buffer.WorkersStalled())
		}
		if sigma > 0 && buffer.Speed() <= queue.Speed() {
			t.Errorf("sigma %g: the buffer's speed is %g, the queue's %g", sigma, buffer.Speed(), queue.Speed())
		}
	}
	for i := range stalls[1:] {
		if stalls[i+1] < max(1.3*stalls[i], 0.002) {
			t.Errorf("stalls of the queue are %v: they do not grow with the tail", stalls)
		}
	}
	if stalls[0] > 0.005 {
		t.Errorf("the queue stalls %g although lengths are alike", stalls[0])
	}
}

func TestTrainersWithOneUpdateInFlightWaitForItsTransfer(t *testing.T) {
	o := cluster(6) // B/T is 64
	o.WeightTransfer, o.UpdatesInFlight = 16, 1
	trial := func() sim.Trial {
		return sim.Trial{Options: o, Buffer: table(t, replay.Distinct, 4096, 8), Rollouts: 100_000, Skip: 30_000}
	}
	one := try(t, trial())
	near(t, "trainers' stall", one.TrainersStalled(), 16.0/80)
	for _, wait := range one.Waits {
		near(t, "wait before an update", wait, 16)
	}
	o.UpdatesInFlight = 2
	near(t, "trainers' stall with two", try(t, trial()).TrainersStalled(), 0)
}

// everything has all that a trial may have.
func everything(t testing.TB, sampler replay.Sampler) (sim.Trial, *replay.Table) {
	o := cluster(6.84)
	o.WeightTransfer, o.UpdatesInFlight, o.WeightSync = 80, 2, pipeline.ByToken
	b := table(t, sampler, 2048, 8)
	return sim.Trial{
		Options: o, Buffer: b, Rollouts: 40_000, Skip: 10_000, Pieces: 5,
		Workload: sim.Workload{
			Seed: 5, Lengths: sim.Lognormal{Median: 1000, Sigma: 1, Max: 16384}, Stragglers: 0.1, Slowness: 2.5,
			Rewards: task.Latency{Distribution: task.Lognormal, Mean: 30},
		},
	}, b
}

func TestATrialIsTheSameOnAnyNumberOfCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.Distinct} {
		var first *sim.Record
		for _, procs := range []int{1, 2, 4} {
			runtime.GOMAXPROCS(procs)
			x, _ := everything(t, sampler)
			r := try(t, x)
			r.Options = pipeline.Options{} // it holds functions, and the number of cores
			if first == nil {
				first = r
			}
			if !reflect.DeepEqual(r, first) {
				t.Errorf("%s: on %d cores a trial shows\n%+v\non one\n%+v", sampler, procs, r, first)
			}
		}
	}
}

func TestTheCountsOfATrialBalance(t *testing.T) {
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO, replay.Distinct} {
		x, _ := everything(t, sampler)
		r := try(t, x)
		left := uint64(0)
		for _, n := range r.End.Evicted {
			left += n
		}
		if r.End.Inserted != uint64(r.End.Present)+left || r.End.Inserted < 40_000 {
			t.Errorf("%s: %d inserted, %d present, %d left", sampler, r.End.Inserted, r.End.Present, left)
		}
		if r.Used != uint64(r.Updates*512) || r.Staleness.Count() != r.Used || r.MeanStaleness.Count() != r.Used {
			t.Errorf("%s: %d used in %d updates, %d and %d ages", sampler, r.Used, r.Updates, r.Staleness.Count(),
				r.MeanStaleness.Count())
		}
		if first := r.Used - r.SinceLastUse.Count(); sampler.Consumes() != (first == r.Used) {
			t.Errorf("%s: %d of %d uses are first ones", sampler, first, r.Used)
		}
		if r.MeanStaleness.Mean() >= r.Staleness.Mean() {
			t.Errorf("%s: tokens are %g old, the oldest of each rollout %g, although weights came in between", sampler,
				r.MeanStaleness.Mean(), r.Staleness.Mean())
		}
		if len(r.Waits) != r.Updates || len(r.WorkerStalls) != 48 {
			t.Errorf("%s: %d waits in %d updates, %d workers", sampler, len(r.Waits), r.Updates, len(r.WorkerStalls))
		}
		waited, stalled := 0.0, 0.0
		for _, w := range r.Waits {
			waited += w
		}
		for _, s := range r.WorkerStalls {
			stalled += s / 48
		}
		if math.Abs(waited-r.Trainer.Stalled) > 1e-6*r.Time || math.Abs(stalled-r.WorkersStalled()) > 1e-9 {
			t.Errorf("%s: waits are %g in all, the account has %g; workers' stalls %g and %g", sampler, waited,
				r.Trainer.Stalled, stalled, r.WorkersStalled())
		}
		for _, s := range []pipeline.GPUTime{r.Trainer, r.Workers} {
			if math.Abs(s.Busy+s.Stalled+s.Idle-r.Time) > 1e-6*r.Time {
				t.Errorf("%s: %+v is not the time, %g", sampler, s, r.Time)
			}
		}
	}
}

func TestWhatIsSkippedIsNotMeasured(t *testing.T) {
	x, _ := everything(t, replay.Distinct)
	x.Skip = 0
	whole := try(t, x)
	x, b := everything(t, replay.Distinct)
	part := try(t, x)
	if whole.Rollouts != whole.End.Inserted || !reflect.DeepEqual(whole.Staleness.Bins(), whole.End.Staleness.Bins()) {
		t.Errorf("without a skip %d of %d rollouts are measured", whole.Rollouts, whole.End.Inserted)
	}
	if r := part.End.Inserted - part.Rollouts; r < 10_000 || r > 10_000+2000 {
		t.Errorf("%d rollouts are skipped, want 10000 and what the update brings", r)
	}
	if !reflect.DeepEqual(part.End, whole.End) || !reflect.DeepEqual(part.End, countsOf(t, b)) {
		t.Error("a skip changes the schedule")
	}
	// Before the window every draw is younger than its first version.
	skipped := rollout.Version(whole.Updates - part.Updates)
	if skipped < 5 || part.Time >= whole.Time {
		t.Errorf("%d updates are skipped, times are %g of %g", skipped, part.Time, whole.Time)
	}
}

func TestATrialReportsEveryProblem(t *testing.T) {
	_, err := sim.Trial{
		Options:  pipeline.Options{Mode: pipeline.Sync, Batch: 3},
		Workload: sim.Workload{Slowness: 0.1},
		Buffer:   table(t, replay.Distinct, 16, 1), Skip: 5, Pieces: -1,
	}.Run(context.Background())
	for _, want := range []string{"mode: sync: want async", "rollouts: 0", "skip: 5", "pieces: -1", "stragglers: 0.1",
		"batch: 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
}

// BenchmarkTrial runs a million rollouts through 7,168 workers and 1,024 trainers, with lengths of a heavy tail,
// stragglers, late rewards, weights that travel and a limit to the updates in flight: what `reprise design --sim` does
// for each of its buffers. The design asks for less than 30 s on two cores.
func BenchmarkTrial(b *testing.B) {
	const trainers, batch = 1024, 16384
	for _, c := range []struct {
		name     string
		sampler  replay.Sampler
		capacity int
		sync     pipeline.WeightSync
	}{
		{"buffer", replay.Distinct, 4 * batch, pipeline.ByGroup},
		{"lifo", replay.LIFO, 2 * batch, pipeline.ByGroup},
		{"fifo", replay.FIFO, 2 * batch, pipeline.ByGroup},
		{"buffer/by-token", replay.Distinct, 4 * batch, pipeline.ByToken},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				table, err := replay.New(replay.Options{Sampler: c.sampler, Capacity: c.capacity, Shards: trainers})
				if err != nil {
					b.Fatal(err)
				}
				r, err := sim.Trial{
					Options: pipeline.Options{
						Workers: 7168, Trainers: trainers, Batch: batch, Group: 16, RolloutCost: 6.84,
						WeightTransfer: 8, UpdatesInFlight: 2, WeightSync: c.sync,
					},
					Workload: sim.Workload{
						Seed: 1, Lengths: sim.Lognormal{Median: 1000, Sigma: 1, Max: 16384},
						Stragglers: 0.02, Slowness: 3,
						Rewards: task.Latency{Distribution: task.Exponential, Mean: 20},
					},
					Buffer: table, Rollouts: 1_000_000, Skip: 250_000,
				}.Run(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*r.TrainersStalled(), "%stalled")
				b.ReportMetric(float64(r.End.Inserted), "rollouts")
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/trial")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// countsOf returns the statistics of a buffer.
func countsOf(t *testing.T, buffer sim.CountingBuffer) rollout.Stats {
	t.Helper()
	stats, err := buffer.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

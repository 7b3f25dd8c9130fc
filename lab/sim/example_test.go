package sim_test

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
)

// How long do trainers wait without replay when there are 6 workers for each and 6.84 would keep it
// busy? No model is needed to know: 1 - 6/6.84, and the first batch.
func Example() {
	table, err := replay.New(replay.Options{Sampler: replay.FIFO, Capacity: 480, Shards: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	machine, err := pipeline.New(
		pipeline.Options{Workers: 12, Trainers: 2, Batch: 240, RolloutCost: 6.84, Updates: 100},
		pipeline.Parts{
			Task:      sim.Task{Accept: 0.5},
			Buffer:    table,
			Generator: &sim.Generator{Lengths: sim.Lognormal{Median: 20, Sigma: 0.5, Max: 64}},
			Learner:   &sim.Learner{},
		},
		pipeline.Hooks{OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error {
			if u.Version == 100 {
				fmt.Printf("trainers waited %.0f%% of the time\n", 100*u.Trainer.Stalled/u.Time)
			}
			return nil
		}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(machine.Run(context.Background()))
	// Output:
	// trainers waited 13% of the time
	// <nil>
}

// What do lengths with a heavy tail and slow workers cost a queue, although W/T = mu? A trial of 60,000 rollouts says it.
func ExampleTrial() {
	for _, c := range []struct {
		name     string
		sampler  replay.Sampler
		capacity int
	}{{"queue", replay.FIFO, 1024}, {"buffer", replay.Distinct, 4096}} {
		table, err := replay.New(replay.Options{Sampler: c.sampler, Capacity: c.capacity, Shards: 8})
		if err != nil {
			fmt.Println(err)
			return
		}
		record, err := sim.Trial{
			Options: pipeline.Options{Workers: 48, Trainers: 8, Batch: 512, Group: 16, RolloutCost: 6},
			Workload: sim.Workload{
				Seed: 1, Lengths: sim.Lognormal{Median: 1000, Sigma: 1, Max: 16384}, Stragglers: 0.05, Slowness: 3,
			},
			Buffer: table, Rollouts: 60_000, Skip: 15_000,
		}.Run(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: trainers wait %.1f%% of the time; rollouts are used %.2f times, %d versions old in the "+
			"median\n",
			c.name, 100*record.TrainersStalled(), record.ReplayRatio(), record.Staleness.Quantile(0.5))
	}
	// Output:
	// queue: trainers wait 3.6% of the time; rollouts are used 1.00 times, 6 versions old in the median
	// buffer: trainers wait 0.0% of the time; rollouts are used 1.03 times, 10 versions old in the median
}

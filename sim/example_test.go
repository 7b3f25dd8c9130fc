package sim_test

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/sim"
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

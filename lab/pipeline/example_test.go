package pipeline_test

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
)

// Six workers and two trainers around a replay buffer, stopped half-way and resumed.
func Example() {
	options := pipeline.Options{Workers: 6, Trainers: 2, Batch: 240, Group: 16, RolloutCost: 6.84, Updates: 200}
	table, err := replay.New(replay.Options{Capacity: 1008, Shards: 2, Sampler: replay.Uniform})
	if err != nil {
		fmt.Println(err)
		return
	}
	parts := pipeline.Parts{Task: sim.Task{Accept: 0.5}, Buffer: table, Generator: &sim.Generator{},
		Learner: &sim.Learner{}}
	hooks := pipeline.Hooks{OnUpdate: func(m *pipeline.Machine, u pipeline.Update) error {
		if u.Version%100 == 0 {
			fmt.Printf("update %d at %.0f: replay ratio %.2f, staleness %.1f, at most %d\n",
				u.Version, u.Time, u.ReplayRatio(), u.StalenessMean, u.StalenessMax)
			m.Stop() // as Ctrl-C would
		}
		return nil
	}}
	machine, err := pipeline.New(options, parts, hooks)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := machine.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	state, weights, err := machine.Snapshot() // save these, the table and the learner
	if err != nil {
		fmt.Println(err)
		return
	}
	if machine, err = pipeline.Resume(options, parts, hooks, state, weights); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(machine.Run(context.Background()))
	// Output:
	// update 100 at 12109: replay ratio 2.27, staleness 6.5, at most 11
	// update 200 at 24109: replay ratio 2.27, staleness 6.1, at most 11
	// <nil>
}

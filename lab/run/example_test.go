package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/run"
)

// A run is a configuration, a start and a folder. This one is small enough to end in a moment.
func Example() {
	dir, err := os.MkdirTemp("", "reprise")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	config, err := run.Load("", []string{
		"task.max=10", "task.held_out=20", "warmup.steps=5", "policy.hidden=16", "policy.intermediate=16",
		"policy.heads=2",
		"policy.kv_heads=2", "pipeline.batch=32", "pipeline.group=4", "replay.capacity=128", "evaluate.samples=0",
		"budget.compute=0",
		"budget.updates=3",
	})
	if err != nil {
		panic(err)
	}
	start, err := run.Begin(context.Background(), config, nil)
	if err != nil {
		panic(err)
	}
	summary, err := run.Train(context.Background(), config, start, filepath.Join(dir, "mine"), run.Hooks{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d updates, then %s; each costs %.3f of one without replay\n", summary.Updates, summary.Ended,
		summary.ComputeRatio)
	// Output: 3 updates, then budget; each costs 0.637 of one without replay
}

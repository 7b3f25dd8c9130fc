package study_test

import (
	"context"
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/study"
)

// A study of one's own: two sizes of the buffer, two seeds, and a judge that counts how often a rollout was used.
func Example() {
	dir, err := os.MkdirTemp("", "studies")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	sized := func(capacity string) run.Config {
		c, err := run.Load("", []string{
			"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
			"task.max=10", "task.held_out=20",
			"warmup.steps=5", "warmup.batch=8", "pipeline.batch=16", "pipeline.group=4", "evaluate.samples=0",
			"budget.compute=0", "budget.updates=8", "replay.capacity=" + capacity,
		})
		if err != nil {
			panic(err)
		}
		return c
	}
	s := study.Study{
		Name: "reuse", Title: "How often is a rollout used?", Source: "[ER] app. E",
		Arms: func(study.Options) []study.Arm {
			return []study.Arm{{Name: "small", Config: sized("32")}, {Name: "large", Config: sized("64")}}
		},
		Judge: func(f *study.Found) (study.Judgement, error) {
			more := f.Of("large").Seed(1).Summary.ReplayRatio.Float() > 1
			verdict := map[bool]results.Verdict{true: results.Holds, false: results.DoesNotHold}[more]
			return study.Judgement{Findings: []results.Finding{{Claim: "More often than once.", Verdict: verdict}}}, nil
		},
	}
	runner := study.Runner{Study: s, Options: study.Options{Seeds: 2}, Dir: dir,
		OnPlan: func(_ bool, total, ended int) { fmt.Println(total, "runs,", ended, "there") }}
	for range 2 { // the second time every run is there already
		found, err := runner.Run(context.Background())
		if err != nil {
			panic(err)
		}
		fmt.Println(found.Sheet.Findings[0].Claim, found.Sheet.Findings[0].Verdict)
	}
	// Output:
	// 4 runs, 0 there
	// More often than once. holds
	// 4 runs, 4 there
	// More often than once. holds
}

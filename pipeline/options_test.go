package pipeline_test

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
)

func TestZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	if err := (pipeline.Options{}).Validate(); err != nil {
		t.Fatal(err)
	}
	o := pipeline.Options{}.WithDefaults()
	expect(t, "W, T, B, G, mu, R", []any{o.Workers, o.Trainers, o.Batch, o.Group, o.RolloutCost, o.SyncRollouts}, []any{6, 2, 256, 16, 5.28, 256})
	expect(t, "unit", o.UpdateCompute, 1024.0)
}

func TestValidateReportsEveryProblemWithKeyValueAndRange(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		opts pipeline.Options
		want []string
	}{
		{pipeline.Options{Workers: -1, Trainers: -2, Group: -3, Batch: -4}, []string{
			"pipeline.workers is -1: must be at least 1", "pipeline.trainers is -2: must be at least 1",
			"pipeline.group is -3: must be at least 1", "pipeline.batch is -4: must be at least 1",
		}},
		{pipeline.Options{Trainers: 3, Batch: 256}, []string{"pipeline.batch is 256: must be a multiple of the 3 trainers"}},
		{pipeline.Options{RolloutCost: nan, WeightTransfer: -1, ComputeBudget: nan, UpdateCompute: math.Inf(1), Updates: -1}, []string{
			"pipeline.rollout_cost is NaN: must be finite and above 0", "pipeline.weight_transfer is -1: must be finite and at least 0",
			"pipeline.compute_budget is NaN: must be finite and at least 0", "pipeline.update_compute is +Inf",
			"pipeline.updates is -1: must be at least 0",
		}},
		{pipeline.Options{Mode: "lazy", WeightSync: "never", Advantage: "none"}, []string{
			`pipeline.mode is lazy: must be "async" or "sync"`, `pipeline.weight_sync is never: must be "group" or "token"`,
			"pipeline.advantage is none: must be one of",
		}},
		{pipeline.Options{Mode: pipeline.Sync, SyncRollouts: 24, SyncUpdates: -1}, []string{
			"pipeline.sync_rollouts is 24: must be a multiple of the group size 16", "pipeline.sync_updates is -1: must be at least 1",
		}},
		{pipeline.Options{UpdatesInFlight: -1}, []string{"pipeline.updates_in_flight is -1: must be at least 0"}},
		{pipeline.Options{WeightSync: pipeline.ByToken, Chunk: -1, PublishEvery: -1, Concurrency: -1}, []string{
			"pipeline.chunk is -1: must be at least 1", `pipeline.max_tokens is 0: must be at least 1 when weight_sync is "token"`,
			"pipeline.publish_every is -1: must be at least 1", "pipeline.concurrency is -1: must be at least 1",
		}},
	} {
		err := c.opts.Validate()
		if err == nil {
			t.Errorf("%+v passes", c.opts)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q is missing from:\n%v", w, err)
			}
		}
		if n := len(strings.Split(err.Error(), "\n")); n != len(c.want) {
			t.Errorf("%d problems, want %d:\n%v", n, len(c.want), err)
		}
	}
}

func TestCostModelGivesTheNumbersOfTheMethods(t *testing.T) {
	near := func(what string, got, want, within float64) {
		if math.Abs(got-want) > within {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	o := pipeline.Options{Workers: 6, Trainers: 2, Batch: 240, Group: 16, RolloutCost: 6.84}
	near("gamma at 6.84", o.ComputeRatio(), 0.510, 0.0005)
	near("expected replay ratio", o.ExpectedReplayRatio(), 2.28, 1e-12)
	near("R", o.NewPerUpdate(), 240*3/6.84, 1e-9)
	near("D", o.GroupUpdates(), 16*6.84*2/240, 1e-9)
	near("staleness bound", o.StalenessBound(1008), 1008/(240*3/6.84)+2*(16*6.84*2/240)+1, 1e-9)
	o.RolloutCost = 5.28
	near("gamma at 5.28", o.ComputeRatio(), 0.637, 0.0005)
}

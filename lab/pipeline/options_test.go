package pipeline_test

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
)

func TestZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	if err := (pipeline.Options{}).Validate(); err != nil {
		t.Fatal(err)
	}
	o := pipeline.Options{}.WithDefaults()
	expect(t, "W, T, B, G, mu, R", []any{o.Workers, o.Trainers, o.Batch, o.Group, o.RolloutCost, o.SyncRollouts},
		[]any{6, 2, 256, 16, 5.28, 256})
	expect(t, "unit", o.UpdateCompute, 1024.0)
}

func TestValidateReportsEveryProblemWithKeyValueAndRange(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		opts pipeline.Options
		want []string
	}{
		{pipeline.Options{Workers: -1, Trainers: -2, Group: -3, Batch: -4}, []string{
			"workers: -1: want 1 to", "trainers: -2: want 1 to",
			"group: -3: want 1 to", "batch: -4: want 1 to",
		}},
		{pipeline.Options{Trainers: 3, Batch: 256}, []string{"batch: 256: want a multiple of the 3 trainers"}},
		{pipeline.Options{RolloutCost: nan, WeightTransfer: -1, ComputeBudget: nan, UpdateCompute: math.Inf(1),
			Updates: -1}, []string{
			"rollout_cost: NaN: want a finite number above 0", "weight_transfer: -1: want a finite number, 0",
			"compute_budget: NaN: want a finite number, 0", "update_compute: +Inf: want",
			"updates: -1: want 0 (no limit) or more",
		}},
		{pipeline.Options{Mode: "lazy", WeightSync: "never", Advantage: "none"}, []string{
			`mode: lazy: want async or sync`, `weight_sync: never: want group or token`,
			"advantage: none: want one of",
		}},
		{pipeline.Options{Mode: pipeline.Sync, SyncRollouts: 24, SyncUpdates: -1}, []string{
			"sync_rollouts: 24: want a multiple of the group size 16", "sync_updates: -1: want 1 or more",
		}},
		{pipeline.Options{ForwardCost: new(-0.5), ForwardPasses: 2}, []string{
			"forward_cost: -0.5: want a finite number, 0 or more", "forward_passes: 2: want 0 to batch_updates (1)",
		}},
		{pipeline.Options{Window: -1}, []string{"window: -1: want 0 (groups enter as they are finished) or more groups"}},
		{pipeline.Options{Window: 4, Mode: pipeline.Sync}, []string{"window: 4: want 0 with mode sync, whose turns take"}},
		{pipeline.Options{UpdatesInFlight: -1}, []string{"updates_in_flight: -1: want 0 (no limit) or more"}},
		{pipeline.Options{WeightSync: pipeline.ByToken, Chunk: -1, PublishEvery: -1, Concurrency: -1}, []string{
			"chunk: -1: want 1 or more", `max_tokens: 0: want 1 or more with weight_sync token`,
			"publish_every: -1: want 1 or more", "concurrency: -1: want 1 or more",
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
	o := pipeline.Options{Workers: 6, Trainers: 2, Batch: 240, Group: 16, RolloutCost: 6.84}
	tests.Near(t, "gamma at 6.84", o.ComputeRatio(), 0.510, 0.0005)
	tests.Near(t, "expected replay ratio", o.ExpectedReplayRatio(), 2.28, 1e-12)
	tests.Near(t, "R", o.NewPerUpdate(), 240*3/6.84, 1e-9)
	tests.Near(t, "D", o.GroupUpdates(), 16*6.84*2/240, 1e-9)
	tests.Near(t, "staleness bound", o.StalenessBound(1008), 1008/(240*3/6.84)+2*(16*6.84*2/240)+1, 1e-9)
	o.RolloutCost = 5.28
	tests.Near(t, "gamma at 5.28", o.ComputeRatio(), 0.637, 0.0005)

	// two of four updates begin with a forward pass of half an update: they cost 1.25 on average
	o.BatchUpdates, o.ForwardPasses, o.ForwardCost = 4, 2, new(0.5)
	tests.Near(t, "mean time of an update", o.StepTime(), 150, 1e-12)
	tests.Near(t, "training", o.TrainingCost(), 1.25, 1e-12)
	tests.Near(t, "an update with replay", o.ReplayCompute(), 240*4*1.25, 1e-9)
	tests.Near(t, "the unit of compute", o.QueueCompute(), 240*6.28, 1e-9)
	tests.Near(t, "R with forward passes", o.NewPerUpdate(), 240*3/5.28*1.25, 1e-9)
	tests.Near(t, "replay ratio with forward passes", o.ExpectedReplayRatio(), 5.28/3/1.25, 1e-12)
	tests.Near(t, "D with forward passes", o.GroupUpdates(), 16*5.28/150, 1e-12)
	o.ForwardCost = nil
	tests.Near(t, "training by default", o.TrainingCost(), 1+1.0/6, 1e-12)
}

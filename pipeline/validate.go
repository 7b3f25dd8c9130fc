package pipeline

import (
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/advantage"
)

// Problem is one option that is out of its range.
type Problem struct {
	Key     string // of the option, as configurations spell it
	Value   any
	Allowed string // range, in words
}

func (p Problem) Error() string {
	return fmt.Sprintf("pipeline.%s is %v: must be %s", p.Key, p.Value, p.Allowed)
}

// Validate returns every [Problem] of the options with their defaults, joined, or nil.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var found []error
	refuse := func(bad bool, key string, value any, allowed string, args ...any) {
		if bad {
			found = append(found, Problem{key, value, fmt.Sprintf(allowed, args...)})
		}
	}
	refuse(o.Workers < 1, "workers", o.Workers, "at least 1")
	refuse(o.Trainers < 1, "trainers", o.Trainers, "at least 1")
	refuse(o.Group < 1, "group", o.Group, "at least 1")
	refuse(o.Batch < 1, "batch", o.Batch, "at least 1")
	refuse(o.Trainers >= 1 && o.Batch >= 1 && o.Batch%o.Trainers != 0,
		"batch", o.Batch, "a multiple of the %d trainers", o.Trainers)
	refuse(!(o.RolloutCost > 0) || math.IsInf(o.RolloutCost, 0), "rollout_cost", o.RolloutCost, "finite and above 0")
	refuse(!nonNegative(o.WeightTransfer), "weight_transfer", o.WeightTransfer, "finite and at least 0")
	refuse(o.UpdatesInFlight < 0, "updates_in_flight", o.UpdatesInFlight, "at least 0")
	refuse(o.Mode != Async && o.Mode != Sync, "mode", o.Mode, "%q or %q", Async, Sync)
	refuse(o.SyncRollouts < 0, "sync_rollouts", o.SyncRollouts, "at least 1")
	refuse(o.Mode == Sync && o.Group >= 1 && o.SyncRollouts%o.Group != 0,
		"sync_rollouts", o.SyncRollouts, "a multiple of the group size %d", o.Group)
	refuse(o.BatchUpdates < 1 || o.BatchUpdates > math.MaxInt32, "batch_updates", o.BatchUpdates, "1 to %d", math.MaxInt32)
	refuse(o.SyncUpdates < 1, "sync_updates", o.SyncUpdates, "at least 1")
	refuse(o.Mode == Sync && o.BatchUpdates >= 1 && o.SyncUpdates >= 1 && o.SyncUpdates%o.BatchUpdates != 0,
		"sync_updates", o.SyncUpdates, "a multiple of batch_updates (%d), so that a turn ends with its last batch", o.BatchUpdates)
	o.refuseFresh(refuse)
	refuse(o.WeightSync != ByGroup && o.WeightSync != ByToken, "weight_sync", o.WeightSync, "%q or %q", ByGroup, ByToken)
	refuse(o.Chunk < 1, "chunk", o.Chunk, "at least 1")
	refuse(o.MaxTokens < 0, "max_tokens", o.MaxTokens, "at least 0")
	refuse(o.WeightSync == ByToken && o.MaxTokens == 0, "max_tokens", o.MaxTokens, "at least 1 when weight_sync is %q", ByToken)
	refuse(o.PublishEvery < 1, "publish_every", o.PublishEvery, "at least 1")
	refuse(o.Advantage.Validate() != nil, "advantage", o.Advantage, "one of %q", advantage.Kinds())
	refuse(o.Updates < 0, "updates", o.Updates, "at least 0")
	refuse(!nonNegative(o.ComputeBudget), "compute_budget", o.ComputeBudget, "finite and at least 0")
	refuse(!nonNegative(o.UpdateCompute), "update_compute", o.UpdateCompute, "finite and at least 0")
	refuse(o.Concurrency < 1, "concurrency", o.Concurrency, "at least 1")
	return errors.Join(found...)
}

// nonNegative reports whether x is a finite number >= 0.
func nonNegative(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }

package pipeline

import (
	"runtime"

	"github.com/reprise-rl/reprise/advantage"
)

// Mode says whether workers and trainers work at the same time.
type Mode string

const (
	// Async lets workers and trainers work concurrently ([ER] §2). The default.
	Async Mode = "async"
	// Sync lets them take turns: SyncRollouts new rollouts, then SyncUpdates updates
	// ([ER] §3, [OG] alg. 1).
	Sync Mode = "sync"
)

// WeightSync says when a worker takes up the newest weights that have reached it.
type WeightSync string

const (
	// ByGroup takes weights up when a group is started. The default.
	ByGroup WeightSync = "group"
	// ByToken decodes in chunks of Chunk positions and takes weights up before each, so that one
	// rollout's tokens may come from several versions.
	ByToken WeightSync = "token"
)

// Timing is how long the generation of a group takes.
type Timing struct {
	Worker float64 // time of its worker, finite and > 0
	Tail   float64 // from then until its last rollout has ended, while the worker makes the next group; finite and >= 0
}

// Options configures a [Machine]. Zero means the default in brackets.
type Options struct {
	Workers  int // W, inference GPUs, >= 1 [6]
	Trainers int // T, trainer GPUs, >= 1 [2]
	Batch    int // B, rollouts per update over all trainers, a multiple of T [256]
	Group    int // G, rollouts per prompt, >= 1 [16]

	// RolloutCost is mu, the compute of generating one rollout in units of training on one, > 0
	// [5.28, Qwen2.5-7B in ER].
	RolloutCost float64
	// GroupTiming says how long the group of a job takes on a worker, where groups differ: by their lengths, or because
	// a worker is slow. It must be a pure function. Where the cost model speaks of G mu it means the mean [G mu for all].
	GroupTiming func(job uint64, worker int) Timing
	// WeightTransfer is the time from the publication of weights until workers may take them up, >= 0.
	WeightTransfer float64
	// UpdatesInFlight is the most updates under way at a time, each from its beginning until workers may take up the weights
	// that it publishes, >= 0. At 1 trainers wait for every transfer to end, at 2 they take the next batch meanwhile (one
	// step off), and so on. Updates that PublishEvery keeps to the trainers are under way until they end [0: no limit].
	UpdatesInFlight int
	// RewardLatency gives the time until the rewards of the n-th job's group are known, finite and
	// >= 0; its worker goes on meanwhile. It must be a pure function [none: at once].
	RewardLatency func(job uint64) float64

	Mode Mode // [Async]
	// SyncRollouts is the new rollouts per turn in synchronous mode, a multiple of G [B rounded up to one, or
	// more if the turn's fresh draws take more; with Mix, what they take].
	SyncRollouts int
	// SyncUpdates is the updates per turn in synchronous mode, a multiple of BatchUpdates [BatchUpdates times
	// 1 + Mix].
	SyncUpdates int

	// BatchUpdates is i of the schedule (v, i) ([OG] alg. 1): the updates in a row that are taken on each batch
	// drawn, >= 1. Updates 1, 1+i, 1+2i, … draw; those between take what was drawn, at the staleness that it has
	// by then, and draw nothing. The buffer knows of one draw and one use of it; Update.Used counts every update's
	// [1].
	BatchUpdates int

	// Mix is K, the replay batches to each fresh batch ([FP] alg. 1), >= 0. The first batch and every
	// (1+K)-th from it ask for fresh draws only (rollout.Request.Fresh), those between for none in
	// particular [0: none asks for any].
	Mix int
	// FreshShare is the share of fresh draws in every update's batch, rounded to whole rollouts for each
	// trainer, in [0, 1]. It excludes Mix [0: not asked for].
	FreshShare float64

	WeightSync WeightSync // [ByGroup]
	Chunk      int        // positions decoded between looks at the weights when ByToken, >= 1 [32]
	MaxTokens  int        // the most positions that a generation decodes; required when ByToken
	// PublishEvery lets only versions divisible by it reach the workers, >= 1: v of the schedule (v, i) is
	// PublishEvery/BatchUpdates, as versions count updates and v counts batches [1].
	PublishEvery int

	// Advantage is how advantages are taken. Those over the training batch are set here before each
	// step, on the draws of all trainers; the group-relative are the buffer's affair, a critic's the
	// learner's [advantage.Group].
	Advantage advantage.Kind

	Updates       int     // ends the run after so many updates [0: no limit]
	ComputeBudget float64 // ends the run at the first update that reaches it [0: no limit]
	// UpdateCompute is the compute counted per update: B(1+mu) without replay, B(1+W/T) with
	// (METHODS 1) [ReplayCompute].
	UpdateCompute float64

	// Concurrency limits the generations and steps that are computed at the same time. It changes no
	// result [GOMAXPROCS].
	Concurrency int
}

// WithDefaults returns the options with every zero replaced by its default.
func (o Options) WithDefaults() Options {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&o.Workers, 6)
	orInt(&o.Trainers, 2)
	orInt(&o.Batch, 256)
	orInt(&o.Group, 16)
	if o.RolloutCost == 0 {
		o.RolloutCost = 5.28
	}
	if o.Mode == "" {
		o.Mode = Async
	}
	if o.WeightSync == "" {
		o.WeightSync = ByGroup
	}
	orInt(&o.BatchUpdates, 1)
	if o.freshDefined() {
		orInt(&o.SyncUpdates, o.BatchUpdates*(1+o.Mix))
		if o.Group > 0 && o.Trainers > 0 {
			orInt(&o.SyncRollouts, o.defaultSyncRollouts())
		}
	}
	orInt(&o.SyncUpdates, o.BatchUpdates)
	orInt(&o.Chunk, 32)
	orInt(&o.PublishEvery, 1)
	if o.Advantage == "" {
		o.Advantage = advantage.Group
	}
	orInt(&o.Concurrency, runtime.GOMAXPROCS(0))
	if o.UpdateCompute == 0 && o.Trainers > 0 {
		o.UpdateCompute = o.ReplayCompute()
	}
	return o
}

// chunks returns in how many pieces a group is decoded.
func (o Options) chunks() int {
	if o.WeightSync != ByToken {
		return 1
	}
	return max(1, (o.MaxTokens+o.Chunk-1)/o.Chunk)
}

package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"runtime"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Mode says whether workers and trainers work at the same time.
type Mode string

const (
	// Async lets workers and trainers work concurrently ([ER] §2). The default.
	Async Mode = "async"
	// Sync makes them take turns: SyncRollouts new rollouts, then SyncUpdates updates ([ER] §3, [OG] alg. 1).
	Sync Mode = "sync"
)

// WeightSync says when a worker switches to the newest weights that have reached it.
type WeightSync string

const (
	// ByGroup switches when a group starts. The default.
	ByGroup WeightSync = "group"
	// ByToken decodes in chunks of Options.Chunk positions and switches before each, so that the tokens of one rollout
	// may come from several versions.
	ByToken WeightSync = "token"
)

// Timing is how long the generation of a group takes.
type Timing struct {
	Worker float64 // how long its worker is busy, finite and > 0
	Tail   float64 // from then until its last rollout ends, while the worker makes the next group; finite and >= 0
}

// Options configures a [Machine]. Zero means the default in brackets.
type Options struct {
	Workers  int `yaml:"workers"`  // W, GPUs that generate, at least 1 [6]
	Trainers int `yaml:"trainers"` // T, GPUs that train, at least 1 [2]
	Batch    int `yaml:"batch"`    // B, rollouts per update over all trainers; a multiple of trainers [256]
	Group    int `yaml:"group"`    // G, rollouts per prompt, at least 1 [16]

	// RolloutCost is mu, the compute of generating one rollout relative to training on one, above 0;
	// 5.28 is Qwen2.5-7B in ER [5.28].
	RolloutCost float64 `yaml:"rollout_cost"`
	// ForwardCost is the compute of a forward pass over a batch relative to an update on it, 0 or more, where a correction
	// needs one beyond the update's own: forward and backward pass make about three of it [1/3].
	ForwardCost *float64 `yaml:"forward_cost"`
	// ForwardPasses is how many of the updates on a batch begin with such a pass, the first ones: 0 to BatchUpdates [0].
	ForwardPasses int `yaml:"-"`
	// GroupTiming gives the time of a job's group on a worker where groups differ, in length or because a worker is
	// slow. It must be a pure function with mean G mu [G mu for all].
	GroupTiming func(job uint64, worker int) Timing `yaml:"-"`
	// WeightTransfer is the time from the publication of weights until workers have them [0].
	WeightTransfer float64 `yaml:"weight_transfer"`
	// UpdatesInFlight limits the updates whose weights have not reached the workers, >= 0. At 1 trainers wait for every
	// transfer to end; at 2 they take the next batch meanwhile (one step off), and so on. Updates that PublishEvery
	// does not publish count until they end [0: no limit].
	UpdatesInFlight int `yaml:"-"`
	// RewardLatency gives the time until the rewards of a job's group are known, finite and >= 0. The worker continues
	// meanwhile. It must be a pure function [none: at once].
	RewardLatency func(job uint64) float64 `yaml:"-"`

	Mode Mode `yaml:"mode"` // async: workers and trainers at the same time; sync: in turns [async]
	// SyncRollouts is the number of new rollouts per turn in synchronous mode, a multiple of group [batch rounded up
	// to one, or what the turn's fresh draws take if that is more; with replay.mix, what they take].
	SyncRollouts int `yaml:"sync_rollouts"`
	// SyncUpdates is the number of updates per turn in synchronous mode, a multiple of batch_updates [batch_updates
	// times 1 + replay.mix].
	SyncUpdates int `yaml:"sync_updates"`
	// OverProvision is how many rollouts a turn begins or resumes beyond those that it needs, as a share of sync_rollouts
	// rounded up to whole groups, 0 to 100. When the table has the turn's rollouts, the others are parked: the next turn
	// resumes them first, with the newest weights, on whichever worker is free. Such a run counts compute by the clock.
	// For mode sync with weight_sync token [0: a turn ends with the last rollout that it began].
	OverProvision float64 `yaml:"over_provision,omitempty"`
	// TokenBudget is how many tokens a rollout decodes in a turn, a multiple of chunk. One that is not finished then is
	// parked, and resumed in this turn only when there is nothing else to begin. For over_provision above 0 [0: no
	// budget].
	TokenBudget int `yaml:"token_budget,omitempty"`

	// BatchUpdates is i of the schedule (v, i) ([OG] alg. 1): the updates in a row on each batch. Updates 1, 1+i, 1+2i,
	// … draw; those between train on the same draws, whose staleness grows. The buffer counts one use; Update.Used
	// counts every update's [1].
	BatchUpdates int `yaml:"batch_updates"`

	// drop groups whose rewards are all equal, and generate others until the batch is full: DAPO's dynamic sampling,
	// verl's filter_groups. Dropped rollouts cost what they took: such a run counts compute by the clock [false]
	FilterGroups bool `yaml:"filter_groups"`
	// batches that filter_groups may generate to fill one, at least 1; a run that needs more fails [10]
	MaxGenBatches int `yaml:"max_gen_batches"`

	// Window is how many groups, in the order in which they were begun, may enter the table: the oldest that has not
	// entered and those after it. At 1 they enter strictly in order, at 0 as they are finished. For mode async [0].
	Window int `yaml:"window,omitempty"`

	// Mix is K, the replay batches per fresh batch ([FP] alg. 1), >= 0. The first batch and every (1+K)-th after it ask
	// for fresh draws only (rollout.Request.Fresh), the others for none [0: none asks for any].
	Mix int `yaml:"-"`
	// FreshShare is the share of fresh draws in every batch, rounded to whole rollouts per trainer, in [0, 1]. It
	// excludes Mix [0: none].
	FreshShare float64 `yaml:"-"`
	// FreshAt gives the fresh draws of each trainer's batch by the version that it is drawn at, in the place of
	// FreshShare where they differ. It must be a pure function. Such a machine is asynchronous, and counts compute by
	// the clock [none].
	FreshAt func(v rollout.Version) int `yaml:"-"`
	// Composed says that the buffer draws the fresh ones by itself: requests ask for none, and a batch may hold fewer,
	// where the buffer passes some over. It still waits for as many [false].
	Composed bool `yaml:"-"`

	// when workers take up new weights: at each group (group), or within rollouts (token) [group]
	WeightSync WeightSync `yaml:"weight_sync"`
	// positions decoded between switches of weights, with weight_sync token, at least 1 [32]
	Chunk     int `yaml:"chunk"`
	MaxTokens int `yaml:"-"` // most positions that a generation decodes; required with ByToken
	// PublishEvery is the number of versions from one that workers get to the next. As versions count updates and v
	// counts batches, v of the schedule (v, i) is publish_every/batch_updates [1].
	PublishEvery int `yaml:"publish_every"`

	// Advantage is the kind of advantages. The machine computes those over the training batch before each step, on the
	// draws of all trainers; the buffer computes the group-relative ones, the learner those of a critic
	// [advantage.Group].
	Advantage advantage.Kind `yaml:"-"`

	Updates       int     `yaml:"-"` // after which the run ends [0: no limit]
	ComputeBudget float64 `yaml:"-"` // ends the run at the first update that reaches it [0: no limit]
	// UpdateCompute is the compute counted per update: B(1+mu) without replay, B(1+W/T) with it, more with ForwardPasses
	// (METHODS 1) [Options.ReplayCompute]. With FilterGroups, FreshAt and OverProvision it only estimates; a [Live] counts
	// B + mu times the fresh rollouts of a batch where that is more.
	UpdateCompute float64 `yaml:"-"`

	// Concurrency limits the generations and steps that run at the same time. It does not affect results [GOMAXPROCS].
	Concurrency int `yaml:"-"`
}

// WithDefaults returns the options with every zero replaced by its default.
func (o Options) WithDefaults() Options {
	o.Workers, o.Trainers = cmp.Or(o.Workers, 6), cmp.Or(o.Trainers, 2)
	o.Batch, o.Group = cmp.Or(o.Batch, 256), cmp.Or(o.Group, 16)
	o.RolloutCost = cmp.Or(o.RolloutCost, 5.28)
	o.ForwardCost = new(o.forwardCost())
	o.Mode, o.WeightSync = cmp.Or(o.Mode, Async), cmp.Or(o.WeightSync, ByGroup)
	o.BatchUpdates = cmp.Or(o.BatchUpdates, 1)
	if o.freshValid() {
		o.SyncUpdates = cmp.Or(o.SyncUpdates, o.BatchUpdates*(1+o.Mix))
		if o.Group > 0 && o.Trainers > 0 {
			o.SyncRollouts = cmp.Or(o.SyncRollouts, o.defaultSyncRollouts())
		}
	}
	o.SyncUpdates = cmp.Or(o.SyncUpdates, o.BatchUpdates)
	o.Chunk, o.PublishEvery = cmp.Or(o.Chunk, 32), cmp.Or(o.PublishEvery, 1)
	o.MaxGenBatches = cmp.Or(o.MaxGenBatches, 10)
	o.Advantage = cmp.Or(o.Advantage, advantage.Group)
	o.Concurrency = cmp.Or(o.Concurrency, runtime.GOMAXPROCS(0))
	if o.UpdateCompute == 0 && o.Trainers > 0 {
		o.UpdateCompute = o.ReplayCompute()
	}
	return o
}

// Bounds of a schedule: a worker takes about 11 KB, and a rollout of a batch what its tokens take.
const (
	maxGPUs     = 1 << 16
	maxRollouts = 1 << 20
)

// Validate returns an [option.Error] for every option out of its range, defaults filled in.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var p option.Problems
	p.Check(o.Workers >= 1 && o.Workers <= maxGPUs, "workers", o.Workers, "1 to %d", maxGPUs)
	p.Check(o.Trainers >= 1 && o.Trainers <= maxGPUs, "trainers", o.Trainers, "1 to %d", maxGPUs)
	p.Check(o.Group >= 1 && o.Group <= maxRollouts, "group", o.Group, "1 to %d", maxRollouts)
	p.Check(o.Batch >= 1 && o.Batch <= maxRollouts, "batch", o.Batch, "1 to %d", maxRollouts)
	p.CheckWith("trainers", o.Trainers < 1 || o.Batch%o.Trainers == 0, "batch", o.Batch, "a multiple of the %d trainers",
		o.Trainers)
	p.Check(positive(o.RolloutCost), "rollout_cost", o.RolloutCost, "a finite number above 0")
	p.Check(nonNegative(*o.ForwardCost), "forward_cost", *o.ForwardCost, "a finite number, 0 or more")
	p.Check(o.ForwardPasses >= 0 && o.ForwardPasses <= max(0, o.BatchUpdates), "forward_passes", o.ForwardPasses,
		"0 to batch_updates (%d)", o.BatchUpdates)
	p.Check(nonNegative(o.WeightTransfer), "weight_transfer", o.WeightTransfer, "a finite number, 0 or more")
	p.Check(o.UpdatesInFlight >= 0, "updates_in_flight", o.UpdatesInFlight, "0 (no limit) or more")
	p.Check(o.Mode == Async || o.Mode == Sync, "mode", o.Mode, "%s or %s", Async, Sync)
	p.Check(o.SyncRollouts >= 0, "sync_rollouts", o.SyncRollouts, "1 or more")
	p.CheckWith("group", o.Mode != Sync || o.Group < 1 || o.SyncRollouts%o.Group == 0,
		"sync_rollouts", o.SyncRollouts, "a multiple of the group size %d", o.Group)
	p.Check(o.BatchUpdates >= 1 && o.BatchUpdates <= math.MaxInt32,
		"batch_updates", o.BatchUpdates, "1 to %d", math.MaxInt32)
	p.Check(o.SyncUpdates >= 1, "sync_updates", o.SyncUpdates, "1 or more")
	p.CheckWith("batch_updates", o.Mode != Sync || o.BatchUpdates < 1 || o.SyncUpdates%o.BatchUpdates == 0,
		"sync_updates", o.SyncUpdates, "a multiple of batch_updates (%d), so that a turn ends with its last batch",
		o.BatchUpdates)
	o.checkFresh(&p)
	o.checkFilter(&p)
	o.checkParking(&p)
	p.Check(o.Window >= 0, "window", o.Window, "0 (groups enter as they are finished) or more groups")
	p.Check(o.Window <= 0 || o.Mode == Async, "window", o.Window, "0 with mode %s, whose turns take all that they need",
		o.Mode)
	p.Check(o.WeightSync == ByGroup || o.WeightSync == ByToken,
		"weight_sync", o.WeightSync, "%s or %s", ByGroup, ByToken)
	p.Check(o.Chunk >= 1, "chunk", o.Chunk, "1 or more")
	p.Check(o.MaxTokens >= 0, "max_tokens", o.MaxTokens, "0 or more")
	p.Check(o.WeightSync != ByToken || o.MaxTokens != 0,
		"max_tokens", o.MaxTokens, "1 or more with weight_sync %s", ByToken)
	p.Check(o.PublishEvery >= 1, "publish_every", o.PublishEvery, "1 or more")
	p.Check(o.Advantage.Validate() == nil, "advantage", o.Advantage, "one of %q", advantage.Kinds())
	p.Check(o.Updates >= 0, "updates", o.Updates, "0 (no limit) or more")
	p.Check(nonNegative(o.ComputeBudget), "compute_budget", o.ComputeBudget, "a finite number, 0 (no limit) or more")
	p.Check(nonNegative(o.UpdateCompute), "update_compute", o.UpdateCompute, "a finite number, 0 or more")
	p.Check(o.Concurrency >= 1, "concurrency", o.Concurrency, "1 or more")
	return p.Err()
}

// checkFresh checks Mix and FreshShare, and the turns of synchronous mode that must fit them.
func (o Options) checkFresh(p *option.Problems) {
	p.Check(o.Mix >= 0 && o.Mix < math.MaxInt32, "mix", o.Mix, "0 to %d", math.MaxInt32-1)
	p.Check(o.FreshShare >= 0 && o.FreshShare <= 1, "fresh_share", o.FreshShare, "0 to 1")
	p.Check(o.Mix <= 0 || !(o.FreshShare > 0),
		"fresh_share", o.FreshShare, "0 with mix %d: only one of them may be set", o.Mix)
	if o.FreshAt != nil {
		p.Check(o.Mix == 0 && o.FreshShare == 0, "mix", o.Mix, "0, and fresh_share 0, where fresh draws follow the version")
		p.Check(o.Mode != Sync, "mode", o.Mode, "%s where fresh draws follow the version", Async)
		return
	}
	if !o.freshValid() || o.Trainers < 1 || o.Batch < 1 || o.Group < 1 || o.Batch%o.Trainers != 0 {
		return // reported already
	}
	p.Check(o.FreshShare == 0 || o.freshDraws(0) > 0, "fresh_share", o.FreshShare,
		"0, or enough for one fresh draw among the %d of a trainer", o.Batch/o.Trainers)
	if o.Mode != Sync || o.SyncUpdates < 1 || o.BatchUpdates < 1 || o.SyncUpdates%o.BatchUpdates != 0 {
		return
	}
	switch {
	case o.Mix == 0:
		p.Check(o.SyncRollouts >= o.freshRolloutsPerTurn(), "sync_rollouts", o.SyncRollouts,
			"%d or more with fresh_share %g: whole groups for each trainer's %d fresh draws per turn",
			o.freshRolloutsPerTurn(), o.FreshShare, o.freshDrawsPerTurn())
	case o.SyncUpdates/o.BatchUpdates%(1+o.Mix) != 0:
		p.Check(false, "sync_updates", o.SyncUpdates,
			"a multiple of the %d updates of a mix of %d", o.BatchUpdates*(1+o.Mix), o.Mix)
	case o.freshDrawsPerTurn()%o.Group != 0:
		p.Check(false, "sync_updates", o.SyncUpdates,
			"a number with which each trainer's %d fresh draws per turn are whole groups of %d",
			o.freshDrawsPerTurn(), o.Group)
	default:
		p.Check(o.SyncRollouts == o.freshRolloutsPerTurn(), "sync_rollouts", o.SyncRollouts,
			"%d with mix %d, what the turn's fresh batches take", o.freshRolloutsPerTurn(), o.Mix)
	}
}

// checkFilter checks FilterGroups, which suits advantages that are 0 where the rewards of a group are equal.
func (o Options) checkFilter(p *option.Problems) {
	p.Check(o.MaxGenBatches >= 1, "max_gen_batches", o.MaxGenBatches, "1 batch or more")
	if !o.FilterGroups {
		return
	}
	p.Check(o.Group != 1, "filter_groups", o.FilterGroups,
		"false with group 1, or a group of 2 or more, whose rewards can differ")
	p.Check(o.Advantage != advantage.Batch && o.Advantage != advantage.Critic, "filter_groups", o.FilterGroups,
		"false with advantage %s, by which groups whose rewards are all equal teach too", o.Advantage)
}

// checkParking checks what has turns park rollouts.
func (o Options) checkParking(p *option.Problems) {
	p.Check(o.OverProvision >= 0 && o.OverProvision <= 100, "over_provision", o.OverProvision,
		"0 (nothing is parked) to 100")
	p.Check(o.TokenBudget >= 0, "token_budget", o.TokenBudget, "0 (none) or more")
	p.CheckWith("chunk", o.TokenBudget <= 0 || o.Chunk < 1 || o.TokenBudget%o.Chunk == 0, "token_budget", o.TokenBudget,
		"a multiple of chunk (%d), after which rollouts are parked", o.Chunk)
	p.Check(o.TokenBudget <= 0 || o.OverProvision != 0, "token_budget", o.TokenBudget,
		"0 with over_provision 0, or over_provision above 0: a turn needs every rollout that it begins")
	p.Check(!(o.OverProvision > 0) || o.Mode == Sync, "over_provision", o.OverProvision,
		"0 with mode %s, whose workers go on while trainers train, or mode %s", o.Mode, Sync)
	p.Check(!(o.OverProvision > 0) || o.WeightSync == ByToken, "over_provision", o.OverProvision,
		"0 with weight_sync %s, or weight_sync %s, with which rollouts are resumed under newer weights", o.WeightSync,
		ByToken)
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 0) }

func nonNegative(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }

// freshValid reports whether Mix and FreshShare are within their ranges and at most one of them is set.
func (o Options) freshValid() bool {
	return o.Mix == 0 && o.FreshShare >= 0 && o.FreshShare <= 1 ||
		o.Mix > 0 && o.Mix < math.MaxInt32 && o.FreshShare == 0
}

// freshDraws returns how many fresh draws each trainer's batch has in the update after version v.
func (o Options) freshDraws(v int) int {
	size := o.Batch / o.Trainers
	switch {
	case o.FreshAt != nil:
		return min(max(o.FreshAt(rollout.Version(v)), 0), size)
	case o.Mix <= 0:
		return int(math.Round(o.FreshShare * float64(size)))
	case v/o.BatchUpdates%(1+o.Mix) == 0:
		return size
	default:
		return 0
	}
}

// request asks for a trainer's batch in the update after version v.
func (o Options) request(v rollout.Version, shard int) rollout.Request {
	req := rollout.Request{Size: o.Batch / o.Trainers, Shard: shard}
	if !o.Composed {
		req.Fresh = o.freshDraws(int(v))
	}
	return req
}

// computeAt returns the compute of the update after version v with FreshAt: that of the fresh rollouts of its batch, if
// they take more workers than there are.
func (o Options) computeAt(v int) float64 {
	fresh := float64(o.Trainers*o.freshDraws(v-v%o.BatchUpdates)) / float64(o.BatchUpdates)
	return max(o.UpdateCompute, float64(o.Batch)*o.TrainingCost()+o.RolloutCost*fresh)
}

// ByClock reports whether compute is the busy time by the clock, because what an update costs is not known before.
func (o Options) ByClock() bool { return o.FilterGroups || o.FreshAt != nil || o.OverProvision > 0 }

// freshDrawsPerTurn returns how many fresh draws a trainer takes in a turn of synchronous mode.
func (o Options) freshDrawsPerTurn() int {
	batches := o.SyncUpdates / max(1, o.BatchUpdates)
	if o.Mix > 0 {
		return o.Batch / o.Trainers * (batches / (1 + o.Mix))
	}
	return o.freshDraws(0) * batches
}

// freshRolloutsPerTurn returns the new rollouts that a turn's fresh draws take. A group goes to one trainer's shard as
// a whole.
func (o Options) freshRolloutsPerTurn() int {
	groups := (o.freshDrawsPerTurn() + o.Group - 1) / o.Group
	return o.Trainers * o.Group * groups
}

func (o Options) defaultSyncRollouts() int {
	if o.Mix > 0 {
		return o.freshRolloutsPerTurn()
	}
	return max((o.Batch+o.Group-1)/o.Group*o.Group, o.freshRolloutsPerTurn())
}

// chunks returns in how many pieces a group is decoded.
func (o Options) chunks() int {
	if o.WeightSync != ByToken {
		return 1
	}
	return max(1, (o.MaxTokens+o.Chunk-1)/o.Chunk)
}

// chunkShare returns the share of a group's time after which its first k chunks are decoded.
func (o Options) chunkShare(k int) float64 { return float64(k) / float64(o.chunks()) }

// turnGroups returns how many groups a turn of synchronous mode needs, and how many it has under way at most.
func (o Options) turnGroups() (needed, started int) {
	needed = o.SyncRollouts / o.Group
	return needed, needed + int(math.Ceil(float64(o.OverProvision*float64(needed))))
}

// reusesBatch reports whether the update after version v trains on the batch of the update before it. The version alone
// tells: batches are drawn at the versions that BatchUpdates divides.
func (o Options) reusesBatch(v int) bool { return v%o.BatchUpdates != 0 }

// finished reports whether a version or the compute so far has reached its limit. Compute may fall short of its budget
// by rounding.
func (o Options) finished(v rollout.Version, compute float64) bool {
	return o.Updates > 0 && int(v) >= o.Updates ||
		o.ComputeBudget > 0 && compute >= o.ComputeBudget*(1-1e-12)
}

// fillSize is how many rollouts FilterGroups fills up to: a turn's, or a batch.
func (o Options) fillSize() int {
	if o.Mode == Sync {
		return o.SyncRollouts
	}
	return o.Batch
}

// The cost model, METHODS 1. Times are in the time one trainer takes for one rollout; compute is in the same unit times
// GPUs. The conversions to float64 around products keep compilers from fusing them with sums, so that clocks agree
// across architectures.

// StepTime is the mean duration of an update: B/T without ForwardPasses.
func (o Options) StepTime() float64 { return float64(o.plainStepTime() * o.TrainingCost()) }

func (o Options) plainStepTime() float64 { return float64(o.Batch) / float64(o.Trainers) }

// stepTime is the duration of the update after version v.
func (o Options) stepTime(v int) float64 {
	if v%o.BatchUpdates < o.ForwardPasses {
		return float64(o.plainStepTime() * (1 + o.forwardCost()))
	}
	return o.plainStepTime()
}

// TrainingCost is the mean compute of training on a rollout in an update: 1 without ForwardPasses.
func (o Options) TrainingCost() float64 {
	if o.ForwardPasses == 0 {
		return 1
	}
	return 1 + o.forwardCost()*float64(o.ForwardPasses)/float64(max(1, o.BatchUpdates))
}

func (o Options) forwardCost() float64 {
	if o.ForwardCost == nil {
		return 1.0 / 3
	}
	return *o.ForwardCost
}

// groupTime is the mean time of a worker for a group, G mu.
func (o Options) groupTime() float64 { return float64(float64(o.Group) * o.RolloutCost) }

// ContinuousTiming returns the time of a group on a worker that has a slot for each of its rollouts and fills free
// slots with the next group, as inference servers do: the worker is busy in proportion to the group's tokens, and the
// group ends with its longest rollout. Tokens are those of the group over their mean, longest is a length over the mean
// length.
func (o Options) ContinuousTiming(tokens, longest float64) Timing {
	busy := float64(o.groupTime() * tokens)
	return Timing{Worker: busy, Tail: max(0, float64(o.groupTime()*longest)-busy)}
}

// timing returns how long the group of a job takes on a worker.
func (o Options) timing(job uint64, worker int) (Timing, error) {
	if o.GroupTiming == nil {
		return Timing{Worker: o.groupTime()}, nil
	}
	t := o.GroupTiming(job, worker)
	if !positive(t.Worker) {
		return t, fmt.Errorf("time of job %d on worker %d: %g: want a finite number above 0", job, worker, t.Worker)
	}
	if !nonNegative(t.Tail) {
		return t, fmt.Errorf("tail of job %d on worker %d: %g: want a finite number, 0 or more", job, worker, t.Tail)
	}
	return t, nil
}

// rewardLatency returns the time until the rewards of a job's group are known.
func (o Options) rewardLatency(job uint64) float64 {
	if o.RewardLatency == nil {
		return 0
	}
	return o.RewardLatency(job)
}

// QueueCompute is the compute of an update without replay on a batch of its own, B(1 + mu). It is the unit of compute
// whatever BatchUpdates and ForwardPasses are.
func (o Options) QueueCompute() float64 { return float64(float64(o.Batch) * (1 + o.RolloutCost)) }

// ReplayCompute is the compute of an update with replay: B(1 + W/T) without ForwardPasses.
func (o Options) ReplayCompute() float64 {
	return float64(float64(o.Batch)*(1+float64(o.Workers)/float64(o.Trainers))) * o.TrainingCost()
}

// ComputeRatio is gamma = (1 + W/T)/(1 + mu) without ForwardPasses, the cost of an update with replay relative to one
// without.
func (o Options) ComputeRatio() float64 { return o.ReplayCompute() / o.QueueCompute() }

// NewPerUpdate is R = B (W/T)/mu without ForwardPasses, the rollouts generated during one update when nobody stalls.
func (o Options) NewPerUpdate() float64 {
	return float64(o.Batch) * float64(o.Workers) / float64(o.Trainers) / o.RolloutCost * o.TrainingCost()
}

// ExpectedReplayRatio is mu T/W without ForwardPasses, the uses per generated rollout when nobody stalls, counting
// every update on a batch. Where trainers wait for fresh draws it is less: B over [Options.FreshPerUpdate].
func (o Options) ExpectedReplayRatio() float64 {
	return o.RolloutCost * float64(o.Trainers) / float64(o.Workers) / o.TrainingCost()
}

// FreshPerUpdate is the mean number of fresh draws per update over all trainers, with FreshAt those at version 0, and 0
// without any of Mix, FreshShare and FreshAt. If it is above [Options.NewPerUpdate], trainers wait for fresh rollouts.
// If it is below, rollouts not drawn as fresh pile up until the buffer drops the oldest, and fresh draws are of the
// oldest that it keeps.
func (o Options) FreshPerUpdate() float64 {
	updates := float64(max(1, o.BatchUpdates))
	if o.Mix > 0 {
		return float64(o.Batch) / (float64(1+o.Mix) * updates)
	}
	return float64(o.Trainers*o.freshDraws(0)) / updates
}

// GroupUpdates is D = G mu T/B without ForwardPasses, the updates that pass while a group is generated.
func (o Options) GroupUpdates() float64 { return o.groupTime() / o.StepTime() }

// StalenessBound is N/R + 2D + 1, about the greatest staleness in a FIFO buffer of the newest n rollouts.
func (o Options) StalenessBound(n int) float64 {
	return float64(n)/o.NewPerUpdate() + 2*o.GroupUpdates() + 1
}

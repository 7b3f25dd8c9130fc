package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/advantage"
)

// Retention is a rule for what is kept when a table is full.
type Retention string

// The retentions.
const (
	KeepNewest   Retention = "fifo"     // the newest
	KeepPositive Retention = "positive" // the newest, and the newest correct ones not among those
)

// Sampler is a rule for what is drawn.
type Sampler string

// The samplers; see the package documentation.
const (
	LIFO     Sampler = "lifo"
	FIFO     Sampler = "fifo"
	Uniform  Sampler = "uniform"
	Distinct Sampler = "distinct"
	Epoch    Sampler = "epoch"
	Unseen   Sampler = "unseen"

	LeastUsed   Sampler = "least_used"
	Prioritized Sampler = "prioritized"
)

// Samplers returns every sampler.
func Samplers() []Sampler {
	return []Sampler{LIFO, FIFO, Uniform, Distinct, Epoch, Unseen, LeastUsed, Prioritized}
}

// Consumes tells whether the sampler is a queue, which gives each rollout once.
func (s Sampler) Consumes() bool { return s == LIFO || s == FIFO }

// Replaces tells whether a batch may hold a rollout more than once.
func (s Sampler) Replaces() bool { return s == Uniform || s == Prioritized }

// Defaults of Options.
const (
	DefaultCapacity          = 4096
	DefaultPositiveThreshold = 1
	DefaultLeaseTimeout      = time.Minute
)

// Options configure a table. The zero value is a table of [DefaultCapacity] rollouts, the newest kept,
// drawn by the distinct sampler.
type Options struct {
	Capacity      int   // rollouts in all shards together, a multiple of Shards; 0: DefaultCapacity
	CapacityBytes int64 // payload bytes in all shards together; 0: not bounded

	Retention         Retention // "": KeepNewest; queue samplers do not evict and take no other
	PositiveFraction  float64   // of the capacity, set aside for correct rollouts, in [0, 1); KeepPositive only
	PositiveThreshold float32   // least reward of a correct rollout; 0: DefaultPositiveThreshold

	Sampler      Sampler // "": Distinct
	MaxStaleness int     // versions; an older rollout leaves; 0: not bounded
	MaxUses      int     // a rollout leaves after that many; 0: not bounded; queue samplers always give 1
	MinSize      int     // rollouts that a shard must hold to be sampled; 0: what the batch needs, one with replacement

	Unit      Unit // "": UnitRollout; queue samplers take no groups
	GroupSize int  // of every group, for UnitGroup; 0 with the other units

	// StepReturns is n, for UnitStep: the reward of a step, and of its turn, becomes its n-step return, the sum over k < n of
	// StepDiscount^k times the reward of the k-th turn from it, as far as the episode goes; ToTheEnd takes all turns that
	// follow. The group's advantages and moments are then taken over the returns of all its steps; a rollout without turns
	// takes part with its reward. 0: a step has its turn's own reward, and the advantage and moments are those of whole rollouts.
	StepReturns  int
	StepDiscount float64 // gamma per turn, in (0, 1]; 0: 1

	Prioritization *Prioritization // of sampler Prioritized, which alone has one; nil: DefaultPrioritization

	Shards    int            // parts, each drawn from by its own trainer; 0: 1
	Advantage advantage.Kind // "": advantage.Group; kinds that are not group-relative leave Draw.Advantage 0
	Vocab     int            // token ids are below; 0: not checked
	MaxTokens int            // of one rollout, prompt included; 0: not bounded
	Seed      uint64         // of every draw

	LeaseTimeout time.Duration    // after which an unacknowledged batch goes back; 0: DefaultLeaseTimeout
	Clock        func() time.Time // for lease timeouts only; nil: time.Now
}

// OptionError is one option out of its range.
type OptionError struct {
	Key     string // as in a configuration file: max_staleness
	Value   string
	Allowed string
}

// Error reads: min_size is -1: allowed is …
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s is %s: allowed is %s", e.Key, e.Value, e.Allowed)
}

// withDefaults returns the options with every zero that stands for a default replaced.
func (o Options) withDefaults() Options {
	orElse(&o.Capacity, DefaultCapacity)
	orElse(&o.Retention, KeepNewest)
	orElse(&o.PositiveThreshold, DefaultPositiveThreshold)
	orElse(&o.Sampler, Distinct)
	orElse(&o.Unit, UnitRollout)
	orElse(&o.StepDiscount, 1)
	orElse(&o.Shards, 1)
	if o.Sampler == Prioritized {
		p := DefaultPrioritization()
		if o.Prioritization != nil {
			p = o.Prioritization.withDefaults() // a copy: nobody changes it any more
		}
		o.Prioritization = &p
	}
	orElse(&o.Advantage, advantage.Group)
	orElse(&o.LeaseTimeout, DefaultLeaseTimeout)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate returns every problem at once, each an *[OptionError], joined; nil if there is none.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := collect(&problems)
	shards := max(o.Shards, 1)
	check(o.Shards >= 1 && o.Shards <= 1<<16, "shards", o.Shards, "1 to 65536")
	// Slots are int32; some stay free for draws that outlive their rollout.
	check(o.Capacity >= 1 && o.Capacity/shards <= math.MaxInt32/2, "capacity", o.Capacity, "1 to %d per shard", math.MaxInt32/2)
	check(o.Capacity%shards == 0, "capacity", o.Capacity, "a multiple of the %d shards, one for each trainer", shards)
	check(o.CapacityBytes == 0 || o.CapacityBytes >= int64(shards), "capacity_bytes", o.CapacityBytes, "0 (not bounded) or at least 1 per shard")
	check(o.Retention == KeepNewest || o.Retention == KeepPositive, "retention", o.Retention, "fifo or positive")
	check(o.Retention == KeepNewest || !o.Sampler.Consumes(), "retention", o.Retention, "fifo with sampler %s, which evicts nothing", o.Sampler)
	check(o.PositiveFraction >= 0 && o.PositiveFraction < 1, "positive_fraction", o.PositiveFraction, "at least 0 and below 1")
	check(o.PositiveFraction == 0 || o.Retention == KeepPositive, "positive_fraction", o.PositiveFraction, "0 with retention %s", o.Retention)
	check(o.recentCapacity() >= 1 || o.Capacity < shards, "positive_fraction", o.PositiveFraction, "what leaves room for one other rollout in a shard of %d", o.Capacity/shards)
	check(!math.IsNaN(float64(o.PositiveThreshold)), "positive_threshold", o.PositiveThreshold, "a number")
	check(slices.Contains(Samplers(), o.Sampler), "sampler", o.Sampler, "one of %v", Samplers())
	check(o.MaxStaleness >= 0 && o.MaxStaleness <= math.MaxInt32, "max_staleness", o.MaxStaleness, "0 (not bounded) to %d versions", math.MaxInt32)
	check(o.MaxUses >= 0 && o.MaxUses <= math.MaxInt32, "max_uses", o.MaxUses, "0 (not bounded) to %d", math.MaxInt32)
	check(o.MaxUses <= 1 || !o.Sampler.Consumes(), "max_uses", o.MaxUses, "0 or 1 with sampler %s, which gives each rollout once", o.Sampler)
	check(o.MinSize >= 0 && (o.Capacity < shards || o.MinSize <= o.Capacity/shards), "min_size", o.MinSize, "0 to %d, the capacity of a shard", o.Capacity/shards)
	check(among(o.Unit, UnitRollout, UnitStep, UnitGroup), "unit", o.Unit, "rollout, step or group")
	check(o.Unit != UnitGroup || !o.Sampler.Consumes(), "unit", o.Unit, "rollout or step with sampler %s", o.Sampler)
	check(o.Unit != UnitGroup || o.Retention == KeepNewest, "unit", o.Unit, "rollout or step with retention %s, which keeps rollouts by their own reward", o.Retention)
	if o.Unit == UnitGroup {
		check(o.GroupSize >= 1 && o.GroupSize <= o.Capacity/shards, "group_size", o.GroupSize, "1 to %d, the capacity of a shard, with unit group", o.Capacity/shards)
	} else {
		check(o.GroupSize == 0, "group_size", o.GroupSize, "0 with unit %s", o.Unit)
	}
	check(o.StepReturns >= ToTheEnd && o.StepReturns <= math.MaxInt32, "step_returns", o.StepReturns, "turns, 0 for the turn's own reward, or %d for all that follow", ToTheEnd)
	check(o.StepReturns == 0 || o.Unit == UnitStep, "step_returns", o.StepReturns, "0 with unit %s", o.Unit)
	check(o.StepDiscount > 0 && o.StepDiscount <= 1, "step_discount", o.StepDiscount, "above 0, to 1")
	check(o.StepDiscount == 1 || o.StepReturns != 0, "step_discount", o.StepDiscount, "1 with step_returns 0, which discounts nothing")
	if o.Prioritization != nil {
		check(o.Sampler == Prioritized, "sampler", o.Sampler, "prioritized where Options.Prioritization is given")
		o.Prioritization.validate(check)
		check(o.Prioritization.Base != BaseAdvantage || o.Prioritization.Entry == EnterMax || o.Advantage.GroupRelative(), "entry", o.Prioritization.Entry,
			"max with priority_base advantage and advantage %s, which nobody knows before the step", o.Advantage)
	}
	check(o.Vocab >= 0 && o.Vocab <= math.MaxInt32, "vocab", o.Vocab, "0 (not checked) to %d", math.MaxInt32)
	check(o.MaxTokens >= 0 && o.MaxTokens <= math.MaxInt32, "max_tokens", o.MaxTokens, "0 (not bounded) to %d", math.MaxInt32)
	check(o.LeaseTimeout > 0, "lease_timeout", o.LeaseTimeout, "more than 0s")
	if err := o.Advantage.Validate(); err != nil {
		check(false, "advantage", o.Advantage, "%v", advantage.Kinds())
	}
	return errors.Join(problems...)
}

// collect returns what adds a problem for each check that fails.
func collect(problems *[]error) func(ok bool, key string, value any, allowed string, args ...any) {
	return func(ok bool, key string, value any, allowed string, args ...any) {
		if !ok {
			*problems = append(*problems, &OptionError{key, fmt.Sprint(value), fmt.Sprintf(allowed, args...)})
		}
	}
}

// keptCapacity is the number of rollouts per shard that retention sets aside for correct ones.
func (o Options) keptCapacity() int {
	return int(math.Round(o.PositiveFraction * float64(o.Capacity/max(o.Shards, 1))))
}

// recentCapacity is the number of rollouts per shard kept whatever their reward.
func (o Options) recentCapacity() int { return o.Capacity/max(o.Shards, 1) - o.keptCapacity() }

// shardCapacity is the number of rollouts that a shard may hold.
func (o Options) shardCapacity() int { return o.Capacity / o.Shards }

// shardBytes is the number of bytes that a shard may hold, math.MaxInt64 if that is not bounded.
func (o Options) shardBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return o.CapacityBytes / int64(o.Shards)
}

// keptBytes is the part of shardBytes set aside for correct rollouts.
func (o Options) keptBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return int64(o.PositiveFraction * float64(o.shardBytes()))
}

// recentBytes is the part of shardBytes for rollouts whatever their reward, and so the most that one
// rollout may have.
func (o Options) recentBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return o.shardBytes() - o.keptBytes()
}

package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Options define a table. They are the one definition of its keys: a run's configuration, the service's YAML and JSON,
// journals, snapshots and the Python client spell them by the json tags.
//
// A field that is zero, or nil, is not given and stands for its default, which the comment names in brackets. Where
// zero is a value of its own the field is a pointer: new(0.0) in Go, 0 in YAML and JSON.
type Options struct {
	// rollouts kept, over all shards; a multiple of shards [4096]
	Capacity      int   `json:"capacity,omitempty"`
	CapacityBytes int64 `json:"capacity_bytes,omitempty"` // payload bytes, all shards [no limit; services: Sizing]
	// what is kept when the table is full: fifo or positive [fifo]
	Retention Retention `json:"retention,omitempty"`
	// share of the capacity reserved for correct rollouts, in [0, 1), with retention positive [0]
	PositiveFraction  float64  `json:"positive_fraction,omitempty"`
	PositiveThreshold *float32 `json:"positive_threshold,omitempty"` // least reward of a correct rollout [1]
	// correct rollouts of one prompt that a shard's reserved part holds, the oldest leaving first [no limit]
	PositivesPerPrompt int `json:"positives_per_prompt,omitempty"`
	// share of each batch drawn from the reserved part, as far as it goes, each rollout once; the sampler draws the
	// others from the whole table; in [0, 1], 0 with sampler prioritized [0]
	PositiveShare float64 `json:"positive_share,omitempty"`
	// evict rollouts older than this many versions [no limit]
	MaxStaleness int `json:"max_staleness,omitempty"`
	// evict a rollout after this many uses; a queue always gives each once [no limit]
	MaxUses int `json:"max_uses,omitempty"`

	// lifo, fifo, uniform, distinct, epoch, unseen, least_used or prioritized [distinct]
	Sampler Sampler `json:"sampler,omitempty"`
	// rollouts a shard must hold before it is sampled [what the batch needs; 1 with replacement]
	MinSize int  `json:"min_size,omitempty"`
	Unit    Unit `json:"unit,omitempty"` // what a draw falls on: rollout, step or group [rollout]

	// GroupSize is the number of rollouts in every group; insertions with other groups are refused. Unit group needs it
	// [groups may differ].
	GroupSize int `json:"group_size,omitempty"`
	// StepReturns is n, with unit step: a step's reward becomes its n-step return, the sum over k < n of
	// step_discount^k times the reward of the k-th turn from it, to the end of the episode if n is -1. Advantages are
	// then taken over the returns of all steps of the group; a rollout without turns counts with its reward [0: a step
	// has its turn's own reward].
	StepReturns  int     `json:"step_returns,omitempty"`
	StepDiscount float64 `json:"step_discount,omitempty"` // gamma per turn of step_returns, in (0, 1] [1]

	// The next twelve configure sampler prioritized (docs/METHODS.md, section 3); other samplers take none of them.

	// advantage, reward, td_error, gradient_norm or recency [advantage]
	PriorityBase     Base    `json:"priority_base,omitempty"`
	PriorityEpsilon  float64 `json:"priority_epsilon,omitempty"`  // added to every base, above 0 [1e-06]
	PriorityExponent float64 `json:"priority_exponent,omitempty"` // alpha, above 0, at most 100 [0.6]
	// tau in versions, at least 0.001; inf: no decay, standard PER [500]
	AgeDecay Versions `json:"age_decay,omitempty"`
	// before_exponent or after_exponent [before_exponent]
	DecayOrder Decay `json:"decay,omitempty"`
	// in (0, 1): age_decay follows the measured ESS to hold a batch's ESS/n there [age_decay is fixed]
	TargetESS float64 `json:"target_ess,omitempty"`
	Draws     Draws   `json:"draws,omitempty"` // stratified or independent [stratified]
	// base of new rollouts: own, or max, the largest known [own]
	Entry Entry `json:"entry,omitempty"`
	// what ends an entry at the maximum: replay, refresh or report [replay]
	EntryUntil Until `json:"entry_until,omitempty"`
	// of the weights (N P)^-beta, in [0, 1]; 0: all weights are 1 [0.4]
	ImportanceBeta *float64 `json:"importance_beta,omitempty"`
	// versions over which importance_beta rises to 1; 0: it stays [0; a run's budget]
	ImportanceAnneal *int `json:"importance_anneal,omitempty"`
	// divide weights by the largest of the batch or the table, of all trainers together [batch]
	ImportanceNorm Norm `json:"importance_norm,omitempty"`

	Shards    int            `json:"shards,omitempty"`     // shares of the table, each sampled by its own trainer [1]
	Advantage advantage.Kind `json:"advantage,omitempty"`  // how advantages are taken at insertion [group]
	Vocab     int            `json:"vocab,omitempty"`      // token ids are below [not checked]
	MaxTokens int            `json:"max_tokens,omitempty"` // of one rollout, prompt included [no limit]
	Seed      uint64         `json:"seed,omitempty"`       // of every draw [0]
	// until an unacknowledged batch goes back, at least 0.001 [60]
	LeaseSeconds float64 `json:"lease_seconds,omitempty"`

	// PriorityFunction is what priority_base function takes: a finite base, of which the absolute value counts.
	PriorityFunction func(r *rollout.Rollout, advantage float32) float64 `json:"-"`
	Clock            func() time.Time                                    `json:"-"` // for leases only [time.Now]
}

// Retention is the rule for what a full table keeps.
type Retention string

// The retentions.
const (
	KeepNewest   Retention = "fifo"     // the newest
	KeepPositive Retention = "positive" // the newest, and the newest correct ones among the others
)

// Sampler is the rule for what is drawn; see the package documentation.
type Sampler string

// The samplers.
const (
	LIFO        Sampler = "lifo"
	FIFO        Sampler = "fifo"
	Uniform     Sampler = "uniform"
	Distinct    Sampler = "distinct"
	Epoch       Sampler = "epoch"
	Unseen      Sampler = "unseen"
	LeastUsed   Sampler = "least_used"
	Prioritized Sampler = "prioritized"
)

// Samplers returns every sampler.
func Samplers() []Sampler {
	return []Sampler{LIFO, FIFO, Uniform, Distinct, Epoch, Unseen, LeastUsed, Prioritized}
}

// Consumes reports whether the sampler is a queue, which gives each rollout once.
func (s Sampler) Consumes() bool { return s == LIFO || s == FIFO }

// Replaces reports whether a batch may hold a rollout more than once.
func (s Sampler) Replaces() bool { return s == Uniform || s == Prioritized }

// Unit is what a draw falls on and what an eviction takes.
type Unit string

// The units.
const (
	UnitRollout Unit = "rollout"
	UnitStep    Unit = "step"  // one turn; insertion splits rollouts into steps, see [rollout.Rollout.Steps]
	UnitGroup   Unit = "group" // all rollouts that entered as one group of group_size
)

// ToTheEnd is the StepReturns of returns that run to the end of the episode.
const ToTheEnd = -1

// Base is what a rollout's priority is made of.
type Base string

// The bases. Each is the absolute value of what it names plus priority_epsilon.
const (
	BaseAdvantage Base = "advantage"     // computed at insertion, or reported since
	BaseReward    Base = "reward"        // [FP]'s choice for methods without a critic
	BaseTDError   Base = "td_error"      // mean over the policy's tokens; at insertion from Rollout.Values
	BaseGradNorm  Base = "gradient_norm" // as reported; needs entry max, as nobody knows it before the first step
	BaseRecency   Base = "recency"       // 1 for all, so that only age decides
	BaseFunction  Base = "function"      // Options.PriorityFunction
)

// Bases returns every base.
func Bases() []Base {
	return []Base{BaseAdvantage, BaseReward, BaseTDError, BaseGradNorm, BaseRecency, BaseFunction}
}

// Decay says whether a priority decays before the exponent is taken or after.
type Decay string

// With p = base exp(-age/tau) and w = p^alpha the decay comes before the exponent, and a weight's half-life is
// (tau/alpha) ln 2 (FreshPER's code). With w = base^alpha exp(-age/tau) it comes after, and the half-life is tau ln 2
// (FreshPER's README).
const (
	BeforeExponent Decay = "before_exponent"
	AfterExponent  Decay = "after_exponent"
)

// Draws says how the draws of a batch are spread over the total of the weights. Either way a draw falls on a unit with
// its share of the total, and may repeat another.
type Draws string

// The spreads.
const (
	Stratified  Draws = "stratified"  // one draw in each of n equal segments of the total, in random order
	Independent Draws = "independent" // each draw anywhere
)

// Entry is the base with which rollouts enter.
type Entry string

// The entries.
const (
	EnterOwn Entry = "own" // their own
	// the largest base, not decayed, that the shard has seen so far, until EntryUntil (Schaul et al. 2016, algorithm 1).
	// Seen are the bases of reports and the own bases of all rollouts that entered, those of the same insertion
	// included: so all rollouts of an insertion enter a shard alike. 1 while none was above PriorityEpsilon.
	EnterMax Entry = "max"
)

// Until is when rollouts that entered at the largest base get their own, or the one that a report gives. [Table.Update]
// always gives them theirs.
type Until string

// The ends of an entry at the maximum. They differ only where batches have fresh draws ([rollout.Request]).
const (
	// the first report after a draw that was not fresh, so that each is replayed once whatever its base (Schaul et al.
	// 2016, and FreshPER's code without age decay, which stores rollouts after the fresh update)
	UntilReplay Until = "replay"
	// or the next batch with fresh draws: FreshPER's code with age decay recomputes all priorities then
	UntilRefresh Until = "refresh"
	UntilReport  Until = "report" // the first report, of a fresh draw too
)

// Norm is what importance weights are divided by, so that none is above 1. A table divides by what one shard knows;
// trainers that share an update go on with [rollout.NormaliseWeights].
type Norm string

// The norms.
const (
	ByBatch Norm = "batch" // the largest of the batch
	ByTable Norm = "table" // the largest any unit of the shard could have
)

// Versions is a number of versions that may be infinite: a number or "inf" in JSON and YAML.
type Versions float64

// String writes a number, or inf.
func (v Versions) String() string {
	if math.IsInf(float64(v), 1) {
		return "inf"
	}
	return strconv.FormatFloat(float64(v), 'g', -1, 64)
}

// MarshalJSON writes a number, or "inf".
func (v Versions) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(v), 1) {
		return []byte(`"inf"`), nil
	}
	return json.Marshal(float64(v))
}

// MarshalYAML writes a number, or inf.
func (v Versions) MarshalYAML() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalJSON reads a number, or "inf".
func (v *Versions) UnmarshalJSON(text []byte) error { return v.parse(string(text)) }

// UnmarshalYAML reads a number, inf or .inf.
func (v *Versions) UnmarshalYAML(text []byte) error { return v.parse(string(text)) }

func (v *Versions) parse(text string) error {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	if text == "inf" || text == ".inf" {
		*v = Versions(math.Inf(1))
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%s is not a number of versions: give a number, or inf", text)
	}
	*v = Versions(x)
	return nil
}

// WithDefaults returns the options with every field that is not given set to its default. Fields of sampler prioritized
// are filled in for that sampler alone.
func (o Options) WithDefaults() Options {
	o.Capacity = cmp.Or(o.Capacity, 4096)
	o.Retention = cmp.Or(o.Retention, KeepNewest)
	o.PositiveThreshold = orElse(o.PositiveThreshold, 1)
	o.Sampler = cmp.Or(o.Sampler, Distinct)
	o.Unit = cmp.Or(o.Unit, UnitRollout)
	o.StepDiscount = cmp.Or(o.StepDiscount, 1)
	if o.Sampler == Prioritized {
		o.PriorityBase = cmp.Or(o.PriorityBase, BaseAdvantage)
		o.PriorityEpsilon = cmp.Or(o.PriorityEpsilon, 1e-6)
		o.PriorityExponent = cmp.Or(o.PriorityExponent, 0.6)
		o.AgeDecay = cmp.Or(o.AgeDecay, 500)
		o.DecayOrder = cmp.Or(o.DecayOrder, BeforeExponent)
		o.Draws = cmp.Or(o.Draws, Stratified)
		o.Entry = cmp.Or(o.Entry, EnterOwn)
		if o.Entry == EnterMax {
			o.EntryUntil = cmp.Or(o.EntryUntil, UntilReplay)
		}
		o.ImportanceBeta = orElse(o.ImportanceBeta, 0.4)
		o.ImportanceAnneal = orElse(o.ImportanceAnneal, 0)
		o.ImportanceNorm = cmp.Or(o.ImportanceNorm, ByBatch)
	}
	o.Shards = cmp.Or(o.Shards, 1)
	o.Advantage = cmp.Or(o.Advantage, advantage.Group)
	o.LeaseSeconds = cmp.Or(o.LeaseSeconds, 60)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

// orElse returns a pointer to p's value, or to the default if there is none. It shares nothing with p.
func orElse[T any](p *T, value T) *T {
	if p != nil {
		value = *p
	}
	return &value
}

// WithoutPriorities returns the options without those of sampler prioritized.
func (o Options) WithoutPriorities() Options {
	o.PriorityBase, o.PriorityEpsilon, o.PriorityExponent, o.AgeDecay, o.DecayOrder, o.TargetESS = "", 0, 0, 0, "", 0
	o.Draws, o.Entry, o.EntryUntil, o.PriorityFunction = "", "", "", nil
	o.ImportanceBeta, o.ImportanceAnneal, o.ImportanceNorm = nil, nil, ""
	return o
}

// PriorityKeys returns the keys given that only sampler prioritized uses.
func (o Options) PriorityKeys() []string {
	var keys []string
	for key := range o.priorities() {
		keys = append(keys, key)
	}
	return keys
}

// priorities yields the options given that only sampler prioritized uses, by key.
func (o Options) priorities() iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		given, none := reflect.ValueOf(o), reflect.ValueOf(o.WithoutPriorities())
		for i := range given.NumField() {
			if given.Field(i).IsZero() || !none.Field(i).IsZero() {
				continue
			}
			key, _, _ := strings.Cut(given.Type().Field(i).Tag.Get("json"), ",")
			if !yield(key, reflect.Indirect(given.Field(i))) {
				return
			}
		}
	}
}

// minAgeDecay is the least tau: below, one version would divide weights by more than a float64 holds.
const minAgeDecay = 1e-3

// maxLeaseSeconds is a year.
const maxLeaseSeconds = 366 * 24 * 3600

// Validate returns every problem at once, each an *[option.Error], joined; nil if there is none.
func (o Options) Validate() error {
	given := o
	o = o.WithDefaults()
	var problems option.Problems
	check := problems.Check
	shards := max(o.Shards, 1)
	share := o.Capacity / shards // of a shard
	check(o.Shards >= 1 && o.Shards <= 1<<16, "shards", o.Shards, "1 to 65536")
	// Slots are int32; some stay free for draws that outlive their rollout.
	check(o.Capacity >= 1 && share <= math.MaxInt32/2, "capacity", o.Capacity, "1 to %d per shard", math.MaxInt32/2)
	check(o.Capacity%shards == 0, "capacity", o.Capacity, "a multiple of the %d shards, one for each trainer", shards)
	check(o.CapacityBytes == 0 || o.CapacityBytes >= int64(shards), "capacity_bytes", o.CapacityBytes,
		"0 (no limit) or at least 1 per shard")
	check(o.Retention == KeepNewest || o.Retention == KeepPositive, "retention", o.Retention, "fifo or positive")
	check(o.Retention == KeepNewest || !o.Sampler.Consumes(), "retention", o.Retention,
		"fifo with sampler %s, which evicts nothing", o.Sampler)
	check(o.PositiveFraction >= 0 && o.PositiveFraction < 1, "positive_fraction", o.PositiveFraction,
		"at least 0 and below 1")
	check(o.PositiveFraction == 0 || o.Retention == KeepPositive, "positive_fraction", o.PositiveFraction,
		"0 with retention %s", o.Retention)
	check(o.recentCapacity() >= 1 || o.Capacity < shards, "positive_fraction", o.PositiveFraction,
		"room for at least one other rollout in a shard of %d", share)
	check(o.PositivesPerPrompt >= 0 && o.PositivesPerPrompt <= math.MaxInt32, "positives_per_prompt",
		o.PositivesPerPrompt, "0 (no limit) to %d", math.MaxInt32)
	check(o.PositivesPerPrompt == 0 || o.PositiveFraction > 0, "positives_per_prompt", o.PositivesPerPrompt,
		"0 with positive_fraction 0, which reserves nothing")
	check(o.PositiveShare >= 0 && o.PositiveShare <= 1, "positive_share", o.PositiveShare, "0 to 1")
	check(!(o.PositiveShare > 0) || o.PositiveFraction > 0, "positive_share", o.PositiveShare,
		"0 with positive_fraction 0, which reserves nothing")
	check(!(o.PositiveShare > 0) || o.Sampler != Prioritized, "positive_share", o.PositiveShare,
		"0 with sampler prioritized, whose importance weights are for its own draws")
	check(!math.IsNaN(float64(*o.PositiveThreshold)), "positive_threshold", *o.PositiveThreshold, "a number")
	check(slices.Contains(Samplers(), o.Sampler), "sampler", o.Sampler, "one of %v", Samplers())
	check(o.MaxStaleness >= 0 && o.MaxStaleness <= math.MaxInt32, "max_staleness", o.MaxStaleness,
		"0 (no limit) to %d versions", math.MaxInt32)
	check(o.MaxUses >= 0 && o.MaxUses <= math.MaxInt32, "max_uses", o.MaxUses, "0 (no limit) to %d", math.MaxInt32)
	check(o.MaxUses <= 1 || !o.Sampler.Consumes(), "max_uses", o.MaxUses, "0 or 1 with sampler %s, which gives each "+
		"rollout once", o.Sampler)
	check(o.MinSize >= 0 && (o.Capacity < shards || o.MinSize <= share), "min_size", o.MinSize,
		"0 to %d, the capacity of a shard", share)
	check(oneOf(o.Unit, UnitRollout, UnitStep, UnitGroup), "unit", o.Unit, "rollout, step or group")
	check(o.Unit != UnitGroup || o.Retention == KeepNewest, "unit", o.Unit, "rollout or step with retention %s, "+
		"which keeps rollouts by their own reward", o.Retention)
	check(o.GroupSize >= 0 && (o.Capacity < shards || o.GroupSize <= share), "group_size", o.GroupSize,
		"0 (groups may differ) to %d, the capacity of a shard", share)
	check(o.GroupSize != 0 || o.Unit != UnitGroup, "group_size", o.GroupSize, "1 to %d, the capacity of a shard, "+
		"with unit group", share)
	check(o.StepReturns >= ToTheEnd && o.StepReturns <= math.MaxInt32, "step_returns", o.StepReturns,
		"turns, 0 for the turn's own reward, or %d to the end of the episode", ToTheEnd)
	check(o.StepReturns == 0 || o.Unit == UnitStep, "step_returns", o.StepReturns, "0 with unit %s", o.Unit)
	check(o.StepDiscount > 0 && o.StepDiscount <= 1, "step_discount", o.StepDiscount, "above 0, at most 1")
	check(o.StepDiscount == 1 || o.StepReturns != 0, "step_discount", o.StepDiscount,
		"1 with step_returns 0, which discounts nothing")
	check(o.Vocab >= 0 && o.Vocab <= math.MaxInt32, "vocab", o.Vocab, "0 (not checked) to %d", math.MaxInt32)
	check(o.MaxTokens >= 0 && o.MaxTokens <= math.MaxInt32, "max_tokens", o.MaxTokens, "0 (no limit) to %d",
		math.MaxInt32)
	check(o.LeaseSeconds >= 1e-3 && o.LeaseSeconds <= maxLeaseSeconds, "lease_seconds", o.LeaseSeconds, "0.001 to %d",
		maxLeaseSeconds)
	if err := o.Advantage.Validate(); err != nil {
		check(false, "advantage", o.Advantage, "%v", advantage.Kinds())
	}
	if o.Sampler == Prioritized {
		o.validatePriorities(&problems)
	} else {
		for key, v := range given.priorities() {
			check(false, key, v, "no value with sampler %s: only sampler prioritized uses it", o.Sampler)
		}
	}
	return problems.Err()
}

// validatePriorities checks what sampler prioritized takes, defaults filled in.
func (o Options) validatePriorities(problems *option.Problems) {
	check := problems.Check
	check(oneOf(o.PriorityBase, Bases()...), "priority_base", o.PriorityBase, "%v", Bases())
	check((o.PriorityBase == BaseFunction) == (o.PriorityFunction != nil), "priority_base", o.PriorityBase,
		"function exactly when Options.PriorityFunction is given")
	if o.takesOwnBase() {
		key, value, want := "entry", string(o.Entry), "max"
		if o.Entry == EnterMax {
			key, value, want = "entry_until", string(o.EntryUntil), "replay or report"
		}
		check(o.PriorityBase != BaseGradNorm, key, value,
			"%s with priority_base gradient_norm, which is unknown before the first step", want)
		check(o.PriorityBase != BaseAdvantage || o.Advantage.GroupRelative(), key, value,
			"%s with priority_base advantage and advantage %s, which is unknown before the step", want, o.Advantage)
	}
	check(o.PriorityEpsilon > 0 && o.PriorityEpsilon <= math.MaxFloat64, "priority_epsilon", o.PriorityEpsilon,
		"finite and above 0")
	check(o.PriorityExponent > 0 && o.PriorityExponent <= 100, "priority_exponent", o.PriorityExponent,
		"above 0, at most 100: sampler uniform draws all alike")
	check(o.AgeDecay >= minAgeDecay, "age_decay", o.AgeDecay, "%g versions or more, or inf for none", minAgeDecay)
	check(oneOf(o.DecayOrder, BeforeExponent, AfterExponent), "decay", o.DecayOrder,
		"before_exponent or after_exponent")
	check(o.TargetESS >= 0 && o.TargetESS < 1, "target_ess", o.TargetESS, "0 (age_decay is fixed) or above 0 and "+
		"below 1")
	check(oneOf(o.Draws, Stratified, Independent), "draws", o.Draws, "stratified or independent")
	check(oneOf(o.Entry, EnterOwn, EnterMax), "entry", o.Entry, "own or max")
	if o.Entry == EnterMax {
		check(oneOf(o.EntryUntil, UntilReplay, UntilRefresh, UntilReport), "entry_until", o.EntryUntil,
			"replay, refresh or report")
	} else {
		check(o.EntryUntil == "", "entry_until", o.EntryUntil, "no value with entry %s", o.Entry)
	}
	check(*o.ImportanceBeta >= 0 && *o.ImportanceBeta <= 1, "importance_beta", *o.ImportanceBeta, "0 to 1")
	check(*o.ImportanceAnneal >= 0 && *o.ImportanceAnneal <= math.MaxInt32, "importance_anneal", *o.ImportanceAnneal,
		"0 (beta stays) to %d versions", math.MaxInt32)
	check(oneOf(o.ImportanceNorm, ByBatch, ByTable), "importance_norm", o.ImportanceNorm, "batch or table")
}

// takesOwnBase reports whether a rollout may need a base before any report of it.
func (o Options) takesOwnBase() bool { return o.Entry == EnterOwn || o.EntryUntil == UntilRefresh }

func oneOf[T comparable](x T, list ...T) bool { return slices.Contains(list, x) }

// HalfLife returns the number of versions after which a weight has fallen to half of those of rollouts made then, at
// age decay tau; +Inf if weights do not fall.
func (o Options) HalfLife(tau float64) float64 { return math.Ln2 / o.decayRate(tau) }

// decayRate is what a weight's logarithm loses per version at age decay tau.
func (o Options) decayRate(tau float64) float64 {
	if o.DecayOrder == AfterExponent {
		return 1 / tau
	}
	return o.PriorityExponent / tau
}

// BetaAt returns the exponent of the importance weights at a version: from importance_beta linearly to 1 over
// importance_anneal versions.
func (o *Options) BetaAt(v rollout.Version) float64 {
	beta, anneal := *o.ImportanceBeta, *o.ImportanceAnneal
	if anneal <= 0 {
		return beta
	}
	return beta + (1-beta)*min(float64(v)/float64(anneal), 1)
}

// identity is what a table must share with the snapshot or the journal it is restored from, as JSON: everything that
// changes what the same operations do. Lease time, vocabulary and token limit may differ.
func (o Options) identity() string {
	o.LeaseSeconds, o.Vocab, o.MaxTokens = 0, 0, 0
	if o.StepReturns == 0 {
		o.StepDiscount = 0
	}
	text, err := json.Marshal(o)
	if err != nil { // no valid options fail to marshal
		panic(err)
	}
	return string(text)
}

// sameIdentity names every option in which a snapshot or journal differs from the table.
func sameIdentity(saved string, table Options) error {
	var problems option.Problems
	// Without entry_until, an entry at the maximum ended with any report.
	if entry := `"entry":"max"`; !strings.Contains(saved, `"entry_until"`) {
		saved = strings.Replace(saved, entry, entry+`,"entry_until":"report"`, 1)
	}
	for _, d := range option.Differences(json.RawMessage(saved), json.RawMessage(table.identity())) {
		problems.Add(fmt.Errorf("%s is %s in the snapshot and %s in the table: give the table the snapshot's: %w",
			d.Key, d.A, d.B, rollout.ErrInvalid))
	}
	return problems.Err()
}

// DrawRule returns how a batch of the table is divided over tables that are parts of one.
func (o Options) DrawRule() parted.Rule {
	o = o.WithDefaults()
	rule := parted.Rule{Unit: 1, ByTable: o.ImportanceNorm == ByTable, Share: o.PositiveShare}
	if o.Unit == UnitGroup {
		rule.Unit = o.GroupSize
	}
	switch o.Sampler {
	case LIFO, FIFO:
		rule.Kind = parted.Queue
	case Uniform:
		rule.Kind = parted.Replaced
	case Epoch:
		rule.Kind = parted.Epoch
	case Unseen, LeastUsed:
		rule.Kind = parted.UnusedFirst
	case Prioritized:
		rule.Kind = parted.Stratified
		if o.Draws == Independent {
			rule.Kind = parted.ByMass
		}
	}
	return rule
}

func (o Options) leaseTime() time.Duration {
	return time.Duration(o.LeaseSeconds * float64(time.Second))
}

// correctCapacity is the number of rollouts per shard that retention positive reserves for correct ones.
func (o Options) correctCapacity() int {
	return int(math.Round(o.PositiveFraction * float64(o.Capacity/max(o.Shards, 1))))
}

// recentCapacity is the number of rollouts per shard kept whatever their reward.
func (o Options) recentCapacity() int { return o.Capacity/max(o.Shards, 1) - o.correctCapacity() }

// shardCapacity is the number of rollouts that a shard may hold.
func (o Options) shardCapacity() int { return o.Capacity / o.Shards }

// shardBytes is the number of bytes that a shard may hold, math.MaxInt64 without a limit.
func (o Options) shardBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return o.CapacityBytes / int64(o.Shards)
}

// correctBytes is the part of shardBytes reserved for correct rollouts.
func (o Options) correctBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return int64(o.PositiveFraction * float64(o.shardBytes()))
}

// recentBytes is the part of shardBytes for rollouts whatever their reward, and so the most one rollout may have.
func (o Options) recentBytes() int64 {
	if o.CapacityBytes == 0 {
		return math.MaxInt64
	}
	return o.shardBytes() - o.correctBytes()
}

package replay

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Options define a table. They are the one definition of its keys ([option.Field]): a run's configuration, the
// service's YAML and JSON, journals, snapshots and Python spell them by the json tags, and docs/reference.md and
// Python's keyword arguments are written from them.
//
// A field that is zero, or nil, is not given. Where zero is a value of its own the field is a pointer: new(0.0) in Go,
// 0 in YAML and JSON.
type Options struct {
	// rollouts kept, over all shards; a multiple of shards
	Capacity int `json:"capacity,omitempty" default:"4096" range:"[1, inf)"`
	// payload bytes, all shards; of a service see docs/service.md, Sizing
	CapacityBytes int64 `json:"capacity_bytes,omitempty" default:"no limit" range:"[0, inf)"`
	// what is kept when the table is full
	Retention Retention `json:"retention,omitempty" default:"fifo"`
	// of retention scored: a number such as version - 2 * uses; the rollout of the least leaves first, and the oldest
	// among equals, the newcomer included; what is not known leaves before all; of unit group, the mean over the group
	Score string `json:"score,omitempty" default:"none"`
	// rollouts of one prompt that a shard keeps, with retention fifo or scored, by which the others leave; not with unit
	// group or a queue
	KeptPerPrompt int `json:"kept_per_prompt,omitempty" default:"no limit" range:"[0, 2147483647]"`
	// share of the capacity reserved for correct rollouts, with retention positive
	PositiveFraction float64 `json:"positive_fraction,omitempty" default:"0" range:"[0, 1)"`
	// least reward of a correct rollout
	PositiveThreshold *float32 `json:"positive_threshold,omitempty" default:"1" range:"[-inf, inf]"`
	// correct rollouts of one prompt that a shard's reserved part holds, the oldest leaving first
	PositivesPerPrompt int `json:"positives_per_prompt,omitempty" default:"no limit" range:"[0, 2147483647]"`
	// share of each batch drawn from the reserved part, as far as it goes, each rollout once; the sampler draws the
	// others from the whole table; not with sampler prioritized
	PositiveShare float64 `json:"positive_share,omitempty" default:"0" range:"[0, 1]"`
	// rollouts of each group that enter, the others counted as evicted by selection; advantages are those among them; only
	// with unit rollout
	Select int `json:"select,omitempty" default:"all" range:"[0, 2147483647]"`
	// which of a group enter: the subset whose rewards have the largest variance (PODS), or the largest rewards
	SelectBy SelectBy `json:"select_by,omitempty" default:"variance"`
	// evict rollouts older than this many versions
	MaxStaleness int `json:"max_staleness,omitempty" default:"no limit" range:"[0, 2147483647]"`
	// a condition such as reward >= 1: what meets it as it is inserted stays however old, of unit group where all meet
	// it; not over age, uses or since_use, and not with a queue
	Pin string `json:"pin,omitempty" default:"none"`
	// evict a rollout after this many uses; a queue always gives each once
	MaxUses int `json:"max_uses,omitempty" default:"no limit" range:"[0, 2147483647]"`

	// parts of each batch, drawn one after another before the sampler draws the rest
	Sources []Source `json:"sources,omitempty"`
	// what is drawn
	Sampler Sampler `json:"sampler,omitempty" default:"distinct"`
	// of sampler ordered: a number such as version - 2 * uses, the largest of which is drawn first, and the oldest among
	// equals; what is not known comes last; of unit group, the mean over the group
	Order string `json:"order,omitempty" default:"version" sampler:"ordered"`
	// of sampler ordered: versions from a rollout's last use to the next one that the sampler draws; what is on lease
	// waits too
	Cooldown int `json:"cooldown,omitempty" default:"no rest" range:"[0, 2147483647]" sampler:"ordered"`
	// keep an index of rollouts by prompt, for draws by prompt, in at most 16 bytes a rollout; not with unit group or a
	// queue
	PromptIndex bool `json:"prompt_index,omitempty" default:"off"`
	// rollouts a shard must hold before it is sampled
	MinSize int `json:"min_size,omitempty" default:"what the batch needs; 1 with replacement" range:"[0, inf)"`
	// what a draw falls on
	Unit Unit `json:"unit,omitempty" default:"rollout"`
	// rollouts in every group; insertions with other groups are refused; unit group needs it
	GroupSize int `json:"group_size,omitempty" default:"groups may differ" range:"[0, inf)"`
	// n, with unit step: a step's reward becomes its n-step return, the sum over k < n of step_discount^k times the
	// reward of the k-th turn from it, to the end of the episode if n is -1; advantages are then taken over the returns
	// of all steps of the group; a rollout without turns counts with its reward; 0: a step has its turn's own reward
	StepReturns int `json:"step_returns,omitempty" default:"0" range:"[-1, 2147483647]"`
	// gamma per turn of step_returns
	StepDiscount float64 `json:"step_discount,omitempty" default:"1" range:"(0, 1]"`

	// The next thirteen configure sampler prioritized (docs/METHODS.md, section 3); other samplers take none of them.

	// what a rollout's priority is made of
	PriorityBase Base `json:"priority_base,omitempty" default:"advantage" sampler:"prioritized"`
	// base of a rollout, a number such as abs(advantage) * group_std; what is below 0 or not known counts as 0; of unit
	// group, the mean over the group
	Priority string `json:"priority,omitempty" default:"priority_base" sampler:"prioritized"`
	// added to every base
	PriorityEpsilon float64 `json:"priority_epsilon,omitempty" default:"1e-06" range:"(0, inf)" sampler:"prioritized"`
	// alpha
	PriorityExponent float64 `json:"priority_exponent,omitempty" default:"0.6" range:"(0, 100]" sampler:"prioritized"`
	// tau in versions; inf: no decay, standard PER
	AgeDecay Versions `json:"age_decay,omitempty" default:"500" range:"[0.001, inf]" sampler:"prioritized"`
	// when a priority decays
	DecayOrder Decay `json:"decay,omitempty" default:"before_exponent" sampler:"prioritized"`
	// age_decay follows the measured ESS to hold a batch's ESS/n at this
	TargetESS float64 `json:"target_ess,omitempty" default:"age_decay is fixed" range:"[0, 1)" sampler:"prioritized"`
	// how the draws of a batch are spread over the total of the weights
	Draws Draws `json:"draws,omitempty" default:"stratified" sampler:"prioritized"`
	// base of new rollouts: their own, or the largest known
	Entry Entry `json:"entry,omitempty" default:"own" sampler:"prioritized"`
	// what ends an entry at the maximum
	EntryUntil Until `json:"entry_until,omitempty" default:"replay" sampler:"prioritized"`
	// of the weights (N P)^-beta; 0: all weights are 1
	ImportanceBeta *float64 `json:"importance_beta,omitempty" default:"0.4" range:"[0, 1]" sampler:"prioritized"`
	// versions over which importance_beta rises to 1; 0: it stays; of a run those of its budget
	ImportanceAnneal *int `json:"importance_anneal,omitempty" default:"0" range:"[0, 2147483647]" sampler:"prioritized"`
	// divide weights by the largest of the batch or the table, of all trainers together
	ImportanceNorm Norm `json:"importance_norm,omitempty" default:"batch" sampler:"prioritized"`

	// shares of the table, each sampled by its own trainer
	Shards int `json:"shards,omitempty" default:"1" range:"[1, 65536]"`
	// how advantages are taken at insertion
	Advantage advantage.Kind `json:"advantage,omitempty" default:"group"`
	// what advantages of draws compare a reward with: the group at insertion, the draws of its prompt in the batch, with
	// split of these the fresh or the replayed ones as it is, or the rollouts of its prompt that the shard holds; all but
	// the first need a group-relative advantage
	DrawAdvantage DrawAdvantage `json:"draw_advantage,omitempty" default:"stored"`
	// token ids are below
	Vocab int `json:"vocab,omitempty" default:"not checked" range:"[0, 2147483647]"`
	// of one rollout, prompt included
	MaxTokens int `json:"max_tokens,omitempty" default:"no limit" range:"[0, 2147483647]"`
	// take rollouts whose log-probs are NaN, not known, such as those of experts, chat logs and other offline data;
	// losses that read log-probs refuse them
	UnknownLogprobs bool `json:"unknown_logprobs,omitempty" default:"off"`
	// take rollouts whose reward is NaN, not known yet: a group is not drawn until it has the rewards of all of its
	// rollouts (Reward), and leaves if it has not after this many seconds; not with unit step, select and kept_per_prompt
	PendingRewards float64 `json:"pending_rewards,omitempty" default:"off" range:"[0, 31622400]"`
	// of every draw
	Seed uint64 `json:"seed,omitempty" default:"0"`
	// rollouts whose life the table remembers, those to which something happened last, in up to 1.5 KB each: when, at
	// which version and by whom they were inserted, drawn, reported on and evicted; not saved
	History int `json:"history,omitempty" default:"off" range:"[0, 16777216]"`
	// until an unacknowledged batch goes back
	LeaseSeconds float64 `json:"lease_seconds,omitempty" default:"60" range:"[0.001, 31622400]"`

	// PriorityFunction is the priority base [BaseFunction]: a finite base, of which the absolute value counts.
	PriorityFunction func(r *rollout.Rollout, advantage float32) float64 `json:"-"`
	// for leases, History, PendingRewards and labels [time.Now]
	Clock func() time.Time `json:"-"`
}

// Retention is the rule for what a full table keeps.
type Retention string

// The retentions.
const (
	KeepNewest   Retention = "fifo"     // the newest
	KeepPositive Retention = "positive" // the newest, and the newest correct ones among the others
	KeepScored   Retention = "scored"   // those of the largest Options.Score
)

// Values returns every retention.
func (Retention) Values() []string { return texts(KeepNewest, KeepPositive, KeepScored) }

func texts[T ~string](list ...T) (out []string) {
	for _, each := range list {
		out = append(out, string(each))
	}
	return out
}

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
	Ordered     Sampler = "ordered"
	Prioritized Sampler = "prioritized"
)

// Samplers returns every sampler.
func Samplers() []Sampler {
	return []Sampler{LIFO, FIFO, Uniform, Distinct, Epoch, Unseen, LeastUsed, Ordered, Prioritized}
}

// Values returns every sampler.
func (Sampler) Values() []string { return texts(Samplers()...) }

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

// Values returns every unit.
func (Unit) Values() []string { return texts(UnitRollout, UnitStep, UnitGroup) }

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
	// what Options.Priority says, which is computed anew where it changes: it takes no reports, and counts from 0 up
	BaseExpression Base = "expression"
	BaseFunction   Base = "function" // Options.PriorityFunction
)

// Values returns every base that a configuration can name, which is all but [BaseFunction].
func (Base) Values() []string {
	return texts(BaseAdvantage, BaseReward, BaseTDError, BaseGradNorm, BaseRecency, BaseExpression)
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

// Values returns both decays.
func (Decay) Values() []string { return texts(BeforeExponent, AfterExponent) }

// Draws says how the draws of a batch are spread over the total of the weights. Either way a draw falls on a unit with
// its share of the total, and may repeat another.
type Draws string

// The spreads.
const (
	Stratified  Draws = "stratified"  // one draw in each of n equal segments of the total, in random order
	Independent Draws = "independent" // each draw anywhere
)

// Values returns both spreads.
func (Draws) Values() []string { return texts(Stratified, Independent) }

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

// Values returns both entries.
func (Entry) Values() []string { return texts(EnterOwn, EnterMax) }

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

// Values returns every end.
func (Until) Values() []string { return texts(UntilReplay, UntilRefresh, UntilReport) }

// Norm is what importance weights are divided by, so that none is above 1. A table divides by what one shard knows;
// trainers that share an update go on with [rollout.NormaliseWeights].
type Norm string

// The norms.
const (
	ByBatch Norm = "batch" // the largest of the batch
	ByTable Norm = "table" // the largest any unit of the shard could have
)

// Values returns both norms.
func (Norm) Values() []string { return texts(ByBatch, ByTable) }

// Versions is a number of versions that may be infinite: a number or "inf" in JSON and YAML.
type Versions float64

// String writes a number, or inf.
func (v Versions) String() string {
	if math.IsInf(float64(v), 1) {
		return "inf"
	}
	return strconv.FormatFloat(float64(v), 'g', -1, 64)
}

// Want says what a configuration may give.
func (v Versions) Want() string {
	return "versions, or inf for none; target_ess lets it follow the measured ESS"
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

// WithDefaults returns the options with every field that is not given set to its default. Fields of one sampler are
// filled in for that sampler alone, entry_until for an entry at the maximum, and select_by where select is given.
func (o Options) WithDefaults() Options {
	given := o
	option.Fill(&o)
	if o.Priority != "" && given.PriorityBase == "" {
		o.PriorityBase = BaseExpression
	}
	if o.Sampler == Ordered && o.Order == "" {
		o.Order = "version"
	}
	before := given
	before.Sampler = o.Sampler
	for i, f := range before.ofOthers() {
		o.ofOthers()[i].Value.Set(f.Value)
	}
	if o.Entry != EnterMax {
		o.EntryUntil = given.EntryUntil
	}
	if o.Select == 0 {
		o.SelectBy = given.SelectBy
	}
	o.PositiveThreshold = clone(o.PositiveThreshold)
	o.ImportanceBeta, o.ImportanceAnneal = clone(o.ImportanceBeta), clone(o.ImportanceAnneal)
	o.Sources = slices.Clone(o.Sources)
	for i := range o.Sources {
		option.Fill(&o.Sources[i])
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// ofOthers returns the fields that only other samplers take.
func (o *Options) ofOthers() (list []option.Field) {
	for f := range option.Fields(reflect.ValueOf(o).Elem()) {
		if only := onlyOf(f); only != "" && only != o.Sampler {
			list = append(list, f)
		}
	}
	return list
}

// onlyOf returns the sampler that alone takes a field, "" if any does.
func onlyOf(f option.Field) Sampler { return Sampler(f.Tag.Get("sampler")) }

// WithoutOthers returns the options without those of other samplers.
func (o Options) WithoutOthers() Options {
	for _, f := range o.ofOthers() {
		f.Value.SetZero()
	}
	if o.Sampler != Prioritized {
		o.PriorityFunction = nil
	}
	return o
}

// OtherKeys returns the keys given that only another sampler uses, with that sampler.
func (o Options) OtherKeys() (keys []string, of []Sampler) {
	for _, f := range o.ofOthers() {
		if !f.Value.IsZero() {
			keys, of = append(keys, f.Key), append(of, onlyOf(f))
		}
	}
	return keys, of
}

// Validate returns every problem at once, each an *[option.Error], joined; nil if there is none. What follows from a
// key that is out of its range by itself is left out.
func (o Options) Validate() error {
	given := o
	o = o.WithDefaults()
	var problems option.Problems
	problems.CheckFields(o, func(f option.Field) bool {
		return f.Key == "select_by" && f.Value.IsZero() || onlyOf(f) != "" && (o.Sampler != onlyOf(f) || f.Value.IsZero() ||
			f.Key == "priority_base" && o.PriorityFunction != nil)
	})
	check := problems.CheckWith
	shards := max(o.Shards, 1)
	share := o.Capacity / shards // of a shard
	// Slots are int32; some stay free for draws that outlive their rollout.
	check("shards", share <= math.MaxInt32/2, "capacity", o.Capacity, "1 to %d per shard", math.MaxInt32/2)
	check("shards", o.Capacity%shards == 0, "capacity", o.Capacity, "a multiple of the %d shards, one for each trainer",
		shards)
	check("shards", o.CapacityBytes == 0 || o.CapacityBytes >= int64(shards), "capacity_bytes", o.CapacityBytes,
		"0 (no limit) or at least 1 per shard")
	check("sampler", o.Retention == KeepNewest || !o.Sampler.Consumes(), "retention", o.Retention,
		"fifo with sampler %s, which evicts nothing", o.Sampler)
	check("retention", (o.Score == "") == (o.Retention != KeepScored), "score", o.Score,
		"an expression with retention scored, and none with others")
	checkNumber(&problems, "score", o.Score)
	o.validatePin(&problems)
	check("retention", o.KeptPerPrompt == 0 || o.Retention != KeepPositive, "kept_per_prompt", o.KeptPerPrompt,
		"0 with retention positive, which has positives_per_prompt")
	check("unit sampler", o.KeptPerPrompt == 0 || !o.Sampler.Consumes() && o.Unit != UnitGroup, "kept_per_prompt",
		o.KeptPerPrompt, "0 with unit group and with samplers lifo and fifo, which have no index by prompt")
	check("retention", o.PositiveFraction == 0 || o.Retention == KeepPositive, "positive_fraction", o.PositiveFraction,
		"0 with retention %s", o.Retention)
	check("capacity shards retention", o.recentCapacity() >= 1, "positive_fraction", o.PositiveFraction,
		"room for at least one other rollout in a shard of %d", share)
	check("positive_fraction retention", o.PositivesPerPrompt == 0 || o.PositiveFraction > 0, "positives_per_prompt",
		o.PositivesPerPrompt, "0 with positive_fraction 0, which reserves nothing")
	check("positive_fraction retention", o.PositiveShare == 0 || o.PositiveFraction > 0, "positive_share",
		o.PositiveShare, "0 with positive_fraction 0, which reserves nothing")
	check("", o.PositiveShare == 0 || o.Sampler != Prioritized, "positive_share", o.PositiveShare,
		"0 with sampler prioritized, whose importance weights are for its own draws")
	check("unit", o.Select == 0 || o.Unit == UnitRollout, "select", o.Select, "0 with unit %s", o.Unit)
	check("unit", o.PendingRewards == 0 || o.Unit != UnitStep, "pending_rewards", o.PendingRewards,
		"0 with unit step, whose steps have the rewards of their turns")
	check("select", o.PendingRewards == 0 || o.Select == 0, "pending_rewards", o.PendingRewards,
		"0 with select, which chooses by rewards as a group is inserted")
	check("kept_per_prompt", o.PendingRewards == 0 || o.KeptPerPrompt == 0, "pending_rewards", o.PendingRewards,
		"0 with kept_per_prompt, by which rollouts would leave before they have a reward")
	check("select", o.SelectBy == "" || o.Select > 0, "select_by", o.SelectBy, "no value with select 0, which takes all")
	o.validateSources(&problems)
	check("", o.MaxUses <= 1 || !o.Sampler.Consumes(), "max_uses", o.MaxUses,
		"0 or 1 with sampler %s, which gives each rollout once", o.Sampler)
	check("capacity shards", o.MinSize <= share, "min_size", o.MinSize, "0 to %d, the capacity of a shard", share)
	check("sampler unit", !o.PromptIndex || !o.Sampler.Consumes() && o.Unit != UnitGroup, "prompt_index", o.PromptIndex,
		"false with unit group and with samplers lifo and fifo, which decide themselves what is drawn together")
	check("advantage", o.DrawAdvantage == AdvantageStored || o.Advantage.GroupRelative(), "draw_advantage",
		o.DrawAdvantage, "stored with advantage %s, which is taken at each use", o.Advantage)
	check("unit", o.DrawAdvantage == AdvantageStored || o.Unit != UnitStep, "draw_advantage", o.DrawAdvantage,
		"stored with unit step, whose steps have the advantage of their rollout")
	check("unit sampler", o.DrawAdvantage != AdvantageBaseline || !o.Sampler.Consumes() && o.Unit != UnitGroup,
		"draw_advantage", o.DrawAdvantage, "another with unit group and with samplers lifo and fifo, which have "+
			"no index by prompt")
	check("retention", o.Unit != UnitGroup || o.Retention != KeepPositive, "unit", o.Unit, "rollout or step with "+
		"retention %s, which keeps rollouts by their own reward", o.Retention)
	check("capacity shards", o.GroupSize <= share, "group_size", o.GroupSize,
		"0 (groups may differ) to %d, the capacity of a shard", share)
	check("capacity shards", o.GroupSize != 0 || o.Unit != UnitGroup, "group_size", o.GroupSize,
		"1 to %d, the capacity of a shard, with unit group", share)
	check("unit", o.StepReturns == 0 || o.Unit == UnitStep, "step_returns", o.StepReturns, "0 with unit %s", o.Unit)
	check("step_returns", o.StepDiscount == 1 || o.StepReturns != 0, "step_discount", o.StepDiscount,
		"1 with step_returns 0, which discounts nothing")
	switch o.Sampler {
	case Prioritized:
		o.validatePriorities(&problems)
	case Ordered:
		checkNumber(&problems, "order", o.Order)
	}
	given.Sampler = o.Sampler
	for _, f := range given.ofOthers() {
		check("sampler", f.Value.IsZero(), f.Key, reflect.Indirect(f.Value),
			"no value with sampler %s: only sampler %s uses it", o.Sampler, onlyOf(f))
	}
	return problems.Err()
}

func (o Options) validatePin(problems *option.Problems) {
	if o.Pin == "" {
		return
	}
	f, err := formula.Condition(o.Pin)
	problems.Check(err == nil, "pin", o.Pin, "a condition: %v", err)
	check := problems.CheckWith
	check("", err != nil || !f.Reads(formula.Age, formula.Uses, formula.SinceUse), "pin", o.Pin,
		"a condition of what does not change, without age, uses and since_use")
	check("sampler", !o.Sampler.Consumes(), "pin", o.Pin, "none with sampler %s, which may be full of too few for a "+
		"batch until some grow too old", o.Sampler)
	check("max_staleness", o.MaxStaleness > 0, "pin", o.Pin, "none with max_staleness 0, which lets all grow old")
}

// checkNumber refuses an expression that is no number of a rollout. "" is none.
func checkNumber(problems *option.Problems, key, text string) {
	if _, err := formula.Score(text); text != "" && err != nil {
		problems.Check(false, key, text, "a number: %v", err)
	}
}

// checkCondition refuses an expression that is no condition on a rollout. "" is none.
func checkCondition(problems *option.Problems, key, text string) {
	if _, err := formula.Condition(text); text != "" && err != nil {
		problems.Check(false, key, text, "a condition: %v", err)
	}
}

// validatePriorities checks what sampler prioritized takes against the rest, defaults filled in.
func (o Options) validatePriorities(problems *option.Problems) {
	check := problems.CheckWith
	check("", (o.PriorityBase == BaseFunction) == (o.PriorityFunction != nil), "priority_base", o.PriorityBase,
		"function exactly when Options.PriorityFunction is given")
	check("priority_base", o.PriorityBase != BaseExpression || o.Priority != "", "priority", o.Priority,
		"an expression with priority_base expression")
	check("priority", o.PriorityBase == BaseExpression || o.Priority == "", "priority_base", o.PriorityBase,
		"expression, or no value, with priority, which is in its place")
	checkNumber(problems, "priority", o.Priority)
	check("", o.PriorityBase != BaseExpression || o.Entry == EnterOwn, "entry", o.Entry,
		"own with priority, which is known of every rollout")
	check("entry", o.EntryUntil == "" || o.Entry == EnterMax, "entry_until", o.EntryUntil, "no value with entry %s",
		o.Entry)
	if !o.takesOwnBase() {
		return
	}
	key, value, want := "entry", string(o.Entry), "max"
	if o.Entry == EnterMax {
		key, value, want = "entry_until", string(o.EntryUntil), "replay or report"
	}
	check("priority_base", o.PriorityBase != BaseGradNorm, key, value,
		"%s with priority_base gradient_norm, which is unknown before the first step", want)
	check("priority_base advantage", o.PriorityBase != BaseAdvantage || o.Advantage.GroupRelative(), key, value,
		"%s with priority_base advantage and advantage %s, which is unknown before the step", want, o.Advantage)
}

// takesOwnBase reports whether a rollout may need a base before any report of it.
func (o Options) takesOwnBase() bool { return o.Entry == EnterOwn || o.EntryUntil == UntilRefresh }

// HalfLife returns after how many versions a rollout weighs half as much as a new one of the same base, at age decay
// tau; +Inf if weights do not fall.
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
// changes what the same operations do. Lease time, vocabulary, token limit, index by prompt and history may differ.
func (o Options) identity() string {
	o.LeaseSeconds, o.Vocab, o.MaxTokens, o.PromptIndex, o.UnknownLogprobs, o.History = 0, 0, 0, false, false, 0
	if o.DrawAdvantage == AdvantageStored {
		o.DrawAdvantage = "" // as in snapshots and journals of before there were others
	}
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
	rule := parted.Rule{Unit: 1, ByTable: o.ImportanceNorm == ByTable, Alone: o.composed()}
	if o.Sampler == Ordered {
		rule.Alone = "order"
	}
	if o.DrawAdvantage != AdvantageStored {
		rule.Alone = "draw_advantage"
	}
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

// PerGroup returns how many rollouts of a group of a size the table keeps at most: select and kept_per_prompt leave
// others out.
func (o Options) PerGroup(size int) int {
	for _, most := range []int{o.Select, o.KeptPerPrompt} {
		if most > 0 {
			size = min(size, most)
		}
	}
	return size
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

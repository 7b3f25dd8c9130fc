package replay

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

func TestTheZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	o := mustNew(t, Options{}).Options()
	if o.Capacity != 4096 || o.Retention != KeepNewest || o.Sampler != Distinct || o.Shards != 1 ||
		o.Advantage != advantage.Group || *o.PositiveThreshold != 1 || o.LeaseSeconds != 60 || o.Clock == nil {
		t.Errorf("got %+v", o)
	}
}

func TestEveryProblemOfTheOptionsIsToldAtOnce(t *testing.T) {
	o := Options{
		Capacity: -1, CapacityBytes: -2, Retention: "lru", PositiveFraction: 1,
		PositiveThreshold: new(float32(math.NaN())),
		Sampler:           "random", MaxStaleness: -3, MaxUses: -4, MinSize: -5, Shards: -6, Advantage: "best",
		Vocab: -7, MaxTokens: -8, LeaseSeconds: -1,
	}
	_, err := New(o)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"capacity: -1: want 1 or more", "capacity_bytes: -2: want 0 (no limit) or more",
		"retention: lru: want fifo, positive or scored", "positive_fraction: 1: want at least 0, below 1",
		"positive_threshold: NaN: want a number",
		"sampler: random: want lifo, fifo, uniform, distinct, epoch, unseen, least_used, ordered or prioritized",
		"max_staleness: -3: want 0 (no limit) to 2147483647", "max_uses: -4", "min_size: -5", "shards: -6: want 1 to 65536",
		"advantage: best: want group, no_std, leave_one_out, log_mean_exp, batch, group_batch or gae", "vocab: -7", "max_tokens: -8",
		"lease_seconds: -1: want 0.001 to 31622400",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from\n%v", want, err)
		}
	}
	var one *option.Error
	if !errors.As(err, &one) || one.Key != "capacity" {
		t.Errorf("the first problem is %v", one)
	}
}

// What follows from a key that is wrong by itself is not told: not which multiple of the shards a capacity of -1 is,
// nor that positive_share needs the fraction that positive_fraction has not.
func TestNothingIsToldThatFollowsFromAnotherProblem(t *testing.T) {
	for want, o := range map[string]Options{
		"capacity":           {Capacity: -1, Shards: 4, MinSize: 9, GroupSize: 9, PositiveFraction: 0},
		"shards":             {Capacity: 10, Shards: -4, MinSize: 9, CapacityBytes: 1},
		"retention":          {Retention: "lru", PositiveFraction: 0.5, PositiveShare: 0.5, Unit: UnitGroup, GroupSize: 2},
		"positive_fraction":  {Retention: KeepPositive, PositiveFraction: 2, PositiveShare: 0.5, PositivesPerPrompt: 1},
		"sampler":            {Sampler: "x", AgeDecay: 5, ImportanceBeta: new(0.5)},
		"priority_base":      {Sampler: Prioritized, PriorityBase: "x", Advantage: advantage.Batch},
		"entry":              {Sampler: Prioritized, Entry: "x", EntryUntil: UntilReport},
		"unit":               {Unit: "x", StepReturns: 2},
		"step_returns":       {Unit: UnitStep, StepReturns: -2, StepDiscount: 0.5},
		"capacity sampler":   {Capacity: -7, Sampler: "x", MinSize: 1},
		"capacity retention": {Capacity: -7, Retention: "x", PositiveFraction: 0.5},
	} {
		var keys []string
		for _, err := range option.Each(o.Validate()) {
			keys = append(keys, err.(*option.Error).Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s: problems of %s:\n%v", want, got, o.Validate())
		}
	}
}

func TestOptionsThatDoNotFitOneAnotherAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"capacity: 10: want a multiple of the 4 shards, one for each trainer": {Capacity: 10, Shards: 4},
		"retention: positive: want fifo with sampler fifo":                    {Retention: KeepPositive, Sampler: FIFO},
		"positive_fraction: 0.5: want 0 with retention fifo":                  {PositiveFraction: 0.5},
		"positive_fraction: 0.9: want room for at least one": {Capacity: 4, Retention: KeepPositive,
			PositiveFraction: 0.9},
		"positives_per_prompt: 2: want 0 with positive_fraction 0": {PositivesPerPrompt: 2},
		"positives_per_prompt: -1: want 0 (no limit) to": {Capacity: 4, Retention: KeepPositive,
			PositiveFraction: 0.5, PositivesPerPrompt: -1},
		"positive_share: 0.5: want 0 with positive_fraction 0": {PositiveShare: 0.5},
		"positive_share: 1.5: want 0 to 1": {Capacity: 4, Retention: KeepPositive, PositiveFraction: 0.5,
			PositiveShare: 1.5},
		"positive_share: 0.5: want 0 with sampler prioritized": {Capacity: 4, Retention: KeepPositive,
			PositiveFraction: 0.5, PositiveShare: 0.5, Sampler: Prioritized},
		"max_uses: 2: want 0 or 1 with sampler lifo":                               {MaxUses: 2, Sampler: LIFO},
		"order: reward: want no value with sampler distinct: only sampler ordered": {Order: "reward"},
		"cooldown: 2: want no value with sampler uniform: only sampler ordered":    {Cooldown: 2, Sampler: Uniform},
		"cooldown: -1: want 0 (no rest) to":                                        {Cooldown: -1, Sampler: Ordered},
		`order: sum([1]): want a number: "sum([1])": there is no function`:         {Order: "sum([1])", Sampler: Ordered},
		`order: meta.a && true: want a number: "meta.a && true": meta.a is a`: {Order: "meta.a && true",
			Sampler: Ordered},
		"select: 2: want 0 with unit step":                                  {Unit: UnitStep, Select: 2},
		"score: reward: want an expression with retention scored, and none": {Score: "reward"},
		`score: "": want an expression with retention scored`:               {Retention: KeepScored},
		"score: reward > 1: want a number: \"reward > 1\": reward > 1 is tru": {Retention: KeepScored,
			Score: "reward > 1"},
		"retention: scored: want fifo with sampler fifo":           {Retention: KeepScored, Score: "reward", Sampler: FIFO},
		"kept_per_prompt: 2: want 0 with retention positive":       {KeptPerPrompt: 2, Retention: KeepPositive},
		"kept_per_prompt: 2: want 0 with unit group and":           {KeptPerPrompt: 2, Unit: UnitGroup, GroupSize: 2},
		"kept_per_prompt: -2: want 0 (no limit) to":                {KeptPerPrompt: -2},
		"pin: reward > 0: want none with max_staleness 0":          {Pin: "reward > 0"},
		"pin: reward > 0: want none with sampler fifo, which may":  {Pin: "reward > 0", MaxStaleness: 2, Sampler: FIFO},
		"pin: age < 3: want a condition of what does not chang":    {Pin: "age < 3", MaxStaleness: 2},
		"pin: reward: want a condition: \"reward\": reward is a":   {Pin: "reward", MaxStaleness: 2},
		"select: -1: want 0 (all) to":                              {Select: -1},
		"select_by: reward: want no value with select 0":           {SelectBy: SelectReward},
		"select_by: best: want variance or reward":                 {SelectBy: "best", Select: 2},
		"min_size: 9: want 0 to 8, the capacity of a shard":        {Capacity: 16, Shards: 2, MinSize: 9},
		"capacity_bytes: 1: want 0 (no limit) or at least 1 per s": {CapacityBytes: 1, Shards: 2},
	} {
		if _, err := New(o); err == nil || err.Error() != strings.Split(err.Error(), "\n")[0] ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want only %s", err, want)
		}
	}
}

func TestVersionsAreANumberOrInf(t *testing.T) {
	for text, want := range map[string]Versions{`"inf"`: Versions(math.Inf(1)), `12`: 12, `0.5`: 0.5} {
		var v Versions
		if err := json.Unmarshal([]byte(text), &v); err != nil || v != want {
			t.Errorf("%s is %v, %v", text, v, err)
		}
		if b, err := json.Marshal(v); err != nil || string(b) != text {
			t.Errorf("%v is written as %s, %v", v, b, err)
		}
	}
	for _, text := range []string{`"much"`, `"auto"`, `NaN`, `-inf`, `1e999`, ``} {
		var v Versions
		if err := v.UnmarshalYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), "give a number, or inf") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTheTDErrorMatchesNumbersWorkedByHand(t *testing.T) {
	for name, c := range map[string]struct {
		mask   []uint8
		values []float32
		turns  []rollout.Turn
		want   float64
	}{
		// The reward is 1. |0.25 - 0.5| and |1 + 0 - 0.25|.
		"single turn": {[]uint8{0, 1, 1}, []float32{9, 0.5, 0.25}, nil, 0.5},
		"one token":   {[]uint8{0, 0, 1}, []float32{9, 9, 3}, nil, 2},
		// The same tokens with one of the environment between them and one after.
		"masked tokens": {[]uint8{0, 1, 0, 1, 0}, []float32{9, 0.5, 9, 0.25, 9}, nil, 0.5},
		// |0.25 - 0.5|, |1 + 1 - 0.25|, |0.5 - 1|, |2 - 0.5|; the whole's reward does not count beside the turns'.
		"two turns": {[]uint8{0, 1, 1, 1, 1}, []float32{9, 0.5, 0.25, 1, 0.5},
			[]rollout.Turn{{Start: 1, End: 3, Reward: 1}, {Start: 3, End: 5, Reward: 2}}, 1},
		// The turns end with the environment's tokens, and the next begins with one.
		"turns with masked tokens": {
			[]uint8{0, 1, 1, 0, 0, 1, 1, 0}, []float32{9, 0.5, 0.25, 9, 9, 1, 0.5, 9},
			[]rollout.Turn{{Start: 0, End: 4, Reward: 1}, {Start: 4, End: 8, Reward: 2}}, 1,
		},
		// A turn in which the policy did nothing pays for what it did before: |3 + 1 - 0.5|, |2 - 1|.
		"a turn without the policy": {
			[]uint8{0, 1, 0, 1}, []float32{9, 0.5, 9, 1},
			[]rollout.Turn{{Start: 1, End: 2, Reward: 1}, {Start: 2, End: 3, Reward: 2}, {Start: 3, End: 4, Reward: 2}},
			2.25,
		},
		"negative rewards": {[]uint8{1, 1}, []float32{0, 0},
			[]rollout.Turn{{Start: 0, End: 1, Reward: -1}, {Start: 1, End: 2, Reward: -3}}, 2},
	} {
		r := &rollout.Rollout{Tokens: make([]int32, len(c.mask)), Mask: c.mask, Values: c.values,
			Turns: c.turns, Reward: 1}
		if got := tdError(r); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := plainTDError(r); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: the model says %v, want %v", name, got, c.want)
		}
	}
}

func TestTheHalfLifeIsOfTheWeightAndNotOfThePriority(t *testing.T) {
	p := prioritizedOptions()
	if got := p.HalfLife(float64(p.AgeDecay)); math.Abs(got-577.6) > 0.1 {
		t.Errorf("at the defaults it is %v", got)
	}
	p.DecayOrder = AfterExponent
	if got := p.HalfLife(float64(p.AgeDecay)); math.Abs(got-346.6) > 0.1 {
		t.Errorf("with decay after the exponent it is %v", got)
	}
	if got := p.HalfLife(math.Inf(1)); !math.IsInf(got, 1) {
		t.Errorf("without decay it is %v", got)
	}
	p.DecayOrder, p.PriorityExponent = BeforeExponent, 0
	if got := p.HalfLife(500); !math.IsInf(got, 1) {
		t.Errorf("with exponent 0 it is %v", got)
	}
	// And so it is in a table.
	table := mustNew(t, Options{Capacity: 2, Sampler: Prioritized})
	mustInsert(t, table, group(0, 1))
	if err := table.Advance(ctx, 578); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, table, group(578, 1))
	if h := table.Inspect().Held(); math.Abs(h[1].Probability/h[0].Probability-2) > 0.002 {
		t.Errorf("after a half-life the probabilities are %v and %v", h[0].Probability, h[1].Probability)
	}
}

func TestBetaRisesLinearlyToOne(t *testing.T) {
	p := Options{ImportanceBeta: new(0.4), ImportanceAnneal: new(100)}
	for v, want := range map[rollout.Version]float64{0: 0.4, 50: 0.7, 99: 0.994, 100: 1, 5000: 1} {
		if got := p.BetaAt(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("beta is %v at version %d, want %v", got, v, want)
		}
	}
	p.ImportanceAnneal = new(0)
	if got := p.BetaAt(5000); got != 0.4 {
		t.Errorf("a beta that stays is %v", got)
	}
}

func TestEveryProblemOfPrioritiesIsToldAtOnce(t *testing.T) {
	nan := math.NaN()
	_, err := New(Options{
		Sampler: Prioritized, PriorityBase: "surprise", PriorityEpsilon: -1, PriorityExponent: -1, AgeDecay: -1,
		DecayOrder: "never",
		TargetESS:  1, Draws: "even", Entry: "last", ImportanceBeta: new(2.0), ImportanceAnneal: new(-1),
		ImportanceNorm: "none",
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"priority_base: surprise: want advantage, reward, td_error, gradient_norm, recency or expression",
		"priority_epsilon: -1: want above 0, finite", "priority_exponent: -1: want above 0, at most 100",
		"age_decay: -1: want 0.001 or more, or inf",
		"decay: never: want before_exponent or after_exponent",
		"target_ess: 1: want at least 0 (age_decay is fixed), below 1",
		"draws: even: want stratified or independent",
		"entry: last: want own or max", "importance_beta: 2: want 0 to 1", "importance_anneal: -1",
		"importance_norm: none: want batch or table",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from\n%v", want, err)
		}
	}
	for name, change := range map[string]func(p *Options){
		"priority_epsilon":  func(p *Options) { p.PriorityEpsilon = nan },
		"priority_exponent": func(p *Options) { p.PriorityExponent = nan },
		"age_decay":         func(p *Options) { p.AgeDecay = Versions(nan) },
		"target_ess":        func(p *Options) { p.TargetESS = nan },
		"importance_beta":   func(p *Options) { p.ImportanceBeta = &nan },
		"entry":             func(p *Options) { p.PriorityBase = BaseGradNorm },
		"priority_base":     func(p *Options) { p.PriorityBase = BaseFunction },
	} {
		p := prioritizedOptions()
		change(&p)
		_, err := New(withPriorities(p, Options{}))
		var one *option.Error
		if !errors.As(err, &one) || one.Key != name || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPriorityOptionsThatDoNotFitOneAnotherAreRefused(t *testing.T) {
	p := prioritizedOptions()
	function := p
	function.PriorityFunction = func(*rollout.Rollout, float32) float64 { return 1 }
	for want, o := range map[string]Options{
		"age_decay: 5: want no value with sampler distinct: only sampler prioritized uses it": {AgeDecay: 5},
		"importance_beta: 0: want no value with sampler uniform": {Sampler: Uniform,
			ImportanceBeta: new(0.0)},
		"priority_base: advantage: want function exactly when Options.PriorityFunction is given": function,
		"entry: own: want max with priority_base advantage and advantage batch": {Sampler: Prioritized,
			Advantage: advantage.Batch},
		`priority: "": want an expression with priority_base expression`: {Sampler: Prioritized,
			PriorityBase: BaseExpression},
		"priority_base: reward: want expression, or no value, with priority": {Sampler: Prioritized,
			PriorityBase: BaseReward, Priority: "reward"},
		"entry: max: want own with priority": {Sampler: Prioritized, Priority: "reward",
			Entry: EnterMax},
		"priority: reward: want no value with sampler distinct: only sampler prioritized": {Priority: "reward"},
		`priority: rewrad: want a number: "rewrad": there is no column rewrad: use reward`: {Sampler: Prioritized,
			Priority: "rewrad"},
		"priority: reward > 0: want a number: \"reward > 0\": reward > 0 is true or false": {Sampler: Prioritized,
			Priority: "reward > 0"},
		`priority: sum(1..9e9): want a number: "sum(1..9e9)": `: {Sampler: Prioritized, Priority: "sum(1..9e9)"},
		"unit: token: want rollout, step or group":              {Unit: "token"},
		"unit: group: want rollout or step with retention positive": {Unit: UnitGroup,
			GroupSize: 2, Retention: KeepPositive},
		"group_size: 0: want 1 to 4096, the capacity of a shard, with unit group": {Unit: UnitGroup},
		"group_size: 9: want 0 (groups may differ) to 8, the capacity of a shard": {Unit: UnitGroup,
			GroupSize: 9, Capacity: 16, Shards: 2},
		"group_size: -1: want 0 (groups may differ) or more": {GroupSize: -1},
	} {
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "\n") ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want only %s", err, want)
		}
	}
}

func TestNobodyChangesATablesPriorityOptions(t *testing.T) {
	p := prioritizedOptions()
	table := mustNew(t, withPriorities(p, Options{}))
	*p.ImportanceBeta = 0.7
	*table.Options().ImportanceBeta = 0.8
	if got := *table.Options().ImportanceBeta; got != 0.4 {
		t.Errorf("beta became %v", got)
	}
}

func TestWhatMakesNoBaseIsRefused(t *testing.T) {
	td := prioritizedOptions()
	td.PriorityBase = BaseTDError
	table := mustNew(t, withPriorities(td, Options{Capacity: 4}))
	valued := group(0, 1)
	valued.Rollouts[0].Values = []float32{0, 0.25}
	_, err := table.Insert(ctx, valued, group(0, 1))
	var field *rollout.FieldError
	if !errors.As(err, &field) || field.Row != 1 || field.Field != "values" || !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a td_error without values gave %v", err)
	}
	mustInsert(t, table, valued)
	if h := table.Inspect().Held(); h[0].Base != 0.75+1e-6 {
		t.Errorf("the base is %v", h[0].Base)
	}
	td.Entry = EnterMax
	mustInsert(t, mustNew(t, withPriorities(td, Options{Capacity: 4})), group(0, 1))

	result := 0.0
	own := prioritizedOptions()
	own.PriorityBase, own.PriorityFunction = BaseFunction, func(*rollout.Rollout, float32) float64 { return result }
	table = mustNew(t, withPriorities(own, Options{Capacity: 4}))
	for _, result = range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := table.Insert(ctx, group(0, 1))
		if !errors.As(err, &field) || field.Field != "priority" {
			t.Errorf("a function that returns %v gave %v", result, err)
		}
	}
	if s := statsOf(table); s.Inserted != 0 || s.Refused != 3 {
		t.Errorf("after the refusals: %+v", s)
	}
	result = -2
	mustInsert(t, table, group(0, 1))
	if h := table.Inspect().Held(); h[0].Base != 2+1e-6 {
		t.Errorf("the base is %v", h[0].Base)
	}
}

func TestPriorityOptionsNotGivenHaveTheirDefaultsAndAZeroBetaIsZero(t *testing.T) {
	o := mustNew(t, Options{Sampler: Prioritized, PriorityBase: BaseReward}).Options()
	if o.PriorityBase != BaseReward || *o.ImportanceBeta != 0.4 || o.PriorityExponent != 0.6 {
		t.Errorf("got %+v", o)
	}
	if beta := mustNew(t,
		Options{Sampler: Prioritized, ImportanceBeta: new(0.0)}).Options().ImportanceBeta; *beta != 0 {
		t.Errorf("a beta of 0 became %v", *beta)
	}
}

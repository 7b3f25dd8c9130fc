package replay

import (
	"errors"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// Base is what a rollout's priority is made of.
type Base string

// The bases. Each is the absolute value of what it names plus Prioritization.Epsilon.
const (
	BaseAdvantage Base = "advantage"     // of the rollout, as computed at insertion or reported since
	BaseReward    Base = "reward"        // [FP]'s choice for methods without a critic
	BaseTDError   Base = "td_error"      // mean over the policy's tokens; at insertion from Rollout.Values
	BaseGradNorm  Base = "gradient_norm" // as reported; needs EnterMax, as nobody knows it before the first step
	BaseRecency   Base = "recency"       // 1 for all, so that nothing but age decides
	BaseFunction  Base = "function"      // Prioritization.Function
)

// Bases returns every base.
func Bases() []Base {
	return []Base{BaseAdvantage, BaseReward, BaseTDError, BaseGradNorm, BaseRecency, BaseFunction}
}

// Decay says whether a priority decays before the exponent is taken or after.
type Decay string

// With p = base exp(-age/tau) and w = p^alpha the decay comes before the exponent, and a weight's half-life is
// (tau/alpha) ln 2 (FreshPER's code); with w = base^alpha exp(-age/tau) it comes after, and the half-life is tau ln 2
// (FreshPER's README).
const (
	BeforeExponent Decay = "before_exponent"
	AfterExponent  Decay = "after_exponent"
)

// Spread says how the draws of a batch are spread over the total of the weights.
type Spread string

// The spreads. Either way a draw falls on a unit with its share of the total, and may repeat another.
const (
	Stratified  Spread = "stratified"  // one in each of as many equal segments of the total as there are draws, in random order
	Independent Spread = "independent" // each anywhere
)

// Entry is the base with which rollouts enter.
type Entry string

// The entries.
const (
	EnterOwn Entry = "own" // their own
	EnterMax Entry = "max" // the largest that the shard has known, 1 before any, until the first report of them (Schaul et al. 2016)
)

// Normalisation says by what importance weights are divided, so that none is above 1.
type Normalisation string

// The normalisations.
const (
	ByBatch Normalisation = "batch" // the largest of the batch
	ByTable Normalisation = "table" // the largest that any unit of the shard could have
)

// Prioritization configures sampler [Prioritized] (docs/METHODS.md, section 3). Zero is the default of
// [DefaultPrioritization] where it can be nothing else: in all fields but TargetESS, Beta and BetaVersions.
type Prioritization struct {
	Base     Base
	Function func(r *rollout.Rollout, advantage float32) float64 // of BaseFunction: finite, its absolute value counts
	Epsilon  float64                                             // added to every base, > 0 and finite

	Exponent  float64 // alpha, above 0, to 100
	AgeDecay  float64 // tau in versions, >= 1e-3; +Inf: none, standard PER
	Decay     Decay
	TargetESS float64 // in (0, 1): tau follows the measured ESS to hold a batch's there, from AgeDecay on; 0: tau is fixed

	Spread Spread
	Entry  Entry

	Beta          float64 // of the importance weights (N P)^-beta, in [0, 1]; 0: all 1
	BetaVersions  int     // over which beta rises to 1, linearly; 0: it stays
	Normalisation Normalisation
}

// DefaultPrioritization returns |advantage|, alpha 0.6, tau 500 before the exponent, stratified draws, entry by own
// base, and weights with beta 0.4, normalised by batch.
func DefaultPrioritization() Prioritization {
	return Prioritization{
		Base: BaseAdvantage, Epsilon: 1e-6, Exponent: 0.6, AgeDecay: 500, Decay: BeforeExponent, Spread: Stratified,
		Entry: EnterOwn, Beta: 0.4, Normalisation: ByBatch,
	}
}

// rate is what a weight's logarithm gains per version.
func (p Prioritization) rate(tau float64) float64 {
	if p.Decay == AfterExponent {
		return 1 / tau
	}
	return p.Exponent / tau
}

// HalfLife returns after how many versions a weight has fallen to half beside those of rollouts made then, at age
// decay tau; +Inf if weights do not fall.
func (p Prioritization) HalfLife(tau float64) float64 { return math.Ln2 / p.rate(tau) }

// BetaAt returns the exponent of the importance weights at a version.
func (p Prioritization) BetaAt(v rollout.Version) float64 {
	if p.BetaVersions <= 0 {
		return p.Beta
	}
	return p.Beta + (1-p.Beta)*min(float64(v)/float64(p.BetaVersions), 1)
}

func (p Prioritization) withDefaults() Prioritization {
	d := DefaultPrioritization()
	orElse(&p.Base, d.Base)
	orElse(&p.Epsilon, d.Epsilon)
	orElse(&p.Exponent, d.Exponent)
	orElse(&p.AgeDecay, d.AgeDecay)
	orElse(&p.Decay, d.Decay)
	orElse(&p.Spread, d.Spread)
	orElse(&p.Entry, d.Entry)
	orElse(&p.Normalisation, d.Normalisation)
	return p
}

// Validate returns every problem at once, each an *[OptionError], joined; nil if there is none.
func (p Prioritization) Validate() error {
	var problems []error
	p.withDefaults().validate(collect(&problems))
	return errors.Join(problems...)
}

// validate reports problems to check, with keys as configurations spell them.
func (p Prioritization) validate(check func(ok bool, key string, value any, allowed string, args ...any)) {
	check(among(p.Base, Bases()...), "priority_base", p.Base, "%v", Bases())
	check((p.Base == BaseFunction) == (p.Function != nil), "priority_base", p.Base, "function exactly when Function is given")
	check(p.Base != BaseGradNorm || p.Entry == EnterMax, "entry", p.Entry, "max with priority_base gradient_norm, which nobody knows before the first step")
	check(p.Epsilon > 0 && p.Epsilon <= math.MaxFloat64, "priority_epsilon", p.Epsilon, "finite and above 0")
	check(p.Exponent > 0 && p.Exponent <= 100, "priority_exponent", p.Exponent, "above 0, to 100")
	check(p.AgeDecay >= minAgeDecay, "age_decay", p.AgeDecay, "%g versions or more, +Inf for none", minAgeDecay)
	check(among(p.Decay, BeforeExponent, AfterExponent), "decay", p.Decay, "before_exponent or after_exponent")
	check(p.TargetESS >= 0 && p.TargetESS < 1, "target_ess", p.TargetESS, "0 (age_decay is fixed) or below 1")
	check(among(p.Spread, Stratified, Independent), "draws", p.Spread, "stratified or independent")
	check(among(p.Entry, EnterOwn, EnterMax), "entry", p.Entry, "own or max")
	check(p.Beta >= 0 && p.Beta <= 1, "importance_beta", p.Beta, "0 to 1")
	check(p.BetaVersions >= 0 && p.BetaVersions <= math.MaxInt32, "importance_versions", p.BetaVersions, "0 (beta stays) to %d versions", math.MaxInt32)
	check(among(p.Normalisation, ByBatch, ByTable), "importance_norm", p.Normalisation, "batch or table")
}

// minAgeDecay is the least tau: below, one version would divide weights by more than a float64 holds.
const minAgeDecay = 1e-3

func among[T comparable](x T, list ...T) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// own returns a rollout's base by what is known of it without a report.
func (p *Prioritization) own(r *rollout.Rollout, advantage float32) float64 {
	switch p.Base {
	case BaseAdvantage:
		return math.Abs(float64(advantage)) + p.Epsilon
	case BaseReward:
		return math.Abs(float64(r.Reward)) + p.Epsilon
	case BaseTDError:
		if len(r.Values) > 0 {
			return tdError(r) + p.Epsilon
		}
		return p.Epsilon // unless entry is max
	case BaseRecency:
		return 1
	case BaseFunction:
		return math.Abs(p.Function(r, advantage)) + p.Epsilon
	}
	return p.Epsilon
}

// lifted adds Epsilon to what a trainer gives.
func (p *Prioritization) lifted(x float64) float64 { return min(x+p.Epsilon, math.MaxFloat64) }

// reports tells whether a trainer's feedback gives bases of this kind.
func (p *Prioritization) reports() bool {
	return among(p.Base, BaseAdvantage, BaseTDError, BaseGradNorm)
}

// reported returns the base that feedback gives, without Epsilon.
func (p *Prioritization) reported(f rollout.Feedback) rollout.Measurement {
	switch p.Base {
	case BaseAdvantage:
		return f.Advantage
	case BaseTDError:
		return f.TDError
	}
	return f.GradNorm
}

// tdError is the mean over the policy's tokens of |r_t + V_next - V_t|, V being Rollout.Values, without discount. Next is
// the policy's next token; after the last one V is 0. r is the turns' rewards, each at its turn's last token; without turns
// the rollout's, at the last.
func tdError(r *rollout.Rollout) float64 {
	var sum, n, next, reward float64
	turns := r.Turns
	if len(turns) == 0 {
		reward = float64(r.Reward)
	}
	for i := len(r.Tokens) - 1; i >= 0; i-- {
		for len(turns) > 0 && i < int(turns[len(turns)-1].End) {
			reward += float64(turns[len(turns)-1].Reward)
			turns = turns[:len(turns)-1]
		}
		if r.Mask[i] == 0 {
			continue
		}
		v := float64(r.Values[i])
		sum += math.Abs(reward + next - v)
		n++
		next, reward = v, 0
	}
	return sum / n
}

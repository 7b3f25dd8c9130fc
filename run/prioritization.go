package run

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/replay"
)

// AgeDecay is tau as configurations spell it: a number of versions, "inf" for none, or "auto".
type AgeDecay string

// Auto lets tau follow the measured ESS.
const Auto AgeDecay = "auto"

// ageDecays is what an AgeDecay may be.
const ageDecays = "versions, 0.001 or more, inf for none, or auto"

// bases are those that reprise train knows: functions are of programs.
const bases = "advantage, reward, gradient_norm or recency, or td_error with learner.objective ppo"

// parse returns tau, the one to begin with where it is automatic.
func (a AgeDecay) parse() (tau float64, auto bool, err error) {
	switch strings.ToLower(string(a)) {
	case string(Auto):
		return replay.DefaultPrioritization().AgeDecay, true, nil
	case ".inf": // as YAML has it
		return math.Inf(1), false, nil
	}
	tau, err = strconv.ParseFloat(string(a), 64)
	if err != nil || !(tau >= 1e-3) {
		return 0, false, errors.New(ageDecays)
	}
	return tau, false, nil
}

// prioritization returns the configuration's part for sampler prioritized, nil with another.
func (c Config) prioritization() *replay.Prioritization {
	if replay.Sampler(c.Replay.Sampler) != replay.Prioritized {
		return nil
	}
	p := c.priorities()
	return &p
}

// priorities returns the prioritization, whether or not the sampler has a use for it. An age decay that cannot be parsed is
// told by validatePriorities.
func (c Config) priorities() replay.Prioritization {
	r := c.Replay
	tau, auto, _ := r.AgeDecay.parse()
	p := replay.Prioritization{
		Base: replay.Base(r.PriorityBase), Epsilon: r.PriorityEpsilon, Exponent: r.PriorityExponent,
		AgeDecay: tau, Decay: replay.Decay(r.Decay), Spread: replay.Spread(r.Draws), Entry: replay.Entry(r.Entry),
		Beta: r.ImportanceBeta, BetaVersions: c.importanceVersions(), Normalisation: replay.Normalisation(r.ImportanceNorm),
	}
	if auto {
		p.TargetESS = r.TargetESS
	}
	return p
}

// entering returns a valid prioritization in which only what the table holds against the kind of the advantages is the
// configuration's: the base where it is the advantage, and how rollouts enter. It is nil with another sampler.
func (c Config) entering() *replay.Prioritization {
	if replay.Sampler(c.Replay.Sampler) != replay.Prioritized {
		return nil
	}
	p := replay.DefaultPrioritization()
	if replay.Base(c.Replay.PriorityBase) != replay.BaseAdvantage {
		p.Base = replay.BaseRecency
	}
	if c.Replay.Entry == string(replay.EnterMax) {
		p.Entry = replay.EnterMax
	}
	return &p
}

// importanceVersions returns over how many versions beta rises to 1: those of the budget unless they are given.
func (c Config) importanceVersions() int {
	switch n := c.Replay.ImportanceVersions; {
	case n > 0:
		return n
	case n < 0:
		return 0 // it stays
	}
	updates := c.Budget.Updates
	if o := c.pipelineOptions().WithDefaults(); o.ComputeBudget > 0 {
		if n := int(math.Ceil(o.ComputeBudget / o.UpdateCompute)); updates == 0 || n < updates {
			updates = n
		}
	}
	return updates
}

// validatePriorities reports what package replay does not: what it takes for a default where here defaults are written out, and
// what it knows by other names. Values are held to their ranges whether or not the sampler has a use for them.
func (c Config) validatePriorities() error {
	r := c.Replay
	var errs []error
	check := func(ok bool, key string, value any, want string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("replay.%s: %v: want %s", key, value, fmt.Sprintf(want, args...)))
		}
	}
	_, auto, err := r.AgeDecay.parse()
	check(err == nil, "age_decay", r.AgeDecay, "%s", ageDecays)
	check(!auto || r.TargetESS > 0 && r.TargetESS < 1, "target_ess", r.TargetESS, "above 0 and below 1 with age_decay auto")
	check(r.PriorityExponent > 0, "priority_exponent", r.PriorityExponent, "above 0, to 100: sampler uniform draws all alike")
	check(r.PriorityEpsilon > 0, "priority_epsilon", r.PriorityEpsilon, "more than 0")
	check(r.ImportanceVersions >= -1, "importance_versions", r.ImportanceVersions, "versions, 0 for those of the budget, or -1 for a beta that stays")
	for _, key := range []struct{ name, value, want string }{
		{"priority_base", r.PriorityBase, bases},
		{"decay", r.Decay, "before_exponent or after_exponent"}, {"draws", r.Draws, "stratified or independent"},
		{"entry", r.Entry, "own or max"}, {"importance_norm", r.ImportanceNorm, "batch or table"},
	} {
		check(key.value != "", key.name, "empty", "%s", key.want)
	}
	switch base := replay.Base(r.PriorityBase); {
	case base == replay.BaseFunction, base == replay.BaseTDError && !c.needsCritic(): // of programs that use package replay, and of critics
		check(false, "priority_base", r.PriorityBase, "%s", bases)
		r.PriorityBase = string(replay.BaseRecency) // so that package replay does not say it again
		c.Replay = r
	}
	if err == nil && errs == nil {
		errs = append(errs, under("replay", c.priorities().Validate()))
	}
	return errors.Join(errs...)
}

// Sampling says in words how a run draws what it learns from, the effective half-life included.
func (c Config) Sampling() string {
	r := c.Replay
	if !c.Replays() {
		return fmt.Sprintf("%s queue: each rollout once", r.Sampler) + c.updatesOnEach()
	}
	o := c.replayOptions(0)
	text := fmt.Sprintf("%s, by %s, from %d", r.Sampler, o.Unit, o.Capacity)
	switch p := c.pipelineOptions(); {
	case p.Mix > 0:
		plural := "s"
		if p.Mix == 1 {
			plural = ""
		}
		text += fmt.Sprintf("; %d replay update%s to each on fresh rollouts", p.Mix, plural)
	case p.FreshShare > 0:
		text += fmt.Sprintf("; %.0f%% of each batch fresh", 100*p.FreshShare)
	}
	text += c.updatesOnEach()
	p := o.Prioritization
	if p == nil {
		return text
	}
	return text + fmt.Sprintf("; priority %s^%g, %s", strings.ReplaceAll(string(p.Base), "_", " "), p.Exponent, halfLife(p))
}

// updatesOnEach words for how many updates a batch is used, where it is more than one.
func (c Config) updatesOnEach() string {
	if i := c.Pipeline.BatchUpdates; i > 1 {
		return fmt.Sprintf("; %d updates on each batch", i)
	}
	return ""
}

// halfLife words the age decay and what comes of it.
func halfLife(p *replay.Prioritization) string {
	half := p.HalfLife(p.AgeDecay)
	if math.IsInf(half, 1) {
		return "no age decay (standard PER)"
	}
	formula := "(tau/alpha) ln 2"
	if p.Decay == replay.AfterExponent {
		formula = "tau ln 2"
	}
	from := ""
	if p.TargetESS > 0 {
		from = fmt.Sprintf("automatic for ESS %g, at first ", p.TargetESS)
	}
	return fmt.Sprintf("age decay %s%g: effective half-life %s = %.0f versions", from, p.AgeDecay, formula, half)
}

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

// versions returns tau, the one to begin with where it is automatic.
func (a AgeDecay) versions() (float64, error) {
	text := strings.TrimPrefix(strings.ToLower(string(a)), ".") // YAML's own infinity is .inf
	if text == string(Auto) {
		return replay.DefaultPrioritization().AgeDecay, nil
	}
	tau, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errors.New("versions, inf for none, or auto")
	}
	return tau, nil
}

// prioritization returns the configuration's part for sampler prioritized, nil with another.
func (c Config) prioritization() *replay.Prioritization {
	r := c.Replay
	if replay.Sampler(r.Sampler) != replay.Prioritized {
		return nil
	}
	tau, err := r.AgeDecay.versions()
	if err != nil {
		tau = math.Inf(1) // validated by itself
	}
	p := &replay.Prioritization{
		Base: replay.Base(r.PriorityBase), Epsilon: r.PriorityEpsilon, Exponent: r.PriorityExponent,
		AgeDecay: tau, Decay: replay.Decay(r.Decay), Spread: replay.Spread(r.Draws), Entry: replay.Entry(r.Entry),
		Beta: r.ImportanceBeta, BetaVersions: c.importanceVersions(), Normalisation: replay.Normalisation(r.ImportanceNorm),
	}
	if r.AgeDecay == Auto {
		p.TargetESS = r.TargetESS
	}
	return p
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

// validatePriorities reports what package replay cannot: values that it knows by other names or not at all.
func (c Config) validatePriorities() error {
	r := c.Replay
	if replay.Sampler(r.Sampler) != replay.Prioritized {
		return nil
	}
	var errs []error
	if _, err := r.AgeDecay.versions(); err != nil {
		errs = append(errs, fmt.Errorf("replay.age_decay: %s: want %w", r.AgeDecay, err))
	}
	if r.AgeDecay == Auto && !(r.TargetESS > 0 && r.TargetESS < 1) {
		errs = append(errs, fmt.Errorf("replay.target_ess: %g: want above 0 and below 1 with age_decay auto", r.TargetESS))
	}
	if replay.Base(r.PriorityBase) == replay.BaseFunction {
		errs = append(errs, errors.New("replay.priority_base: function: want advantage, reward, td_error, gradient_norm or recency: functions are for programs that use package replay"))
	}
	if replay.Base(r.PriorityBase) == replay.BaseTDError {
		errs = append(errs, fmt.Errorf("replay.priority_base: td_error: want another: objective %s has no critic", c.Learner.Objective))
	}
	if r.ImportanceVersions < -1 {
		errs = append(errs, fmt.Errorf("replay.importance_versions: %d: want versions, 0 for those of the budget, or -1 for a beta that stays", r.ImportanceVersions))
	}
	return errors.Join(errs...)
}

// Sampling says in words how a run draws what it learns from, the effective half-life included.
func (c Config) Sampling() string {
	r := c.Replay
	if !c.Replays() {
		return fmt.Sprintf("%s queue: each rollout once", r.Sampler)
	}
	o := c.replayOptions(0)
	text := fmt.Sprintf("%s, by %s, from %d", r.Sampler, o.Unit, o.Capacity)
	switch p := c.pipelineOptions(); {
	case p.Mix > 0:
		text += fmt.Sprintf("; %d replay updates to each on fresh rollouts", p.Mix)
	case p.FreshShare > 0:
		text += fmt.Sprintf("; %.0f%% of each batch fresh", 100*p.FreshShare)
	}
	p := o.Prioritization
	if p == nil {
		return text
	}
	return text + fmt.Sprintf("; priority %s^%g, %s", strings.ReplaceAll(string(p.Base), "_", " "), p.Exponent, halfLife(p, r.AgeDecay == Auto))
}

// halfLife words the age decay and what comes of it.
func halfLife(p *replay.Prioritization, auto bool) string {
	half := p.HalfLife(p.AgeDecay)
	if math.IsInf(half, 1) {
		return "no age decay (standard PER)"
	}
	formula := "(tau/alpha) ln 2"
	if p.Decay == replay.AfterExponent {
		formula = "tau ln 2"
	}
	from := ""
	if auto {
		from = fmt.Sprintf("automatic for ESS %g, at first ", p.TargetESS)
	}
	return fmt.Sprintf("age decay %s%g: effective half-life %s = %.0f versions", from, p.AgeDecay, formula, half)
}

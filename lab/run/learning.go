package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// resolvedLearner returns the configuration's section with what is left to the objective written out.
func (c Config) resolvedLearner() Learner {
	l := c.Learner
	if m, ok := objective.FindMethod(l.Objective); ok && l.Advantage == "" {
		l.Advantage = m.Advantages[0]
	}
	o := objective.GRPO{Method: l.Objective}.WithDefaults()
	l.Normalisation = cmp.Or(l.Normalisation, string(o.Normalisation))
	if l.surrogate() {
		l.ClipLow, l.ClipHigh = cmp.Or(l.ClipLow, o.ClipLow), cmp.Or(l.ClipHigh, o.ClipHigh)
	}
	switch l.Objective {
	case objective.OAPL{}.Name():
		l.Beta = objective.OAPL{Beta: l.Beta}.WithDefaults().Beta
	case objective.TrajectoryBalance{}.Name():
		l.Beta = objective.TrajectoryBalance{Beta: l.Beta}.WithDefaults().Beta
	}
	if l.Proximal == string(objective.ProximalBehaviour) {
		l.Proximal = ""
	}
	l.Correction = slices.Clone(l.Correction)
	for i, given := range l.Correction {
		l.Correction[i] = given.WithDefaults()
	}
	if l.Objective == objective.DrGRPO && l.ConstantLength == 0 && l.Normalisation == string(objective.PerConstant) {
		l.ConstantLength = c.Generate.MaxTokens * c.turns()
	}
	return l
}

// advantageKind returns the kind of the advantages, that of grpo where the configuration names none there is.
func (c Config) advantageKind() advantage.Kind {
	kind := c.Learner.Advantage
	if m, ok := objective.FindMethod(c.Learner.Objective); ok && kind == "" {
		kind = m.Advantages[0]
	}
	if k := advantage.Kind(kind); k.Validate() == nil {
		return k
	}
	return advantage.Group
}

// policyLearning returns the configuration's part for policy.Learner.
func (c Config) policyLearning() (policy.Learning, error) {
	l := c.resolvedLearner()
	learning := policy.Learning{
		LogitGradients:   c.replayOptions(0).PriorityBase == replay.BaseGradNorm,
		MaskZeroVariance: l.MaskZeroVariance, MaskedInDenominator: l.MaskedDenominator == "all",
		Regrouped: !slices.Contains([]replay.DrawAdvantage{"", replay.AdvantageStored}, c.Replay.DrawAdvantage),
		Advantage: advantage.Kind(l.Advantage), GAE: advantage.GAE{Gamma: l.Gamma, Lambda: l.Lambda},
		StoredValues: l.Values == "stored",
		Updates:      c.Pipeline.BatchUpdates, MaxLogRatio: l.MaxLogRatio, KLPenalty: l.KLPenalty,
		Reference:  policy.Reference{Every: l.ReferenceEvery, Swaps: l.ReferenceSwaps},
		BoundEvery: c.Evaluate.BoundEvery,
		Optimizer:  l.Adam,
	}
	if l.ExpertWeight != "" {
		weight, err := formula.Schedule(l.ExpertWeight)
		if err != nil {
			return learning, &option.Error{Key: "expert_weight", Value: l.ExpertWeight,
				Want: fmt.Sprintf("a number from 0 to 1, or an expression over version: %v", err)}
		}
		if l.Experts != "" && l.Normalisation != string(objective.PerToken) {
			learning.ExpertWeight = func(v rollout.Version) float64 { return weight.At(float64(v)) }
		}
	}
	var err error
	learning.Objective, err = l.objective()
	return learning, err
}

// objective makes the objective of a section that is written out.
func (l Learner) objective() (objective.Objective, error) {
	surrogate := objective.GRPO{
		Ratio: objective.Ratio(l.Ratio), ClipLow: l.ClipLow, ClipHigh: l.ClipHigh, DualClip: l.DualClip,
		Normalisation: objective.Normalisation(l.Normalisation), ConstantLength: l.ConstantLength,
		Corrections: objective.Corrections{Proximal: objective.Proximal(l.Proximal), Steps: l.Correction},
		Experts:     objective.Experts{Term: objective.ExpertTerm(l.Experts), Gamma: l.ExpertGamma},
	}
	switch l.Objective {
	case objective.GRPO{}.Name(), objective.ReinforcePP, objective.ReinforcePPBaseline, objective.RLOO,
		objective.DrGRPO, objective.CISPO:
		surrogate.Method = l.Objective
		return surrogate, nil
	case objective.OffPolicyGRPO{}.Name():
		return objective.OffPolicyGRPO{
			Clip: l.Clip, RPrime: objective.RPrime(l.RPrime), KLCoef: l.KLCoef, KLWeighted: l.KLWeighted,
			KLAnchor:      l.KLAnchor,
			Normalisation: surrogate.Normalisation, ConstantLength: l.ConstantLength, Corrections: surrogate.Corrections,
		}, nil
	case objective.AsymRE{}.Name():
		return objective.AsymRE{Shift: &l.Shift}, nil
	case objective.RAFT{}.Name():
		return objective.RAFT{}, nil
	case objective.OAPL{}.Name():
		return objective.OAPL{Beta: l.Beta}, nil
	case objective.TrajectoryBalance{}.Name():
		return objective.TrajectoryBalance{Beta: l.Beta}, nil
	case objective.PPO{}.Name():
		return objective.PPO{Surrogate: surrogate, ValueCoef: l.ValueCoef, ValueClip: l.ValueClip}, nil
	}
	return nil, fmt.Errorf("objective: %q: want one of %s", l.Objective, strings.Join(objective.Names(), ", "))
}

// validateLearner reports every problem of the section.
func (c Config) validateLearner() error {
	l := c.Learner
	learning, err := c.policyLearning()
	if err != nil {
		return errors.Join(under("learner", err), under("learner", learning.Optimizer.Validate()))
	}
	learning.Updates, learning.BoundEvery = 0, 0 // of other sections, which hold them to their ranges
	errs := []error{under("learner", learning.Validate()), l.validateRead()}
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("learner.%s: %v: want %s", key, value, want))
		}
	}
	check(l.Values == "recompute" || l.Values == "stored", "values", l.Values, "recompute, with the weights that the "+
		"batch's first update begins with, or stored, as at generation")
	check(l.Gamma > 0, "gamma", l.Gamma, "above 0, to 1") // the kind of estimation that is 0 stands for the default
	check(l.MaskedDenominator == "kept" || l.MaskedDenominator == "all", "masked_denominator", l.MaskedDenominator,
		"kept or all")
	check(l.ExpertWeight == "" || learning.ExpertWeight != nil, "expert_weight", l.ExpertWeight,
		"none, or experts, and a normalisation other than token: it weighs means over rollouts")
	check(c.Generate.Experts == 0 || objective.TakesExperts(learning.Objective), "experts", orNothing(l.Experts),
		fmt.Sprintf("%s, %s or %s with generate.experts %d: experts have no log-probs, and objective %s reads them",
			objective.ExpertSFT, objective.ExpertPhi, objective.ExpertShaped, c.Generate.Experts, l.Objective))
	return errors.Join(errs...)
}

// validateRead refuses keys that differ from their default where nothing reads them.
func (l Learner) validateRead() error {
	d := Default().Learner
	is := func(name string) bool { return l.Objective == name }
	off, asym, ppo := is(objective.OffPolicyGRPO{}.Name()), is(objective.AsymRE{}.Name()), is(objective.PPO{}.Name())
	balance := is(objective.TrajectoryBalance{}.Name())
	squared := is(objective.OAPL{}.Name()) || balance
	surrogate := l.surrogate()
	ratios := surrogate || off
	reference := off && l.KLCoef != 0 || l.KLPenalty != 0 || balance
	var errs []error
	for _, k := range []struct {
		key             string
		value, standard any
		read            bool
		none            any // stands for the default too; nil: nothing does
	}{
		{"ratio", l.Ratio, d.Ratio, surrogate, ""},
		{"normalisation", l.Normalisation, d.Normalisation, ratios, "sequence"}, // as configurations are written out
		{"constant_length", l.ConstantLength, d.ConstantLength, ratios, nil},
		{"clip_low", l.ClipLow, d.ClipLow, surrogate, 0.2}, // as configurations were written out
		{"clip_high", l.ClipHigh, d.ClipHigh, surrogate, 0.2},
		{"proximal", l.Proximal, d.Proximal, ratios, ""},
		{"dual_clip", l.DualClip, d.DualClip, surrogate, nil},
		{"clip", l.Clip, d.Clip, off, 0.0},
		{"r_prime", l.RPrime, d.RPrime, off, ""},
		{"kl_coef", l.KLCoef, d.KLCoef, off, nil},
		{"kl_weighted", l.KLWeighted, d.KLWeighted, off, nil},
		{"kl_anchor", l.KLAnchor, d.KLAnchor, off, nil},
		{"value_coef", l.ValueCoef, d.ValueCoef, ppo, 0.0},
		{"value_clip", l.ValueClip, d.ValueClip, ppo, 0.0},
		{"gamma", l.Gamma, d.Gamma, ppo, nil},
		{"lambda", l.Lambda, d.Lambda, ppo, nil},
		{"values", l.Values, d.Values, ppo, nil},
		{"shift", l.Shift, d.Shift, asym, nil},
		{"beta", l.Beta, d.Beta, squared, nil},
		{"experts", l.Experts, d.Experts, surrogate, nil},
		{"expert_gamma", l.ExpertGamma, d.ExpertGamma, surrogate, nil},
	} {
		if !k.read && k.value != k.standard && k.value != k.none {
			errs = append(errs, fmt.Errorf("learner.%s: %v: want %v, its default: objective %s does not read it", k.key,
				k.value, orNothing(k.standard), l.Objective))
		}
	}
	if !ratios && len(l.Correction) > 0 {
		errs = append(errs, fmt.Errorf("learner.correction: %v: want none: objective %s has no ratio", l.Correction,
			l.Objective))
	}
	if !reference && l.ReferenceEvery != 0 {
		errs = append(errs, fmt.Errorf("learner.reference_every: %d: want 0, or a kl_coef of grpo_off, or a "+
			"kl_penalty, above 0, or objective trajectory_balance: nothing else reads a reference policy", l.ReferenceEvery))
	}
	return errors.Join(errs...)
}

// forwardPasses returns how many of the updates on a batch begin with a forward pass for a correction. That of M2PO also
// gives the proximal policy; with one update on each batch its own forward pass does.
func (l Learner) forwardPasses(updates int) int {
	switch {
	case slices.ContainsFunc(l.Correction, func(c objective.Correction) bool { return c.Kind == objective.M2PO }):
		return updates
	case updates > 1 && (l.Proximal == string(objective.ProximalRecompute) ||
		l.Proximal == string(objective.ProximalUnweighted)):
		return 1
	}
	return 0
}

// surrogate reports whether the objective has the clipped surrogate of grpo.
func (l Learner) surrogate() bool {
	return !slices.Contains([]string{objective.OffPolicyGRPO{}.Name(), objective.AsymRE{}.Name(), objective.RAFT{}.Name(),
		objective.OAPL{}.Name(), objective.TrajectoryBalance{}.Name()}, l.Objective)
}

// learnsFromEqualRewards reports whether a group whose rewards are all equal teaches, whatever the advantages.
func (l Learner) learnsFromEqualRewards() bool {
	return slices.Contains([]string{objective.AsymRE{}.Name(), objective.RAFT{}.Name()}, l.Objective)
}

// orNothing spells a default that is the empty text.
func orNothing(v any) any {
	if v == "" {
		return "nothing"
	}
	return v
}

// learner is the pipeline's Learner: a policy's learner, whose weights workers round to a precision.
type learner struct {
	*policy.Learner
	textModel
	precision policy.Precision
}

func (l learner) Step(ctx context.Context, batches []*rollout.Batch) (pipeline.Measured, error) {
	m, err := l.Learner.Step(ctx, batches)
	return pipeline.Measured(m), err
}

func (l learner) Weights() pipeline.Weights {
	return l.publish(l.Learner.Weights(), l.precision)
}

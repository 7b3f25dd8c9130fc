package policy

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
)

func TestOptionsThatDoNotFitAreAllNamed(t *testing.T) {
	nan := math.NaN()
	adam := Adam{LearningRate: 1}
	for _, tc := range []struct {
		o     Learning
		wants []string
	}{
		{Learning{Objective: objective.GRPO{}}, nil},
		{Learning{Objective: objective.SFT{}, Advantage: advantage.Group}, nil},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Critic, StoredValues: true, GAE: advantage.GAE{Gamma: 1}}, nil},
		{Learning{Objective: objective.GRPO{}, Advantage: advantage.Batch, KLPenalty: 1, Reference: Reference{Every: 5, Swaps: 2}, Updates: 9, MaxLogRatio: 3, BoundEvery: 1}, nil},
		{Learning{}, []string{"objective: none"}},
		{Learning{Objective: objective.GRPO{ClipLow: 3}, Updates: -1, MaxLogRatio: -2, BoundEvery: -3, PassElements: -4, Reference: Reference{Every: -5, Swaps: -6}}, []string{
			"clip_low: 3", "batch_updates: -1", "max_log_ratio: -2", "bound_every: -3", "pass_elements: -4", "reference_every: -5", "reference_swaps: -6"}},
		{Learning{Objective: objective.GRPO{}, MaxLogRatio: nan, KLPenalty: math.Inf(1), Reference: Reference{Swaps: 1}}, []string{
			"max_log_ratio: NaN", "kl_penalty: +Inf", "reference_swaps: 1"}},
		{Learning{Objective: objective.GRPO{}, KLPenalty: 0.1}, []string{"kl_penalty: 0.1: want 0, or advantage batch or group_batch"}},
		{Learning{Objective: objective.PPO{}}, []string{"advantage: none: want gae for objective ppo"}},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Group}, []string{"advantage: group: want gae for objective ppo"}},
		{Learning{Objective: objective.GRPO{}, Advantage: advantage.Critic}, []string{"advantage: gae: want group or no_std or leave_one_out or batch or group_batch for objective grpo"}},
		{Learning{Objective: objective.GRPO{Method: objective.RLOO}, Advantage: advantage.Group}, []string{"advantage: group: want leave_one_out for objective rloo"}},
		{Learning{Objective: objective.GRPO{}, Advantage: "best", StoredValues: true}, []string{"advantage: best: want one of"}},
		{Learning{Objective: objective.GRPO{}, StoredValues: true}, []string{"values: stored"}},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Critic, GAE: advantage.GAE{Gamma: 2, Lambda: -1}}, []string{"gamma: 2", "lambda: -1"}},
	} {
		tc.o.Optimizer = adam
		err := tc.o.Validate()
		if (err == nil) != (len(tc.wants) == 0) {
			t.Errorf("%+v: error %v", tc.o, err)
		}
		if err != nil && strings.Count(err.Error(), "\n")+1 != len(tc.wants) {
			t.Errorf("%d problems are told as %v", len(tc.wants), err)
		}
		for _, want := range tc.wants {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error does not say %q: %v", want, err)
			}
		}
	}
}

// The kinds that package objective names are those of package advantage, and each method takes its default.
func TestEveryMethodTakesItsAdvantages(t *testing.T) {
	for _, m := range objective.Methods() {
		o := map[string]objective.Objective{"grpo": objective.GRPO{}, "grpo_off": objective.OffPolicyGRPO{}, "asymre": objective.AsymRE{}, "ppo": objective.PPO{}}[m.Name]
		if o == nil {
			o = objective.GRPO{Method: m.Name, ConstantLength: 4, Normalisation: objective.PerConstant}
		}
		if o.Name() != m.Name || o.Needs().Critic != m.Critic || len(m.Advantages) == 0 {
			t.Errorf("method %+v is objective %s with needs %+v", m, o.Name(), o.Needs())
		}
		for _, kind := range advantage.Kinds() {
			takes := false
			for _, a := range m.Advantages {
				takes = takes || a == string(kind)
			}
			err := Learning{Objective: o, Optimizer: Adam{LearningRate: 1}, Advantage: kind}.Validate()
			if (err == nil) != takes {
				t.Errorf("%s with advantage %s: takes %v, error %v", m.Name, kind, takes, err)
			}
		}
		for _, a := range m.Advantages {
			if err := advantage.Kind(a).Validate(); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

func TestACriticNeedsAValueHead(t *testing.T) {
	m := newTestModel(t, architectures()["llama"])
	_, err := m.NewLearner(randomWeights(t, m, 1), Learning{Objective: objective.PPO{}, Advantage: advantage.Critic, Optimizer: Adam{LearningRate: 1}})
	if err == nil || !strings.Contains(err.Error(), "objective ppo needs a value head") {
		t.Errorf("error %v", err)
	}
}

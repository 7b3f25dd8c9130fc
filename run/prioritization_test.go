package run

import (
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
)

func TestThePrioritizedSamplerIsConfigured(t *testing.T) {
	c, err := Load("", []string{"replay.sampler=prioritized"})
	if err != nil {
		t.Fatal(err)
	}
	want := replay.DefaultPrioritization()
	want.BetaVersions = c.importanceVersions()
	if got := *c.prioritization(); !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults are\n%+v, package replay's\n%+v", got, want)
	}
	// 400 updates of the baseline at B(1+mu) pay for so many at B(1+W/T).
	if updates := 628; want.BetaVersions != updates {
		t.Errorf("beta rises over %d versions, want %d", want.BetaVersions, updates)
	}
	for set, check := range map[string]func(p *replay.Prioritization) bool{
		"replay.age_decay=inf":           func(p *replay.Prioritization) bool { return p.AgeDecay > 1e300 && p.TargetESS == 0 },
		"replay.age_decay=.inf":          func(p *replay.Prioritization) bool { return p.AgeDecay > 1e300 },
		"replay.age_decay=Auto":          func(p *replay.Prioritization) bool { return p.TargetESS == 0.8 },
		"replay.age_decay=.5":            func(p *replay.Prioritization) bool { return p.AgeDecay == 0.5 },
		"replay.age_decay=12.5":          func(p *replay.Prioritization) bool { return p.AgeDecay == 12.5 },
		"replay.age_decay=auto":          func(p *replay.Prioritization) bool { return p.AgeDecay == 500 && p.TargetESS == 0.8 },
		"replay.importance_versions=-1":  func(p *replay.Prioritization) bool { return p.BetaVersions == 0 },
		"replay.importance_versions=70":  func(p *replay.Prioritization) bool { return p.BetaVersions == 70 },
		"replay.decay=after_exponent":    func(p *replay.Prioritization) bool { return p.Decay == replay.AfterExponent },
		"replay.priority_base=recency":   func(p *replay.Prioritization) bool { return p.Base == replay.BaseRecency },
		"replay.draws=independent":       func(p *replay.Prioritization) bool { return p.Spread == replay.Independent },
		"replay.importance_norm=table":   func(p *replay.Prioritization) bool { return p.Normalisation == replay.ByTable },
		"replay.priority_epsilon=0.25":   func(p *replay.Prioritization) bool { return p.Epsilon == 0.25 },
		"replay.entry=max":               func(p *replay.Prioritization) bool { return p.Entry == replay.EnterMax },
		"replay.priority_exponent=1.5":   func(p *replay.Prioritization) bool { return p.Exponent == 1.5 },
		"replay.importance_beta=0.75":    func(p *replay.Prioritization) bool { return p.Beta == 0.75 },
		"replay.priority_base=advantage": func(p *replay.Prioritization) bool { return p.Base == replay.BaseAdvantage },
	} {
		c, err := Load("", []string{"replay.sampler=prioritized", set})
		if err != nil {
			t.Errorf("%s: %v", set, err)
		} else if !check(c.prioritization()) {
			t.Errorf("%s gave %+v", set, c.prioritization())
		}
	}
}

func TestWhatCannotBeDrawnIsRefusedByItsKey(t *testing.T) {
	for set, want := range map[string]string{
		"replay.age_decay=soon":                                     "replay.age_decay: soon: want versions, 0.001 or more, inf for none, or auto",
		"replay.age_decay=-1":                                       "replay.age_decay: -1: want",
		"replay.priority_base=function":                             "replay.priority_base: function: want",
		"replay.priority_base=td_error":                             "replay.priority_base: td_error: want advantage, reward, gradient_norm or recency",
		"replay.priority_base=gradient_norm":                        "replay.entry: own: want max",
		"replay.age_decay=[1]":                                      "replay.age_decay: [1]: want versions",
		"replay.priority_exponent=0":                                "replay.priority_exponent: 0: want above 0",
		"replay.sampler=uniform,replay.entry=first":                 "replay.entry: first: want own or max",
		"learner.advantage=batch":                                   "replay.entry: own: want max with priority_base advantage",
		"replay.importance_versions=-2":                             "replay.importance_versions: -2: want",
		"replay.importance_beta=1.5":                                "replay.importance_beta: 1.5: want 0 to 1",
		"replay.target_ess=1,replay.age_decay=auto":                 "replay.target_ess: 1: want",
		"replay.unit=word":                                          "replay.unit: word: want rollout, step or group",
		"replay.unit=group,pipeline.batch=1020":                     "replay.unit: group: want rollout or step",
		"replay.unit=group,replay.fresh_share=0.001953125":          "replay.fresh_share: 0.001953125: want",
		"replay.sampler=fifo,replay.mix=1":                          "replay.mix: 1: want 0",
		"replay.mix=1,replay.fresh_share=0.5":                       "replay.fresh_share: 0.5: want 0 with mix 1",
		"replay.mix=-1":                                             "replay.mix: -1: want",
		"prompts.fraction=2":                                        "prompts.fraction: 2: want",
		"prompts.band=0.7,prompts.cooldown=-1,prompts.max_reuse=-1": "prompts.cooldown: -1: want",
	} {
		_, err := Load("", append([]string{"replay.sampler=prioritized"}, strings.Split(set, ",")...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %s", set, err, want)
		}
	}
}

func TestSamplingIsToldInWords(t *testing.T) {
	for set, want := range map[string]string{
		"replay.age_decay=500":                         "priority advantage^0.6, age decay 500: effective half-life (tau/alpha) ln 2 = 578 versions",
		"replay.decay=after_exponent":                  "tau ln 2 = 347 versions",
		"replay.age_decay=inf":                         "no age decay (standard PER)",
		"replay.age_decay=auto":                        "automatic for ESS 0.8, at first 500",
		"replay.mix=3":                                 "3 replay updates to each on fresh rollouts",
		"replay.fresh_share=0.25":                      "25% of each batch fresh",
		"replay.sampler=lifo":                          "lifo queue: each rollout once",
		"replay.unit=group":                            "by group",
		"pipeline.batch_updates=3":                     "from 4096; 3 updates on each batch; priority",
		"replay.sampler=fifo,pipeline.batch_updates=3": "each rollout once; 3 updates on each batch",
	} {
		c, err := Load("", append([]string{"replay.sampler=prioritized"}, strings.Split(set, ",")...))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Sampling(); !strings.Contains(got, want) {
			t.Errorf("%s is told as %q, want %q", set, got, want)
		}
	}
}

func TestWeightsThatWouldVanishAreWarnedOf(t *testing.T) {
	c, err := Load("", []string{"replay.sampler=prioritized", "replay.importance_norm=table", "replay.priority_base=reward"})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "replay.importance_norm: table") {
		t.Errorf("warnings are %q", w)
	}
}

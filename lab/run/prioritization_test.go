package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/replay"
)

func TestThePrioritizedSamplerHasTheTablesDefaultsAndTheBudgetsVersions(t *testing.T) {
	c, err := Load("", []string{"replay.sampler=prioritized"})
	if err != nil {
		t.Fatal(err)
	}
	got := c.replayOptions(0).WithDefaults()
	want := replay.Options{Sampler: replay.Prioritized}.WithDefaults()
	// 400 updates of the baseline at B(1+mu) pay for this many at B(1+W/T)
	want.Shards, want.Seed, want.MinSize, want.ImportanceAnneal = 2, 1, 512, new(628)
	got.Clock, want.Clock = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults are\n%+v, package replay's\n%+v", got, want)
	}
}

// Every key of a table can be set in a run, unless another section decides it.
func TestEveryKeyOfATableCanBeSet(t *testing.T) {
	decided := []string{"shards", "group_size", "advantage", "vocab", "max_tokens", "seed", "lease_seconds"}
	for _, key := range settings.Keys(reflect.TypeFor[replay.Options]()) {
		value, ok := map[string]string{
			"capacity": "8192", "capacity_bytes": "100000", "retention": "positive", "positive_fraction": "0.1",
			"positive_threshold": "0", "positives_per_prompt": "2", "positive_share": "0.5", "max_staleness": "7",
			"max_uses": "3", "sampler": "prioritized", "min_size": "600", "unit": "step", "step_returns": "2",
			"step_discount": "0.5",
			"priority_base": "reward", "priority_epsilon": "0.25", "priority_exponent": "1.5", "age_decay": "inf",
			"decay":      "after_exponent",
			"target_ess": "0.8", "draws": "independent", "entry": "max", "entry_until": "report", "importance_beta": "0",
			"history":      "1000",
			"prompt_index": "true", "unknown_logprobs": "true", "importance_anneal": "0", "importance_norm": "table",
			"shards": "3", "group_size": "3", "advantage": "batch", "vocab": "3", "max_tokens": "3", "seed": "3",
			"lease_seconds": "3", "draw_advantage": "regroup", "sources": "[map[name:old share:0.5]]",
			"priority": "abs(advantage)", "order": "length", "cooldown": "5",
			"select": "2", "select_by": "reward", "score": "reward", "kept_per_prompt": "3", "pin": "reward >= 1",
			"pending_rewards": "600",
		}[key]
		if !ok {
			t.Errorf("no value for %s in this test", key)
			continue
		}
		set := []string{"replay.sampler=prioritized", "replay.unit=step", "replay.step_returns=1",
			"replay.retention=positive", "replay.positive_fraction=0.2", "replay.entry=max", "replay." + key + "=" + value}
		if key == "positive_share" {
			set = []string{"replay.retention=positive", "replay.positive_fraction=0.2", "replay.positive_share=" + value}
		}
		if key == "draw_advantage" {
			set = []string{"replay.draw_advantage=" + value}
		}
		if key == "priority" {
			set = []string{"replay.sampler=prioritized", "replay.priority=" + value}
		}
		if key == "score" {
			set = []string{"replay.retention=scored", "replay.score=" + value}
		}
		if key == "pin" {
			set = []string{"replay.max_staleness=8", "replay." + key + "=" + value}
		}
		if key == "kept_per_prompt" || key == "pending_rewards" {
			set = []string{"replay." + key + "=" + value}
		}
		if strings.HasPrefix(key, "select") {
			set = []string{"replay.select=3", "replay." + key + "=" + value}
		}
		if key == "order" || key == "cooldown" {
			set = []string{"replay.sampler=ordered", "replay." + key + "=" + value}
		}
		if key == "sources" {
			set = []string{"replay.sources=[{name: old, share: 0.5}]"}
		}
		c, err := Load("", set)
		if slices.Contains(decided, key) {
			if err == nil || !strings.Contains(err.Error(), "replay."+key+": "+value+": want none") {
				t.Errorf("%s gave %v", key, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		text, err := json.Marshal(c.replayOptions(0))
		var tree map[string]any
		if err := errors.Join(err, json.Unmarshal(text, &tree)); err != nil || fmt.Sprint(tree[key]) != value {
			t.Errorf("%s=%s became %v, %v", key, value, tree[key], err)
		}
	}
}

func TestWhatCannotBeDrawnIsRefusedByItsKey(t *testing.T) {
	for set, want := range map[string]string{
		"replay.age_decay=soon":         "replay.age_decay: soon: want versions, or inf for none",
		"replay.age_decay=auto":         "replay.age_decay: auto: want versions, or inf for none; target_ess",
		"replay.age_decay=-1":           "replay.age_decay: -1: want",
		"replay.priority_base=function": "replay.priority_base: function: want",
		"replay.priority_base=td_error": "replay.priority_base: td_error: want " +
			"advantage, reward, gradient_norm or recency",
		"replay.priority_base=gradient_norm":        "replay.entry: own: want max",
		"replay.age_decay=[1]":                      "replay.age_decay: [1]: want versions",
		"replay.priority_exponent=-1":               "replay.priority_exponent: -1: want above 0",
		"replay.entry=first":                        "replay.entry: first: want own or max",
		"replay.entry_until=report":                 "replay.entry_until: report: want no value with entry own",
		"replay.entry=max,replay.entry_until=never": "replay.entry_until: never: want replay, refresh or report",
		"replay.entry=max,replay.entry_until=refresh,replay.priority_base=gradient_norm": "replay.entry_until: refresh: " +
			"want replay or report with priority_base gradient_norm",
		"learner.advantage=batch":                                   "replay.entry: own: want max with priority_base advantage",
		"replay.importance_anneal=-2":                               "replay.importance_anneal: -2: want",
		"replay.importance_versions=9":                              "replay.importance_versions: unknown key",
		"replay.importance_beta=1.5":                                "replay.importance_beta: 1.5: want 0 to 1",
		"replay.target_ess=1":                                       "replay.target_ess: 1: want",
		"replay.priority=rewrad":                                    "replay.priority: rewrad: want a number: \"rewrad\": there",
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

// The trainers wait for the fresh sources of a table, as for fresh_share: compute, turns and words are the same.
func TestFreshSourcesOfARunAreItsFreshShare(t *testing.T) {
	load := func(set ...string) (Config, error) { return Load("", append([]string{"pipeline.trainers=2"}, set...)) }
	share, err := load("replay.fresh_share=0.9")
	if err != nil {
		t.Fatal(err)
	}
	source := func(rest string) string { return "replay.sources=[{name: a, pool: fresh, wait: true, " + rest + "}]" }
	for _, rest := range []string{"share: 0.9", "share: 9 / 10", "count: 461"} { // 460.8 of 512, rounded
		c, err := load(source(rest))
		if err != nil {
			t.Fatal(err)
		}
		got, want := c.pipelineOptions(), share.pipelineOptions()
		if got.UpdateCompute < want.UpdateCompute || got.UpdateCompute > 1.001*want.UpdateCompute || !got.Composed ||
			got.FreshPerUpdate() != want.FreshPerUpdate() || c.InWords() != share.InWords() || !c.drawsFresh() {
			t.Errorf("%s: %+v, want as with %+v; %s", rest, got, want, c.InWords())
		}
	}
	c, err := load(source("share: 0.5 - version / 400"))
	if err != nil {
		t.Fatal(err)
	}
	if o := c.pipelineOptions(); o.FreshAt == nil || o.FreshAt(0) != 256 || o.FreshAt(100) != 128 || o.FreshAt(300) != 0 ||
		!strings.HasSuffix(c.InWords(), "; the share of new ones follows the version") {
		t.Errorf("the pipeline has %+v; it %s", o, c.InWords())
	}
	for want, set := range map[string][]string{
		"replay.sources[0].wait: false: want true in a run": {
			"replay.sources=[{name: a, pool: fresh, share: 0.5}]"},
		"replay.sources[0].pool: fresh: want another pool with":               {source("share: 0.5"), "replay.mix=1"},
		"replay.sources[0].pool: fresh: want another pool with replay.mix or": {source("share: 0.5"), "replay.fresh_share=1"},
		"replay.sources[0].share: version / 9: want a number with pipeline.mode sync": {source("share: version / 9"),
			"pipeline.mode=sync"},
	} {
		if _, err := load(set...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %s", set, err, want)
		}
	}
}

func TestARunWarnsWhereRolloutsOfAPromptDoNotMeet(t *testing.T) {
	const old = "replay.sources=[{name: fresh, pool: fresh, share: 0.5, wait: true}, " +
		"{name: old, pool: prompts, share: 0.5}]"
	for set, want := range map[string][]string{
		old + ";pipeline.trainers=1;pipeline.batch=512": nil,
		old + ";pipeline.trainers=4;pipeline.batch=512": {"one in 4 of a prompt's earlier groups: use pipeline.trainers 1"},
		old + ";pipeline.trainers=1;pipeline.batch=520": {
			"replay.sources: the 260 fresh rollouts of a batch are no whole groups of 8"},
		"replay.fresh_share=0.26;replay.draw_advantage=regroup;pipeline.trainers=1;pipeline.batch=100": {
			"replay.fresh_share: the 26 fresh rollouts of a batch are no whole groups of 8"},
		"replay.fresh_share=0.25;replay.draw_advantage=regroup;replay.select=5;pipeline.trainers=1;pipeline.batch=100": nil,
		"replay.fresh_share=0.24;replay.draw_advantage=regroup;replay.select=5;pipeline.trainers=1;pipeline.batch=100": {
			"replay.fresh_share: the 24 fresh rollouts of a batch are no whole groups of 5"},
		"replay.fresh_share=0.26;pipeline.batch=100": nil,
		"replay.history=100": {
			"replay.history: 100: nobody can look at the lives in a run's own table"},
	} {
		c, err := Load("", strings.Split(set, ";"))
		if err != nil {
			t.Fatal(err)
		}
		got := c.Warnings()
		if len(got) != len(want) || len(want) > 0 && !strings.Contains(got[0], want[0]) {
			t.Errorf("%s: warns %q, want %q", set, got, want)
		}
	}
}

func TestSamplingIsToldInWords(t *testing.T) {
	for set, want := range map[string]string{
		"replay.age_decay=500": "priority advantage^0.6, age decay 500: effective half-life " +
			"(tau/alpha) ln 2 = 578 versions",
		"replay.decay=after_exponent":                  "tau ln 2 = 347 versions",
		"replay.age_decay=inf":                         "no age decay (standard PER)",
		"replay.target_ess=0.8":                        "automatic for ESS 0.8, at first 500",
		"replay.mix=3":                                 "3 replay updates to each on fresh rollouts",
		"replay.fresh_share=0.25":                      "25% of each batch fresh",
		"replay.sampler=lifo":                          "lifo queue: each rollout once",
		"replay.priority=reward + length":              "priority (reward + length)^0.6, age decay 500",
		"replay.sampler=ordered,replay.cooldown=3":     "from 4096; the largest version first, with 3 versions between uses",
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

func TestWhatARunLearnsFromIsToldInPlainWords(t *testing.T) {
	for set, want := range map[string]string{
		"pipeline.batch=1280":                          "learns in batches of 1,280, drawn from the newest 4,096 rollouts",
		"replay.retention=positive":                    "drawn from 4,096 rollouts, the newest and older right answers",
		"replay.retention=scored,replay.score=reward":  "drawn from the 4,096 rollouts of the largest reward",
		"replay.mix=3":                                 "; after each batch of new ones 3 batches",
		"replay.fresh_share=0.25":                      "; 25% of each batch are new",
		"replay.sampler=lifo":                          "learns from each rollout once, in batches of 1,024",
		"replay.sampler=fifo,pipeline.batch_updates=3": "once, in batches of 1,024, with 3 updates on each",
	} {
		c, err := Load("", strings.Split(set, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.InWords(); !strings.Contains(got, want) {
			t.Errorf("%s is told as %q, want %q", set, got, want)
		}
	}
}

func TestWeightsThatWouldVanishAreWarnedOf(t *testing.T) {
	c, err := Load("", []string{"replay.sampler=prioritized", "replay.importance_norm=table",
		"replay.priority_base=reward"})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "replay.importance_norm: table") {
		t.Errorf("warnings are %q", w)
	}
}

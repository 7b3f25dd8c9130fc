package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/run"
)

// The arms of the study of [PR].
const (
	allPrompts    = "no prompt replay"
	promptReplay  = "prompt replay"
	fewPrompts    = "32 fixed prompts"
	randomRewards = "random rewards"
	cheapPlain    = "cheap rollouts: no prompt replay"
	cheapReplay   = "cheap rollouts: prompt replay"
)

// fixedPrompts is how many prompts the control of [PR] fig. 4 trains on.
const fixedPrompts = 32

// replayOfPrompts is the setting of an arm of the ablations.
type replayOfPrompts struct {
	fraction float64
	cooldown int
	maxReuse int
}

// [PR] uses a fraction of 0.75 and gives no cooldown and no limit of reuse: these are the defaults here.
func promptDefaults() replayOfPrompts { return replayOfPrompts{0.75, 5, 10} }

// unlimited is a limit of reuse that no prompt of a run comes to.
const unlimited = 1000

// promptAblations returns the settings beside the default that change one thing each, and the one that bounds nothing.
func promptAblations() []replayOfPrompts {
	return []replayOfPrompts{
		{0.25, 5, 10}, {0.5, 5, 10},
		{0.75, 0, 10}, {0.75, 20, 10},
		{0.75, 5, 1}, {0.75, 5, unlimited},
		{0.75, 0, unlimited},
	}
}

// name says what an ablation changes.
func (r replayOfPrompts) name() string {
	reuse := fmt.Sprint(r.maxReuse)
	if r.maxReuse == unlimited {
		reuse = "unlimited"
	}
	return fmt.Sprintf("fraction %g, cooldown %d, reuse %s", r.fraction, r.cooldown, reuse)
}

// promptBase is on-policy training on additions, 64 prompts to a batch, answered 8 times each: with the 32 of [PR] the noise of a batch made
// a pilot unlearn at first.
func promptBase() run.Config {
	c := run.Default()
	c.Pipeline.Mode, c.Pipeline.Batch = "sync", 512
	c.Replay.Sampler, c.Replay.Capacity = "fifo", 0
	c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = 15, 0.45, 0
	c.Budget.Compute = 300
	return c
}

// cheapRollouts makes generation a small part: workers wait for trainers, at a twentieth of the rollout cost.
func cheapRollouts(c run.Config) run.Config {
	c.Pipeline.Mode, c.Pipeline.Workers, c.Pipeline.Trainers = "async", 4, 4
	c.Pipeline.RolloutCost = 0.25
	c.Evaluate.Every, c.Budget.Compute = 24, 480 // an update counts B(1 + W/T), 1.6 of the unit B(1 + mu): 300 updates
	return c
}

func (r replayOfPrompts) set(c run.Config) run.Config {
	c.Prompts.Fraction, c.Prompts.Cooldown, c.Prompts.MaxReuse = r.fraction, r.cooldown, r.maxReuse
	return c
}

func promptArms(o Options) []Arm {
	var arms []Arm
	add := func(name string, c run.Config) { arms = append(arms, Arm{name, rehearsed(o, c)}) }
	add(allPrompts, promptBase())
	add(promptReplay, promptDefaults().set(promptBase()))
	for _, r := range promptAblations() {
		add(r.name(), r.set(promptBase()))
	}
	few := promptBase()
	few.Prompts.Limit = fixedPrompts
	add(fewPrompts, few)
	chance := promptBase()
	chance.Task = map[string]any{"name": "arithmetic", "random_rewards": 0.5}
	add(randomRewards, chance)
	add(cheapPlain, cheapRollouts(promptBase()))
	add(cheapReplay, promptDefaults().set(cheapRollouts(promptBase())))
	return arms
}

func prompts() Study {
	return Study{
		Name: "prompts", Title: "Is it worth asking the same prompts again?", Source: "[PR] sections 5 and 6, figs. 3 and 4",
		Lead: []string{
			"Groups whose answers are all right or all wrong teach nothing. Prompt replay asks prompts again that were answered right about half of the time; " +
				"the answers are generated anew, so that training stays on-policy.",
			"Additions below 100, batches of 64 prompts, 8 answers each ([PR] has 32 prompts). Of the sampler [PR] gives the fraction, 0.75, and one seed per arm.",
			"Three controls follow: training on 32 fixed prompts, training on random rewards, and rollouts so cheap that generation is not the bottleneck.",
		},
		Arms: promptArms, Judge: judgePrompts,
	}
}

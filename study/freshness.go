package study

import "github.com/reprise-rl/reprise/run"

// The arms of the study of [FP], by the names of their methods.
const (
	onPolicy    = "on-policy"
	standardPER = "standard PER"
	freshPER    = "freshness-aware"
	uniformPER  = "uniform replay"
)

// freshTask is a task of the study of [FP].
type freshTask struct {
	name   string // in the names of arms
	easy   bool   // a control: nothing is to be gained
	config func() run.Config
}

// freshTasks returns the tasks in the order of the page; the first is that of the ablations.
func freshTasks() []freshTask {
	return []freshTask{
		{"arithmetic", false, freshArithmetic},
		{"frozenlake", false, freshLake},
		{"sokoban", false, freshSokoban},
		{"search", false, freshSearch},
		{"easy arithmetic", true, freshEasy},
	}
}

// freshTau is the age decay of the freshness-aware arms, in versions.
const freshTau = "100"

// freshTaus returns the age decays of the ablation, ascending, in versions, of which a run has about 350; inf is none.
func freshTaus() []string { return []string{"10", freshTau, "1000", "inf"} }

// freshBase is what the tasks have in common: [FP] algorithm 1 with one replayed update to each fresh one, from a policy that has
// begun to imitate.
func freshBase() run.Config {
	c := run.Default()
	c.Pipeline.Mode, c.Pipeline.Batch, c.Pipeline.Group = "sync", 256, 8
	c.Replay.Sampler, c.Replay.Mix, c.Replay.Capacity = "prioritized", 1, 1<<16
	c.Replay.PriorityBase, c.Replay.AgeDecay = "reward", freshTau
	c.Evaluate.Samples = 0
	return c
}

// freshArithmetic is additions below 50 from a low warm start.
func freshArithmetic() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "arithmetic", "operations": []any{"add"}, "max": 50}
	c.Warmup.Until = 0.2
	c.Pipeline.Batch = 512
	c.Evaluate.Every, c.Evaluate.Target = 10, 0.5
	c.Budget.Compute = 200
	return c
}

// freshEasy is nearly done at the start, as GSM8K is for [FP].
func freshEasy() run.Config {
	c := freshBase()
	c.Warmup.Steps, c.Warmup.Until = 5000, 0.9
	c.Learner.LearningRate = 2e-4 // at more it unlearns what it knows
	c.Evaluate.Every, c.Evaluate.Target = 5, 0.95
	c.Budget.Compute = 100
	return c
}

// freshLake is a new frozen lake in every episode, as text.
func freshLake() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "frozenlake", "map": "random", "slippery": false, "max_steps": 8}
	c.Policy.Positions = 192
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 400, 32, 0.3
	c.Generate.MaxTokens = 2
	c.Pipeline.Batch = 128
	c.Evaluate.Every, c.Evaluate.Target = 5, 0.7
	c.Budget.Compute = 50
	return c
}

// freshSokoban is rooms with one box, as text.
func freshSokoban() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "sokoban", "difficulty": "simple", "min_pushes": 1, "max_steps": 10}
	c.Policy.Positions = 240
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.LearningRate, c.Warmup.Until = 600, 32, 2e-3, 0.3
	c.Generate.MaxTokens = 2
	c.Pipeline.Batch = 128
	c.Learner.Warmup = 10
	c.Evaluate.Every, c.Evaluate.Target = 5, 0.5
	c.Budget.Compute = 40
	return c
}

// freshSearch is questions about made-up facts, answered by searching for them.
func freshSearch() run.Config {
	c := freshBase()
	c.Task = map[string]any{"name": "search"}
	c.Policy.Positions = 192
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 1000, 32, 0.3
	c.Generate.MaxTokens = 14
	c.Pipeline.Batch = 128
	c.Evaluate.Every, c.Evaluate.Target = 10, 0.7
	c.Budget.Compute = 140
	return c
}

// withoutReplay uses each rollout once, on-policy.
func withoutReplay(c run.Config) run.Config {
	d := run.Default().Replay
	d.Sampler, d.Capacity = "fifo", 0
	c.Replay = d
	return c
}

// prioritizedByReward is standard PER as [FP] has it: rollouts enter at the largest priority and never fade.
func prioritizedByReward(c run.Config) run.Config {
	c.Replay.AgeDecay, c.Replay.Entry = "inf", "max"
	return c
}

// freshArms returns the arms of a task that [FP] compares, and those of the ablations.
func freshArms(o Options) []Arm {
	var arms []Arm
	add := func(task, method string, c run.Config) {
		arms = append(arms, Arm{freshArm(task, method), rehearsed(o, c)})
	}
	for _, t := range freshTasks() {
		c := t.config()
		add(t.name, onPolicy, withoutReplay(c))
		add(t.name, standardPER, prioritizedByReward(c))
		add(t.name, freshPER, c)
	}
	return append(arms, freshAblations(o)...)
}

// freshArm names an arm.
func freshArm(task, method string) string { return task + ": " + method }

// freshAblations returns the arms that change one thing of the first task's freshness-aware arm, and uniform replay beside them.
func freshAblations(o Options) []Arm {
	t := freshTasks()[0]
	var arms []Arm
	with := func(name string, change func(*run.Replay)) {
		c := t.config()
		change(&c.Replay)
		arms = append(arms, Arm{freshArm(t.name, name), rehearsed(o, c)})
	}
	with(uniformPER, func(r *run.Replay) {
		d := run.Default().Replay
		d.Sampler, d.Mix, d.Capacity = "uniform", r.Mix, r.Capacity
		*r = d
	})
	for _, tau := range freshTaus() {
		if tau != freshTau {
			with(tauName(tau), func(r *run.Replay) { r.AgeDecay = run.AgeDecay(tau) })
		}
	}
	with(noWeights, func(r *run.Replay) { r.ImportanceBeta, r.ImportanceVersions = 0, -1 })
	with(constantWeights, func(r *run.Replay) { r.ImportanceVersions = -1 })
	return arms
}

// The arms of the importance-weight ablation besides the freshness-aware one, whose beta rises from 0.4 to 1.
const (
	noWeights       = "no importance weights"
	constantWeights = "beta 0.4 throughout"
)

func tauName(tau string) string { return "tau " + tau }

func freshness() Study {
	return Study{
		Name: "freshness", Title: "Do old rollouts lose their worth, and does it help to forget them?", Source: "[FP] table 1, figs. 3 to 7",
		Lead: []string{
			"Three ways to train on four tasks and an easy one: on-policy; standard prioritized replay, which draws rollouts with a reward more often however old " +
				"they are; and freshness-aware replay, whose priorities fade with age, exp(−age/τ). Each batch of fresh rollouts is used for one update, and with " +
				"replay for one more update on replayed rollouts ([FP] algorithm 1, K = 1).",
			"[FP] compares after as many iterations, that is with as many fresh rollouts; here that stands beside equal compute, in which an iteration with replay costs " +
				"(2 + μ)/(1 + μ) = 1.16 of one without. τ is in versions, two to an iteration: [FP]'s 500 iterations are 1,000 versions. " +
				"A run has some hundred versions here, so that freshness-aware replay has a τ of " + freshTau + " where the ablation does not say otherwise.",
			"[FP] trains models of 0.5 to 7 billion parameters with REINFORCE++; here a small policy learns by GRPO, whose clip takes tokens out of the gradient " +
				"that have left the behaviour policy.",
		},
		Arms: freshArms, Judge: judgeFreshness,
	}
}

package study

import (
	"maps"

	"github.com/reprise-rl/reprise/run"
)

// ogSchedule is (v, i) of [OG] algorithm 1 with what else an arm changes.
type ogSchedule struct {
	name   string
	v, i   int
	masked bool    // groups of zero variance leave the loss: [OG] eq. 8
	rate   float64 // learning rate; 0: that of all
}

// The arms of the study of [OG].
const (
	og11       = "(1,1)"
	og11Masked = "(1,1), masked"
	og101      = "(10,1)"
	og101Mask  = "(10,1), masked"
	og110      = "(1,10)"
	og110Own   = "(1,10), rate 0.0001"
)

func ogSchedules() []ogSchedule {
	return []ogSchedule{
		{name: og11, v: 1, i: 1},
		{name: og11Masked, v: 1, i: 1, masked: true},
		{name: og101, v: 10, i: 1},
		{name: og101Mask, v: 10, i: 1, masked: true},
		{name: og110, v: 1, i: 10},
		{name: og110Own, v: 1, i: 10, rate: 1e-4},
	}
}

// config spells the schedule as the pipeline has it: versions count updates.
func (s ogSchedule) config() run.Config {
	c := run.Default()
	c.Pipeline.Mode, c.Pipeline.Batch = "sync", 512
	c.Pipeline.PublishEvery, c.Pipeline.BatchUpdates = s.v*s.i, s.i
	c.Replay.Sampler, c.Replay.Capacity = "fifo", 0
	c.Learner.Objective, c.Learner.KLCoef, c.Learner.ReferenceEvery = "grpo_off", 0.01, 50*s.i
	c.Learner.MaskZeroVariance = s.masked
	if s.rate > 0 {
		c.Learner.LearningRate = s.rate
	}
	c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = 15, 0.5, 0
	c.Budget.Compute = 300
	return c
}

func ogArms(o Options) []Arm {
	var arms []Arm
	for _, s := range ogSchedules() {
		arms = append(arms, Arm{s.name, rehearsed(o, s.config())})
	}
	return arms
}

// rehearsed cuts a configuration down to seconds where the study is a rehearsal. Episodes of many turns take longest.
func rehearsed(o Options, c run.Config) run.Config {
	if !o.Quick {
		return c
	}
	c.Warmup.Steps, c.Warmup.Until = 150, 0
	c.Pipeline.Batch = 64
	c.Budget.Compute, c.Evaluate.Every = 12, 3
	if c.Pipeline.BatchUpdates > 1 { // a few batches at least
		c.Budget.Compute = 30
	}
	if c.Task["name"] != "arithmetic" {
		c.Task = maps.Clone(c.Task)
		c.Task["held_out"] = 20
		c.Warmup.Steps = 20
		c.Pipeline.Batch, c.Budget.Compute, c.Evaluate.Every = 16, 4, 1
	}
	return c
}

func offPolicyGRPO() Study {
	return Study{
		Name: "off-policy-grpo", Title: "Must the workers have the newest weights?", Source: "[OG] fig. 2, tables 2 and 3",
		Lead: []string{
			"[OG] algorithm 1 has two numbers, (v, i): the workers take the current weights every v batches, and each batch is used for i updates. " +
				"(1,1) is on-policy, with groups of zero variance masked or kept in the loss; (10,1) is theirs; (1,10) is DeepSeekMath's.",
			"Additions below 100, batches of 64 prompts with 8 answers each, a KL to a reference that becomes the policy every 50 batches, and the same compute " +
				"for all. [OG] trains models of 0.5 and 1.5 billion parameters on GSM8K and DeepScaleR, one seed each.",
			"(1,10) is run at the others' learning rate and at a sixth of it, since ten updates on a batch move the policy ten times.",
		},
		Arms: ogArms, Judge: judgeOffPolicyGRPO,
	}
}

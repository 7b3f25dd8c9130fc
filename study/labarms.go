package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/run"
)

// The arms that several studies share.

const queueName = "no replay"

// queueArm is the reference of the studies.
func queueArm(o Options) Arm { return Arm{queueName, sampled(queue(o))} }

// bufferArm is a cell of the grid, or another at the laboratory's settings.
func bufferArm(o Options, s split, n int) Arm {
	c := buffer(o, s, n)
	if judgedByPassAt(s, n) {
		c = sampled(c)
	}
	return Arm{bufferName(s, n), c}
}

func bufferName(s split, n int) string { return cell{s, n}.String() }

// judgedByPassAt reports whether a cell of the grid is evaluated by samples as well, which costs more than its greedy evaluations.
func judgedByPassAt(s split, n int) bool {
	return s == labSplit() && (n == labBatch || n == labCapacity || n == widest)
}

// gridArms returns the arms of the grid, by split.
func gridArms(o Options) []Arm {
	var arms []Arm
	for _, c := range labGrid() {
		arms = append(arms, bufferArm(o, c.split, c.capacity))
	}
	return arms
}

// queueRateArm and bufferRateArm are arms of the sweep of learning rates; at labRate they are those of the other studies.
func queueRateArm(o Options, rate float64) Arm {
	if rate == labRate {
		return queueArm(o)
	}
	return Arm{rateName(queueName, rate), atRate(queue(o), rate)}
}

func bufferRateArm(o Options, s split, n int, rate float64) Arm {
	a := bufferArm(o, s, n)
	if rate == labRate {
		return a
	}
	return Arm{rateName(a.Name, rate), atRate(buffer(o, s, n), rate)}
}

func rateName(name string, rate float64) string { return fmt.Sprintf("%s, rate %g", name, rate) }

// The schedule: arms that hardly learn. How often rollouts are used and who waits for whom follow from the virtual clock, which knows
// nothing of the model, so that a policy of a few thousand parameters shows it in seconds, and over more updates.
const (
	scheduleBatch    = 192
	scheduleCapacity = 2 * scheduleBatch
	scheduleCompute  = 100
)

const aboutSchedule = "Arms named “schedule” show replay ratios and stalls alone. These follow from the virtual clock, which knows nothing of the model, so a tiny policy on additions that hardly learns stands in for one that " +
	"does: batches of 192, a buffer of two batches, the compute of 100 updates without replay."

// schedule is an arm that hardly learns: with a buffer, or with the queue of the arm without replay.
func schedule(o Options, s split, sampler string) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "arithmetic", "held_out": 20}
	c.Policy.Hidden, c.Policy.Intermediate, c.Policy.Layers, c.Policy.Heads, c.Policy.KVHeads, c.Policy.Positions = 16, 24, 1, 2, 1, 32
	c.Warmup.Steps = 0
	c.Pipeline.Batch, c.Pipeline.Group = scheduleBatch, labGroup
	c.Pipeline.Workers, c.Pipeline.Trainers = s.workers, s.trainers
	c.Replay.Sampler, c.Replay.Capacity = sampler, scheduleCapacity
	c.Budget.Compute, c.Evaluate.Every, c.Evaluate.Samples = scheduleCompute, scheduleCompute, 0
	c.Checkpoint.Every = 1000
	if o.Quick {
		c.Budget.Compute, c.Evaluate.Every = 8, 8
	}
	return c
}

package study

import (
	"fmt"
	"maps"

	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
)

// The laboratory is the configuration that the studies of [ER] share: one task and one policy. A study changes one
// thing at a time. Every arm is made by the functions of this file or from their result, so that studies that need the
// same configuration share its runs.

// The base configuration was fixed by pilot runs before any study.
const (
	labBatch   = 3840 // B: 2, 3 and 4 trainers divide it into whole groups
	labGroup   = 8
	labCompute = 20 // budget, in updates without replay
	labEvery   = 1  // between evaluations
	labTarget  = 0.18
	labRate    = 1.4e-3  // the middle one of labRates
	labSampler = uniform // [ER]'s: with replacement
	labSamples = 4       // per held-out problem, of the arms evaluated by pass@k
	labPassAt  = 4       // the largest k
	labHeldOut = 1250    // problems, of which 250 choose and 1,000 judge

	labCapacity = 2 * labBatch  // N, where a study changes something else
	widest      = 16 * labBatch // N, at labSplit only
)

// The samplers of the studies.
const (
	uniform  = "uniform"
	distinct = "distinct"
	unseen   = "unseen"
	epoch    = "epoch"
)

// aboutLab describes the laboratory at the top of a page.
func aboutLab() string {
	return "The task is addition of numbers below 50, by a policy of two layers of width 64 that starts from a supervised " +
		"warm-up. " + aboutPipeline(labBatch, labCompute) + " Rollouts are drawn from a buffer with replacement."
}

// aboutPipeline describes batches and costs.
func aboutPipeline(batch int, compute float64) string {
	return fmt.Sprintf("A batch is %d rollouts in groups of %d. A rollout costs μ = %g to generate, and runs end at the "+
		"compute of %g updates without replay. The source trains large language models for longer; what is found here "+
		"holds for this small model and these short runs.",
		batch, labGroup, run.Default().Pipeline.RolloutCost, compute)
}

// labRates returns the learning rates of the sweeps, ascending.
func labRates() []float64 { return []float64{1e-3, labRate, 2e-3} }

// split is the numbers of GPUs that generate and that train.
type split struct{ workers, trainers int }

func (s split) String() string { return fmt.Sprintf("(%d,%d)", s.workers, s.trainers) }

// ratio is W/T.
func (s split) ratio() float64 { return float64(s.workers) / float64(s.trainers) }

func (s split) set(c run.Config) run.Config {
	c.Pipeline.Workers, c.Pipeline.Trainers = s.workers, s.trainers
	return c
}

// labSplits returns the splits of eight GPUs in the studies of [ER].
func labSplits() []split { return []split{labSplit(), {5, 3}, {4, 4}} }

// labSplit is the split where a study changes something else.
func labSplit() split { return split{6, 2} }

// queueSplit is the split of at most eight GPUs that stalls least without replay, at the laboratory's rollout cost.
func queueSplit() split { return split{5, 1} }

// labCapacities returns the capacities of the grid, ascending.
func labCapacities() []int { return append(commonCapacities(), widest) }

// commonCapacities are the capacities at which every split is run.
func commonCapacities() []int { return []int{labBatch, labCapacity, 4 * labBatch} }

// capacitiesAt returns the capacities at which a split is run.
func capacitiesAt(s split) []int {
	if s == labSplit() {
		return labCapacities()
	}
	return commonCapacities()
}

// cell is a cell of the grid.
type cell struct {
	split    split
	capacity int // N
}

func (c cell) String() string { return fmt.Sprintf("buffer %d, %s", c.capacity, c.split) }

// labGrid returns the cells of the grid, by split.
func labGrid() []cell {
	var cells []cell
	for _, s := range labSplits() {
		for _, n := range capacitiesAt(s) {
			cells = append(cells, cell{s, n})
		}
	}
	return cells
}

// additionBase is the task with its policy and warm-up.
func additionBase(o Options) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "arithmetic", "operations": []any{"add"}, "max": 50, "held_out": labHeldOut}
	c.Warmup.Until = 0.3
	c.Pipeline.Group = labGroup
	skipZeroVariance(&c)
	c.Learner.Warmup = 5 // without it the first updates unlearn some of the warm-up
	c.Evaluate.Samples = 0
	c.Checkpoint.Every = 1000 // only at the end, and when a run is interrupted
	if o.Quick {
		c.Task["held_out"], c.Warmup.Steps, c.Warmup.Until = 40, 150, 0
	}
	return c
}

// skipZeroVariance leaves out of the learner's passes the groups from which GRPO learns nothing, as all their rewards
// are equal. The gradient is the same.
func skipZeroVariance(c *run.Config) {
	c.Learner.MaskZeroVariance, c.Learner.MaskedDenominator = true, "all"
}

// withAsymRE sets the loss of [ER], which learns from groups of equal rewards too.
func withAsymRE(c *run.Config) { c.Learner.Objective, c.Learner.MaskZeroVariance = asymre, false }

// labBase is what all arms of the laboratory have in common.
func labBase(o Options) run.Config {
	c := additionBase(o)
	c.Pipeline.Batch = labBatch
	c.Learner.LearningRate = labRate
	c.Replay.Sampler = labSampler
	c.Evaluate.Every, c.Evaluate.Target = labEvery, labTarget
	c.Budget.Compute = labCompute
	if o.Quick {
		c.Pipeline.Batch, c.Budget.Compute, c.Evaluate.Every = labBatch/5, 1, 1 // still whole groups for each trainer
	}
	return c
}

// queue is the configuration without replay: each rollout is used once.
func queue(o Options) run.Config {
	c := queueSplit().set(labBase(o))
	c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*labBatch
	return c
}

// buffer is the configuration with replay: the newest N rollouts between the workers and the trainers.
func buffer(o Options, at cell) run.Config {
	c := at.split.set(labBase(o))
	c.Replay.Capacity = at.capacity
	return c
}

const queueName = "no replay"

// queueArm is the reference of the studies.
func queueArm(o Options) Arm { return Arm{queueName, withPassAt(queue(o))} }

// The arm without replay at the learning rate that was best for it, and with what else pilots chose for it.
const (
	ratedQueueName = "no replay, rate chosen"
	tunedQueueName = "no replay, rate and loss chosen"
)

func ratedQueueArm(o Options) Arm { return Arm{ratedQueueName, o.choice(queueTuning(o)[0]).Config} }

func tunedQueueArm(o Options) Arm {
	c, _ := queueTuning(o).chosen(o)
	return Arm{tunedQueueName, c}
}

// againstTuned compares an arm with the best that training without replay has.
func (f *Found) againstTuned(of func(queue Runs) estimate) string {
	_, what := queueTuning(f.Options).chosen(f.Options)
	return fmt.Sprintf("Less that of the best without replay (%s): %s.", what, of(f.Of(tunedQueueName)))
}

// bufferArm is a cell of the grid.
func bufferArm(o Options, at cell) Arm {
	c := buffer(o, at)
	if at == (cell{labSplit(), labCapacity}) { // pass@k costs more than one answer to each problem
		c = withPassAt(c)
	}
	return Arm{at.String(), c}
}

// gridArms returns the arms of the grid, by split.
func gridArms(o Options) []Arm {
	var arms []Arm
	for _, c := range labGrid() {
		arms = append(arms, bufferArm(o, c))
	}
	return arms
}

// splitArms returns the arms of every split at one capacity.
func splitArms(o Options) []Arm {
	var arms []Arm
	for _, s := range labSplits() {
		arms = append(arms, bufferArm(o, cell{s, labCapacity}))
	}
	return arms
}

// capacityArms returns the arms of a split, by capacity, and capacityLevels their capacities.
func capacityArms(o Options, s split) []Arm {
	var arms []Arm
	for _, n := range capacitiesAt(s) {
		arms = append(arms, bufferArm(o, cell{s, n}))
	}
	return arms
}

func capacityLevels(s split) []float64 {
	var levels []float64
	for _, n := range capacitiesAt(s) {
		levels = append(levels, float64(n))
	}
	return levels
}

// at returns the runs of a cell of the grid.
func (f *Found) at(c cell) Runs { return f.Of(c.String()) }

// withPassAt adds the samples that pass@k needs to the evaluations.
func withPassAt(c run.Config) run.Config {
	c.Evaluate.Samples, c.Evaluate.PassAt = labSamples, []int{1, 2, labPassAt}
	return c
}

// atRate returns an arm at another learning rate. At labRate the arm is that of the other studies.
func (a Arm) atRate(rate float64, plain run.Config) Arm {
	if rate == labRate {
		return a
	}
	return Arm{rateName(a.Name, rate), withRate(plain, rate)}
}

// rateTuning chooses a learning rate in two stages: among a few, and beyond the lowest or highest if that was best. The
// studies freshness, fresh-parts and off-policy-grpo do not go beyond theirs: their archives are older.
type rateTuning [2]Pilot

// ratePilot chooses a learning rate by the mean accuracy over the run.
func ratePilot(name string, c run.Config, rates ...float64) Pilot {
	p := Pilot{Name: "learning rate, " + name, of: overTheRun, by: meanOver(1)}
	for _, rate := range rates {
		p.Arms = append(p.Arms, Arm{rateName(name, rate), withRate(c, rate)})
	}
	return p
}

// tuneRate chooses a rate as [ratePilot] does, and goes on beyond it if it is the lowest or highest.
func tuneRate(o Options, name string, c run.Config, rates ...float64) rateTuning {
	return ratePilot(name, c, rates...).withFurtherRates(o)
}

// withFurtherRates adds the second stage to a pilot that chooses among rates.
func (p Pilot) withFurtherRates(o Options) rateTuning {
	chosen := o.choice(p)
	rate := chosen.Config.Learner.LearningRate
	least, most := rate, rate
	for _, a := range p.Arms {
		least, most = min(least, a.Config.Learner.LearningRate), max(most, a.Config.Learner.LearningRate)
	}
	further := Pilot{Name: p.Name + ", further", of: p.of, by: p.by, stage: p.stage + 1}
	try := func(rate float64) {
		further.Arms = append(further.Arms, Arm{rateName(further.Name, rate), withRate(chosen.Config, rate)})
	}
	try(rate) // first, so that a tie changes nothing
	switch rate {
	case least:
		try(rate / 2)
		try(rate / 4)
	case most:
		try(2 * rate)
		try(4 * rate)
	}
	return rateTuning{p, further}
}

func (t rateTuning) pilots() []Pilot { return t[:] }

// best is the configuration at the rate that was chosen.
func (t rateTuning) best(o Options) run.Config { return o.choice(t[1]).Config }

// halfToTwice returns a configuration's learning rate, half of it and twice as much.
func halfToTwice(c run.Config) []float64 {
	rate := c.Learner.LearningRate
	return []float64{rate, rate / 2, 2 * rate}
}

// rate is the learning rate that a pilot chose.
func (o Options) rate(p Pilot) float64 { return o.choice(p).Config.Learner.LearningRate }

func rateName(name string, rate float64) string { return fmt.Sprintf("%s, rate %g", name, rate) }

func withRate(c run.Config, rate float64) run.Config {
	c.Learner.LearningRate = rate
	return c
}

// A schedule is an arm that hardly learns. How often rollouts are used, and who waits for whom, follow from the virtual
// clock, which knows nothing of the model. A policy of a few thousand parameters shows them in seconds, over more
// updates.
const (
	scheduleBatch    = 192
	scheduleCapacity = 2 * scheduleBatch
	scheduleCompute  = 100
)

const aboutSchedule = "Arms named “schedule” show replay ratios and stalls only. These follow from the virtual " +
	"clock, which knows nothing of the model, so a tiny policy on additions that hardly learns stands in for one " +
	"that does: batches of 192, a buffer of two batches, the compute of 100 updates without replay."

// schedule is an arm that hardly learns, with a buffer or with the queue of the arm without replay.
func schedule(o Options, s split, sampler string) run.Config {
	c := s.set(run.Default())
	c.Task = map[string]any{"name": "arithmetic", "held_out": 20}
	c.Policy.Hidden, c.Policy.Intermediate, c.Policy.Layers, c.Policy.Heads, c.Policy.KVHeads, c.Policy.Positions = 16,
		24, 1, 2, 1, 32
	c.Warmup.Steps = 0
	c.Pipeline.Batch, c.Pipeline.Group = scheduleBatch, labGroup
	c.Replay.Sampler, c.Replay.Capacity = replay.Sampler(sampler), scheduleCapacity
	c.Budget.Compute, c.Evaluate.Every, c.Evaluate.Samples = scheduleCompute, scheduleCompute, 0
	c.Checkpoint.Every = 1000
	if o.Quick {
		c.Budget.Compute, c.Evaluate.Every = 8, 8
	}
	return c
}

// rehearsed shortens a configuration of the other studies to seconds if the study is a rehearsal. Episodes of many
// turns take longest.
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

// The margins within which accuracies count as the same, fixed before the runs.
const (
	alike    = 0.03
	noImpact = 0.02 // of mean accuracies over a run, in the studies of [ER]
)

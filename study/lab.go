package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/run"
)

// The laboratory of the studies of [ER]: one task and one policy, of which a study changes one thing at a time. Every arm is made by a
// function of this file or from one, so that studies which ask for the same configuration share its runs.

// The base configuration, settled by pilots before any study ran.
const (
	labBatch   = 480 // B: 2, 3 and 4 trainers divide it into whole groups
	labGroup   = 8
	labCompute = 24 // budget, in updates without replay
	labEvery   = 2  // between evaluations
	labTarget  = 0.55
	labRate    = 1e-3   // the middle one of labRates
	labSampler = unseen // rollouts never used first, then without replacement within a batch
	labSamples = 4      // per held-out problem, of arms that are judged by pass@k
	labPassAt  = 4      // the largest k
	labHeldOut = 200    // problems
)

// aboutLab says what the laboratory is, for the top of a page.
func aboutLab() string { return aboutSearching(labBatch, labCompute) }

func aboutSearching(batch int, compute float64) string {
	return fmt.Sprintf("The task is search: questions about made-up facts, answered after queries to a small search engine, by a policy of two layers of width 64 that starts from a supervised warm-up. "+
		"A batch is %d rollouts in groups of %d, those never used first where there is a buffer; a rollout costs μ = %g to generate, and runs end at the compute of %g updates without replay: so small a "+
		"model and so short a run are not the source's language models, and what is found holds for them.", batch, labGroup, run.Default().Pipeline.RolloutCost, compute)
}

// labRates returns the learning rates of the sweeps, ascending; labRate is among them.
func labRates() []float64 { return []float64{6e-4, 1e-3, 1.5e-3} }

// split is how GPUs are shared out.
type split struct{ workers, trainers int }

func (s split) String() string { return fmt.Sprintf("(%d,%d)", s.workers, s.trainers) }

// ratio is W/T.
func (s split) ratio() float64 { return float64(s.workers) / float64(s.trainers) }

// labSplits returns the splits of eight GPUs that the studies of [ER] use.
func labSplits() []split { return []split{{6, 2}, {5, 3}, {4, 4}} }

// labSplit is the split that studies keep to where they change something else.
func labSplit() split { return split{6, 2} }

// queueSplit is the split of at most eight GPUs that stalls least without replay, at the laboratory's rollout cost.
func queueSplit() split { return split{5, 1} }

// cell is a cell of the grid.
type cell struct {
	split    split
	capacity int // N
}

func (c cell) String() string { return fmt.Sprintf("buffer %d, %s", c.capacity, c.split) }

// labCapacity is the capacity that studies keep to where they change something else; widest is run at labSplit alone.
const (
	labCapacity = 2 * labBatch
	widest      = 8 * labBatch
)

// labCapacities returns the capacities of the grid, ascending; the last is widest.
func labCapacities() []int { return []int{labBatch, labCapacity, 4 * labBatch, widest} }

// commonCapacities are those that every split is run at.
func commonCapacities() []int { return labCapacities()[:3] }

// capacitiesAt returns the capacities that a split is run at.
func capacitiesAt(s split) []int {
	if s == labSplit() {
		return labCapacities()
	}
	return commonCapacities()
}

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

// base is what all arms have in common.
func base(o Options) run.Config {
	c := searching(o)
	c.Pipeline.Batch = labBatch
	c.Learner.LearningRate = labRate
	c.Replay.Sampler = labSampler
	c.Evaluate.Every, c.Evaluate.Target = labEvery, labTarget
	c.Budget.Compute = labCompute
	if o.Quick {
		c.Budget.Compute, c.Evaluate.Every = 1, 1
	}
	return c
}

// searching is the task with its policy and warm-up.
func searching(o Options) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "search", "held_out": labHeldOut}
	c.Policy.Positions, c.Generate.MaxTokens = 192, 14
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 1000, 32, 0.3
	c.Pipeline.Group = labGroup
	c.Evaluate.Samples = 0
	c.Checkpoint.Every = 1000 // at the end alone, or when a run is interrupted
	if o.Quick {
		c.Task["held_out"], c.Warmup.Steps = 40, 20
	}
	return c
}

// queue is the arm without replay: each rollout is used once.
func queue(o Options) run.Config {
	c := base(o)
	c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*labBatch
	c.Pipeline.Workers, c.Pipeline.Trainers = queueSplit().workers, queueSplit().trainers
	return c
}

// buffer is an arm with replay: the newest n rollouts between the workers and trainers of a split.
func buffer(o Options, s split, n int) run.Config {
	c := base(o)
	c.Replay.Capacity = n
	c.Pipeline.Workers, c.Pipeline.Trainers = s.workers, s.trainers
	return c
}

// sampled adds what pass@k needs to the evaluations.
func sampled(c run.Config) run.Config {
	c.Evaluate.Samples, c.Evaluate.PassAt = labSamples, []int{1, 2, labPassAt}
	return c
}

// atRate returns the configuration with another learning rate.
func atRate(c run.Config, rate float64) run.Config {
	c.Learner.LearningRate = rate
	return c
}

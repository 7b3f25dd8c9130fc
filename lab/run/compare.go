package run

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout/option"
)

// BaselineArm returns the configuration of the arm without replay: the same run with a bounded queue as its table, its
// own learning rate, and the split of GPUs that stalls least. It may have another batch, with the same compute and
// evaluations, and use each batch several times.
func (c Config) BaselineArm() Config {
	b := c.Baseline
	queue := Default().Replay
	queue.Sampler, queue.Capacity, queue.MaxStaleness = b.Sampler, b.Capacity, c.Replay.MaxStaleness
	c.Replay, c.Prompts.Fraction = queue, 0
	c.Prompts.Keep, c.Prompts.Score, c.Prompts.Interval, c.Prompts.Skip = "", "", "", ""
	if i := c.Pipeline.BatchUpdates; i > 1 { // publishes weights after as many batches as with replay
		c.Pipeline.BatchUpdates, c.Pipeline.PublishEvery = 1, max(1, c.Pipeline.PublishEvery/i)
	}
	batch := c.Pipeline.Batch
	_ = b.changePipeline(&c.Pipeline) // validate reports its errors
	scale := float64(batch) / float64(c.Pipeline.Batch)
	c.Budget.Compute, c.Evaluate.Every = c.Budget.Compute*scale, c.Evaluate.Every*scale
	if c.Pipeline.Mode == pipeline.Sync { // uses nothing that is older: a batch, then its updates
		c.Pipeline.SyncRollouts, c.Pipeline.SyncUpdates = c.Pipeline.Batch, c.Pipeline.BatchUpdates
	}
	if b.Workers == 0 && b.Trainers == 0 {
		b.Workers, b.Trainers = leastStalling(c.pipelineOptions())
	}
	c.Pipeline.Workers, c.Pipeline.Trainers = b.Workers, b.Trainers
	_ = b.changeLearner(&c.Learner) // validate reports its errors
	if b.LearningRate > 0 {
		c.Learner.LearningRate = b.LearningRate
	}
	return c
}

func (b Baseline) changeLearner(l *Learner) error {
	return reader().Tree("baseline.learner", b.Learner, l)
}

func (b Baseline) changePipeline(p *Pipeline) error {
	return reader().Tree("baseline.pipeline", b.Pipeline, p)
}

// validate checks the section's ranges.
func (b Baseline) validate() error {
	var p option.Problems
	p.Check(replay.Sampler(b.Sampler).Consumes(), "baseline.sampler", b.Sampler,
		"lifo or fifo, which use each rollout once")
	p.Check(b.Capacity >= 0, "baseline.capacity", b.Capacity, "rollouts, or 0 for 2 x pipeline.batch")
	p.Check(b.Workers >= 0 && b.Trainers >= 0 && (b.Workers == 0) == (b.Trainers == 0), "baseline.workers", b.Workers,
		"a number together with trainers (%d), or 0 for both and the split that stalls least", b.Trainers)
	p.Check(b.LearningRate >= 0, "baseline.learning_rate", b.LearningRate, "more than 0, or 0 for "+
		"learner.learning_rate")
	rate, given := b.Learner["learning_rate"]
	p.Check(!given, "baseline.learner.learning_rate", rate, "none: set baseline.learning_rate")
	p.Add(b.changeLearner(new(Learner)))
	for _, key := range []string{"workers", "trainers"} {
		gpus, given := b.Pipeline[key]
		p.Check(!given, "baseline.pipeline."+key, gpus, "none: set baseline.%s", key)
	}
	for _, key := range []string{"sync_rollouts", "sync_updates"} {
		n, given := b.Pipeline[key]
		p.Check(!given, "baseline.pipeline."+key, n, "none: a turn of the baseline is a batch with its updates")
	}
	changed := Default().Pipeline
	if err := b.changePipeline(&changed); err != nil {
		p.Add(err)
	} else {
		p.Check(changed.Batch >= 1, "baseline.pipeline.batch", changed.Batch, "1 or more")
	}
	return p.Err()
}

// leastStalling returns the split of at most as many GPUs as the pipeline has into workers and trainers, the trainers
// dividing the batch, at which the least share of their time is idle when every batch is used as often: trainers wait
// for W/T below mu, workers above; forward passes of corrections are part of the trainers' work. Among equals it uses
// the most GPUs.
func leastStalling(p pipeline.Options) (workers, trainers int) {
	mu := p.RolloutCost / (p.TrainingCost() * float64(max(p.BatchUpdates, 1)))
	s := design.LeastIdle(p.Workers+p.Trainers, p.Batch, mu)
	return s.Workers, s.Trainers
}

// Arm names one run of a comparison.
type Arm struct {
	Name string // results.BaselineArm or results.ReplayArm
	Seed uint64
}

// Comparison runs a baseline without replay and a run with replay, over several seeds.
type Comparison struct {
	Config Config // of the replay arm; its seed is the first
	Seeds  int    // >= 1
	Dir    string
	Resume bool // continue the runs in the folder
	// Hooks watches an arm, Warmup the warm-up that the arms of a seed share. Either may be nil. The hooks of the two
	// arms are called from two goroutines.
	Hooks  func(Arm) Hooks
	Warmup func(seed uint64) func(step int, loss float64)
}

// Validate reports every problem of both arms at once.
func (c Comparison) Validate() error {
	var p option.Problems
	config, budget := c.Config, c.Config.Budget
	p.Check(c.Seeds >= 1, "--seeds", c.Seeds, "1 or more")
	p.Check(config.Replays(), "replay.sampler", config.Replay.Sampler,
		"one that does not consume, for the arm with replay")
	p.Check(config.Evaluate.Target > 0, "evaluate.target", config.Evaluate.Target,
		"the accuracy to compare at, fixed before the runs")
	grid := budget.Compute / config.Evaluate.Every
	p.Check(budget.Updates <= 0 && !(math.Abs(grid-math.Round(grid)) > 1e-9), "budget",
		fmt.Sprintf("compute %g, updates %d", budget.Compute, budget.Updates),
		"a compute that is a multiple of evaluate.every (%g) and no limit on updates: the arms end at equal compute",
		config.Evaluate.Every)
	if config.remote != nil {
		p.Check(false, "--buffer", config.remote.Address, "none with --compare, whose arms have a table each")
	}
	p.Add(config.Validate())
	if p.Err() == nil {
		if err := config.BaselineArm().Validate(); err != nil {
			p.Add(fmt.Errorf("in the baseline's arm, %w", err))
		}
	}
	return p.Err()
}

// Run carries out all runs, the two arms of a seed at the same time, and writes compare.json. If ctx ends, it leaves
// checkpoints and returns the context's error.
func (c Comparison) Run(ctx context.Context) (*results.Compare, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.createFolder(); err != nil {
		return nil, err
	}
	for c.Resume && c.begun(results.BaselineArm, c.Config.Seed+uint64(c.Seeds)) {
		c.Seeds++ // seeds in the folder belong to the comparison
	}
	baseline := c.Config.BaselineArm().Pipeline
	p := results.Protocol{Name: c.Config.Name, Task: c.Config.taskName(), Target: c.Config.Evaluate.Target,
		Batch: baseline.Batch, Updates: baseline.BatchUpdates}
	for i := range c.Seeds {
		seeded := c.Config
		seeded.Seed += uint64(i)
		baseline, replay, err := c.seed(ctx, seeded)
		if err != nil {
			return nil, err
		}
		p.Baseline, p.Replay = append(p.Baseline, baseline), append(p.Replay, replay)
	}
	result, err := results.NewCompare(p)
	if err != nil {
		return nil, err
	}
	return result, results.WriteCompare(c.Dir, result)
}

func (c Comparison) createFolder() error {
	if _, err := os.Stat(filepath.Join(c.Dir, results.ConfigFile)); err == nil && !c.Resume {
		return fmt.Errorf("%s holds a comparison already: give another --out, continue it with --resume, or "+
			"replace it with --force", c.Dir)
	}
	// An arm's folder marks the run as a comparison from the first moment on, so that it is resumed as one.
	if err := os.MkdirAll(filepath.Join(c.Dir, results.BaselineArm), 0o755); err != nil {
		return err
	}
	return writeConfig(c.Dir, c.Config)
}

// seed carries out both arms of a seed at the same time, from one warm start.
func (c Comparison) seed(ctx context.Context, seeded Config) (baseline, replay results.SeedEvals, err error) {
	var report func(int, float64)
	if c.Warmup != nil {
		report = c.Warmup(seeded.Seed)
	}
	var start *Start
	if !c.begun(results.BaselineArm, seeded.Seed) || !c.begun(results.ReplayArm, seeded.Seed) {
		if start, err = Begin(ctx, seeded, report); err != nil {
			return baseline, replay, err
		}
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	carry := func(config Config, name string, into *results.SeedEvals) {
		wait.Go(func() {
			evals, err := c.arm(both, config, name, start)
			if err != nil {
				cancel(err) // the other arm stops with a checkpoint
			}
			*into = evals
		})
	}
	carry(seeded.BaselineArm(), results.BaselineArm, &baseline)
	carry(seeded, results.ReplayArm, &replay)
	wait.Wait()
	return baseline, replay, context.Cause(both)
}

// begun reports whether an arm has a checkpoint to resume from.
func (c Comparison) begun(name string, seed uint64) bool {
	_, err := findCheckpoint(results.SeedDir(c.Dir, name, seed))
	return c.Resume && err == nil
}

// arm starts or resumes one run, or finds it finished.
func (c Comparison) arm(ctx context.Context, config Config, name string, start *Start) (results.SeedEvals, error) {
	dir := results.SeedDir(c.Dir, name, config.Seed)
	var h Hooks
	if c.Hooks != nil {
		h = c.Hooks(Arm{name, config.Seed})
	}
	var sum *results.Summary
	var err error
	if c.begun(name, config.Seed) {
		sum, err = Resume(ctx, config, dir, h)
	} else {
		if err := os.RemoveAll(dir); err != nil { // a run that died before its first checkpoint
			return results.SeedEvals{}, err
		}
		sum, err = Train(ctx, config, start, dir, h)
	}
	if err != nil {
		return results.SeedEvals{}, err
	}
	sum.Arm = name
	if err := results.WriteSummary(dir, sum); err != nil {
		return results.SeedEvals{}, err
	}
	r, err := results.ReadRun(dir)
	if err != nil {
		return results.SeedEvals{}, err
	}
	return results.SeedEvals{Seed: config.Seed, Evals: r.Evals}, nil
}

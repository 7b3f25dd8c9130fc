package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Snapshot is a run as of its last checkpoint, opened to take measurements with its table, weights and task. It writes
// nothing. It is used from one goroutine.
type Snapshot struct {
	session *session
	state   *saved
}

// NoTableError is returned by OpenSnapshot for a run whose table is not in its folder.
type NoTableError struct{ Why string }

func (e *NoTableError) Error() string { return e.Why }

// OpenSnapshot opens the last checkpoint of a run, with a configuration that change may alter first. The caller closes
// it. The error is a *NoTableError if there is no checkpoint or the table is in a service.
func OpenSnapshot(ctx context.Context, dir string, change func(*Config)) (*Snapshot, error) {
	c, remote, err := loadSingle(dir)
	if err != nil {
		return nil, err
	}
	if remote != nil {
		return nil, &NoTableError{fmt.Sprintf("its rollouts are in table %s of a service", remote.Address)}
	}
	place, err := findCheckpoint(dir)
	if err != nil {
		return nil, &NoTableError{"it has no checkpoint"}
	}
	if change != nil {
		change(&c)
	}
	return openSnapshot(ctx, c, dir, place)
}

func openSnapshot(ctx context.Context, c Config, dir, place string) (*Snapshot, error) {
	s, state, err := openSession(ctx, c, dir, place, Hooks{})
	if err != nil {
		return nil, err
	}
	return &Snapshot{s, state}, nil
}

// loadSingle reads the configuration of a run and the place of its table if that is in a service. It refuses a
// comparison.
func loadSingle(dir string) (Config, *Remote, error) {
	if results.IsComparison(dir) {
		return Config{}, nil, fmt.Errorf("%s holds a comparison: name one of its runs, such as %s",
			dir, filepath.Join(dir, results.ReplayArm, "seed-1"))
	}
	c, err := LoadFolder(dir, nil)
	if err != nil {
		return Config{}, nil, err
	}
	remote, err := readRemote(dir)
	return c, remote, err
}

// Close releases the table and the task.
func (c *Snapshot) Close() error { return c.session.close() }

// Config returns the run's configuration, as changed.
func (c *Snapshot) Config() Config { return c.session.config }

// Table returns the options of the run's table.
func (c *Snapshot) Table() replay.Options { return c.session.table.Options() }

// Last returns the last update before the checkpoint, without its metrics.
func (c *Snapshot) Last() pipeline.Update { return c.state.Progress.Last }

// Held returns the rollouts in the table.
func (c *Snapshot) Held() []replay.Held { return c.session.table.(embedded).Inspect().Held() }

// Gradients calls add with the gradient of each draw, in order; see policy.Learner.Gradients.
func (c *Snapshot) Gradients(ctx context.Context, b *rollout.Batch, add func(i int, gradient []float32) error) error {
	return c.session.learner.Gradients(ctx, b, add)
}

// After returns Gradients as they are after an update on each of the batches. The snapshot itself does not change.
func (c *Snapshot) After(ctx context.Context, batches []*rollout.Batch) (
	func(ctx context.Context, b *rollout.Batch, add func(i int, gradient []float32) error) error, error) {
	later, err := c.session.learner.Clone()
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		if _, err := later.Step(ctx, []*rollout.Batch{b}); err != nil {
			return nil, err
		}
	}
	return later.Gradients, nil
}

// Generate generates groups with the newest weights, for the prompts that come next in the run. Their random streams
// derive from the seed and are not those of the run. It returns the rollouts, or steps, as a table of the run's unit
// and kind of advantages holds them, in the order of their groups.
func (c *Snapshot) Generate(ctx context.Context, seed uint64, groups int) ([]replay.Held, error) {
	s := c.session
	g := s.parts().Generator.(*generator)
	g.seed = seed
	var made []rollout.Group
	units := 0
	for n := range groups {
		rollouts, err := s.generateGroup(ctx, g, c.state.Machine.NextJob+uint64(n))
		if err != nil {
			return nil, err
		}
		made = append(made, rollout.Group{Rollouts: rollouts, Size: len(rollouts)})
		for _, r := range rollouts {
			units += max(1, len(r.Turns))
		}
	}
	of := s.table.Options()
	table, err := replay.New(replay.Options{
		Capacity: units, Sampler: replay.Uniform, Unit: of.Unit, GroupSize: of.GroupSize, Advantage: of.Advantage,
		Vocab:       of.Vocab,
		StepReturns: of.StepReturns, StepDiscount: of.StepDiscount, Shards: 1,
	})
	if err != nil {
		return nil, err
	}
	if err := table.Advance(ctx, s.learner.Weights().Version); err != nil {
		return nil, err
	}
	if _, err := table.Insert(ctx, made...); err != nil {
		return nil, err
	}
	return table.Inspect().Held(), nil
}

// generateGroup generates the group of a job with the newest weights, for the prompt whose turn it is.
func (s *session) generateGroup(ctx context.Context, g *generator, number uint64) ([]*rollout.Rollout, error) {
	turn := number
	if n := s.config.Prompts.Limit; n > 0 {
		turn = number % uint64(n)
	}
	prompt := s.task.Train(turn)
	generation, err := g.Start(pipeline.Job{Number: number, Size: s.config.Pipeline.Group, Prompt: prompt,
		PromptNumber: turn})
	if err != nil {
		return nil, err
	}
	done, err := generation.Continue(ctx, s.publisher().Weights(), 0)
	if err == nil && !done {
		err = errors.New("rows remain unfinished after all positions were decoded")
	}
	if err != nil {
		return nil, fmt.Errorf("generate group %d: %w", number, err)
	}
	rollouts, err := generation.Rollouts()
	if v, ok := s.task.(task.Verifier); ok && err == nil {
		err = task.Reward(v, prompt, number, rollouts)
	}
	return rollouts, err
}

package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// warmUp learns from demonstrations on the task's training prompts.
func (s *Start) warmUp(ctx context.Context, c Config, t task.Task, report func(int, float64)) error {
	learner, err := s.model.NewLearner(s.weights, policy.Learning{
		Objective: objective.SFT{}, Optimizer: policy.Adam{LearningRate: c.Warmup.LearningRate},
	})
	if err != nil {
		return fmt.Errorf("warmup: %w", err)
	}
	enough, err := s.warmEnough(c, t)
	if err != nil {
		return err
	}
	if done, err := enough(ctx, 0, s.weights); done || err != nil { // a pretrained policy may have no need of it
		return err
	}
	school := school{s.speaker, t, c.Seed, c.Warmup.Noise}
	if err := school.canBeSaid(c.Generate.MaxTokens); err != nil {
		return err
	}
	for step := range c.Warmup.Steps {
		batch := &rollout.Batch{}
		for i := range c.Warmup.Batch {
			if err := ctx.Err(); err != nil { // experts may search long
				return err
			}
			d, err := school.demonstration(step*c.Warmup.Batch + i)
			if err != nil {
				return fmt.Errorf("warmup: %w", err)
			}
			batch.Draws = append(batch.Draws, rollout.Draw{Rollout: d, Weight: 1})
		}
		measured, err := learner.Step(ctx, []*rollout.Batch{batch})
		if err != nil {
			return fmt.Errorf("warmup: %w", err)
		}
		if report != nil {
			report(step+1, measured.Metrics["loss"])
		}
		if done, err := enough(ctx, step+1, learner.Weights()); err != nil {
			return fmt.Errorf("warmup: %w", err)
		} else if done {
			break
		}
	}
	s.weights = learner.Weights().WithVersion(0)
	return nil
}

// The warm-up asks every so many steps whether it may end, on so many training prompts; on fewer where each takes an episode.
const (
	warmupLook     = 10
	warmupPrompts  = 256
	warmupEpisodes = 128
)

// warmEnough returns the test that ends a warm-up early: greedy accuracy on training prompts, always the same ones. Seeds
// then begin alike, as far as learning goes.
func (s *Start) warmEnough(c Config, t task.Task) (func(context.Context, int, *policy.Weights) (bool, error), error) {
	if c.Warmup.Until == 0 {
		return func(context.Context, int, *policy.Weights) (bool, error) { return false, nil }, nil
	}
	prompts := make([]task.Prompt, warmupPrompts)
	if _, ok := t.(task.Environment); ok {
		prompts = prompts[:warmupEpisodes]
	}
	for i := range prompts {
		prompts[i] = t.Train(rollout.Stream(c.Seed, "warmup/look", uint64(i)).Uint64())
	}
	e, err := newEvaluator(c, t, s.speaker, prompts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, step int, w *policy.Weights) (bool, error) {
		if step%warmupLook != 0 {
			return false, nil
		}
		accuracy, err := e.pass1(ctx, w)
		return accuracy >= c.Warmup.Until, err
	}, nil
}

// validate holds the warm-up to its ranges.
func (w Warmup) validate() error {
	var errs []error
	if w.Steps < 0 {
		errs = append(errs, fmt.Errorf("steps: %d: want 0 or more", w.Steps))
	}
	if w.Steps > 0 && w.Batch < 1 {
		errs = append(errs, fmt.Errorf("batch: %d: want 1 or more demonstrations", w.Batch))
	}
	if w.Steps > 0 && !(w.LearningRate > 0) {
		errs = append(errs, fmt.Errorf("learning_rate: %g: want more than 0", w.LearningRate))
	}
	if !(w.Until >= 0 && w.Until <= 1) {
		errs = append(errs, fmt.Errorf("until: %g: want an accuracy in (0, 1], or 0 for never", w.Until))
	}
	if !(w.Noise >= 0 && w.Noise < 1) {
		errs = append(errs, fmt.Errorf("noise: %g: want a share of turns in [0, 1)", w.Noise))
	}
	return errors.Join(errs...)
}

// validateFor reports what the warm-up asks of a task in vain.
func (w Warmup) validateFor(t task.Task, name string) error {
	if w.Steps <= 0 {
		return nil
	}
	e, ok := t.(task.Environment)
	if !ok {
		if _, ok := t.(task.Demonstrator); !ok {
			return fmt.Errorf("warmup.steps: %d: want 0: task %s has no demonstrations", w.Steps, name)
		}
		if w.Noise > 0 {
			return fmt.Errorf("warmup.noise: %g: want 0: the episodes of task %s have one turn, there is nothing to go wrong before it", w.Noise, name)
		}
		return nil
	}
	episode := e.Reset(e.Train(0), 0)
	if _, ok := episode.(task.Expert); !ok {
		return fmt.Errorf("warmup.steps: %d: want 0: task %s has no expert to imitate", w.Steps, name)
	}
	if _, ok := episode.(task.Actor); !ok && w.Noise > 0 {
		return fmt.Errorf("warmup.noise: %g: want 0: task %s has no list of actions to play at random", w.Noise, name)
	}
	return nil
}

package run

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// improvement measures the true change of reward beside [OG]'s lower bound of it (policy.Learning.BoundEvery): the mean reward
// of the weights after an update less that of those with which the update's batch began. Both answer the first training
// prompts, one for each group of a batch and as often as a group has rollouts, as they answer in training and from the same
// random streams, so that what chance does to both leaves their difference alone.
type improvement struct {
	evaluator *evaluator
	copies    int
	every     rollout.Version // BoundEvery
	updates   rollout.Version // on each batch
}

// since is the mean reward of the weights with which a batch began; a checkpoint keeps it.
type since struct {
	Version rollout.Version
	Reward  float64
}

// newImprovement returns nil where no bound is asked for.
func newImprovement(c Config, t task.Task, s speaker) (*improvement, error) {
	if c.Evaluate.BoundEvery == 0 {
		return nil, nil
	}
	var prompts []task.Prompt
	for n := range max(1, c.Pipeline.Batch/c.Pipeline.Group) {
		prompts = append(prompts, t.Train(uint64(n)))
	}
	e, err := newEvaluator(c, t, s, prompts)
	if err != nil {
		return nil, fmt.Errorf("prepare to measure the change of reward: %w", err)
	}
	e.sampling = c.sampling(e.sampling.Stop)
	return &improvement{e, c.Pipeline.Group, rollout.Version(c.Evaluate.BoundEvery), rollout.Version(c.Pipeline.BatchUpdates)}, nil
}

// begins reports whether a batch that is measured begins at a version: one with an update after which the bound is.
func (i *improvement) begins(v rollout.Version) bool {
	return v%i.updates == 0 && (v+i.updates)/i.every > v/i.every
}

// reward returns the mean reward of weights.
func (i *improvement) reward(ctx context.Context, w *policy.Weights) (float64, error) {
	trials, err := i.evaluator.try(ctx, w, i.copies, i.evaluator.sampling.Temperature)
	if err != nil {
		return 0, fmt.Errorf("measure the reward of version %d: %w", w.Version, err)
	}
	sum := 0.0
	for _, t := range trials {
		sum += t.reward
	}
	return sum / float64(len(trials)), nil
}

// measureChange writes the true change of reward to the line of an update that has a bound, in the bound's unit, and notes
// the reward of weights with which a measured batch begins.
func (s *session) measureChange(u pipeline.Update, l *results.Update) error {
	i := s.improvement
	if i == nil || (u.Version == 0 || u.Version%i.every != 0) && !i.begins(u.Version) {
		return nil
	}
	began := time.Now()
	reward, err := i.reward(context.Background(), s.learner.Weights())
	if err != nil {
		return err
	}
	s.clock.evaluated += time.Since(began)
	if scale, ok := u.Metrics["bound_scale"]; ok && l != nil {
		l.Other["reward_change"] = results.Num((reward - s.Since.Reward) / scale)
	}
	if i.begins(u.Version) {
		s.Since = since{u.Version, reward}
	}
	return nil
}

package worker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// Why a group was not generated.
var (
	errDeadline = errors.New("group deadline exceeded")
	errTooLong  = errors.New("the prompt leaves no room for a completion")
)

// generate plays a job's group and rewards it.
func (w *Worker) generate(ctx context.Context, j job) ([]*rollout.Rollout, error) {
	if d := w.options.Deadline; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, errDeadline)
		defer stop()
	}
	group, err := w.play(ctx, j)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return group, err
}

func (w *Worker) play(ctx context.Context, j job) ([]*rollout.Rollout, error) {
	prompt, err := w.dialogue.Ask(j.prompt)
	if err != nil {
		return nil, err
	}
	if len(prompt) >= w.options.Positions {
		return nil, errTooLong
	}
	group := make([]*rollout.Rollout, w.options.Group)
	for i := range group {
		group[i] = &rollout.Rollout{PromptID: j.prompt.ID, Temperature: float32(w.options.Sampling.Temperature),
			TopP: float32(w.options.Sampling.TopP)}
		read(group[i], prompt)
	}
	if environment, ok := w.task.(task.Environment); ok {
		return group, w.playEpisodes(ctx, j, environment, group)
	}
	made, err := w.complete(ctx, prompt, len(group))
	if err != nil {
		return nil, err
	}
	for i, r := range group {
		write(r, &made[i])
		r.Text = w.dialogue.Answer(made[i].Tokens)
	}
	verifier, ok := w.task.(task.Verifier)
	if !ok {
		return nil, errors.New("the task neither verifies responses nor has episodes")
	}
	return group, task.Reward(verifier, j.prompt, j.number, group)
}

// playEpisodes plays an episode in each rollout, all at the same time.
func (w *Worker) playEpisodes(ctx context.Context, j job, e task.Environment, group []*rollout.Rollout) error {
	all, ctx := errgroup.WithContext(ctx)
	for i, r := range group {
		seed := rollout.Stream(w.options.Seed, "environment", j.number*uint64(len(group))+uint64(i)).Uint64()
		p := &task.Progress{Episode: e.Reset(j.prompt, seed), MaxTurns: e.MaxTurns()}
		all.Go(func() error { return w.playEpisode(ctx, p, r) })
	}
	return all.Wait()
}

func (w *Worker) playEpisode(ctx context.Context, p *task.Progress, r *rollout.Rollout) error {
	for !p.Over {
		start := len(r.Tokens)
		made, err := w.complete(ctx, r.Tokens, 1)
		if err != nil {
			return err
		}
		write(r, &made[0])
		p.Step(start, len(r.Tokens), w.dialogue.Answer(made[0].Tokens))
		if p.Over {
			break
		}
		observation, err := w.dialogue.Observation(p.Last.Text, r.Tokens[len(r.Tokens)-1])
		if err != nil {
			return fmt.Errorf("observation %.60q: %w", p.Last.Text, err)
		}
		if len(r.Tokens)+len(observation) >= w.options.Positions {
			p.End()
			break
		}
		read(r, observation)
	}
	p.Describe(r)
	r.Truncated = r.Truncated || p.Cut
	return nil
}

// complete asks for the next turn, which must fit the positions.
func (w *Worker) complete(ctx context.Context, tokens []int32, n int) ([]engine.Completion, error) {
	s := w.options.Sampling
	s.MaxTokens = min(s.MaxTokens, w.options.Positions-len(tokens))
	made, continued, err := w.pool.complete(ctx, tokens, n, s)
	if w.ends != nil {
		for i := range made {
			cut(&made[i], w.ends)
		}
	}
	if continued > 0 {
		w.update(func(s *Stats) { s.Continued += continued })
	}
	return made, err
}

// cut ends a completion after the first token at which a turn ends.
func cut(c *engine.Completion, ends func(turn []int32) bool) {
	for n := 1; n <= len(c.Tokens); n++ {
		if !ends(c.Tokens[:n]) {
			continue
		}
		c.Tokens, c.Logprobs, c.Versions, c.Finish = c.Tokens[:n], c.Logprobs[:n], c.Versions[:n], engine.Stopped
		if m := &c.SamplingMask; m.Len() > 0 {
			m.Ends = m.Ends[:n]
			m.IDs = m.IDs[:m.Ends[n-1]]
		}
		return
	}
}

// read appends tokens that the policy did not produce.
func read(r *rollout.Rollout, tokens []int32) {
	r.SamplingMask.Extend(len(r.Tokens), rollout.IDLists{}, len(tokens))
	for _, t := range tokens {
		r.Tokens, r.Mask = append(r.Tokens, t), append(r.Mask, 0)
		r.Logprobs, r.Versions = append(r.Logprobs, 0), append(r.Versions, rollout.NoVersion)
	}
}

// write appends what the policy produced.
func write(r *rollout.Rollout, c *engine.Completion) {
	r.SamplingMask.Extend(len(r.Tokens), c.SamplingMask, len(c.Tokens))
	for i, t := range c.Tokens {
		r.Tokens, r.Mask = append(r.Tokens, t), append(r.Mask, 1)
		r.Logprobs, r.Versions = append(r.Logprobs, c.Logprobs[i]), append(r.Versions, c.Versions[i])
	}
	r.Truncated = c.Finish == engine.Length
}

package run

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// generator makes the pipeline's groups with a language model. Row r of job j draws its tokens from the stream of (seed,
// "generate", j x size + r) and its environment's luck from that of "environment", so that nothing depends on which worker
// takes the job, or when.
type generator struct {
	speaker
	environment task.Environment // nil: one response answers a prompt
	sampling    policy.Sampling
	seed        uint64
}

func (g *generator) Start(job pipeline.Job) (pipeline.Generation, error) {
	in, err := g.input(job.Prompt)
	if err != nil {
		return nil, err
	}
	rows := make([]beginning, job.Size)
	for r := range rows {
		number := job.Number*uint64(job.Size) + uint64(r)
		rows[r] = beginning{input: in, stream: rollout.Stream(g.seed, "generate", number)}
		if g.environment != nil {
			rows[r].episode = g.environment.Reset(job.Prompt, rollout.Stream(g.seed, "environment", number).Uint64())
		}
	}
	if g.environment == nil {
		return g.respond(job, rows)
	}
	e, err := g.start(rows, g.environment.MaxTurns(), g.sampling)
	if err != nil {
		return nil, err
	}
	return &group{e, g, job}, nil
}

// respond begins a group of responses.
func (g *generator) respond(job pipeline.Job, rows []beginning) (pipeline.Generation, error) {
	inputs, streams := make([]policy.Input, len(rows)), make([]*rand.Rand, len(rows))
	for r := range rows {
		inputs[r], streams[r] = rows[r].input, rows[r].stream
	}
	responses, err := g.model.Start(inputs, streams, g.sampling)
	if err != nil {
		return nil, err
	}
	return &generation{responses, g, job}, nil
}

// rollout writes what the generator's policy produced in a row, for a job.
func (g *generator) rollout(row policy.Row, job pipeline.Job) *rollout.Rollout {
	return &rollout.Rollout{
		PromptID: job.Prompt.ID, Tokens: row.Tokens, Mask: row.Mask, Logprobs: row.Logprobs, Versions: row.Versions,
		Values: row.Values, Images: row.Images,
		Temperature: float32(g.sampling.Temperature), TopP: float32(g.sampling.TopP),
	}
}

// generation is one group of responses under way.
type generation struct {
	*policy.Generation
	maker *generator
	job   pipeline.Job
}

func (g *generation) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	weights, err := policyWeights(w)
	if err != nil {
		return false, err
	}
	done, err := g.Generation.Continue(ctx, weights, n)
	if done {
		g.Close()
	}
	return done, err
}

func (g *generation) Rollouts() ([]*rollout.Rollout, error) {
	var list []*rollout.Rollout
	for _, row := range g.Rows() {
		r := g.maker.rollout(row, g.job)
		r.Text, r.Truncated = g.maker.said(row), row.Truncated
		list = append(list, r)
	}
	return list, nil
}

// group is one group of episodes under way.
type group struct {
	*episodes
	maker *generator
	job   pipeline.Job
}

func (g *group) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	weights, err := policyWeights(w)
	if err != nil {
		return false, err
	}
	return g.proceed(ctx, weights, n)
}

// Rollouts returns the episodes with their rewards.
func (g *group) Rollouts() ([]*rollout.Rollout, error) {
	var list []*rollout.Rollout
	for i, row := range g.rows.Rows() {
		p := &g.plays[i]
		r := g.maker.rollout(row, g.job)
		r.Text, r.Truncated, r.Turns, r.Reward = p.text(), p.truncated(row), p.turns, p.reward()
		r.Meta = p.outcome()
		list = append(list, r)
	}
	return list, nil
}

func policyWeights(w pipeline.Weights) (*policy.Weights, error) {
	weights, ok := w.Tensors.(*policy.Weights)
	if !ok {
		return nil, fmt.Errorf("generate with %T: a policy's weights are needed", w.Tensors)
	}
	return weights, nil
}

// learner gives the pipeline a policy's learner.
type learner struct{ *policy.Learner }

func (l learner) Step(ctx context.Context, batches []*rollout.Batch) (pipeline.Measured, error) {
	m, err := l.Learner.Step(ctx, batches)
	return pipeline.Measured(m), err
}

func (l learner) Weights() pipeline.Weights {
	w := l.Learner.Weights()
	return pipeline.Weights{Version: w.Version, Tensors: w}
}

package run

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// speaker is a model with the tokenizer of its texts.
type speaker struct {
	model     *policy.Model
	tokenizer *hf.Tokenizer
}

// encode returns the tokens of a prompt.
func (s speaker) encode(text string) ([]int32, error) {
	tokens, err := s.tokenizer.Encode(text)
	if err != nil {
		return nil, fmt.Errorf("encode prompt %q: %w", text, err)
	}
	return tokens, nil
}

// response returns the text of a completion, without the token that ended it.
func (s speaker) response(row policy.Row) string {
	return s.tokenizer.Decode(row.Tokens[row.Prompt:])
}

// generator makes the pipeline's groups with a language model. Row r of job j draws from the stream of
// (seed, "generate", j x size + r), so that nothing depends on which worker takes the job, or when.
type generator struct {
	speaker
	sampling policy.Sampling
	seed     uint64
}

func (g *generator) Start(job pipeline.Job) (pipeline.Generation, error) {
	tokens, err := g.encode(job.Prompt.Text)
	if err != nil {
		return nil, err
	}
	prompts, streams := make([][]int32, job.Size), make([]*rand.Rand, job.Size)
	for r := range prompts {
		prompts[r] = tokens
		streams[r] = rollout.Stream(g.seed, "generate", job.Number*uint64(job.Size)+uint64(r))
	}
	rows, err := g.model.Start(prompts, streams, g.sampling)
	if err != nil {
		return nil, err
	}
	return &generation{rows, g, job}, nil
}

// generation is one group under way.
type generation struct {
	*policy.Generation
	maker *generator
	job   pipeline.Job
}

func (g *generation) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	weights, ok := w.Tensors.(*policy.Weights)
	if !ok {
		return false, fmt.Errorf("generate with %T: a policy's weights are needed", w.Tensors)
	}
	return g.Generation.Continue(ctx, weights, n)
}

func (g *generation) Rollouts() ([]*rollout.Rollout, error) {
	var group []*rollout.Rollout
	for _, row := range g.Rows() {
		r := newRollout(row.Tokens, row.Prompt)
		copy(r.Logprobs[row.Prompt:], row.Logprobs)
		copy(r.Versions[row.Prompt:], row.Versions)
		r.PromptID, r.Text, r.Truncated = g.job.Prompt.ID, g.maker.response(row), row.Truncated
		r.Temperature, r.TopP = float32(g.maker.sampling.Temperature), float32(g.maker.sampling.TopP)
		group = append(group, r)
	}
	return group, nil
}

// newRollout lays out a rollout of which the policy produced the tokens after the prompt, all of version 0.
func newRollout(tokens []int32, prompt int) *rollout.Rollout {
	r := &rollout.Rollout{
		Tokens: tokens, Mask: make([]uint8, len(tokens)), Logprobs: make([]float32, len(tokens)),
		Versions: make([]rollout.Version, len(tokens)), Temperature: 1, TopP: 1,
	}
	for i := range tokens {
		if i < prompt {
			r.Versions[i] = rollout.NoVersion
		} else {
			r.Mask[i] = 1
		}
	}
	return r
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

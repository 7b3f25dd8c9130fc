package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// Start is where a run begins: a policy, its tokenizer and its weights. The arms of a comparison share one.
type Start struct {
	speaker
	weights *policy.Weights
}

// Begin makes the policy of a configuration, from a folder or from scratch, and warms it up. The configuration is a valid
// one.
func Begin(ctx context.Context, c Config, report func(step int, loss float64)) (*Start, error) {
	t, err := c.newTask()
	if err != nil {
		return nil, err
	}
	var s *Start
	if c.Policy.Init != "" {
		s, err = beginFrom(c.Policy.Init)
	} else {
		s, err = beginFresh(c, t)
	}
	if err != nil {
		return nil, err
	}
	if c.Warmup.Steps == 0 {
		return s, nil
	}
	return s, s.warmUp(ctx, c, t, report)
}

// beginFrom reads a model folder.
func beginFrom(dir string) (*Start, error) {
	model, weights, tokenizer, err := policy.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("policy.init: %w", err)
	}
	if tokenizer == nil {
		return nil, fmt.Errorf("policy.init: %s has no tokenizer.json: add the one the model was trained with", dir)
	}
	return &Start{speaker{model, tokenizer}, weights}, nil
}

// beginFresh makes random weights for a task that has its own characters.
func beginFresh(c Config, t task.Task) (*Start, error) {
	tokenizer, err := hf.NewCharTokenizer(t.(task.Alphabet).Characters())
	if err != nil {
		return nil, err
	}
	p := c.Policy
	shape := hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: p.Hidden, IntermediateSize: p.Intermediate,
		NumHiddenLayers: p.Layers, NumAttentionHeads: p.Heads, NumKeyValueHeads: p.KVHeads, MaxPositionEmbeddings: p.Positions,
		TieWordEmbeddings: p.Tied, BOSTokenID: tokenizer.BOS(), PadTokenID: tokenizer.Pad(),
	}
	for _, id := range tokenizer.EOS() {
		shape.EOSTokenIDs = append(shape.EOSTokenIDs, int(id))
	}
	model, err := policy.NewModel(shape)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	weights, err := model.Initial(c.Seed)
	if err != nil {
		return nil, err
	}
	return &Start{speaker{model, tokenizer}, weights}, nil
}

// warmUp learns from demonstrations of the task's training prompts.
func (s *Start) warmUp(ctx context.Context, c Config, t task.Task, report func(int, float64)) error {
	demonstrator := t.(task.Demonstrator)
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
	for step := range c.Warmup.Steps {
		batch := &rollout.Batch{}
		for i := range c.Warmup.Batch {
			d, err := s.demonstration(t, demonstrator, warmupPrompt(c.Seed, step*c.Warmup.Batch+i))
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

// The warm-up asks every so many steps whether it may end, on so many training prompts.
const (
	warmupLook    = 10
	warmupPrompts = 256
)

// warmEnough returns the test that ends a warm-up early: greedy accuracy on training prompts, always the same ones. Seeds
// then begin alike, as far as learning goes.
func (s *Start) warmEnough(c Config, t task.Task) (func(context.Context, int, *policy.Weights) (bool, error), error) {
	if c.Warmup.Until == 0 {
		return func(context.Context, int, *policy.Weights) (bool, error) { return false, nil }, nil
	}
	prompts := make([]task.Prompt, warmupPrompts)
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

// warmupPrompt picks the training prompts of the warm-up at random, far from those that reinforcement learning
// counts up from 0.
func warmupPrompt(seed uint64, i int) uint64 {
	return rollout.Stream(seed, "warmup", uint64(i)).Uint64()
}

// demonstration writes a prompt and its demonstrated response, ended, as a rollout to imitate.
func (s *Start) demonstration(t task.Task, d task.Demonstrator, i uint64) (*rollout.Rollout, error) {
	p := t.Train(i)
	prompt, err := s.encode(p.Text)
	if err != nil {
		return nil, err
	}
	response, err := s.tokenizer.EncodePart(d.Demonstrate(p))
	if err != nil {
		return nil, fmt.Errorf("encode the demonstration of prompt %s: %w", p.ID, err)
	}
	eos := s.tokenizer.EOS()
	if len(eos) == 0 {
		return nil, errors.New("the tokenizer has no end-of-sequence token to learn: add eos_token_id to config.json")
	}
	tokens := append(append(append([]int32{}, prompt...), response...), eos[0])
	return newRollout(tokens, len(prompt)), nil
}

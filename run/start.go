package run

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
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
	if err == nil {
		err = s.suit(c, t)
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
	s, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("policy.init: %w", err)
	}
	return s, nil
}

func load(dir string) (*Start, error) {
	model, weights, tokenizer, err := policy.Load(dir)
	if err == nil && tokenizer == nil {
		err = fmt.Errorf("%s has no tokenizer.json: add the one the model was trained with", dir)
	}
	if err != nil {
		return nil, err
	}
	return &Start{speaker{model, tokenizer}, weights}, nil
}

// beginFresh makes random weights for a task that has its own characters. A task with images gets a token for their patches,
// and a tower.
func beginFresh(c Config, t task.Task) (*Start, error) {
	var special []string
	size := imageSize(t)
	if size > 0 {
		special = []string{hf.ImageToken}
	}
	tokenizer, err := hf.NewCharTokenizer(t.(task.Alphabet).Characters(), special...)
	if err != nil {
		return nil, err
	}
	p := c.Policy
	shape := hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: p.Hidden, IntermediateSize: p.Intermediate,
		NumHiddenLayers: p.Layers, NumAttentionHeads: p.Heads, NumKeyValueHeads: p.KVHeads, MaxPositionEmbeddings: p.Positions,
		TieWordEmbeddings: p.Tied, BOSTokenID: tokenizer.BOS(), PadTokenID: tokenizer.Pad(),
	}
	if size > 0 {
		shape.Vision = hf.Vision{ // the image token is the last of the vocabulary
			ImageSize: size, PatchSize: p.Vision.Patch, HiddenSize: p.Vision.Hidden, ImageTokenID: tokenizer.VocabSize() - 1,
		}
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

// needsCritic reports whether the objective learns from a value head.
func (c Config) needsCritic() bool { return c.Learner.Objective == "ppo" }

// sees holds the tower of a policy to a task's images.
func (s *Start) sees(t task.Task) error {
	if have, want := s.model.Config().Vision.ImageSize, imageSize(t); want > 0 && have != want {
		return fmt.Errorf("want a model with a vision tower for images of %d pixels a side, as the task has; its tower is for %d (0: it has none)", want, have)
	}
	return nil
}

// suit holds a policy's tower to the task's images and gives it the value head that the objective may need.
func (s *Start) suit(c Config, t task.Task) (err error) {
	if err := s.sees(t); err != nil {
		return fmt.Errorf("policy.init: %s: %w", c.Policy.Init, err)
	}
	if c.needsCritic() {
		s.model, s.weights, err = s.model.WithValueHead(s.weights)
	}
	return err
}

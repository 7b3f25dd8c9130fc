package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// generateCommand continues a prompt.
type generateCommand struct {
	Model       dir     `required:"" help:"Hugging Face model folder, for example a run's checkpoint."`
	Prompt      string  `required:"" help:"Text to continue."`
	Temperature float64 `default:"1" help:"Of the sampling; 0 is greedy, with log-probs at temperature 1."`
	TopP        float64 `default:"1" help:"Nucleus of the sampling, in (0, 1]."`
	MaxTokens   int     `default:"256" help:"Longest completion; the model's positions may end it before."`
	Seed        uint64  `default:"1" help:"Of the sampling."`
	JSON        bool    `name:"json" help:"Print one JSON object: prompt_ids, ids, logprobs, text, truncated."`
}

// completion is what --json prints.
type completion struct {
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`
	Logprobs  []float32 `json:"logprobs"`
	Text      string    `json:"text"`
	Truncated bool      `json:"truncated"`
}

// Run prints the prompt and its continuation.
func (c *generateCommand) Run(ctx context.Context) error {
	model, weights, tokenizer, err := loadSpeaking(string(c.Model))
	if err != nil {
		return err
	}
	prompt, err := tokenizer.Encode(c.Prompt)
	if err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	sampling := policy.Sampling{Temperature: c.Temperature, TopP: c.TopP, MaxTokens: c.MaxTokens, Stop: tokenizer.EOS()}
	streams := []*rand.Rand{rollout.Stream(c.Seed, "generate", 0)}
	g, err := model.Start(policy.Plain(prompt), streams, sampling)
	if err != nil {
		return err
	}
	if _, err := g.Continue(ctx, weights, 0); err != nil {
		return err
	}
	row := g.Rows()[0]
	text := tokenizer.Decode(row.Tokens[row.Prompt:])
	if !c.JSON {
		fmt.Println(tokenizer.Decode(row.Tokens))
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(completion{prompt, row.Tokens[row.Prompt:], row.Logprobs[row.Prompt:], text, row.Truncated})
}

func loadSpeaking(dir string) (*policy.Model, *policy.Weights, *hf.Tokenizer, error) {
	model, weights, tokenizer, err := policy.Load(dir)
	if err == nil && tokenizer == nil {
		err = errors.New(dir + " has no tokenizer.json: add the one the model was trained with")
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--model: %w", err)
	}
	return model, weights, tokenizer, nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/rollout"
)

// generateCommand continues a prompt with a model.
type generateCommand struct {
	Model       dir     `required:"" help:"Hugging Face model folder, or a run, whose checkpoint it is."`
	Prompt      string  `required:"" help:"Text to continue."`
	Chat        bool    `help:"Ask the prompt as a user's message in the model's chat template, and print the answer."`
	Temperature float64 `default:"1" help:"Sampling temperature; 0 is greedy, with log-probs at temperature 1."`
	TopP        float64 `default:"1" help:"Nucleus sampling, in (0, 1]; 1: off."`
	MaxTokens   int     `default:"256" help:"Longest completion. It also ends where the model has no more positions."`
	Seed        uint64  `default:"1" help:"Seed of the sampling."`
	JSON        bool    `name:"json" help:"Print one JSON object: prompt_ids, ids, logprobs, text, truncated, and with --top-p sampling_mask."`
}

// completion is what --json prints.
type completion struct {
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`
	Logprobs  []float32 `json:"logprobs"`
	Text      string    `json:"text"`
	Truncated bool      `json:"truncated"`
	// with --top-p, the ids that each token was drawn from, ascending
	SamplingMask [][]int32 `json:"sampling_mask,omitempty"`
}

// Run prints the prompt and its continuation.
func (c *generateCommand) Run(ctx context.Context) error {
	folder, err := c.Model.model()
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	model, weights, tokenizer, err := policy.Load(folder)
	if err == nil && tokenizer == nil {
		err = fmt.Errorf("%s has no tokenizer.json: add the one that the model was trained with", c.Model)
	}
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	dialogue := tokenizer.Plain()
	if c.Chat {
		if dialogue, err = tokenizer.Chat(); err != nil {
			return fmt.Errorf("--chat: %s: %w", c.Model, err)
		}
	}
	prompt, err := dialogue.Prompt(c.Prompt)
	if err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	sampling := policy.Sampling{Temperature: c.Temperature, TopP: c.TopP, MaxTokens: c.MaxTokens, Stop: dialogue.Stop()}
	streams := []*rand.Rand{rollout.Stream(c.Seed, "generate", 0)}
	g, err := model.Start(policy.Plain(prompt), streams, sampling)
	if err != nil {
		return err
	}
	if _, err := g.Continue(ctx, weights, 0); err != nil {
		return err
	}
	row := g.Rows()[0]
	text := dialogue.Decode(row.Tokens[row.Prompt:])
	if !c.JSON {
		if !c.Chat {
			text = tokenizer.Decode(row.Tokens)
		}
		fmt.Println(text)
		return nil
	}
	out := completion{PromptIDs: prompt, IDs: row.Tokens[row.Prompt:], Logprobs: row.Logprobs[row.Prompt:], Text: text,
		Truncated: row.Truncated}
	for i := row.Prompt; i < row.SamplingMask.Len(); i++ {
		out.SamplingMask = append(out.SamplingMask, row.SamplingMask.At(i))
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

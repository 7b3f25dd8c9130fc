package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/task"
)

// scoreCommand prints log-probs of token ids.
type scoreCommand struct {
	Model       dir     `required:"" help:"Hugging Face model folder, or a run, whose checkpoint it is."`
	Temperature float64 `default:"1" help:"Divides the logits."`
}

// scored is a line of output. Entry i belongs to token i; the first token has no log-prob, so its entries are 0.
type scored struct {
	IDs      []int32   `json:"ids"`
	Logprobs []float32 `json:"logprobs"`
	Entropy  []float32 `json:"entropy"`
}

// Run reads lines, each a JSON list of token ids or an object with such a list under "ids", and writes their scores.
func (c *scoreCommand) Run(ctx context.Context) error {
	folder, err := c.Model.model()
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	model, weights, _, err := policy.Load(folder)
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	return task.EachLine(os.Stdin, func(_ int, line []byte) error {
		ids, err := tokenIDs(line)
		if err != nil {
			return err
		}
		scores, err := model.Score(ctx, weights, policy.Plain(ids), c.Temperature)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(scored{ids, scores[0].Logprobs, scores[0].Entropy})
	})
}

// tokenIDs reads a list of token ids, or an object with one under "ids".
func tokenIDs(line []byte) ([]int32, error) {
	var ids []int32
	if err := json.Unmarshal(line, &ids); err == nil {
		return ids, nil
	}
	var object struct {
		IDs []int32 `json:"ids"`
	}
	if err := json.Unmarshal(line, &object); err != nil || object.IDs == nil {
		return nil, fmt.Errorf("%.80s: want a list of token ids, [1, 2, 3], or an object with one under \"ids\"", line)
	}
	return object.IDs, nil
}

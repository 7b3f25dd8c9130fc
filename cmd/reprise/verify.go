package main

import (
	"context"
	"os"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/catalog"
)

// verifyCommand rewards the responses on standard input.
type verifyCommand struct {
	Task string `arg:"" help:"Task whose verifier gives the rewards, for example arithmetic."`
}

// Run reads lines {"response", "answer"} and writes each with its reward and the answer found in the response.
func (c *verifyCommand) Run(ctx context.Context) error {
	v, err := catalog.Verifier(c.Task)
	if err != nil {
		return err
	}
	return task.VerifyLines(ctx, v, os.Stdin, os.Stdout)
}

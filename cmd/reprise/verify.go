package main

import (
	"context"
	"os"

	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// verifyCommand rewards the responses on standard input.
type verifyCommand struct {
	Task string   `arg:"" help:"Task whose verifier gives the rewards, for example arithmetic."`
	Set  []string `sep:"none" help:"Set one setting of task external by KEY=VALUE: 'command=[python3, verify.py]'; may be repeated."`
}

// Run reads lines {"response", "answer"} and writes each with its reward and the answer found in the response.
func (c *verifyCommand) Run(ctx context.Context) error {
	v, err := run.NewVerifier(c.Task, c.Set)
	if err != nil {
		return err
	}
	defer task.Open(v)()
	return task.VerifyLines(ctx, v, os.Stdin, os.Stdout)
}

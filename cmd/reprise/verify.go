package main

import (
	"context"
	"fmt"
	"os"

	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gsm8k"
)

// verifyCommand rewards the responses on standard input.
type verifyCommand struct {
	Task     string   `arg:"" predictor:"task" help:"Task whose verifier gives the rewards, for example arithmetic."`
	Set      []string `sep:"none" help:"Set one setting of task external by KEY=VALUE: 'command=[python3, verify.py]'; may be repeated."`
	Flexible bool     `help:"With gsm8k: take the last number of a response, marked or not, as verl's method flexible."`
}

// Run reads lines {"response", "answer"} and writes each with its reward and the answer found in the response.
func (c *verifyCommand) Run(ctx context.Context) error {
	v, err := run.NewVerifier(c.Task, c.Set)
	if err != nil {
		return err
	}
	if c.Flexible {
		if c.Task != "gsm8k" {
			return fmt.Errorf("--flexible works with task gsm8k only, not %s", c.Task)
		}
		v = gsm8k.Verifier{Flexible: true}
	}
	defer task.Open(v)()
	return task.VerifyLines(ctx, v, os.Stdin, os.Stdout)
}

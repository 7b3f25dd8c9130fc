// Command reprise trains language models with experience replay on a laptop, and tries the policies it trains.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands are the verbs, a file each.
type commands struct {
	Train    trainCommand    `cmd:"" help:"Train a language model by reinforcement learning, with experience replay or without."`
	Serve    serveCommand    `cmd:"" help:"Put tables of rollouts on the network: Arrow Flight, durable, with a dashboard."`
	Design   designCommand   `cmd:"" help:"Work out which replay configuration to run: staleness horizon, replay ratio, workers, trainers, capacity."`
	Study    studyCommand    `cmd:"" help:"Carry out a named study: many configurations and seeds, each claim with a verdict."`
	Report   reportCommand   `cmd:"" help:"Write the report of a run anew, or one page over any number of arms."`
	Inspect  inspectCommand  `cmd:"" help:"Show what the table of a run holds, and why rollouts are drawn as they are."`
	Play     playCommand     `cmd:"" help:"Play an episode of a task: by hand, by its expert, at random, or with a model."`
	Generate generateCommand `cmd:"" help:"Continue a prompt with a model."`
	Score    scoreCommand    `cmd:"" help:"Print the log-probs a model gives to token ids, JSON lines in and out."`
	Journal  journalCommand  `cmd:"" help:"Verify the journal of a table, or save what is whole of a damaged one."`
	Verify   verifyCommand   `cmd:"" help:"Reward responses, JSON lines in and out."`
	Export   exportCommand   `cmd:"" help:"Write what a table holds into an Arrow IPC file."`
	Import   importCommand   `cmd:"" help:"Insert what an Arrow IPC file holds into a table."`
	Bench    benchCommand    `cmd:"" help:"Measure the service."`
}

// The help shows a flag's value by the name of its type.
type (
	dir     string
	file    string
	text    string
	who     string
	address string
)

func main() {
	var c commands
	parser := kong.Must(&c, kong.Name("reprise"),
		kong.Description("Experience replay for reinforcement learning of language models."), kong.UsageOnError())
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	verb, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	if err := execute(verb); err != nil {
		fmt.Fprintf(os.Stderr, "reprise: %v\n", err)
		os.Exit(exitCode(err))
	}
}

// execute runs a verb under a context that Ctrl-C ends; a second Ctrl-C kills.
func execute(verb *kong.Context) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(ctx, cancel) // gives the signals back: the next one ends the process
	verb.BindTo(ctx, (*context.Context)(nil))
	return verb.Run()
}

// interruption says how to go on with what Ctrl-C stopped.
type interruption string

func (i interruption) Error() string { return string(i) }

// Is makes an interruption what its context was: canceled.
func (i interruption) Is(target error) bool { return target == context.Canceled }

// exitCode is 130 for an interruption, as shells expect, 1 otherwise.
func exitCode(err error) int {
	if errors.Is(err, context.Canceled) {
		return 130
	}
	return 1
}

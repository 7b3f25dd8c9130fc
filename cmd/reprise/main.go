// Command reprise trains language models with experience replay, and serves tables of rollouts to other trainers.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/wire"
)

// commands are the verbs, one file each.
type commands struct {
	Train    trainCommand    `cmd:"" help:"Train a language model by reinforcement learning, with experience replay or without."`
	Up       upCommand       `cmd:"" help:"Run the service, engines, a worker and the trainer on this machine, on the real clock."`
	Serve    serveCommand    `cmd:"" help:"Serve tables of rollouts on the network: Arrow Flight, durable, with a dashboard."`
	Design   designCommand   `cmd:"" help:"Work out which replay configuration to run: staleness horizon, replay ratio, workers, trainers, capacity."`
	Study    studyCommand    `cmd:"" help:"Run a named study: many configurations and seeds, and a verdict on each claim."`
	Report   reportCommand   `cmd:"" help:"Rewrite the report of a run, or write one page over several arms."`
	Board    boardCommand    `cmd:"" help:"Show a folder of runs in the browser while they train: list them, look at each, compare any."`
	Inspect  inspectCommand  `cmd:"" help:"Show what the table of a run holds, and why rollouts are drawn as they are."`
	Play     playCommand     `cmd:"" help:"Play an episode of a task: by hand, with its expert, at random, or with a model."`
	Generate generateCommand `cmd:"" help:"Continue a prompt with a model."`
	Score    scoreCommand    `cmd:"" help:"Print the log-probs that a model gives to token ids, as JSON lines."`
	Engine   engineCommand   `cmd:"" help:"Serve a model as an inference server, or find out what one gives."`
	Rollout  rolloutCommand  `cmd:"" help:"Fill a table: play a task with inference servers such as vLLM and SGLang."`
	Journal  journalCommand  `cmd:"" help:"Verify a table's journal, or save what is intact of a damaged one."`
	Verify   verifyCommand   `cmd:"" help:"Reward responses, as JSON lines."`
	Table    tableCommand    `cmd:"" help:"Create, list, drop and look at tables of a running service."`
	Export   exportCommand   `cmd:"" help:"Export a table to an Arrow IPC file."`
	Import   importCommand   `cmd:"" help:"Import an Arrow IPC file into a table."`
}

// The help shows a flag's value by the name of its type.
type (
	dir     string
	file    string
	text    string
	who     string
	address string
)

// connection is the flags of a connection to a service.
type connection struct {
	TokenFile  file `help:"File with the bearer token."`
	CA         file `name:"ca" help:"PEM file of the authorities that may have signed the service's certificate."`
	Cert       file `name:"certificate" help:"PEM file of this client's certificate, for services that ask for one."`
	Key        file `help:"PEM file of its key."`
	ServerName text `help:"Name in the service's certificate, if it is not the one in the address."`
}

// options returns the flags as package client takes them.
func (c connection) options() client.Options {
	return client.Options{TokenFile: string(c.TokenFile), CA: string(c.CA), Cert: string(c.Cert), Key: string(c.Key),
		ServerName: string(c.ServerName)}
}

// table connects to the service of a table's address, or to the node of its cluster that owns the table.
func (c connection) table(ctx context.Context, address string) (*client.Client, *client.Table, error) {
	where, name, err := client.SplitTable(address)
	if err != nil {
		return nil, nil, err
	}
	connected, err := c.owner(ctx, where, func(at *client.Client) error {
		_, err := at.Table(name).Info(ctx)
		if errors.Is(err, wire.ErrElsewhere) {
			return err
		}
		return nil // the command meets any other error itself
	})
	if err != nil {
		return nil, nil, err
	}
	return connected, connected.Table(name), nil
}

// ownerTimeout is how long a command waits for a table that no node of a cluster has at the moment.
const ownerTimeout = 20 * time.Second

// owner connects to the service at which a call succeeds: the one at an address, or the node to which that refers.
func (c connection) owner(ctx context.Context, where string, call func(*client.Client) error) (*client.Client, error) {
	for began := time.Now(); ; {
		connected, err := client.Dial(ctx, where, c.options())
		if err != nil {
			return nil, err
		}
		if err = call(connected); err == nil {
			return connected, nil
		}
		if err = errors.Join(err, connected.Close()); !errors.Is(err, wire.ErrElsewhere) ||
			time.Since(began) > ownerTimeout {
			return nil, err
		}
		where = cmp.Or(wire.AddressOf(err), where)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func main() {
	var c commands
	parser := kong.Must(&c, kong.Name("reprise"),
		kong.Description("Experience replay for reinforcement learning of language models."))
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	verb, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "reprise: %v; see %s --help\n", err, misused(err))
		os.Exit(80)
	}
	if err := execute(verb); err != nil {
		fmt.Fprintf(os.Stderr, "reprise: %s\n", inWords(err))
		os.Exit(exitCode(err))
	}
}

// inWords is the text of an error. What was under way when Ctrl-C came is nobody's business.
func inWords(err error) string {
	if _, told := errors.AsType[interruption](err); errors.Is(err, context.Canceled) && !told {
		return "interrupted"
	}
	return err.Error()
}

// misused returns the command line, as far as it was understood, whose usage is wrong.
func misused(err error) string {
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context.Selected() != nil {
		return p.Context.Selected().FullPath()
	}
	return "reprise"
}

// execute runs a verb with a context that the first Ctrl-C cancels; the second kills the process.
func execute(verb *kong.Context) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(ctx, cancel) // stops catching signals
	verb.BindTo(ctx, (*context.Context)(nil))
	return verb.Run()
}

// interruption is the error of a verb that Ctrl-C stopped. Its text says how to continue.
type interruption string

func (i interruption) Error() string { return string(i) }

// Is makes an interruption a context.Canceled.
func (i interruption) Is(target error) bool { return target == context.Canceled }

// exitCode is 130 for an interruption, as shells expect, and 1 for other errors.
func exitCode(err error) int {
	if errors.Is(err, context.Canceled) {
		return 130
	}
	return 1
}

// printJSON writes a value to standard output.
func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// number formats a measured number, "-" if there is none.
func number(n results.Number, format string) string {
	if !n.Known() {
		return "-"
	}
	return fmt.Sprintf(format, n.Float())
}

// size formats a number of bytes.
func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// terminal reports whether a file is a terminal.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

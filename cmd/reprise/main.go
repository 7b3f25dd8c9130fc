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
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/wire"
)

// commands are the verbs, one file each.
type commands struct {
	Train    trainCommand    `cmd:"" help:"Train a language model by reinforcement learning, with experience replay or without."`
	Up       upCommand       `cmd:"" help:"Run the service, engines, a worker and the trainer on this machine, on the real clock."`
	Serve    serveCommand    `cmd:"" help:"Serve tables of rollouts on the network: Arrow Flight, durable, with a dashboard."`
	Health   healthCommand   `cmd:"" help:"Ask the service on this machine whether it is well; exit 1 if it is not: for health checks of containers."`
	Design   designCommand   `cmd:"" help:"Work out which replay configuration to run: staleness horizon, replay ratio, workers, trainers, capacity."`
	Methods  methodsCommand  `cmd:"" help:"List the published methods of replay that train --method runs, or show one."`
	Study    studyCommand    `cmd:"" help:"Run a named study: many configurations and seeds, and a verdict on each claim."`
	Report   reportCommand   `cmd:"" help:"Rewrite the report of a run, or write one page over several arms."`
	Board    boardCommand    `cmd:"" help:"Show a folder of runs in the browser while they train: list them, look at each, compare any."`
	Inspect  inspectCommand  `cmd:"" help:"Show what the table of a run holds, and why rollouts are drawn as they are."`
	Rollouts rolloutsCommand `cmd:"" help:"List the rollouts of a table by an expression, or show one token by token."`
	Play     playCommand     `cmd:"" help:"Play an episode of a task: by hand, with its expert, at random, or with a model."`
	Generate generateCommand `cmd:"" help:"Continue a prompt with a model."`
	Score    scoreCommand    `cmd:"" help:"Print the log-probs that a model gives to token ids, as JSON lines."`
	Engine   engineCommand   `cmd:"" help:"Serve a model as an inference server, or find out what one gives."`
	Rollout  rolloutCommand  `cmd:"" help:"Fill a table: play a task with inference servers such as vLLM and SGLang."`
	Capture  captureCommand  `cmd:"" help:"Record agents: OpenAI's interface in front of an inference server, whose calls become rollouts of a table."`
	Journal  journalCommand  `cmd:"" help:"Verify a table's journal, or save what is intact of a damaged one."`
	Verify   verifyCommand   `cmd:"" help:"Reward responses, as JSON lines."`
	Table    tableCommand    `cmd:"" help:"Create, list, drop and look at tables of a running service."`
	Export   exportCommand   `cmd:"" help:"Export a table: an Arrow IPC file, or a dataset of Parquet or JSON lines."`
	Import   importCommand   `cmd:"" help:"Import rollouts into a table: an export, or chats as offline rollouts."`

	Completion completionCommand `cmd:"" help:"Print what makes a shell complete verbs, flags and names: source it in its startup file."`

	Version kong.VersionFlag `help:"Print the version and how it was built, and exit."`
}

// The help shows a flag's value by the name of its type.
type (
	dir     string
	file    string
	text    string
	who     string
	address string
)

// model returns the Hugging Face folder that a flag names: the folder itself, or the checkpoint of the run in it.
func (d dir) model() (string, error) {
	folder := string(d)
	here := func(parts ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{folder}, parts...)...))
		return err == nil
	}
	switch {
	case here(hf.ConfigFile):
		return folder, nil
	case here(results.CheckpointDir, hf.ConfigFile):
		return filepath.Join(folder, results.CheckpointDir), nil
	case !here():
		return "", fmt.Errorf("%s does not exist: want a Hugging Face model folder, or a run of reprise train", folder)
	case results.IsComparison(folder):
		return "", fmt.Errorf("%s holds several runs: want one of them, such as %s", folder,
			results.SeedDir(folder, results.ReplayArm, 1))
	}
	return "", fmt.Errorf("%s has neither %s nor a checkpoint: want a Hugging Face model folder, or a run of reprise train",
		folder, hf.ConfigFile)
}

// description reads the model folder that a flag names, without its weights. It has a tokenizer.
func (d dir) description() (*hf.Folder, error) {
	path, err := d.model()
	if err != nil {
		return nil, err
	}
	folder, err := hf.ReadDescription(path)
	if err == nil && folder.Tokenizer == nil {
		err = fmt.Errorf("%s has no tokenizer.json: add the one that the model was trained with", path)
	}
	return folder, err
}

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
	options := append(numbers(), kong.Name("reprise"), kong.Vars{"version": describeBuild()},
		kong.Description("Experience replay for reinforcement learning of language models."))
	parser := kong.Must(&c, options...)
	if completes(parser) {
		return
	}
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	verb, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "reprise: %s; see %s --help\n", misuse(err), misused(err))
		os.Exit(80)
	}
	if err := execute(verb); err != nil {
		fmt.Fprintf(os.Stderr, "reprise: %s\n", inWords(err))
		os.Exit(exitCode(err))
	}
}

// describeBuild is the version, the commit, and what else decides what the program computes, and how fast.
func describeBuild() string {
	build := "reprise " + version()
	if b := results.ThisBuild(); b.Modified {
		build += ", changed since"
	}
	tensors := "tensors without SIMD"
	if policy.SIMD {
		tensors = "tensors with SIMD"
	}
	return fmt.Sprintf("%s (%s, %s/%s, %s)", build, runtime.Version(), runtime.GOOS, runtime.GOARCH, tensors)
}

// numbers are the mappers of flags that are numbers. Kong's own take -1 for a flag, and name bits of integers.
func numbers() []kong.Option {
	mapper := func(want string, set func(target reflect.Value, text string) error) kong.Mapper {
		return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			token := ctx.Scan.Pop()
			if token.IsEOL() {
				return fmt.Errorf("want %s after it", want)
			}
			if text := token.String(); set(target, text) != nil {
				return fmt.Errorf("%s: want %s", text, want)
			}
			return nil
		})
	}
	whole := mapper("a whole number", func(target reflect.Value, text string) error {
		n, err := strconv.ParseInt(text, 0, 64)
		target.SetInt(n)
		return err
	})
	natural := mapper("a whole number, 0 or more", func(target reflect.Value, text string) error {
		n, err := strconv.ParseUint(text, 0, 64)
		target.SetUint(n)
		return err
	})
	real := mapper("a number", func(target reflect.Value, text string) error {
		x, err := strconv.ParseFloat(text, 64)
		target.SetFloat(x)
		return err
	})
	return []kong.Option{kong.KindMapper(reflect.Int, whole), kong.KindMapper(reflect.Int64, whole),
		kong.KindMapper(reflect.Uint64, natural), kong.KindMapper(reflect.Float64, real)}
}

// misuse is the text of an error of the command line. Of the flags and verbs that Kong proposes for one that it does
// not know, it keeps those that begin with it or are a typo away.
func misuse(err error) string {
	text, proposals, proposed := strings.Cut(err.Error(), ", did you mean ")
	text = noValue.ReplaceAllString(text, "want a value after it")
	if !proposed {
		return text
	}
	given := text[strings.LastIndexByte(text, ' ')+1:]
	var near []string
	for _, quoted := range quotations.FindAllString(proposals, -1) {
		if name := strings.Trim(quoted, `"`); strings.HasPrefix(name, given) || words.OneTypoApart(name, given) {
			near = append(near, name)
		}
	}
	if len(near) == 0 {
		return text
	}
	return text + ", did you mean " + strings.Join(near, " or ") + "?"
}

var (
	noValue    = regexp.MustCompile(`expected \w+ value but got "EOL" \(<EOL>\)`) // as Kong says it
	quotations = regexp.MustCompile(`"[^"]+"`)
)

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

// screen is what Ctrl-C has to know of the terminal.
type screen struct {
	bars atomic.Bool // bars are drawn there: they overwrite the ^C, and must not be moved
}

// execute runs a verb with a context that the first Ctrl-C cancels; the second kills the process. What is printed then
// begins below the ^C that the terminal shows.
func execute(verb *kong.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var here screen
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s := <-signals; s == os.Interrupt && terminal(os.Stderr) && !here.bars.Load() {
			fmt.Fprintln(os.Stderr)
		}
		signal.Stop(signals)
		cancel()
	}()
	verb.BindTo(ctx, (*context.Context)(nil))
	return verb.Run(&here)
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
func terminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

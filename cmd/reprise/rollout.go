package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/worker"
	"github.com/reprise-rl/reprise/rollout/option"
)

// rolloutCommand fills a table by playing a task with inference servers.
type rolloutCommand struct {
	Table       address       `arg:"" help:"Table of a service, grpc://host:port/table."`
	Task        string        `arg:"" optional:"" predictor:"task" help:"Name of the task, for example arithmetic."`
	Config      file          `short:"c" help:"Configuration of a run, instead of a task: its task, seed, group, temperature, top_p and max_tokens."`
	Engine      []string      `required:"" sep:"none" help:"Inference server, DIALECT+http://HOST:PORT; dialects are vllm, sglang, llamacpp and openai. May be repeated."`
	Model       dir           `required:"" help:"Hugging Face folder with the configuration and tokenizer of the engines' model."`
	Set         []string      `sep:"none" help:"Set one setting of the task by KEY=VALUE, for example max=50; may be repeated."`
	Group       int           `default:"8" group:"Without --config" help:"Rollouts of each prompt."`
	InFlight    int           `default:"64" help:"Rollouts being generated at once, over all engines."`
	Temperature float64       `default:"1" group:"Without --config" help:"Sampling temperature."`
	TopP        float64       `default:"1" group:"Without --config" help:"Nucleus, in (0, 1]; 1: off."`
	MaxTokens   int           `default:"256" group:"Without --config" help:"Longest completion, or turn of an episode, in tokens."`
	Positions   int           `help:"Longest rollout, in tokens. [the model's]"`
	Groups      int           `help:"Stop after this many groups; 0: run until Ctrl-C."`
	Deadline    time.Duration `help:"Cut groups that take longer than this, give them back to the gate, and count them. This leaves long rollouts out. [none]"`
	TokenBudget int           `help:"Tokens of a completion that a request asks an engine for; the rest is asked for from there, of whichever engine has the least to do, with the weights that it then has. [no budget]"`
	OldestFirst bool          `help:"Insert groups in the order in which they were started, not in that in which they are finished."`
	Weights     dir           `help:"Folder in which a trainer publishes versions of the weights, which the engines then take."`
	Reload      text          `help:"Shell command that loads weights into a server that cannot take them over HTTP (llamacpp, openai); REPRISE_ENGINE, REPRISE_WEIGHTS and REPRISE_VERSION are in its environment."`
	KeyFile     file          `help:"File with the engines' API key."`
	Name        text          `help:"The model's name at the engines, if they have several."`
	Degraded    bool          `help:"Use engines that lack something, and say what is lost."`
	Seed        uint64        `default:"1" group:"Without --config" help:"Seed of the prompts' order and the environments. What engines sample is not reproducible."`
	HTTP        address       `name:"http" default:"off" help:"Address for /metrics, which only this machine can reach, or off."`
	JSON        bool          `name:"json" help:"Print what was done as JSON lines, one a second and one at the end."`
	Service     connection    `embed:""`
}

// Run works until --groups are done or the context ends.
func (c *rolloutCommand) Run(ctx context.Context, call *kong.Context, on *screen) error {
	if err := c.checkFlags(call); err != nil {
		return flagErrors(err)
	}
	w, closeTable, err := c.worker(ctx)
	if err != nil {
		return err
	}
	defer closeTable()
	if c.HTTP != "off" {
		l, err := listenOnLoopback(ctx, string(c.HTTP))
		if err != nil {
			return fmt.Errorf("--http: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", w.Metrics())
		web := &http.Server{Handler: hosts.Only(mux, l.Addr(), nil), ReadHeaderTimeout: 10 * time.Second}
		go web.Serve(l)
		defer web.Close()
	}
	show := newDisplay(on, os.Stdout, c.JSON)
	defer show.end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	bar := c.bar(show, w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c.JSON {
				err = json.NewEncoder(os.Stdout).Encode(w.Stats())
			} else if s := w.Stats(); bar != nil {
				bar.SetCurrent(s.Groups)
			} else if show.bars == nil {
				show.progress("%s\n", strings.Join(s.Parts(), "  "))
			}
		case err := <-ended:
			if c.JSON {
				return errors.Join(err, json.NewEncoder(os.Stdout).Encode(w.Stats()))
			}
			if bar != nil {
				bar.SetCurrent(w.Stats().Groups)
			}
			show.end()
			c.summarise(w.Stats())
			return err
		}
		if err != nil { // nobody reads it
			stop()
			return errors.Join(err, <-ended)
		}
	}
}

// checkFlags refuses flags beside --config, which says the same, and a length that no rollout can have.
func (c *rolloutCommand) checkFlags(call *kong.Context) error {
	var p option.Problems
	p.Check(c.Positions == 0 || c.Positions >= 2, "positions", c.Positions, "2 or more")
	for _, part := range call.Path {
		if f := part.Flag; c.Config != "" && f != nil && f.Group != nil && f.Group.Key == taskGroup {
			p.Check(false, f.Name, reflect.Indirect(f.Target), "none beside --config %s, which says it", c.Config)
		}
	}
	return p.Err()
}

// taskGroup is the group of the flags that a configuration replaces.
const taskGroup = "Without --config"

// bar shows how far the worker is, or without --groups what it does. It is nil where there is none.
func (c *rolloutCommand) bar(d *display, w *worker.Worker) *mpb.Bar {
	switch {
	case d.bars == nil:
		return nil
	case c.Groups == 0:
		d.line(func() string { return strings.Join(w.Stats().Parts(), "  ") })
		return nil
	}
	return d.bars.AddBar(int64(c.Groups), mpb.PrependDecorators(decor.Name("rollouts  ")),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}),
			beside(func(decor.Statistics) []string { return w.Stats().Parts() })))
}

// worker makes the worker that the flags describe.
func (c *rolloutCommand) worker(ctx context.Context) (w *worker.Worker, closeTable func() error, err error) {
	t, err := c.task()
	if err != nil {
		return nil, nil, err
	}
	folder, err := c.Model.description()
	if err != nil {
		return nil, nil, fmt.Errorf("--model: %w", err)
	}
	positions := folder.Config.MaxPositionEmbeddings
	if c.Positions > 0 {
		positions = min(positions, c.Positions)
	}
	engines, err := c.engines(folder.Config.VocabSize)
	if err != nil {
		return nil, nil, err
	}
	service, name, err := client.SplitTable(string(c.Table))
	if err != nil {
		return nil, nil, err
	}
	options := c.Service.options()
	options.RetryFor = -1 // the service may restart
	connected, err := client.Dial(ctx, service, options)
	if err != nil {
		return nil, nil, err
	}
	w, err = worker.New(worker.Options{
		Group: c.Group, InFlight: c.InFlight, Positions: positions, Seed: c.Seed, Groups: c.Groups,
		Sampling: engine.Sampling{Temperature: c.Temperature, TopP: c.TopP, MaxTokens: c.MaxTokens},
		Deadline: c.Deadline, TokenBudget: c.TokenBudget, OldestFirst: c.OldestFirst, Degraded: c.Degraded, Weights: string(c.Weights),
	}, t, folder.Tokenizer, engines, connected.Table(name), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return nil, nil, errors.Join(flagErrors(err), connected.Close())
	}
	return w, connected.Close, nil
}

// task makes the task, and reads --config.
func (c *rolloutCommand) task() (task.Task, error) {
	switch {
	case c.Config == "" && c.Task == "":
		return nil, errors.New("no task: want its name, or --config")
	case c.Config == "":
		return run.NewTask(c.Task, c.Set, c.Seed)
	case c.Task != "":
		return nil, fmt.Errorf("--config: %s: want none beside task %s", c.Config, c.Task)
	}
	config, err := run.Load(string(c.Config), c.Set)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	c.Seed, c.Group = config.Seed, config.Pipeline.Group
	c.Temperature, c.TopP, c.MaxTokens = config.Generate.Temperature, config.Generate.TopP, config.Generate.MaxTokens
	return config.MakeTask()
}

// engines opens the engines, whose model has a number of token ids.
func (c *rolloutCommand) engines(vocabulary int) (list []engine.Engine, err error) {
	key := ""
	if c.KeyFile != "" {
		text, err := os.ReadFile(string(c.KeyFile))
		if err != nil {
			return nil, fmt.Errorf("--key-file: %w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	for _, text := range c.Engine {
		o, err := engine.Parse(text)
		if err != nil {
			return nil, err
		}
		o.Model, o.Token, o.Vocabulary = string(c.Name), key, vocabulary
		if c.Reload != "" {
			o.Reload = reloader(string(c.Reload), text)
		}
		e, err := engine.Open(o)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// reloader has a server take weights by a shell command.
func reloader(command, name string) func(context.Context, engine.Weights) error {
	return func(ctx context.Context, w engine.Weights) error {
		shell := exec.CommandContext(ctx, "sh", "-c", command)
		shell.Env = append(os.Environ(), "REPRISE_ENGINE="+name, "REPRISE_WEIGHTS="+w.Folder,
			"REPRISE_VERSION="+strconv.Itoa(int(w.Version)))
		shell.Stdout, shell.Stderr = os.Stderr, os.Stderr // no pipes: a server that it starts may hold them open
		if err := shell.Run(); err != nil {
			return fmt.Errorf("--reload: %s: %w", command, err)
		}
		return nil
	}
}

// summarise says what the worker did, and what is lost with engines that lack something.
func (c *rolloutCommand) summarise(s worker.Stats) {
	fmt.Printf("%d groups of %d inserted, %d tokens, in %.1f s; mean reward %.3f\n", s.Groups, c.Group, s.Tokens,
		s.Seconds, s.Reward)
	for _, count := range []struct {
		n    int64
		text string
	}{
		{s.Truncated, "%d rollouts were truncated"}, {s.TooOld, "%d rollouts were too old for the table"},
		{s.Cut, "%d groups were cut at the deadline"}, {s.TooLong, "%d groups had a prompt that leaves no room"},
		{s.Continued, "%d completions went on in another request"},
	} {
		if count.n > 0 {
			fmt.Printf(count.text+"\n", count.n)
		}
	}
	fmt.Printf("waited %.1f s for the gate\n", s.GateSeconds)
	for _, e := range s.Engines {
		fmt.Printf("%s: version %d, %d completions, %d tokens in %.1f s, %d failures, %d versions taken in %.1f s\n",
			e.Engine, e.Version, e.Completions, e.Tokens, e.BusySeconds, e.Failures, e.Loads, e.LoadSeconds)
		for _, l := range e.Lacks {
			fmt.Printf("  lacks    %s\n  loses    %s\n", l, l.Lost)
		}
		for _, u := range e.Unknown {
			fmt.Printf("  unknown  %s\n", u)
		}
	}
}

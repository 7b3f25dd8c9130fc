package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/netutil"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/server"
)

// engineCommand is the verbs of inference servers.
type engineCommand struct {
	Serve engineServeCommand `cmd:"" help:"Serve a model of this project with the interfaces of vLLM, SGLang and llama.cpp."`
	Probe engineProbeCommand `cmd:"" help:"Sample a few tokens from a server and say whether rollouts can be made of them."`
}

// engineServeCommand serves a model on this machine.
type engineServeCommand struct {
	Model      dir     `required:"" help:"Hugging Face model folder, or a run, whose checkpoint it is."`
	Listen     address `default:"127.0.0.1:8000" help:"Address, which only this machine can reach. With port 0 the system chooses one."`
	Rows       int     `default:"16" help:"Completions decoded at once."`
	MaxWaiting int     `default:"1024" help:"Completions that wait for a row; more are refused with status 503."`
	Seed       uint64  `help:"Seed of requests that have none."`

	ChatTemplate file `help:"Jinja template of chats. [the model folder's]"`
}

// maxEngineConnections bounds the requests that are read at once, each of 1 MB and what the longest prompt takes.
const maxEngineConnections = 256

// Run serves until the context ends.
func (c *engineServeCommand) Run(ctx context.Context) error {
	o := server.Options{Rows: c.Rows, MaxWaiting: c.MaxWaiting, Seed: c.Seed}
	if c.ChatTemplate != "" {
		text, err := os.ReadFile(string(c.ChatTemplate))
		if err != nil {
			return fmt.Errorf("--chat-template: %w", err)
		}
		o.Template = string(text)
	}
	folder, err := c.Model.model()
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	switch v, err := engine.PublishedVersion(folder); {
	case err == nil:
		o.Label = strconv.Itoa(int(v))
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--model: %w", err)
	}
	s, err := server.New(folder, o)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := listenOnLoopback(ctx, string(c.Listen))
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	web := &http.Server{Handler: hosts.Only(s.Handler(), l.Addr(), nil), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(netutil.LimitListener(l, maxEngineConnections)) }()
	fmt.Printf("engine of %s: http://%s, %d completions at once\nCtrl-C stops it\n", c.Model, l.Addr(), c.Rows)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return web.Close()
	}
}

// engineProbeCommand finds out what a server gives.
type engineProbeCommand struct {
	Engine      string  `arg:"" help:"DIALECT+http://HOST:PORT; dialects are vllm, sglang, llamacpp and openai."`
	Model       dir     `help:"Hugging Face folder with the tokenizer of the task, which the server's must be."`
	Name        text    `help:"The model's name at the server, if it has several."`
	Prompt      string  `default:"The capital of France is" help:"Text whose next tokens are sampled."`
	Temperature float64 `default:"1" help:"Sampling temperature of the rollouts."`
	TopP        float64 `default:"1" help:"Nucleus of the rollouts, in (0, 1]; 1: off."`
	Scores      bool    `help:"Compare its log-probs with those of --model's weights, which are computed here."`
	Degraded    bool    `help:"Accept what is missing, and say what is lost."`
	JSON        bool    `name:"json" help:"Print the report as one JSON object."`
}

// Run probes the server. What it lacks is an error unless --degraded accepts it.
func (c *engineProbeCommand) Run(ctx context.Context) error {
	o, err := engine.Parse(c.Engine)
	if err != nil {
		return err
	}
	o.Model = string(c.Name)
	probing := engine.Probing{Sampling: engine.Sampling{Temperature: c.Temperature, TopP: c.TopP, MaxTokens: 1},
		Texts: []string{c.Prompt}}
	if c.Scores {
		if probing.Score, err = c.score(); err != nil {
			return fmt.Errorf("--scores: %w", err)
		}
	}
	if c.Model != "" {
		folder, err := c.Model.description()
		if err != nil {
			return fmt.Errorf("--model: %w", err)
		}
		o.Vocabulary = folder.Config.VocabSize
		probing.Encode = folder.Tokenizer.Encode
		if probing.Prompt, err = probing.Encode(c.Prompt); err != nil {
			return fmt.Errorf("--prompt: %w", err)
		}
		const varied = "Tokens: 12 + 34 = 46\n\n\tñ → 語"
		if _, err := probing.Encode(varied); err == nil { // a small vocabulary may not have it
			probing.Texts = append(probing.Texts, varied)
		}
	}
	e, err := engine.Open(o)
	if err != nil {
		return err
	}
	if c.Model == "" {
		if probing.Prompt, err = e.Tokenize(ctx, c.Prompt); err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				err = fmt.Errorf("%w: give --model, whose tokenizer encodes the prompt", err)
			}
			return err
		}
	}
	report, err := engine.Probe(ctx, e, probing)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			return err
		}
	} else {
		fmt.Printf("%s: version %d\n", report.Engine, report.Version)
		for _, l := range report.Lacks {
			fmt.Printf("  lacks    %s\n  loses    %s\n", l, l.Lost)
		}
		for _, u := range report.Unknown {
			fmt.Printf("  unknown  %s\n", u)
		}
		if len(report.Lacks) == 0 {
			fmt.Println("  gives token ids, and log-probs at the sampling temperature unless said otherwise above")
		}
	}
	if c.Degraded {
		return nil
	}
	return report.Err()
}

// score returns the scores of --model's weights.
func (c *engineProbeCommand) score() (engine.Score, error) {
	if c.Model == "" {
		return nil, errors.New("want --model FOLDER too, whose weights give them")
	}
	folder, err := c.Model.model()
	if err != nil {
		return nil, err
	}
	model, weights, _, err := policy.Load(folder)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, prompt, tokens []int32, temperature float64) ([]float32, error) {
		inputs := make([]policy.Input, len(tokens))
		mask := make([]uint8, len(prompt)+1)
		mask[len(prompt)] = 1
		for i, token := range tokens {
			inputs[i] = policy.Input{Tokens: slices.Concat(prompt, []int32{token}), Mask: mask}
		}
		scores, err := model.Score(ctx, weights, inputs, temperature)
		if err != nil {
			return nil, err
		}
		list := make([]float32, len(tokens))
		for i, s := range scores {
			list[i] = s.Logprobs[len(prompt)]
		}
		return list, nil
	}, nil
}

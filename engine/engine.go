// Package engine generates text with inference servers: vLLM, SGLang, llama.cpp, and others with OpenAI's
// completions.
//
// An [Engine] is one server. It takes prompts as token ids, and returns what was sampled as ids, with the log-prob of
// each and the version of the weights that sampled it, as a rollout records them. [Probe] finds out whether a server
// gives all that, and refuses one whose numbers would be wrong.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// ErrUnavailable is returned while a server cannot be reached, is starting, or is paused: the call may be repeated.
var ErrUnavailable = errors.New("the engine is not available")

// Engine is an inference server. Its methods may be called concurrently.
type Engine interface {
	// Generate completes a prompt. It returns Request.N completions, or an error. Errors that wrap [ErrUnavailable] pass.
	Generate(context.Context, Request) ([]Completion, error)

	// Version returns the version of the weights that a request would begin with now.
	Version(context.Context) (rollout.Version, error)

	// Load has the server take a version of the weights from a folder that it can read. Requests in progress go on with
	// the new weights where the server can do that, and are waited for where it cannot.
	Load(context.Context, Weights) error

	// Abort ends every request in progress.
	Abort(context.Context) error

	// Health returns nil if the server is ready.
	Health(context.Context) error

	// Tokenize returns the ids of a text, without special tokens of the server's own.
	Tokenize(ctx context.Context, text string) ([]int32, error)

	fmt.Stringer // the dialect and address
}

// Request asks for completions of one prompt.
type Request struct {
	Prompt []int32 // token ids, at least one
	N      int     // completions, >= 1
	Sampling
}

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature float64 // > 0
	TopP        float64 // nucleus, in (0, 1]
	MaxTokens   int     // of a completion, >= 1
	Stop        []int32 // tokens that end a completion and are part of it
	Seed        int64   // of the first completion; 0: the server's own. Engines do not promise the same tokens again
}

const maxTemperature = 100

// Validate reports every field that is out of range, as [option.Error]s.
func (r Request) Validate() error {
	var p option.Problems
	p.Check(len(r.Prompt) > 0, "prompt", "no tokens", "one token id at least")
	p.Check(r.N >= 1, "n", r.N, "1 or more")
	p.Check(r.Temperature > 0 && r.Temperature <= maxTemperature, "temperature", r.Temperature, "more than 0, to 100")
	p.Check(r.TopP > 0 && r.TopP <= 1, "top_p", r.TopP, "a share in (0, 1]")
	p.Check(r.MaxTokens >= 1, "max_tokens", r.MaxTokens, "1 or more")
	return p.Err()
}

// Completion is what an engine sampled after a prompt.
type Completion struct {
	Tokens   []int32           // [C], the stop token included
	Logprobs []float32         // [C] as rollout.Rollout.Logprobs: at the request's temperature
	Versions []rollout.Version // [C] of the weights that sampled each token

	// SamplingMask has the ids that each token could have been drawn from, [C]; none if the server does not tell.
	SamplingMask rollout.IDLists
	Finish       Finish
}

// Append adds what was sampled after c, where it had been aborted.
func (c *Completion) Append(more *Completion) {
	c.SamplingMask.Extend(len(c.Tokens), more.SamplingMask, len(more.Tokens))
	c.Tokens, c.Logprobs = append(c.Tokens, more.Tokens...), append(c.Logprobs, more.Logprobs...)
	c.Versions, c.Finish = append(c.Versions, more.Versions...), more.Finish
}

// Finish is why a completion ended.
type Finish string

// The ends of completions.
const (
	Stopped Finish = "stop"   // by a stop token
	Length  Finish = "length" // MaxTokens, or the model's room
	Aborted Finish = "abort"  // by the server: for a change of weights, or by [Engine.Abort]
)

// Weights is a version of the weights in a Hugging Face folder.
type Weights struct {
	Version rollout.Version
	Folder  string // absolute, as the server sees it
}

// Dialect is the HTTP interface that a server speaks.
type Dialect string

// The dialects.
const (
	VLLM     Dialect = "vllm"     // 0.33
	SGLang   Dialect = "sglang"   // 0.5.23
	LlamaCPP Dialect = "llamacpp" // xllamacpp 2026.10
	OpenAI   Dialect = "openai"   // any server with /v1/completions
)

// Dialects returns them all.
func Dialects() []Dialect { return []Dialect{VLLM, SGLang, LlamaCPP, OpenAI} }

// Options describe a server.
type Options struct {
	Dialect Dialect
	Address string // http://HOST:PORT, or https
	Model   string // its name at the server; "": the only one
	Token   string // sent as Authorization: Bearer; "": none

	// Vocabulary is how many token ids the model has; a completion with another id is an error. 0: not known.
	Vocabulary int

	// Initial is the version of the weights that the server started with: it labels them in its own way.
	Initial rollout.Version

	// Reload is called for servers that cannot take weights by HTTP, llamacpp and openai: a command that starts them
	// again with other weights, for example. nil: Load is an error.
	Reload func(context.Context, Weights) error
}

// Validate reports every field that is out of range, as [option.Error]s.
func (o Options) Validate() error {
	var p option.Problems
	known := false
	for _, d := range Dialects() {
		known = known || o.Dialect == d
	}
	p.Check(known, "dialect", o.Dialect, "vllm, sglang, llamacpp or openai")
	u, err := url.Parse(o.Address)
	p.Check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "address", o.Address,
		"http://HOST:PORT")
	p.Check(o.Initial >= 0, "initial", o.Initial, "0 or more")
	p.Check(o.Vocabulary >= 0, "vocabulary", o.Vocabulary, "0 (not known) or more")
	return p.Err()
}

// Open returns the engine at an address. It does not connect: see [Probe].
func Open(o Options) (Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := newServer(o)
	switch o.Dialect {
	case VLLM:
		return &vllm{server: s}, nil
	case SGLang:
		return &sglang{server: s}, nil
	case LlamaCPP:
		return &llamacpp{server: s, weights: newOwnVersion(o)}, nil
	default:
		return &openai{server: s, weights: newOwnVersion(o)}, nil
	}
}

// Parse returns the options of DIALECT+ADDRESS, for example vllm+http://127.0.0.1:8000.
func Parse(text string) (Options, error) {
	dialect, address, found := strings.Cut(text, "+")
	o := Options{Dialect: Dialect(dialect), Address: strings.TrimSuffix(address, "/")}
	if !found {
		return o, &option.Error{Key: "engine", Value: text, Want: "DIALECT+http://HOST:PORT, for example " +
			"vllm+http://127.0.0.1:8000"}
	}
	return o, o.Validate()
}

// span is the tokens [Start, End) of a completion that one version of the weights sampled, by the server's label.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// versionOf returns the version that a label names. Whoever publishes weights labels them by number; what is no number
// is the server's own label of the weights it started with.
func versionOf(label string, initial rollout.Version) rollout.Version {
	if n, err := strconv.ParseInt(label, 10, 32); err == nil && n >= 0 {
		return rollout.Version(n)
	}
	return initial
}

// spread returns the version of each of n tokens. Spans must cover them all, in order.
func spread(spans []span, n int, initial rollout.Version) ([]rollout.Version, error) {
	versions := make([]rollout.Version, 0, n)
	for _, s := range spans {
		if s.Start != len(versions) || s.End < s.Start || s.End > n {
			return nil, fmt.Errorf("weight versions: tokens %d to %d follow the first %d, of %d in all: want every "+
				"token once", s.Start, s.End, len(versions), n)
		}
		for range s.End - s.Start {
			versions = append(versions, versionOf(s.Version, initial))
		}
	}
	if len(versions) != n {
		return nil, fmt.Errorf("weight versions: of %d tokens: want them of all %d", len(versions), n)
	}
	return versions, nil
}

// minLogprob is far below the log-prob of any token that is ever drawn; vLLM gives -9999 for one that cannot be.
const minLogprob = -1000

// check returns an error unless a completion has what a rollout needs.
func (s *server) check(c *Completion) error {
	switch {
	case len(c.Tokens) == 0 && c.Finish != Aborted:
		return errors.New("a completion has no token ids: want the ids that were sampled")
	case len(c.Logprobs) != len(c.Tokens):
		return fmt.Errorf("a completion of %d tokens has %d log-probs: want one for each", len(c.Tokens),
			len(c.Logprobs))
	}
	for i, x := range c.Logprobs {
		if !(x <= 1e-4) || x < minLogprob { // NaN too; rounding may leave a trace above 0
			return fmt.Errorf("token %d of a completion has log-prob %g: want %d to 0", i, x, minLogprob)
		}
		c.Logprobs[i] = min(x, 0)
		switch id, vocabulary := c.Tokens[i], s.options.Vocabulary; {
		case id < 0:
			return fmt.Errorf("token %d of a completion has id %d: want 0 or more", i, id)
		case vocabulary > 0 && int(id) >= vocabulary:
			return fmt.Errorf("token %d of a completion has id %d: want 0 to %d, the model's vocabulary: does the server have "+
				"another model?", i, id, vocabulary-1)
		}
	}
	return nil
}

// Package policy is a Llama-family language model to train on: it generates, scores and learns.
//
// A [Model] is the compiled programs of one architecture (rotary embeddings, grouped-query attention, SwiGLU, RMSNorm;
// Llama, SmolLM2, TinyStories, Qwen2 and Qwen3 checkpoints fit). [Weights] are immutable and passed to the programs as
// inputs, so workers with different versions share one compilation per shape. [Load] and [Model.Save] read and write
// Hugging Face folders (package hf). [Model.WithValueHead] adds a critic.
//
//   - [Model.Start] begins a [Generation]. It decodes prompts of different lengths in one batch with a key-value cache,
//     in chunks if the weights are to change on the way, and in turns if an environment answers ([Generation.Extend]).
//     A model with a vision tower reads images among the tokens of an [Input].
//   - [Model.Score] returns log-probs, entropies and a critic's values.
//   - [Model.Round] makes a copy of weights at a lower [Precision], to generate with.
//   - A [Learner] takes optimizer steps with a loss of package objective. [Learning] says which extra forward passes it
//     makes: of the critic, of the policy at the start of the batch, and of a reference policy. [StepResult] has the
//     metrics of a step and the measurements of each draw.
//
// The same inputs give the same bits whatever GOMAXPROCS is: the backend runs each program's operations in sequence,
// and several programs at once. No other package needs to know about gomlx.
package policy

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/lab/backend"
	"github.com/reprise-rl/reprise/lab/policy/hf"
)

// Model is the compiled programs of one architecture. Weights are arguments of the programs, so that all workers and
// versions share one compilation per shape. It is safe for concurrent use.
type Model struct {
	config  hf.Config
	backend compute.Backend
	decode  *program
	score   *program
}

// NewModel prepares the programs of an architecture. Each compiles at the first use of a shape.
func NewModel(c hf.Config) (*Model, error) {
	warnOfBuild()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	opened, err := backend.Open(c.Parameters() >= splitParameters)
	if err != nil {
		return nil, err
	}
	m := &Model{config: c.WithDefaults(), backend: opened}
	if m.decode, err = m.newProgram("decode", m.decodeGraph); err != nil {
		return nil, err
	}
	m.score, err = m.newProgram("score", m.scoreGraph)
	return m, err
}

// warnOfBuild says once in the log of a process if it was built to compute slowly: a program of one's own is built
// without what this project's Makefile sets.
var warnOfBuild = sync.OnceFunc(func() {
	if text := slowBuild(SIMD, runtime.GOARCH); text != "" {
		slog.Warn(text)
	}
})

// slowBuild says what a build lacks, with the remedy; empty: nothing. Only on amd64 has the backend vector instructions.
func slowBuild(simd bool, arch string) string {
	if simd || arch != "amd64" {
		return ""
	}
	return "this program was built without GOEXPERIMENT=simd: it trains several times slower, and rounds differently, so " +
		"that the same seed gives other figures; build it with GOEXPERIMENT=simd go build, or once and for all after go " +
		"env -w GOEXPERIMENT=simd"
}

// Config returns the architecture with its defaults filled in.
func (m *Model) Config() hf.Config { return m.config }

// split separates the parameters, which come first among a program's inputs, from the rest.
func (m *Model) split(in []*Node) (*decoder, []*Node) {
	n := len(m.config.Specs())
	return newDecoder(m.config, in[:n]), in[n:]
}

// splitParameters is the size of a model from which on the backend splits an operation among goroutines. With fewer
// parameters an operation takes microseconds, and starting goroutines for it costs more processor time than it saves.
const splitParameters = 1 << 20

// dims tells the shapes of a program's inputs apart. Everything else follows from the architecture.
type dims struct {
	rows, length, slots int
	scored              int  // tokens of a row; 0: all
	restricted          bool // the program takes a sampling mask
}

// program is a graph function that is compiled once for each dims. It is safe for concurrent use.
//
// The first call for given dims runs alone. During it the backend finds an executor for each operation and stores it in
// the graph. Its SIMD executors skip their check of what they support once any executor is stored. Of two concurrent
// first calls one may therefore use an executor that does not fit, and lose its inputs.
type program struct {
	name string
	exec *Exec

	mu       sync.RWMutex // held for writing by a first call
	compiled map[dims]bool
}

// newProgram wraps a graph function of any number of tensors. Lengths are rounded to a few values, so the number of
// compiled graphs needs no limit.
func (m *Model) newProgram(name string, graph func([]*Node) []*Node) (*program, error) {
	exec, err := NewExec(m.backend, graph)
	if err != nil {
		return nil, fmt.Errorf("prepare the %s program: %w", name, err)
	}
	return &program{name: name, exec: exec.WithName(name).SetMaxCache(-1), compiled: make(map[dims]bool)}, nil
}

// call runs the program on inputs of given dims.
func (p *program) call(d dims, args []any) ([]*tensors.Tensor, error) {
	defer clearUpperBits()
	p.mu.RLock()
	if p.compiled[d] {
		defer p.mu.RUnlock()
		return p.exec.Call(args...)
	}
	p.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := p.exec.Call(args...)
	if err == nil {
		p.compiled[d] = true
	}
	return out, err
}

// donate appends tensors to a program's arguments and gives up their buffers, which the program may then reuse.
func (m *Model) donate(args []any, ts []*tensors.Tensor) ([]any, error) {
	for _, t := range ts {
		d, err := DonateTensorBuffer(t, m.backend, 0)
		if err != nil {
			return nil, fmt.Errorf("donate tensors to the backend: %w", err)
		}
		args = append(args, d)
	}
	return args, nil
}

// roundLength rounds a length up to one of few, so that few shapes are compiled: to multiples of 2 up to 16, of 4 up to
// 32, of 16 up to 128, of 64 up to 512, of 256 beyond, but never above the limit.
func roundLength(n, limit int) int {
	step := 256
	switch {
	case n <= 16:
		step = 2
	case n <= 32:
		step = 4
	case n <= 128:
		step = 16
	case n <= 512:
		step = 64
	}
	return min((n+step-1)/step*step, max(limit, n))
}

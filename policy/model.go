package policy

import (
	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/policy/hf"
)

// Model is the compiled programs of one architecture. Weights are arguments of the programs, so that all
// workers and versions share one compilation per shape. It is safe for concurrent use.
type Model struct {
	config  hf.Config
	backend compute.Backend
	advance *program
	score   *program
}

// NewModel prepares the programs of an architecture; each compiles at the first use of a shape.
func NewModel(c hf.Config) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	backend, err := openBackend()
	if err != nil {
		return nil, err
	}
	m := &Model{config: c.WithDefaults(), backend: backend}
	for _, p := range []struct {
		exec  **program
		name  string
		graph func([]*Node) []*Node
	}{
		{&m.advance, "advance", m.advanceGraph},
		{&m.score, "score", m.scoreGraph},
	} {
		if *p.exec, err = m.newProgram(p.name, p.graph); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Config returns the architecture with its defaults filled in.
func (m *Model) Config() hf.Config { return m.config }

// split separates the parameters, which lead a program's inputs, from the rest.
func (m *Model) split(in []*Node) (*decoder, []*Node) {
	n := len(m.config.Specs())
	return newDecoder(m.config, in[:n]), in[n:]
}

// bucket rounds a length up to one of few, so that few shapes are compiled: even ones to 16, multiples of 4 to 32, of 16 to
// 128, of 64 to 512, of 256 beyond, never over the limit.
func bucket(n, limit int) int {
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

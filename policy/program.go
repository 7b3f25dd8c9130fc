package policy

import (
	"fmt"
	"sync"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
)

// extent is what tells the shapes of a program's inputs apart: the rest follows from the architecture.
type extent struct{ rows, length, slots int }

// program is a graph function compiled once for each extent. It is safe for concurrent use.
//
// The first call of an extent has the program for itself. In it the backend finds an executor for each operation and
// remembers it in the graph; its SIMD executors skip the check of what they can do once any executor is remembered. Of two
// first calls at once one may therefore take an executor that does not fit, and lose its inputs.
type program struct {
	name string
	exec *Exec

	mu    sync.RWMutex // held for writing by a first call
	known map[extent]bool
}

// newProgram wraps a graph function of any number of tensors. Shapes come in few buckets, so that its cache of
// compiled graphs needs no limit.
func (m *Model) newProgram(name string, graph func([]*Node) []*Node) (*program, error) {
	exec, err := NewExec(m.backend, graph)
	if err != nil {
		return nil, fmt.Errorf("prepare the %s program: %w", name, err)
	}
	return &program{name: name, exec: exec.WithName(name).SetMaxCache(-1), known: make(map[extent]bool)}, nil
}

// call runs the program on inputs of an extent.
func (p *program) call(e extent, args []any) ([]*tensors.Tensor, error) {
	p.mu.RLock()
	known := p.known[e]
	if known {
		defer p.mu.RUnlock()
		return p.exec.Call(args...)
	}
	p.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := p.exec.Call(args...)
	if err == nil {
		p.known[e] = true
	}
	return out, err
}

// Package backend opens what computes tensors: GoMLX's pure-Go backend, or a GPU by XLA.
package backend

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
)

// Variable is the environment variable that chooses the backend: "go", the default, or "xla:" followed by the absolute
// path of a PJRT plugin and options of GoMLX's XLA backend, as in "xla:/…/xla_cuda_plugin.so,tf32=true". TF32, which
// rounds what products multiply to 11 bits, is off unless it is asked for.
const Variable = "REPRISE_BACKEND"

func chosen() string { return cmp.Or(os.Getenv(Variable), "go") }

// IsGo says whether [Variable] chooses the pure-Go backend.
func IsGo() bool { return chosen() == "go" }

// Open opens the backend that [Variable] chooses. The pure-Go one runs operations in sequence, each on any number of
// goroutines, or on the caller's own alone if split is false; XLA ignores split.
func Open(split bool) (compute.Backend, error) {
	name := chosen()
	if name == "go" {
		return openGo(split)
	}
	plugin, ok := strings.CutPrefix(name, "xla:")
	if !ok || !strings.HasPrefix(plugin, "/") {
		return nil, fmt.Errorf("%s: %q: want go, or xla:/absolute/path/of/a/PJRT/plugin.so", Variable, name)
	}
	path, _, _ := strings.Cut(plugin, ",")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w: give the path of a PJRT plugin, for example xla_cuda_plugin.so of pip's "+
			"jax-cuda13-pjrt", Variable, err)
	}
	b, err := openXLA(plugin)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", Variable, name, err)
	}
	return b, nil
}

// openGo opens the pure-Go backend. Sums run in one order whatever GOMAXPROCS is, and concurrent calls cannot wait for
// each other's workers (the default pool can deadlock). Several calls at once run in parallel.
//
// The backend's own option for unlimited goroutines, "parallelism=-1", prints to standard output, where programs expect
// our JSON. Its exported field does the same silently, but is in an internal type that only reflection reaches.
func openGo(split bool) (compute.Backend, error) {
	backend, err := gobackend.New("ops_sequential")
	if err != nil {
		return nil, fmt.Errorf("open the Go backend: %w", err)
	}
	goroutines := 0
	if split {
		goroutines = -1 // without limit
	}
	if workers := reflect.ValueOf(backend).Elem().FieldByName("Workers"); workers.IsValid() {
		if limit := workers.MethodByName("SetMaxParallelism"); limit.IsValid() {
			limit.Call([]reflect.Value{reflect.ValueOf(goroutines)})
			return backend, nil
		}
	}
	return nil, errors.New("open the Go backend: its worker pool has no SetMaxParallelism: build with the " +
		"gomlx/compute version in go.mod")
}

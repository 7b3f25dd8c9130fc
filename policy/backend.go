package policy

import (
	"fmt"
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
)

// openBackend opens the pure-Go backend: operations in sequence, goroutines without limit. Sums then
// run in one order whatever GOMAXPROCS is, and concurrent calls cannot wait for each other's workers
// (the default pool can deadlock); parallelism comes from running several calls at once.
//
// The backend's own option for the second setting, "parallelism=-1", prints to standard output, where
// programs expect our JSON. Its exported field does the same in silence, but stands on an internal type,
// so that reflection is the only way to it.
func openBackend() (compute.Backend, error) {
	backend, err := gobackend.New("ops_sequential")
	if err != nil {
		return nil, fmt.Errorf("open the Go backend: %w", err)
	}
	workers := reflect.ValueOf(backend).Elem().FieldByName("Workers")
	if !workers.IsValid() {
		return nil, fmt.Errorf("open the Go backend: %T has no worker pool: build with the gomlx/compute version in go.mod", backend)
	}
	limit := workers.MethodByName("SetMaxParallelism")
	if !limit.IsValid() {
		return nil, fmt.Errorf("open the Go backend: its worker pool takes no limit: build with the gomlx/compute version in go.mod")
	}
	limit.Call([]reflect.Value{reflect.ValueOf(-1)})
	return backend, nil
}

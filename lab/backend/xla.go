//go:build xla

package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
)

// opened is the one client of a process: each would take memory of the device for itself.
var opened struct {
	sync.Mutex
	plugin  string
	backend compute.Backend
}

// openXLA opens a plugin, given as a path and options, or returns it as it was opened before.
func openXLA(plugin string) (compute.Backend, error) {
	opened.Lock()
	defer opened.Unlock()
	switch opened.plugin {
	case plugin:
		return opened.backend, nil
	case "":
	default:
		return nil, fmt.Errorf("this process computes with %s already: a process has one device", opened.plugin)
	}
	path, options, _ := strings.Cut(plugin, ",")
	if err := findCUDA(path); err != nil {
		return nil, err
	}
	config := path
	if !strings.Contains(options, "tf32") {
		config += ",tf32=false"
	}
	if options != "" {
		config += "," + options
	}
	b, err := xla.New(config)
	if err != nil {
		return nil, err
	}
	opened.plugin, opened.backend = plugin, b
	return b, nil
}

// findCUDA tells XLA where CUDA's data folder is if the plugin lies where pip puts it: in
// site-packages/jax_plugins/xla_cuda13, with CUDA in site-packages/nvidia/cu13. XLA's own search misses it there.
func findCUDA(plugin string) error {
	const flag = "--xla_gpu_cuda_data_dir="
	flags := os.Getenv("XLA_FLAGS")
	found, err := filepath.Glob(filepath.Join(filepath.Dir(plugin), "../../nvidia/cu[0-9]*"))
	if err != nil || len(found) == 0 || strings.Contains(flags, flag) {
		return err
	}
	return errors.Join(os.Setenv("XLA_FLAGS", strings.TrimSpace(flags+" "+flag+found[len(found)-1])),
		os.Setenv("GOPJRT_CUDA_CHECKS", "no")) // which would warn that its own search fails
}

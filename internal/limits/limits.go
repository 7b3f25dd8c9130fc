// Package limits tells what the process may use of the machine, and bounds its garbage.
package limits

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// unknown is what a process may use where neither GOMEMLIMIT nor the system says.
const unknown = 4 << 30

// Memory returns how many bytes the process may use: the least of GOMEMLIMIT, its limits of data and address space, its
// control group's, and the machine's memory; 4 GiB if none is known. All but the first are Linux's.
func Memory() int64 {
	least := debug.SetMemoryLimit(-1) // math.MaxInt64 if there is none
	note := func(number string, unit int64) {
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil && n <= math.MaxInt64/unit {
			least = min(least, n*unit)
		}
	}
	own, _ := os.ReadFile("/proc/self/limits") // absent elsewhere
	for line := range strings.Lines(string(own)) {
		for _, name := range []string{"Max data size", "Max address space"} {
			if values, ok := strings.CutPrefix(line, name); ok {
				first, _, _ := strings.Cut(strings.TrimSpace(values), " ")
				note(first, 1)
			}
		}
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		group, _ := os.ReadFile(file)
		note(string(group), 1)
	}
	machine, _ := os.ReadFile("/proc/meminfo")
	var kilobytes string
	if _, err := fmt.Sscanf(string(machine), "MemTotal: %s", &kilobytes); err == nil {
		note(kilobytes, 1<<10)
	}
	if least == math.MaxInt64 {
		return unknown
	}
	return least
}

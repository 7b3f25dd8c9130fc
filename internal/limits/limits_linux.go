// Package limits tells what the process may use of the machine.
package limits

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// Memory returns how many bytes the process may use: the least of GOMEMLIMIT, its limits of data and address
// space, its control group's, and the machine's memory.
func Memory() int64 {
	least := debug.SetMemoryLimit(-1) // math.MaxInt64 if there is none
	const rlimitData = 2              // syscall has no name for it
	for _, resource := range []int{rlimitData, syscall.RLIMIT_AS} {
		var l syscall.Rlimit
		if syscall.Getrlimit(resource, &l) == nil && l.Cur < math.MaxInt64 {
			least = min(least, int64(l.Cur))
		}
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if n, e := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && e == nil {
			least = min(least, n)
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kilobytes int64
		if _, err := fmt.Fscanf(bytes.NewReader(text), "MemTotal: %d kB", &kilobytes); err == nil {
			least = min(least, kilobytes<<10)
		}
	}
	return least
}

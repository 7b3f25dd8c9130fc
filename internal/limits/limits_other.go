//go:build !linux

// Package limits tells what the process may use of the machine.
package limits

import (
	"math"
	"runtime/debug"
)

// Memory returns GOMEMLIMIT, or 4 GiB if there is none.
func Memory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return 4 << 30
}

//go:build !linux

package service

import (
	"math"
	"runtime/debug"
)

// availableMemory returns GOMEMLIMIT, or 4 GiB if there is none.
func availableMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return 4 << 30
}

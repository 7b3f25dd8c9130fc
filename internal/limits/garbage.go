package server

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go's collector lets as much garbage pile up as there is live memory. A service's live memory is rollouts, which it
// passes over without reading, so it can run more often: once the garbage is a fifth, or leastGarbage.
const (
	leastGarbage  = 16 << 20
	leastPercent  = 20
	usualPercent  = 100
	garbagePeriod = time.Second
)

// garbagePercent returns the percentage of live memory that may pile up as garbage.
func garbagePercent(live uint64) int {
	if live <= leastGarbage {
		return usualPercent
	}
	return int(max(leastPercent, usualPercent*leastGarbage/live))
}

// boundGarbage follows the live memory until the context ends, unless the user has set GOGC.
func boundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	before := debug.SetGCPercent(usualPercent)
	defer debug.SetGCPercent(before)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(garbagePeriod)
	defer tick.Stop()
	for set := usualPercent; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(live)
		if percent := garbagePercent(live[0].Value.Uint64()); percent != set {
			debug.SetGCPercent(percent) // it stops the world for a moment
			set = percent
		}
	}
}

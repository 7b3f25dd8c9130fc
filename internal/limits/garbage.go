package limits

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	leastPercent  = 20
	usualPercent  = 100
	garbagePeriod = time.Second
)

// garbagePercent returns the percentage of live memory that may pile up as garbage, of which least bytes always may.
func garbagePercent(live, least uint64) int {
	if live <= least {
		return usualPercent
	}
	return int(max(leastPercent, usualPercent*least/live))
}

// BoundGarbage bounds the garbage that piles up to a fifth of the live memory, or to least bytes if that is more, until
// the context ends. Go's collector lets as much pile up as there is live memory. Rollouts and weights it passes over
// without reading, so a process that holds mostly those can afford to collect more often. Where the user has set GOGC,
// it does nothing.
func BoundGarbage(ctx context.Context, least uint64) {
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
		if percent := garbagePercent(live[0].Value.Uint64(), least); percent != set {
			debug.SetGCPercent(percent) // it stops the world for a moment
			set = percent
		}
	}
}

package limits

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	minPercent    = 20
	usualPercent  = 100
	garbagePeriod = time.Second
)

// garbagePercent returns the GOGC at which garbage is at most a fifth of the live heap, or least bytes if that is more.
func garbagePercent(live, least uint64) int {
	if live <= least {
		return usualPercent
	}
	return int(max(minPercent, usualPercent*least/live))
}

// BoundGarbage bounds uncollected garbage to a fifth of the live heap, or to least bytes if that is more, until the
// context ends. By default Go lets the heap double between collections. Rollouts and weights hold no pointers to scan,
// so collecting more often costs little where they fill the heap. It does nothing if GOGC is set.
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

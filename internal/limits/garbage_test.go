package limits

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGarbageIsAFifthOfALargeHeapAndAllOfASmallOne(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 16 << 20: 100, 32 << 20: 50, 80 << 20: 20, 1 << 40: 20} {
		if got := garbagePercent(live, 16<<20); got != want {
			t.Errorf("%d bytes live: %d%% garbage, want %d%%", live, got, want)
		}
	}
}

// The percentage follows the live memory, and is the former one in the end. A user's GOGC is left alone.
func TestTheCollectorFollowsTheLiveMemory(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	t.Setenv("GOGC", "50")
	BoundGarbage(t.Context(), 16<<20) // returns at once
	t.Setenv("GOGC", "")
	before := percent()
	held := make([]byte, 256<<20)
	debug.FreeOSMemory() // counts it as live
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { BoundGarbage(ctx, 16<<20); close(ended) }()
	for deadline := time.Now().Add(time.Minute); percent() != minPercent; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("with %d bytes live the percentage is %d", len(held), percent())
		}
	}
	runtime.KeepAlive(held)
	cancel()
	<-ended
	if now := percent(); now != before {
		t.Errorf("the percentage was %d before, and is %d after", before, now)
	}
}

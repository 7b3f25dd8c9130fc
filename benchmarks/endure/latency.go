package main

import (
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// latency counts how long something took, in classes whose ends are an eighth of a power of two apart. Its methods may be called concurrently.
type latency struct {
	mu      sync.Mutex
	classes [64 * 8]uint64
	n       uint64
	longest time.Duration
}

func (l *latency) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes[classOf(d)]++
	l.n++
	l.longest = max(l.longest, d)
}

// classOf returns the class of a duration.
func classOf(d time.Duration) int {
	n := uint64(max(d, 8))
	power := bits.Len64(n) - 1
	return power*8 + int(n>>(power-3)&7)
}

// upper returns the upper end of a class.
func upper(class int) time.Duration {
	power := class / 8
	return time.Duration(uint64(8+class%8+1) << (power - 3))
}

// quantile returns what a share of the durations stayed below.
func (l *latency) quantile(share float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	below := uint64(0)
	for class, count := range l.classes {
		below += count
		if count > 0 && float64(below) >= share*float64(l.n) {
			return min(upper(class), l.longest)
		}
	}
	return 0
}

// String reads: p50 1.2ms, p99 8ms, longest 40ms of 1234.
func (l *latency) String() string {
	p50, p99 := l.quantile(0.5), l.quantile(0.99)
	l.mu.Lock()
	defer l.mu.Unlock()
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, longest %s of %d", round(p50), round(p99), round(l.longest), l.n)
}

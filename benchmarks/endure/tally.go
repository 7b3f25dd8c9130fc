package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tally counts by name. Its methods may be called concurrently.
type tally struct {
	mu     sync.Mutex
	counts map[string]uint64
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]uint64)
	}
	t.counts[name]++
}

// of returns one count.
func (t *tally) of(name string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

// String reads: full 3, starved 12.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, t.counts[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

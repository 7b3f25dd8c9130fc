package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/lab/results"
)

// maxViolations is how many violations are kept in words. Further ones are counted.
const maxViolations = 20

// Verdict collects what a stress test measured, and which promises the service kept and broke. Its methods may be
// called concurrently.
type Verdict struct {
	mu         sync.Mutex
	facts      []string
	kept       []string
	violations []string
	more       int
}

// fact notes a measurement.
func (v *Verdict) fact(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts = append(v.facts, fmt.Sprintf(format, args...))
}

// check notes a promise: kept if ok, otherwise broken.
func (v *Verdict) check(ok bool, format string, args ...any) {
	if !ok {
		v.violation(format, args...)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept = append(v.kept, fmt.Sprintf(format, args...))
}

// violation notes a broken promise.
func (v *Verdict) violation(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.violations) == maxViolations {
		v.more++
		return
	}
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// Err is nil if every promise was kept.
func (v *Verdict) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.violations) + v.more; n > 0 {
		return fmt.Errorf("violations: %d", n)
	}
	return nil
}

// String lists the facts, the kept promises and the violations.
func (v *Verdict) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	for _, line := range v.facts {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, line := range v.kept {
		fmt.Fprintf(&b, "  kept       %s\n", line)
	}
	for _, line := range v.violations {
		fmt.Fprintf(&b, "  VIOLATION  %s\n", line)
	}
	if v.more > 0 {
		fmt.Fprintf(&b, "  VIOLATION  and %d more\n", v.more)
	}
	verdict := "passed"
	if len(v.violations) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "verdict: %s\n", verdict)
	return b.String()
}

// counter counts by name. Its methods may be called concurrently.
type counter struct {
	mu     sync.Mutex
	counts map[string]uint64
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]uint64)
	}
	c.counts[name]++
}

func (c *counter) get(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

// String reads: full 3, starved 12.
func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, c.counts[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// latency collects how long calls took. Its methods may be called concurrently.
type latency struct {
	mu      sync.Mutex
	seconds []float64
}

func (l *latency) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seconds = append(l.seconds, d.Seconds())
}

// String reads: p50 1.2ms, p99 8ms, longest 40ms of 1234.
func (l *latency) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seconds) == 0 {
		return "none"
	}
	quantile := func(q float64) time.Duration {
		return time.Duration(results.Quantile(l.seconds, q) * float64(time.Second)).Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, longest %s of %d", quantile(0.5), quantile(0.99), quantile(1), len(l.seconds))
}

package main

import (
	"fmt"
	"strings"
	"sync"
)

// maxViolations is how many violations are kept in words; the others are counted.
const maxViolations = 20

// Verdict is what came of it. Its methods may be called concurrently.
type Verdict struct {
	mu         sync.Mutex
	facts      []string
	kept       []string
	violations []string
	more       int
}

// fact notes something measured.
func (v *Verdict) fact(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts = append(v.facts, fmt.Sprintf(format, args...))
}

// hold notes a promise that was looked at as a whole: kept where ok.
func (v *Verdict) hold(ok bool, format string, args ...any) {
	if !ok {
		v.violate(format, args...)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept = append(v.kept, fmt.Sprintf(format, args...))
}

// violate notes a promise that was not kept.
func (v *Verdict) violate(format string, args ...any) {
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

// String is the verdict as a person reads it.
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

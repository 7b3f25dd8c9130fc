// Package tests has what tests of several packages share: which of them run when, waiting for a condition, and writing
// a file.
//
// Tests run in three ways: with -short, which `make quick` does after every edit; in full, as the first pass of `make
// test`; and with -short under the race detector, its second. [Long] and [Count] shorten the first and the last,
// [OneGoroutine] the last alone, and [LongShared] keeps a long test in the last. A test that calls none of them runs in
// all three.
package tests

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Long marks a test that takes a second or more: -short leaves it out.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: make test runs it")
	}
}

// LongShared marks a long test in which goroutines share values: -short leaves it out, but not under the race detector.
func LongShared(t testing.TB) {
	t.Helper()
	if !race {
		Long(t)
	}
}

// OneGoroutine marks a test whose work one goroutine does by itself: the race detector finds nothing in it, and takes
// ten times as long. With -short it is left out there.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if race && testing.Short() {
		t.Skip("one goroutine works alone here: make race runs it under the race detector")
	}
}

// Count returns how often a test repeats something: short times with -short, else all.
func Count(all, short int) int {
	if testing.Short() {
		return short
	}
	return all
}

// timeout is how long [Until] waits. Only a test that fails waits so long.
const timeout = 2 * time.Minute

// Until waits until a condition holds that another goroutine or process makes true, however long a busy machine takes.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, timeout)
		}
	}
}

// File writes a text to a file of a name in a new folder, and returns its path.
func File(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Package tests has what tests of several packages share: which of them run when, waiting for a condition, and writing
// and comparing files.
//
// Tests run in three ways: with -short, which `make quick` does after every edit; in full, as `make test-go`; and with
// -short under the race detector, as `make test-race`. `make test` does the last two. [Long] and [Count] shorten the
// first and the last, [OneGoroutine] the last alone, and [LongShared] keeps a long test in the last. A test that calls
// none of them runs in all three. By request, `make test-long` runs all the cases of tests that call [Rounds].
package tests

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// byRequest says that `make test-long` runs the tests.
var byRequest = os.Getenv("REPRISE_TESTS") == "long"

// ByRequest marks a test that `make test-long` alone runs: what it checks another test checks of a like.
func ByRequest(t testing.TB) {
	t.Helper()
	if !byRequest {
		t.Skip("make test-long runs it")
	}
}

// Rounds returns how much a test repeats, such as its random cases, or the step between those that it tries: short with
// -short, few in `make test`, and all in `make test-long`. Few must find that what is tested is broken; all look for
// what is rarer.
func Rounds(all, few, short int) int {
	if byRequest && !testing.Short() {
		return all
	}
	return Count(few, short)
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

// Near checks that a number is within a distance of another.
func Near(t testing.TB, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

// SameFiles checks that two folders have the same files with the same bytes, but for some names.
func SameFiles(t testing.TB, got, want string, but ...string) {
	t.Helper()
	a, b := files(t, got, but), files(t, want, but)
	for name, text := range b {
		if other, there := a[name]; !there {
			t.Errorf("%s lacks %s of %s", got, name, want)
		} else if other != text {
			at := 0
			for at < min(len(text), len(other)) && text[at] == other[at] {
				at++
			}
			from := max(0, at-100)
			t.Errorf("%s of %s has, from byte %d of %d on, first different at %d:\n%.300q\nwant, of %d:\n%.300q", name, got,
				from, len(other), at, other[from:], len(text), text[from:])
		}
	}
	for name := range a {
		if _, there := b[name]; !there {
			t.Errorf("%s has %s, which is not in %s", got, name, want)
		}
	}
}

// files returns the contents of the files below a folder, by path, but for some names.
func files(t testing.TB, dir string, but []string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || slices.Contains(but, entry.Name()) {
			return err
		}
		text, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

package study

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// failedFile holds the error of a run that failed. The run is not repeated unless its folder is removed.
const failedFile = "failed.txt"

// pool is the folder of the runs of all studies, each under the digest of its configuration.
type pool struct {
	dir   string
	locks string // a lock file per digest, kept apart because run folders are removed and created again
}

func newPool(dir string) pool { return pool{filepath.Join(dir, "runs"), filepath.Join(dir, ".locks")} }

// folder returns the folder of a run.
func (p pool) folder(digest string) string { return filepath.Join(p.dir, digest) }

// lock reserves a run for the caller, who closes the lock. It returns nil if another process or goroutine holds it.
func (p pool) lock(digest string) (*lock, error) {
	if err := os.MkdirAll(p.locks, 0o755); err != nil {
		return nil, err
	}
	return takeLock(filepath.Join(p.locks, digest))
}

// state is how far a run of the pool has come.
type state int

const (
	absent   state = iota
	begun          // no checkpoint to resume from
	stopped        // has a checkpoint
	finished       // has spent its budget, or failed
)

// state returns how far a run has come. A run that is under way elsewhere counts as begun or stopped.
func (p pool) state(digest string) (state, error) {
	dir := p.folder(digest)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	} else if err != nil {
		return absent, err
	}
	why, err := readFailure(dir)
	if err != nil {
		return absent, err
	}
	sum, err := results.ReadSummary(dir)
	switch {
	case err != nil:
		return absent, err
	case why != "" || sum != nil && sum.Ended == "budget":
		return finished, nil
	case run.Resumable(dir):
		return stopped, nil
	}
	return begun, nil
}

// readFailure returns the error of the run in a folder, "" if it did not fail.
func readFailure(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, failedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// writeFailure records that the run in a folder failed. It removes the summary of an earlier interruption.
func writeFailure(dir string, why error) error {
	var f *run.Failure
	if errors.As(why, &f) {
		why = f.Err // without the folder's name, because folders may be moved
	}
	if err := remove(filepath.Join(dir, results.SummaryFile)); err != nil {
		return err
	}
	return disk.ReplaceFile(filepath.Join(dir, failedFile), func(w io.Writer) error {
		_, err := fmt.Fprintln(w, why)
		return err
	})
}

// remove removes a file, if there is one.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// size returns the bytes of the files below a folder. Files that vanish meanwhile are not counted.
func size(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

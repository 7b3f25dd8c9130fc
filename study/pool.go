package study

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// FailedFile stands in the folder of a run that ended with an error, and says which. Such a run is not made again unless its folder is
// removed.
const FailedFile = "failed.txt"

// pool is the folder of the runs of all studies, each under the digest of its configuration.
type pool struct {
	dir   string
	locks string // the folder of locks, each under its run's digest too: runs are removed and begun anew
}

func newPool(dir string) pool { return pool{filepath.Join(dir, "runs"), filepath.Join(dir, ".locks")} }

// folder returns where the run of a digest stands.
func (p pool) folder(digest string) string { return filepath.Join(p.dir, digest) }

// take locks the run of a digest for this process, unless somebody else has it: then it returns nil. The caller closes the lock.
func (p pool) take(digest string) (*lock, error) {
	if err := os.MkdirAll(p.locks, 0o755); err != nil {
		return nil, err
	}
	return takeLock(filepath.Join(p.locks, digest))
}

// state is how far a run of the pool has come.
type state int

const (
	absent   state = iota
	begun          // without a checkpoint to go on from
	stopped        // with one
	finished       // there is nothing left to do: it has come to the end of its budget, or to an error
)

// state returns how far the run of a digest has come. A run that somebody else carries out counts as stopped.
func (p pool) state(digest string) (state, error) {
	dir := p.folder(digest)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	} else if err != nil {
		return absent, err
	}
	why, err := failure(dir)
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

// failure returns with which error the run in a folder ended, nothing if it did not.
func failure(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, FailedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// fail writes down with which error the run in a folder ended. A summary, that of an interruption before, is no longer true of it.
func fail(dir string, why error) error {
	// The error's first words name the folder, which may move.
	var f *run.Failure
	if errors.As(why, &f) {
		why = f.Err
	}
	if err := os.Remove(filepath.Join(dir, results.SummaryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return results.WriteFile(filepath.Join(dir, FailedFile), fmt.Appendln(nil, why))
}

// size returns the bytes of the files below a folder. What vanishes meanwhile is not counted.
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

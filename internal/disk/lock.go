package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrLocked is returned by [LockFile] for a file that another process has locked.
var ErrLocked = errors.New("another process holds it")

// LockFile locks a file, which it makes if there is none, for as long as the result is open, at most as long as the
// process lives. The process's id stands in the file. While another process holds the lock it tries again, for as long
// as wait says; the error then wraps [ErrLocked] and names that process. Where there is no flock nothing is locked.
func LockFile(path string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(min(wait/20, 50*time.Millisecond)) {
		held, err := flock(f, false)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		if held {
			break
		}
		if !time.Now().Before(deadline) {
			owner := make([]byte, 20)
			n, _ := f.ReadAt(owner, 0) // it only informs
			return nil, errors.Join(fmt.Errorf("locking %s: %w, pid %s", path, ErrLocked,
				strings.TrimSpace(string(owner[:n]))), f.Close())
		}
	}
	// It is for the error of another process only, and a full disk is no reason not to start.
	_, _ = fmt.Fprintf(f, "%-19d\n", os.Getpid())
	return f, nil
}

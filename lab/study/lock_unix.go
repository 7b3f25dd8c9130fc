//go:build unix

package study

import (
	"errors"
	"os"
	"syscall"
)

// lock reserves a run of the pool until it is closed or the process ends.
type lock struct{ file *os.File }

// takeLock returns nil if another process, or this one, holds the lock.
func takeLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &lock{f}, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

func (l *lock) close() error { return l.file.Close() }

//go:build unix

package journal

import (
	"errors"
	"os"
	"syscall"
)

// lockShared refuses a file that a process writes to. Closing the file releases the lock.
func lockShared(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	}
	return err
}

//go:build unix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// flock locks a file or a folder unless another process has it locked. Closing it releases the lock.
func flock(f *os.File, shared bool) (held bool, err error) {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

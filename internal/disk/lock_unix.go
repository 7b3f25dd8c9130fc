//go:build unix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// flock locks a file unless another process has it locked. Closing the file releases the lock.
func flock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

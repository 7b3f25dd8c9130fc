package disk

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// IsFull reports whether an error says that a disk, or a quota on it, has no space left. It also reads the text,
// because some libraries pass on no more than that.
func IsFull(err error) bool {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if err != nil && (errors.Is(err, full) || strings.Contains(err.Error(), full.Error())) {
			return true
		}
	}
	return false
}

// Reserve takes the given bytes of the disk for a file, which it makes if there is none. After an error there is none.
func Reserve(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > bytes {
		err = f.Truncate(bytes)
	}
	if err == nil {
		if err = allocate(f, bytes); errors.Is(err, errors.ErrUnsupported) {
			err = writeZeros(f, bytes)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// writeZeros takes the space of a file where the operating system cannot allocate it.
func writeZeros(f *os.File, bytes int64) error {
	zeros := make([]byte, min(bytes, bufferSize))
	for at := int64(0); at < bytes; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), bytes-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

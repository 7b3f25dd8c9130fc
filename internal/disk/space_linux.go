package disk

import (
	"errors"
	"os"
	"syscall"
)

// Free returns how many bytes of the disk of a folder this process may still take, -1 if that is unknown.
func Free(folder string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(folder, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// allocate gives a file the given bytes of the disk. The error is errors.ErrUnsupported where the file system cannot.
func allocate(f *os.File, bytes int64) error {
	for {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, bytes); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// syncData returns once a file's content is on disk, and its size if that has changed.
func syncData(f *os.File) error {
	c, err := f.SyscallConn() // holds the file open meanwhile
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for failed = syscall.EINTR; errors.Is(failed, syscall.EINTR); {
			failed = syscall.Fdatasync(int(fd))
		}
	})
	return errors.Join(err, os.NewSyscallError("fdatasync", failed))
}

package service

import (
	"os"
	"syscall"
)

// datasync has what was written to a file reach the disk.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

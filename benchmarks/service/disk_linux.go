package main

import (
	"os"
	"syscall"
)

// datasync syncs what was written to a file.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

//go:build !linux

package service

import "os"

// datasync has what was written to a file reach the disk.
func datasync(f *os.File) error { return f.Sync() }

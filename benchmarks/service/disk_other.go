//go:build !linux

package main

import "os"

// datasync syncs what was written to a file.
func datasync(f *os.File) error { return f.Sync() }

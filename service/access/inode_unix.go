//go:build unix

package access

import (
	"os"
	"syscall"
)

// inode tells a file from one that took its place.
func inode(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

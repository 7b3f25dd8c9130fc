// Package disk writes files so that a crash or a loss of power leaves the old content or the new, never a part.
package disk

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// bufferSize is what one write to the file is gathered from.
const bufferSize = 1 << 20

// ReplaceFile writes a file beside its place, syncs it and renames it into place, with permissions 0644. After an error
// the old file stands and nothing of the new one is left.
func ReplaceFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, bufferSize)
	if err := write(w); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder survive a loss of power: files that were created, renamed or removed there.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// WriteFile replaces a file with the content given.
func WriteFile(path string, content []byte) error {
	return ReplaceFile(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

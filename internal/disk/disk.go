// Package disk writes files so that a crash or a loss of power leaves the old content or the new, never a part.
package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// bufferSize is what one write to the file is gathered from.
const bufferSize = 1 << 20

// ReplaceFile writes a file beside its place, syncs it and renames it into place, with permissions 0644. After an error
// the old file stands and nothing of the new one is left.
func ReplaceFile(path string, write func(io.Writer) error) error { return replace(path, 0o644, write) }

// Writable makes a folder if there is none, and returns an error unless files can be written to it.
func Writable(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, ".writable.*.tmp")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// ReplacePrivateFile is [ReplaceFile] with permissions 0600. It refuses to replace anything but a regular file.
func ReplacePrivateFile(path string, write func(io.Writer) error) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: it is there and no regular file (%s): remove it, or choose another path", path,
			info.Mode().Type())
	}
	return replace(path, 0o600, write)
}

// replace writes a new file, which has another name at first, so that it follows no link, and renames it.
func replace(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
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
	if err := errors.Join(w.Flush(), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// ReplaceFolder has write fill a new folder beside path, and renames it into place once it is on disk. What write makes
// below it, files and folders, write syncs. After an error the old folder stands and nothing of the new one is left. A
// crash at the wrong moment leaves the new one, or neither and both beside their place.
func ReplaceFolder(path string, write func(folder string) error) (err error) {
	path = filepath.Clean(path)
	fresh, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	if err := write(fresh); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(fresh, 0o755), SyncFolder(fresh)); err != nil {
		return err
	}
	old := fresh + ".old"
	if err := os.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		if back := os.Rename(old, path); !errors.Is(back, fs.ErrNotExist) {
			err = errors.Join(err, back)
		}
		return err
	}
	return errors.Join(SyncFolder(filepath.Dir(path)), os.RemoveAll(old))
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

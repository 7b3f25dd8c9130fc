package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Files is a file system as journals use it: [Machine] is the operating system's, disktest.Simulated one in memory
// whose power can be lost. Its methods may be called concurrently.
type Files interface {
	// Open opens a file with the flags of os.OpenFile. A new one is for its owner alone.
	Open(path string, flags int) (File, error)
	// MakeFolder makes a folder and those above it, which survive a loss of power.
	MakeFolder(path string) error
	// List returns the names in a folder in order.
	List(folder string) ([]string, error)
	Rename(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(path string) error
	// SyncFolder makes the names in a folder survive a loss of power.
	SyncFolder(path string) error
	// LockFolder locks a folder for as long as the result is open. The error wraps [ErrLocked] while another holds it,
	// unless both share it.
	LockFolder(path string, shared bool) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Size() (int64, error)
	// Sync returns once the content survives a loss of power.
	Sync() error
	// InPlace returns an error if the path that was opened no longer names this file.
	InPlace() error
}

// Machine returns the operating system's files.
func Machine() Files { return machine{} }

type machine struct{}

type machineFile struct{ *os.File }

func (machine) Open(path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return machineFile{f}, nil
}

func (machine) Rename(from, to string) error { return os.Rename(from, to) }
func (machine) Remove(path string) error     { return os.Remove(path) }
func (machine) SyncFolder(path string) error { return SyncFolder(path) }

func (m machine) MakeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(path) != path {
		if err = m.MakeFolder(filepath.Dir(path)); err == nil {
			err = os.Mkdir(path, 0o700)
		}
	}
	if errors.Is(err, os.ErrExist) {
		_, err = m.List(path)
		return err
	}
	if err == nil {
		err = SyncFolder(filepath.Dir(path))
	}
	return err
}

func (machine) List(folder string) ([]string, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (machine) LockFolder(path string, shared bool) (io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	held, err := flock(f, shared)
	if err == nil && !held {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (f machineFile) Sync() error { return syncData(f.File) }

func (f machineFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f machineFile) InPlace() error {
	open, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Name())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("somebody removed the file while it was open")
	case err == nil && !os.SameFile(open, named):
		return errors.New("somebody replaced the file while it was open")
	}
	return err
}

// RemoveAll removes a folder with the files in it, if there is one.
func RemoveAll(files Files, folder string) error {
	names, err := files.List(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, files.Remove(folder+string(os.PathSeparator)+name))
	}
	return errors.Join(err, files.Remove(folder))
}

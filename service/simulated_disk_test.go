package service_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/reprise-rl/reprise/internal/disk"
)

// simulatedDisk does what disks do to the files of bbolt: they lose power, and with it what was not synced, or tear it,
// or keep a later write and lose an earlier one; a write fails; they are full. The files are real: what is lost is
// taken back when restore is called. Its methods may be called concurrently.
type simulatedDisk struct {
	noSync bool // a planted defect: the program does not sync

	mu      sync.Mutex
	files   []*file
	writes  int  // until the power is lost, then 0; below 0: it stays
	dead    bool // the power is lost
	failing int  // writes that fail
	full    bool
}

// file is a file while one process has it open.
type file struct {
	path    string
	db      *bbolt.DB
	handle  *os.File
	pending []write // not synced
	meta    bool    // the last write was of a meta page
	torn    bool    // the power went during the last write
}

type write struct {
	at         int64
	old, fresh []byte
}

const (
	sector    = 512
	metaPages = 2
)

// errPowerLost is what writes return when the power is gone.
var errPowerLost = errors.New("the power is gone")

// install makes all databases that are opened from now on write to the disk, until stop is called.
func (d *simulatedDisk) install() (stop func()) {
	d.writes = -1
	disk.Opened = func(path string, opened any) {
		db := opened.(*bbolt.DB)
		// bbolt has no way in: its writes go through a field of its own.
		field := reflect.ValueOf(db).Elem().FieldByName("ops").FieldByName("writeAt")
		hook := (*func([]byte, int64) (int, error))(unsafe.Pointer(field.UnsafeAddr()))
		through := *hook
		handle, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		f := &file{path: strings.TrimSuffix(path, ".new"), db: db, handle: handle}
		d.mu.Lock()
		d.files = append(d.files, f)
		d.mu.Unlock()
		*hook = func(b []byte, at int64) (int, error) { return d.write(f, b, at, through) }
	}
	return func() { disk.Opened = nil }
}

func (d *simulatedDisk) write(f *file, b []byte, at int64, through func([]byte, int64) (int, error)) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noSync {
		f.db.NoSync = true
	}
	path := &os.PathError{Op: "write", Path: f.path}
	switch {
	case d.dead:
		path.Err = errPowerLost
	case d.full:
		path.Err = syscall.ENOSPC
	case d.failing > 0:
		d.failing--
		path.Err = syscall.EIO
	}
	if path.Err != nil {
		return 0, path
	}
	meta := at < metaPages*int64(f.db.Info().PageSize)
	if !f.db.NoSync && (meta || f.meta) { // bbolt syncs before and after it writes a meta page
		f.pending = nil
	}
	f.meta = meta
	old := make([]byte, len(b))
	if _, err := f.handle.ReadAt(old, at); err != nil {
		clear(old) // beyond the end
	}
	f.pending = append(f.pending, write{at, old, slices.Clone(b)})
	if d.writes >= 0 {
		if d.writes--; d.writes < 0 {
			d.dead, f.torn = true, true
		}
	}
	n, err := through(b, at)
	if d.dead {
		path.Err = errPowerLost
		return 0, path
	}
	return n, err
}

// losePower takes the power away after some more writes.
func (d *simulatedDisk) losePower(after int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writes = after; after == 0 {
		d.dead = true
	}
}

// fail makes writes fail.
func (d *simulatedDisk) fail(writes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = writes
}

// fill makes the disk full, or empties it.
func (d *simulatedDisk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// restore gives the power back, once nobody has the files open. Of what was not synced it keeps all, nothing, some
// writes, or some sectors.
func (d *simulatedDisk) restore(random *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if err := f.restore(random); err != nil {
			return err
		}
	}
	d.files, d.writes, d.dead, d.failing, d.full = nil, -1, false, 0, false
	return nil
}

func (f *file) restore(random *rand.Rand) error {
	defer f.handle.Close()
	segments, err := filepath.Glob(f.path + ".log-*")
	if err != nil {
		return err
	}
	for _, path := range segments { // never synced
		info, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, random.Int64N(info.Size()+1))
		}
		if err != nil {
			return err
		}
	}
	if !f.db.NoSync && f.meta && !f.torn {
		return nil // synced after the meta page
	}
	for _, w := range slices.Backward(f.pending) {
		if _, err := f.handle.WriteAt(w.old, w.at); err != nil {
			return err
		}
	}
	how := random.IntN(4)
	for _, w := range f.pending {
		whole := how == 1 || how == 2 && random.IntN(2) == 0
		for from := 0; from < len(w.fresh); from += sector {
			if whole || how == 3 && random.IntN(2) == 0 {
				part := w.fresh[from:min(from+sector, len(w.fresh))]
				if _, err := f.handle.WriteAt(part, w.at+int64(from)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

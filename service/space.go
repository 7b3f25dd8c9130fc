package service

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/wire"
)

// space watches the disk of the data folder. A file there keeps some of it in reserve. When a journal finds the disk
// full, the file is removed and an alarm is on: nothing new enters, and the journals write what goes on, as
// acknowledgements and draws from queues, to the space of the reserve. The alarm ends once the disk has room for the
// reserve and as much again; whoever asks looks.
//
// The copies of a cluster end when they find the disk full. So there the alarm comes before, at low bytes.
type space struct {
	folder  string
	reserve int64 // bytes
	low     int64 // bytes
	log     *slog.Logger

	full atomic.Bool // the alarm
	mu   sync.Mutex  // held while the alarm and the file change
}

// openSpace takes the reserve. The alarm is on if there is no room for it.
func openSpace(folder string, reserve, low int64, log *slog.Logger) (*space, error) {
	s := &space{folder: folder, reserve: reserve, low: low, log: log}
	err := disk.Reserve(s.path(), reserve)
	if disk.IsFull(err) {
		s.raise(err)
		err = nil
	}
	return s, err
}

func (s *space) path() string { return filepath.Join(s.folder, "reserve") }

// raise gives up the reserve and puts the alarm on, because of an error.
func (s *space) raise(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("giving up the reserve of disk", "path", s.path(), "error", err)
	}
	if !s.full.Swap(true) {
		s.log.Error("the disk is full: insertions are refused until it has space", "data", s.folder,
			"free", disk.Free(s.folder), "error", cause)
	}
}

// check returns an error with code wire.DiskFull while the alarm is on. It ends the alarm if there is space.
func (s *space) check() error {
	if free := disk.Free(s.folder); s.low > 0 && free >= 0 && free < s.low && !s.full.Load() {
		s.raise(fmt.Errorf("%d bytes are free, less than %d", free, s.low))
	}
	if !s.full.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	free, enough := disk.Free(s.folder), 2*s.reserve+s.low
	if s.full.Load() && (free < 0 || free >= enough) && disk.Reserve(s.path(), s.reserve) == nil {
		s.full.Store(false)
		s.log.Info("the disk has space again: insertions go on", "data", s.folder, "free", free)
	}
	if !s.full.Load() {
		return nil
	}
	full := "full"
	if s.low > 0 {
		full = "nearly full"
	}
	return wire.Errorf(wire.DiskFull, "disk of %s: it is %s, %d bytes are free: delete checkpoints (delete_checkpoint), "+
		"drop tables or free other files; insertions go on by themselves at %d bytes", s.folder, full, free, enough)
}

// room returns how many bytes a checkpoint may take: it leaves as much again as the reserve to the journals, and does not
// raise the alarm of a cluster.
func (s *space) room() int64 {
	if free := disk.Free(s.folder); free >= 0 {
		return free - s.reserve - s.low
	}
	return math.MaxInt64
}

package board

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
)

// Tables restores the tables of runs for the board's pages of rollouts. Package run does it; this one may not import
// it, as it brings tensors.
type Tables struct {
	// Files lists, below a run's folder, all files that Last may read.
	Files []string
	// Last returns the table in a run's last checkpoint, or the address of a table in a service. Nil: no page shows
	// rollouts.
	Last func(dir string) (table *replay.Table, address string, err error)
}

// Bounds of the restored tables that a board keeps. A table takes about as much memory as its files.
const (
	maxTables     = 2
	maxTableBytes = 1 << 30 // of the files that they were restored from
)

// restored keeps the tables that readers looked at last.
type restored struct {
	mu   sync.Mutex // held while a table is restored: one at a time
	list []restoredTable
}

type restoredTable struct {
	dir, stamp string // stamp: sizes and times of the files it was restored from
	bytes      int64
	table      *replay.Table
}

// rollouts returns the rollouts of the run that a request names.
func (b *Board) rollouts(r *http.Request) (browse.Source, error) {
	dir := r.URL.Query().Get("run")
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("run=%.100s: %w: want the folder of a run inside %s", dir, fs.ErrInvalid, b.dir)
	}
	if results.IsComparison(b.full(dir)) {
		return nil, fmt.Errorf("run=%s: %w: it is a comparison: choose one of its runs in the list", dir, fs.ErrInvalid)
	}
	stamp, bytes, err := b.checkTableFiles(dir)
	if err != nil {
		return nil, err
	}
	c := &b.restored
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(k restoredTable) bool { return k.dir == dir })
	if i >= 0 && c.list[i].stamp == stamp {
		return browse.Table{Table: c.list[i].table}, nil
	}
	if i >= 0 {
		c.list = slices.Delete(c.list, i, i+1)
	}
	c.makeRoom(bytes)
	table, address, err := b.tables.Last(b.full(dir))
	if err != nil {
		return nil, err
	}
	if table == nil {
		return nil, fmt.Errorf("the rollouts of %s are in table %s of a service: see its dashboard, or call reprise "+
			"rollouts %[2]s", dir, address)
	}
	c.list = append(c.list, restoredTable{dir, stamp, bytes, table})
	return browse.Table{Table: table}, nil
}

// makeRoom lets go of the oldest tables, so that another may be restored.
func (c *restored) makeRoom(bytes int64) {
	for _, k := range c.list {
		bytes += k.bytes
	}
	for len(c.list) > 0 && (len(c.list) >= maxTables || bytes > maxTableBytes) {
		bytes -= c.list[0].bytes
		c.list = slices.Delete(c.list, 0, 1)
	}
}

// checkTableFiles refuses a run whose table would be read from outside the board's folder, or is too large.
func (b *Board) checkTableFiles(dir string) (stamp string, bytes int64, err error) {
	if _, err := b.root.Stat(path.Join(dir, results.ConfigFile)); err != nil {
		return "", 0, fmt.Errorf("run=%s is no folder of a run: %w", dir, err)
	}
	for _, name := range b.tables.Files {
		file := path.Join(dir, name)
		info, err := b.root.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", 0, err
		case !info.Mode().IsRegular():
			return "", 0, fmt.Errorf("%s: is no regular file: want one as a run writes it", file)
		}
		bytes += info.Size()
		stamp += fmt.Sprintln(name, info.Size(), info.ModTime().UnixNano())
	}
	if bytes > maxTableBytes {
		return "", 0, fmt.Errorf("the checkpoint of %s has %d MB: the board restores tables of up to %d MB: call reprise "+
			"rollouts %s", dir, bytes>>20, maxTableBytes>>20, b.full(dir))
	}
	return stamp, bytes, nil
}

// rolloutsAddress returns the address of the page of a run's rollouts; "" if the board shows none.
func (b *Board) rolloutsAddress(dir string) string {
	if b.tables.Last == nil {
		return ""
	}
	return "/rollouts?" + url.Values{"run": {dir}}.Encode()
}

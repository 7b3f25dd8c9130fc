// Package disktest gives tests disks that fail: one in memory that loses power, and one that is soon full.
package disktest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Simulated is a disk in memory that does what disks do: they lose power, and with it what was not synced, or tear it,
// or keep a later change and lose an earlier one; a write or a sync fails; they are full. Its zero value is empty. Its
// methods may be called concurrently.
type Simulated struct {
	// Lazy is a planted defect: syncs do nothing.
	Lazy bool
	// Ordered makes names reach the disk in the order in which they were given and taken, and a sync of a file takes its
	// own along, as the logs of ext4 and XFS do. Otherwise a name is safe once its folder is synced, and those that are
	// not may be lost in any order, which is all that POSIX promises.
	Ordered bool
	// OnSync, if it is set, is called at the beginning of each sync of a file.
	OnSync func(path string)

	mu      sync.Mutex
	root    *node
	moves   []move // if Ordered: those that may be lost
	life    int    // how often the power came back; files of an earlier life are dead
	changes int    // until the power is lost; 0: it stays
	dead    bool   // the power is lost
	failing int    // writes and syncs that fail
	full    bool
	done    int // changes so far
}

var _ disk.Files = (*Simulated)(nil)

// ErrPowerLost is what everything returns while there is no power.
var ErrPowerLost = errors.New("the power is gone")

// node is a file or a folder: as the process sees it, as the disk has it for certain, and what may be on the disk.
type node struct {
	content, synced []byte
	pending         []change

	entries, syncedEntries map[string]*node // nil: a file
	moves                  []move           // unless Ordered

	locked, shared int
}

// change is a write, or a truncation if fresh is nil.
type change struct {
	at    int64
	fresh []byte
}

// move takes a name away in one folder, and gives one to a node in another or the same; nil: none.
type move struct {
	from *node
	gone string
	into *node
	name string
	to   *node
}

// apply applies a move. A node is not renamed that has another name, as an earlier move was lost.
func (m *move) apply(entries func(folder *node) map[string]*node) {
	if m.from != nil && m.into != nil && entries(m.from)[m.gone] != m.to {
		return
	}
	if m.from != nil {
		delete(entries(m.from), m.gone)
	}
	if m.into != nil {
		entries(m.into)[m.name] = m.to
	}
}

func (n *node) seen() map[string]*node { return n.entries }
func (n *node) safe() map[string]*node { return n.syncedEntries }

const sector = 512

func newFolder() *node {
	return &node{entries: make(map[string]*node), syncedEntries: make(map[string]*node)}
}

// find returns a node, its folder and its name there.
func (d *Simulated) find(path string) (n, folder *node, name string) {
	if d.root == nil {
		d.root = newFolder()
	}
	n = d.root
	for rest := filepath.Clean(path); rest != "." && rest != "/"; {
		var next string
		next, rest = cutPath(rest)
		if n == nil || n.entries == nil {
			return nil, nil, ""
		}
		n, folder, name = n.entries[next], n, next
	}
	return n, folder, name
}

func cutPath(path string) (first, rest string) {
	for len(path) > 0 && path[0] == '/' {
		path = path[1:]
	}
	for i := range len(path) {
		if path[i] == '/' {
			return path[:i], path[i:]
		}
	}
	return path, "."
}

func (d *Simulated) move(m move) {
	m.apply((*node).seen)
	switch {
	case d.Ordered:
		d.moves = append(d.moves, m)
	case m.from != nil && m.into != nil && m.from != m.into:
		m.into.moves = append(m.into.moves, move{into: m.into, name: m.name, to: m.to})
		m.from.moves = append(m.from.moves, move{from: m.from, gone: m.gone})
	case m.from != nil:
		m.from.moves = append(m.from.moves, m)
	default:
		m.into.moves = append(m.into.moves, m)
	}
}

// keep makes the moves of an Ordered disk up to the last of some survive a loss of power.
func (d *Simulated) keep(of func(m move) bool) {
	for i, m := range slices.Backward(d.moves) {
		if of(m) {
			d.settle(i + 1)
			return
		}
	}
}

// settle makes the first moves of an Ordered disk survive a loss of power.
func (d *Simulated) settle(moves int) {
	for i := range d.moves[:moves] {
		d.moves[i].apply((*node).safe)
	}
	d.moves = slices.Delete(d.moves, 0, moves)
}

// begin is the beginning of whatever may change the disk. It reports whether the power goes during it.
func (d *Simulated) begin(op, path string) (going bool, err error) {
	if d.dead {
		return false, &fs.PathError{Op: op, Path: path, Err: ErrPowerLost}
	}
	d.done++
	if d.changes > 0 {
		d.changes--
		d.dead = d.changes == 0
	}
	return d.dead, nil
}

func (d *Simulated) lost(op, path string) error {
	return &fs.PathError{Op: op, Path: path, Err: ErrPowerLost}
}

// Open implements [disk.Files].
func (d *Simulated) Open(path string, flags int) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, d.lost("open", path)
	}
	n, folder, name := d.find(path)
	switch {
	case n == nil && flags&os.O_CREATE != 0 && folder != nil:
		if going, err := d.begin("open", path); err != nil || going && d.done%2 == 0 {
			return nil, d.lost("open", path)
		}
		n = &node{}
		d.move(move{into: folder, name: name, to: n})
		if d.dead {
			return nil, d.lost("open", path)
		}
	case n == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case flags&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	}
	f := &file{disk: d, node: n, path: path, life: d.life}
	if flags&os.O_TRUNC != 0 && len(n.content) > 0 {
		if err := f.change(change{at: 0}); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// MakeFolder implements [disk.Files].
func (d *Simulated) MakeFolder(path string) error {
	if filepath.Dir(path) != path {
		if err := d.MakeFolder(filepath.Dir(path)); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, folder, name := d.find(path)
	if n != nil {
		return nil
	}
	if going, err := d.begin("mkdir", path); going || err != nil {
		return d.lost("mkdir", path)
	}
	m := move{into: folder, name: name, to: newFolder()}
	m.apply((*node).seen)
	m.apply((*node).safe)
	return nil
}

// Mkdir makes one folder, which is lost with the power like any name.
func (d *Simulated) Mkdir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, folder, name := d.find(path)
	switch {
	case n != nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrExist}
	case folder == nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrNotExist}
	}
	going, err := d.begin("mkdir", path)
	if err != nil {
		return err
	}
	d.move(move{into: folder, name: name, to: newFolder()})
	if going {
		return d.lost("mkdir", path)
	}
	return nil
}

// Stat returns the size of a file in bytes, or that the path is a folder.
func (d *Simulated) Stat(path string) (size int64, folder bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _, _ := d.find(path)
	switch {
	case d.dead:
		return 0, false, d.lost("stat", path)
	case n == nil:
		return 0, false, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return int64(len(n.content)), n.entries != nil, nil
}

// List implements [disk.Files].
func (d *Simulated) List(path string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _, _ := d.find(path)
	switch {
	case d.dead:
		return nil, d.lost("open", path)
	case n == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case n.entries == nil:
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: syscall.ENOTDIR}
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// Rename implements [disk.Files].
func (d *Simulated) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, folder, name := d.find(from)
	if n == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	going, err := d.begin("rename", from)
	if err != nil {
		return err
	}
	old, into, as := d.find(to)
	switch {
	case into == nil:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrNotExist}
	case old != nil && len(old.entries) > 0:
		return &fs.PathError{Op: "rename", Path: to, Err: syscall.ENOTEMPTY}
	}
	d.move(move{from: folder, gone: name, into: into, name: as, to: n})
	if going {
		return d.lost("rename", from)
	}
	return nil
}

// Remove implements [disk.Files].
func (d *Simulated) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, folder, name := d.find(path)
	if n == nil {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	if len(n.entries) > 0 {
		return &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
	}
	going, err := d.begin("remove", path)
	if err != nil {
		return err
	}
	d.move(move{from: folder, gone: name})
	if going {
		return d.lost("remove", path)
	}
	return nil
}

// SyncFolder implements [disk.Files].
func (d *Simulated) SyncFolder(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _, _ := d.find(path)
	if n == nil || n.entries == nil {
		return &fs.PathError{Op: "sync", Path: path, Err: fs.ErrNotExist}
	}
	if going, err := d.begin("sync", path); err != nil || going {
		return d.lost("sync", path)
	}
	if err := d.fault("sync", path); err != nil || d.Lazy {
		return err
	}
	if d.keep(func(m move) bool { return m.from == n || m.into == n }); !d.Ordered {
		n.syncedEntries, n.moves = maps.Clone(n.entries), nil
	}
	return nil
}

// fault fails if a failure is due.
func (d *Simulated) fault(op, path string) error {
	if d.failing == 0 {
		return nil
	}
	d.failing--
	return &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
}

// LockFolder implements [disk.Files].
func (d *Simulated) LockFolder(path string, shared bool) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _, _ := d.find(path)
	switch {
	case d.dead:
		return nil, d.lost("open", path)
	case n == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case n.locked > 0 || n.shared > 0 && !shared:
		return nil, fmt.Errorf("locking %s: %w", path, disk.ErrLocked)
	}
	held := &n.locked
	if shared {
		held = &n.shared
	}
	*held++
	return &lock{disk: d, held: held, life: d.life}, nil
}

type lock struct {
	disk *Simulated
	held *int
	life int
}

// Close gives up the lock. A loss of power has done so already.
func (l *lock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.life == l.disk.life && l.held != nil {
		*l.held--
		l.held = nil
	}
	return nil
}

// file is an open file.
type file struct {
	disk *Simulated
	node *node
	path string
	life int
}

// power returns an error if there is none, or was none since the file was opened.
func (f *file) power(op string) error {
	if f.disk.dead || f.life != f.disk.life {
		return f.disk.lost(op, f.path)
	}
	return nil
}

// ReadAt implements [disk.File].
func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.power("read"); err != nil {
		return 0, err
	}
	if at >= int64(len(f.node.content)) {
		return 0, io.EOF
	}
	n := copy(b, f.node.content[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [disk.File]. On a full disk the first half is written.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.fault("write", f.path); err != nil {
		return 0, err
	}
	if f.disk.full && at+int64(len(b)) > int64(len(f.node.content)) {
		half := slices.Clone(b[:len(b)/2])
		err := f.change(change{at, half})
		return len(half), errors.Join(&fs.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}, err)
	}
	if err := f.change(change{at, slices.Clone(b)}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Truncate implements [disk.File].
func (f *file) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.change(change{at: size})
}

func (f *file) change(c change) error {
	if err := f.power("write"); err != nil {
		return err
	}
	going, err := f.disk.begin("write", f.path)
	if err != nil {
		return err
	}
	f.node.content = c.apply(f.node.content, nil)
	f.node.pending = append(f.node.pending, c)
	if going {
		return f.disk.lost("write", f.path)
	}
	return nil
}

// apply changes content: of a write the sectors that keep says, nil: all.
func (c *change) apply(b []byte, keep func() bool) []byte {
	if c.fresh == nil {
		return resize(b, c.at)
	}
	for from := 0; from < len(c.fresh); {
		to := min(from+sector-int(c.at+int64(from))%sector, len(c.fresh))
		if keep == nil || keep() {
			b = resize(b, max(int64(len(b)), c.at+int64(to)))
			copy(b[c.at+int64(from):], c.fresh[from:to])
		}
		from = to
	}
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// Size implements [disk.File].
func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.node.content)), f.power("stat")
}

// Sync implements [disk.File].
func (f *file) Sync() error {
	if f.disk.OnSync != nil {
		f.disk.OnSync(f.path)
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.power("sync"); err != nil {
		return err
	}
	if going, err := f.disk.begin("sync", f.path); err != nil || going {
		return f.disk.lost("sync", f.path)
	}
	if err := f.disk.fault("sync", f.path); err != nil || f.disk.Lazy {
		return err
	}
	n := f.node
	for i := range n.pending {
		n.synced = n.pending[i].apply(n.synced, nil)
	}
	n.pending = nil
	f.disk.keep(func(m move) bool { return m.to == n })
	return nil
}

// InPlace implements [disk.File].
func (f *file) InPlace() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if n, _, _ := f.disk.find(f.path); n != f.node {
		return errors.New("somebody removed the file while it was open")
	}
	return f.power("stat")
}

// Close implements [disk.File].
func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.power("close")
}

// LosePower takes the power away during the change of that number from now on; 0: at once.
func (d *Simulated) LosePower(changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes = changes; changes == 0 {
		d.dead = true
	}
}

// Changes is how many changes there were: writes, syncs, and names that were given or taken.
func (d *Simulated) Changes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// Fail makes the next writes or syncs fail.
func (d *Simulated) Fail(times int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = times
}

// Fill makes the disk full, or empties it.
func (d *Simulated) Fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// Restore gives the power back. Of the changes that were not synced the disk has, in each file and folder, all, none,
// the first, some, or of writes some sectors; a file may have the size of a write and zeros in its place. What was open
// is dead.
func (d *Simulated) Restore(random *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	d.changes, d.dead, d.failing, d.full = 0, false, 0, false
	d.settle(random.IntN(len(d.moves) + 1))
	d.moves = nil
	if d.root != nil {
		d.root.restore(random)
	}
}

func (n *node) restore(random *rand.Rand) {
	n.locked, n.shared = 0, 0
	how, first := random.IntN(5), random.IntN(len(n.pending)+len(n.moves)+1)
	whole := func(i int) bool { return how == 1 || how == 2 && random.IntN(2) == 0 || how == 4 && i < first }
	if n.entries == nil {
		for i := range n.pending {
			c, all, zeros := &n.pending[i], whole(i), random.IntN(4) == 0
			if c.fresh == nil {
				if all || how == 3 && random.IntN(2) == 0 {
					n.synced = c.apply(n.synced, nil)
				}
				continue
			}
			n.synced = c.apply(n.synced, func() bool { return all || how == 3 && random.IntN(2) == 0 })
			if zeros {
				n.synced = resize(n.synced, max(int64(len(n.synced)), c.at+int64(len(c.fresh))))
			}
		}
		n.content, n.pending = slices.Clone(n.synced), nil
		return
	}
	for i := range n.moves {
		if whole(i) || how == 3 && random.IntN(2) == 0 {
			n.moves[i].apply((*node).safe)
		}
	}
	n.entries, n.moves = maps.Clone(n.syncedEntries), nil
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		n.entries[name].restore(random)
	}
}

// Clone returns a disk with the same files, as the process sees them: what kill -9 leaves. Nothing of it is open.
func (d *Simulated) Clone() *Simulated {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Simulated{}
	if d.root != nil {
		c.root = d.root.clone()
	}
	return c
}

func (n *node) clone() *node {
	if n.entries == nil {
		return &node{content: slices.Clone(n.content), synced: slices.Clone(n.content)}
	}
	c := newFolder()
	for name, e := range n.entries {
		c.entries[name] = e.clone()
	}
	c.syncedEntries = maps.Clone(c.entries)
	return c
}

// Content returns a file's content, for the test to change.
func (d *Simulated) Content(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _, _ := d.find(path)
	return n.content
}

// SetContent replaces a file, which is synced.
func (d *Simulated) SetContent(path string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, folder, name := d.find(path)
	if n == nil {
		n = &node{}
		folder.entries[name], folder.syncedEntries[name] = n, n
	}
	n.content, n.synced, n.pending = b, slices.Clone(b), nil
}

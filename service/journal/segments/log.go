// Package segments is a log of messages in files of this machine. It gives back what it was given, and knows what of it
// is on disk.
//
// A [Log] is a folder of segments. [Log.Append] writes at the end, [Log.Sync] brings everything to the disk, [Log.Trim]
// removes the front, [Log.Read] yields all messages. [Log.Walk] does so in spite of damage, which it names, and [Scrub]
// while the log is appended to. What the messages are is not known here. A segment that is removed becomes the file of
// a later one, which is written over it: that takes a disk about half the time of a file that grows.
//
// What is cut off the end of a log, at the end of a frame, looks like what was never written.
package segments

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Segments are files named by their number, the id of the log and an id of their own:
//
//	000001-3f9ac2d1e5b40718-92d5b0c46e1f7a83.seg
//
// A segment begins with segmentMagic and the id of the log, and goes on with frames:
//
//	0  length of the message, uint32
//	4  CRC-32C (Castagnoli) of the 4 bytes before and all after, uint32
//	8  id of the segment, uint64
//	16 position, uint64: the number of the frame in the log, from 1
//	24 synced, uint64: all frames up to this position were known to be on disk when this one was written
//	32 front, uint64: no frame before this position is needed
//	40 the message; none in a frame that is there for what it states
//
// Numbers are little-endian. The checksum is the only one: a message that can be read is the one that was appended.
//
// What a frame states of synced and front holds even if frames before it are lost: it was true before the frame was
// written. So the last frame tells damage from an interrupted write. A frame up to synced was on disk and has changed
// since; after synced, the log ends at the first frame that is missing. And segments before front may disappear in any
// order, as they do if the power is lost while they are removed.
//
// A segment that is not needed is renamed to spareName, and from there to the next segment that begins. So a segment
// may end with what its file had before, which has other ids: it is no damage unless messages are missing. If the power
// is lost before the new name is on disk, the old segment has frames of the new one, or parts: nothing of it is needed.
const (
	segmentMagic  = "reprise journal\x02" // the last byte is the format
	segmentHeader = len(segmentMagic) + 8
	// Suffix ends the names of segments.
	Suffix      = ".seg"
	spareName   = "spare"
	frameHeader = 40

	// MessageBytes is the size of the largest message.
	MessageBytes = 512 << 10
	// FullBytes is when a segment is full.
	FullBytes = 32 << 20
	// writeBytes is about what one write has at most.
	writeBytes = 1 << 20
)

// ErrDamaged is returned for a log whose content is not what was written.
var ErrDamaged = errors.New("journal is damaged")

// ErrNoSpace is returned by Append while the disk is full. The log is as it was.
var ErrNoSpace = errors.New("the disk is full")

// Unfinished ends the name of the folder of a log that is being made, or removed.
const Unfinished = ".new"

// Message is a message with its position.
type Message struct {
	Position uint64
	Data     []byte
}

// Options configure a log. All are needed.
type Options struct {
	Disk        disk.Files
	Logger      *slog.Logger
	LockTimeout time.Duration // to wait for another process to close the log
	FullBytes   int64         // of a segment
	PageBytes   int64         // of the machine's memory
}

// Log is a log. One goroutine appends and trims; Sync, Size and scrubs may go on beside it.
type Log struct {
	Options
	folder  string
	id      uint64
	lock    io.Closer
	foreign []string // names of segments of other logs
	end     ending   // where Read found the end
	buffer  []byte   // of write

	syncing sync.Mutex // held during a sync; locked before mu

	mu       sync.Mutex
	segments []segment // the oldest first
	file     disk.File // the last of them; nil: the next frame begins one
	room     int64     // bytes that the file had when it was opened to be written over
	frontier
	synced uint64 // position up to which all is known to be on disk
	named  uint64 // number of the last segment whose name is known to be on disk
	front  uint64 // no frame before it is needed
	kept   uint64 // the front that a frame on disk states
	trims  []trim // the oldest first
	failed error  // sticky
}

// segment is a file of the log.
type segment struct {
	number uint64
	id     uint64
	first  uint64 // position of its first frame
	bytes  int64
}

// frontier is where the log ends, in memory.
type frontier struct {
	last    uint64 // position of the last frame
	message uint64 // position of the last frame with a message
	stated  uint64 // what the last frame states of synced
	said    uint64 // and of front
}

// trim is a front that counts once all up to a position is synced: what is carried must be on disk before what it
// replaces goes.
type trim struct{ front, after uint64 }

// Create makes a log beside its place. Once it has what it should have [Log.MoveInPlace] moves it there.
func Create(path string, o Options) (*Log, error) {
	if _, err := o.Disk.List(path); err == nil || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: open it, or give another path", os.ErrExist)
	}
	folder := path + Unfinished
	if err := errors.Join(disk.RemoveAll(o.Disk, folder), o.Disk.MakeFolder(folder)); err != nil {
		return nil, err
	}
	l, err := lock(folder, o, false)
	if err != nil {
		return nil, err
	}
	l.id = newID()
	return l, nil
}

func newID() uint64 {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // it never fails
	return binary.LittleEndian.Uint64(id[:])
}

// MoveInPlace gives the log its path, if it was written without an error. After an error it is closed, and nothing is
// left of it.
func (l *Log) MoveInPlace(written error) error {
	path, err := strings.TrimSuffix(l.folder, Unfinished), written
	if err == nil {
		err = l.closeFile()
	}
	if err == nil {
		err = l.Disk.Rename(l.folder, path)
	}
	if err != nil {
		err = errors.Join(err, l.Close(), disk.RemoveAll(l.Disk, l.folder))
	} else {
		l.folder = path
		if err = l.Disk.SyncFolder(filepath.Dir(path)); err == nil {
			l.file, err = l.Disk.Open(l.path(l.segments[len(l.segments)-1]), os.O_RDWR)
		}
		if err != nil {
			err = errors.Join(err, l.Close(), Remove(path, l.Disk))
		}
	}
	if disk.IsFull(err) && !errors.Is(err, ErrNoSpace) {
		err = noSpace(path, err)
	}
	return err
}

// Open opens a log to read it. Several processes may share that. One that does not share may append once it has read
// the log and called [Log.Resume].
func Open(folder string, o Options, shared bool) (*Log, error) {
	l, err := lock(folder, o, shared)
	if err != nil {
		return nil, err
	}
	if err = l.list(); err == nil {
		err = l.look()
	}
	if err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

// Remove removes a log that no process has open. It disappears at once, so that nobody takes a part for the whole.
func Remove(folder string, files disk.Files) error {
	err := files.Rename(folder, folder+Unfinished)
	if err == nil {
		err = disk.RemoveAll(files, folder+Unfinished)
	}
	if err == nil {
		err = files.SyncFolder(filepath.Dir(folder))
	}
	return err
}

// remedy is what to do with a journal of an earlier build.
const remedy = "export its table with the build that wrote it, move it away, and import the table"

// lock waits for another process to close the log, unless it is only to be read.
func lock(folder string, o Options, shared bool) (*Log, error) {
	l := &Log{Options: o, folder: folder, front: 1}
	for deadline := time.Now().Add(o.LockTimeout); ; time.Sleep(min(o.LockTimeout/20, 50*time.Millisecond)) {
		_, err := o.Disk.List(folder)
		if err == nil {
			l.lock, err = o.Disk.LockFolder(folder, shared)
		}
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, syscall.ENOTDIR):
			return nil, errors.New("it is a file, and a journal is a folder. A journal of an earlier build is a file: " +
				remedy)
		case !errors.Is(err, disk.ErrLocked):
			return nil, err
		case shared:
			return nil, errors.New("another process has it open: stop that one first")
		case !time.Now().Before(deadline):
			return nil, fmt.Errorf("another process has had it open for the %v that this one waited: stop that one, or "+
				"give this one another folder", o.LockTimeout)
		}
	}
}

// list finds the segments. The log's id is the one that most names have.
func (l *Log) list() error {
	names, err := l.Disk.List(l.folder)
	if err != nil {
		return err
	}
	found, votes := make(map[string]segment), make(map[uint64]int)
	for _, name := range names {
		s, id, err := parseName(name)
		switch {
		case errors.Is(err, errEarlier):
			return fmt.Errorf("%s: %w", name, err)
		case err != nil:
			continue // it is no segment
		}
		found[name] = s
		if votes[id]++; votes[id] > votes[l.id] {
			l.id = id
		}
	}
	for name, s := range found {
		if name == l.name(s) {
			l.segments = append(l.segments, s)
		} else {
			l.foreign = append(l.foreign, name)
		}
	}
	slices.Sort(l.foreign)
	slices.SortFunc(l.segments, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.id, b.id))
	})
	return nil
}

func (l *Log) name(s segment) string {
	return fmt.Sprintf("%06d-%016x-%016x%s", s.number, l.id, s.id, Suffix)
}

// errEarlier is returned for a segment's name without an id of its own.
var errEarlier = errors.New("it is a segment of an earlier build, which this one does not read: " + remedy)

// parseName returns the segment that a file's name is of, and the id of its log.
func parseName(name string) (s segment, log uint64, err error) {
	base, found := strings.CutSuffix(name, Suffix)
	parts := strings.Split(base, "-")
	if !found || len(parts) < 2 || len(parts) > 3 {
		return s, 0, errors.New("it is no segment")
	}
	s.number, err = strconv.ParseUint(parts[0], 10, 64)
	if err == nil {
		log, err = strconv.ParseUint(parts[1], 16, 64)
	}
	if err == nil && len(parts) == 2 {
		return s, log, errEarlier
	}
	if err == nil {
		s.id, err = strconv.ParseUint(parts[2], 16, 64)
	}
	return s, log, err
}

func (l *Log) path(s segment) string { return filepath.Join(l.folder, l.name(s)) }

func (l *Log) sparePath() string { return filepath.Join(l.folder, spareName) }

// String names the log.
func (l *Log) String() string { return l.folder }

// Size returns the bytes of all segments.
func (l *Log) Size() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		n += s.bytes
	}
	return n
}

// Append appends messages and returns the position of the last. With sync they are on disk then. After an error that
// wraps [ErrNoSpace] the log is as it was; after any other nothing can be appended any more.
func (l *Log) Append(messages [][]byte, sync bool) (last uint64, err error) {
	if sync {
		l.syncing.Lock()
		defer l.syncing.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return 0, l.failed
	}
	defer func() {
		if found := recover(); found != nil { // nobody knows what of it was written
			l.failed = cmp.Or(l.failed, errPanicked)
			panic(found)
		}
	}()
	before, count, bytes := l.frontier, len(l.segments), int64(0)
	if count > 0 {
		bytes = l.segments[count-1].bytes
	}
	if err = l.write(messages); err == nil && sync {
		err = l.flush()
	}
	if err == nil {
		return l.last, nil
	}
	// After a sync that failed nobody knows what of the file is on disk but what an earlier sync has brought there.
	if disk.IsFull(err) && (l.synced >= before.message || !errors.Is(err, errSync)) {
		full := noSpace(l.folder, err)
		_ = l.Disk.Remove(l.sparePath()) // makes space, if there is one
		if err = l.cutOff(count, bytes); err == nil {
			l.frontier, l.synced = before, min(l.synced, before.last)
			return 0, full
		}
	}
	l.failed = err
	return 0, err
}

// write appends frames to the last segment, and begins another where it is full.
func (l *Log) write(messages [][]byte) error {
	if err := l.inPlace(); err != nil { // a write would extend a file that was cut short
		return err
	}
	b := l.buffer[:0]
	for _, m := range messages {
		if l.file == nil || l.segments[len(l.segments)-1].bytes+int64(len(b)) >= l.FullBytes {
			if err := l.put(b); err != nil {
				return err
			}
			if err := l.roll(); err != nil {
				return err
			}
			b = binary.LittleEndian.AppendUint64(append(b[:0], segmentMagic...), l.id)
		}
		b = l.appendFrame(b, m)
		if len(b) >= writeBytes {
			if err := l.put(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	l.buffer = b[:0]
	if err := l.put(b); err != nil {
		return err
	}
	return l.inPlace()
}

func (l *Log) appendFrame(b, message []byte) []byte {
	from := len(b)
	l.last, l.stated, l.said = l.last+1, l.synced, l.front
	if len(message) > 0 {
		l.message = l.last
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(message)))
	b = append(b, 0, 0, 0, 0)
	for _, n := range [...]uint64{l.segments[len(l.segments)-1].id, l.last, l.stated, l.said} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, message...)
	binary.LittleEndian.PutUint32(b[from+4:], frameSum(b[from:]))
	return b
}

func frameSum(frame []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once by the standard library
	return crc32.Update(crc32.Checksum(frame[:4], table), table, frame[8:])
}

// put writes at the end of the last segment. In a file that is written over it writes whole pages: the machine would
// read the rest of one that it does not have in memory.
func (l *Log) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s := &l.segments[len(l.segments)-1]
	end := s.bytes + int64(len(b))
	if rest := min(-end&(l.PageBytes-1), l.room-end); rest > 0 {
		b = append(b, make([]byte, rest)...)
	}
	if _, err := l.file.WriteAt(b, s.bytes); err != nil {
		return err
	}
	s.bytes = end
	return nil
}

// roll begins a segment, over the spare file if there is one. Its name is synced with its content.
func (l *Log) roll() error {
	next := segment{number: 1, id: newID(), first: l.last + 1}
	if n := len(l.segments); n > 0 {
		next.number = l.segments[n-1].number + 1
	}
	flags := os.O_RDWR
	if err := l.Disk.Rename(l.sparePath(), l.path(next)); errors.Is(err, os.ErrNotExist) {
		flags |= os.O_CREATE | os.O_EXCL
	} else if err != nil {
		return err
	}
	f, err := l.Disk.Open(l.path(next), flags)
	if err != nil {
		return err
	}
	room, err := f.Size()
	err = errors.Join(err, l.closeFile())
	l.file, l.room, l.segments = f, room, append(l.segments, next)
	return err
}

func (l *Log) closeFile() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// inPlace returns an error unless the last segment is where a restart looks for it, with what was written.
func (l *Log) inPlace() error {
	if l.file == nil {
		return nil
	}
	s := &l.segments[len(l.segments)-1]
	size, err := l.file.Size()
	if want := max(s.bytes, l.room); err == nil && size != want {
		err = fmt.Errorf("somebody changed its size from %d to %d while it was open", want, size)
	}
	if err == nil {
		err = l.file.InPlace()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: the content is in this process only: save the table (a checkpoint, an export), then "+
			"start anew and bring it back (restore, import)", l.name(*s), err)
	}
	return nil
}

// cutOff truncates the log to its first count segments, the last of them to size bytes, and syncs that: what is written
// next must not meet the rest after a loss of power.
func (l *Log) cutOff(count int, size int64) error {
	if err := l.closeFile(); err != nil {
		return err
	}
	for n := len(l.segments); n > count; n-- {
		if err := l.Disk.Remove(l.path(l.segments[n-1])); err != nil {
			return err
		}
		l.segments, l.named = l.segments[:n-1], min(l.named, l.segments[n-1].number-1) // its number is given again
	}
	if count > 0 {
		f, err := l.Disk.Open(l.path(l.segments[count-1]), os.O_RDWR)
		if err != nil {
			return err
		}
		l.file, l.room, l.segments[count-1].bytes = f, 0, size
		if err := errors.Join(f.Truncate(size), f.Sync()); err != nil {
			return err
		}
	}
	return l.Disk.SyncFolder(l.folder)
}

// errSync marks the error of a sync.
var errSync = errors.New("sync")

// errPanicked is why nothing is appended after a panic.
var errPanicked = errors.New("an earlier write to the log panicked")

// flush brings all frames to the disk. The caller holds mu, which flush releases while it syncs.
func (l *Log) flush() error {
	upTo, said := l.last, l.said
	if upTo == l.synced || len(l.segments) == 0 {
		return l.failed
	}
	var dirty []segment
	for i, s := range l.segments {
		if i+1 == len(l.segments) || l.segments[i+1].first > l.synced+1 {
			dirty = append(dirty, s)
		}
	}
	newest := dirty[len(dirty)-1].number
	named := l.named == newest
	l.mu.Unlock()
	err := func() error {
		defer l.mu.Lock() // also after a panic, for whoever holds it
		return l.syncFiles(dirty, named)
	}()
	if err != nil {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	l.synced, l.named, l.kept = upTo, newest, said
	return nil
}

// syncFiles syncs segments, and their names unless they are known. The files are opened anew, as the last one may be
// closed meanwhile.
func (l *Log) syncFiles(dirty []segment, named bool) error {
	for _, s := range dirty {
		f, err := l.Disk.Open(l.path(s), os.O_RDWR)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return err
		}
	}
	if named {
		return nil
	}
	return l.Disk.SyncFolder(l.folder)
}

// Sync brings everything to the disk, writes to the log that it is there, and removes segments that are not needed.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if l.message > l.synced {
		if err := l.flush(); err != nil {
			l.failed = err
			return err
		}
	}
	for len(l.trims) > 0 && l.trims[0].after <= l.synced {
		l.front, l.trims = max(l.front, l.trims[0].front), l.trims[1:]
	}
	// A segment may go once a frame on disk states that it is not needed: a reader that finds neither would call the gap
	// damage. So the front is stated, that is synced, and only then the segments before it are removed.
	surplus := len(l.segments) > 1 && l.segments[1].first <= l.front
	if l.stated < l.message && l.message <= l.synced || surplus && l.said < l.front {
		l.state()
	}
	if surplus && l.kept < l.front {
		if err := l.flush(); err != nil {
			l.failed = err
			return err
		}
	}
	for len(l.segments) > 1 && l.segments[1].first <= l.kept {
		if err := l.Disk.Rename(l.path(l.segments[0]), l.sparePath()); err != nil { // the spare before it is gone then
			l.Logger.Warn("a segment of the journal could not be removed yet", "error", err)
			break
		}
		l.segments = l.segments[1:]
	}
	return l.failed
}

// state writes a frame without a message. Best effort: if the write fails, the frame is dropped.
func (l *Log) state() {
	before, count, bytes := l.frontier, len(l.segments), l.segments[len(l.segments)-1].bytes
	if err := l.put(l.appendFrame(nil, nil)); err != nil {
		l.frontier = before
		l.failed = l.cutOff(count, bytes)
	}
}

// Trim has Sync remove the segments before a position, once what was appended so far is on disk.
func (l *Log) Trim(before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trims = append(l.trims, trim{before, l.message})
	return nil
}

// Close closes the log, which lets others open it.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.closeFile(), l.lock.Close())
}

// Resume makes the log end where Read found its end, brings it to the disk and opens it to append.
func (l *Log) Resume() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.end
	if err := l.cutOff(e.segments, e.offset); err != nil {
		return err
	}
	for i := range l.segments {
		l.segments[i].first = e.firsts[i]
	}
	l.frontier = frontier{last: e.next - 1, message: e.next - 1, said: e.front}
	l.kept = e.front
	if len(l.segments) == 0 {
		l.synced = l.last
		return nil
	}
	return l.flush()
}

// noSpace is the error of a full disk.
func noSpace(folder string, cause error) error {
	free := "it"
	if n := disk.Free(filepath.Dir(folder)); n >= 0 {
		free = fmt.Sprintf("it, which has %d bytes left", n)
	}
	return fmt.Errorf("%w: free space on %s: %w", ErrNoSpace, free, cause)
}

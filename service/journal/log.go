package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// With [Interval], cuts go into a log before callers are answered, and into the file once an interval. The log is
// never synced: it is there for the time between two transactions. It consists of segments beside the file,
// PATH.log-N, N being the number of the segment's first cut. A segment begins with logMagic and the file's log id, and
// goes on with frames:
//
//	0  length of the payload, uint32
//	4  CRC-32C (Castagnoli) of the log id, the length and the payload, uint32
//	8  payload: the cut's number, then its changes; see appendBatch
//
// Cuts are numbered from 1 without gaps. The file's state says up to which number it has them (position), so a segment
// may be read again, or come back after a loss of power that undid its removal.
const (
	logMagic    = "reprise log 1\n\x00\x00"
	logHeader   = len(logMagic) + 8
	frameHeader = 8
	logInfix    = ".log-"
)

// position is up to where a file has the cuts of its log.
type position struct {
	log    uint64 // id, so that another file's segments are never applied; 0: the file has had no log
	number uint64 // of the last cut in the file
}

func (p position) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, p.log), p.number)
}

func (p *position) decode(b []byte) error {
	if len(b) != 16 {
		return fmt.Errorf("its payload has %d bytes: want 16", len(b))
	}
	p.log, p.number = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return nil
}

// cutLog is the log of an open journal. One goroutine appends to it, another removes what has reached the file.
type cutLog struct {
	path string // of the journal

	mu       sync.Mutex
	file     position
	next     uint64   // number of the next cut
	unlogged uint64   // number of the latest cut that is in no segment; until the file has it, none is logged
	segment  *os.File // that is appended to; nil: the next cut begins one
	segments []segment
	buffer   []byte
}

type segment struct {
	path string
	last uint64 // number of its last cut
}

func newCutLog(path string, p position) *cutLog {
	return &cutLog{path: path, file: p, next: p.number + 1}
}

// add numbers a cut and appends it, unless it is empty. It reports whether the cut would survive the end of the
// process. After an error of the disk it would not, nor would those that follow, until a transaction has written them:
// callers wait for that.
func (l *cutLog) add(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !b.empty() {
		b.position = position{l.file.log, l.next}
		l.next++
		if b.rewrite || l.unlogged > l.file.number || l.append(b) != nil {
			l.unlogged = b.position.number
			l.endSegment()
		}
	}
	return l.unlogged <= l.file.number
}

func (l *cutLog) append(b *batch) error {
	l.buffer = l.buffer[:0]
	if l.segment == nil {
		path := l.path + logInfix + strconv.FormatUint(b.position.number, 10)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		l.segment, l.segments = f, append(l.segments, segment{path: path})
		l.buffer = binary.LittleEndian.AppendUint64(append(l.buffer, logMagic...), l.file.log)
	}
	buffer, err := appendFrame(l.buffer, b)
	if err != nil {
		return err
	}
	if cap(buffer) <= chunk {
		l.buffer = buffer
	}
	if _, err := l.segment.Write(buffer); err != nil {
		return err
	}
	l.segments[len(l.segments)-1].last = b.position.number
	return nil
}

// endSegment closes the segment; the next cut begins one.
func (l *cutLog) endSegment() {
	if l.segment != nil {
		l.segment.Close() //nolint:errcheck // nothing was promised that a close could break
		l.segment = nil
	}
}

// rotate is endSegment for the goroutine that writes the file, so that the segment can be removed after a transaction.
func (l *cutLog) rotate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endSegment()
}

// discard removes the segments that a transaction has made superfluous.
func (l *cutLog) discard(p position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = p
	for len(l.segments) > 0 && l.segments[0].last <= p.number && !(len(l.segments) == 1 && l.segment != nil) {
		if err := os.Remove(l.segments[0].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		l.segments = l.segments[1:]
	}
	return nil
}

// appendFrame appends a cut as a frame.
func appendFrame(b []byte, cut *batch) ([]byte, error) {
	from := len(b)
	b = append(b, make([]byte, frameHeader)...)
	b = appendBatch(b, cut)
	n := len(b) - from - frameHeader
	if n > math.MaxInt32 {
		return nil, fmt.Errorf("a cut of %d bytes: want at most %d", n, math.MaxInt32)
	}
	binary.LittleEndian.PutUint32(b[from:], uint32(n))
	binary.LittleEndian.PutUint32(b[from+4:], frameChecksum(cut.position.log, b[from:]))
	return b, nil
}

func frameChecksum(log uint64, frame []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, binary.LittleEndian.AppendUint64(nil, log))
	sum = crc32.Update(sum, table, frame[:4])
	return crc32.Update(sum, table, frame[frameHeader:])
}

// appendBatch appends a cut's number, how many insertions are remembered, and its lists, each after its length.
func appendBatch(b []byte, cut *batch) []byte {
	b = binary.LittleEndian.AppendUint64(b, cut.position.number)
	b = binary.AppendUvarint(b, uint64(cut.keep))
	b = binary.AppendUvarint(b, uint64(len(cut.removed)))
	for _, id := range cut.removed {
		b = binary.AppendUvarint(b, uint64(id))
	}
	b = binary.AppendUvarint(b, uint64(len(cut.requests)))
	for i := range cut.requests {
		b = appendBytes(b, appendRequest(nil, &cut.requests[i]))
	}
	for _, list := range [][]entry{cut.rollouts, cut.uses, cut.state} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, en := range list {
			b = appendBytes(appendBytes(b, en.key), en.record)
		}
	}
	return b
}

func appendBytes(b, of []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(of))), of...) }

// frames decodes the frames of a segment that have the right log id and checksum, up to the first that has not: the end
// of what reached the disk. Their records point into the segment. torn is how many bytes follow.
func frames(b []byte, log uint64) (cuts []*batch, torn int) {
	if len(b) < logHeader || string(b[:len(logMagic)]) != logMagic {
		return nil, len(b)
	}
	b = b[logHeader:]
	for len(b) >= frameHeader {
		n := uint64(binary.LittleEndian.Uint32(b))
		if n > uint64(len(b)-frameHeader) {
			break
		}
		frame := b[:frameHeader+n]
		cut := &batch{position: position{log: log}}
		if binary.LittleEndian.Uint32(frame[4:]) != frameChecksum(log, frame) || !cut.decode(frame[frameHeader:]) {
			break
		}
		cuts = append(cuts, cut)
		b = b[len(frame):]
	}
	return cuts, len(b)
}

// decode is the inverse of appendBatch. It reports whether the payload is a cut.
func (b *batch) decode(payload []byte) bool {
	d := decoder{rest: payload}
	if len(payload) < 8 {
		return false
	}
	b.position.number, d.rest = binary.LittleEndian.Uint64(payload), payload[8:]
	b.keep = int(d.number(1<<31 - 1))
	b.removed = make([]rollout.ID, d.length())
	for i := range b.removed {
		b.removed[i] = rollout.ID(d.number(1<<64 - 1))
	}
	b.requests = make([]replay.Insertion, d.length())
	for i := range b.requests {
		if decodeRequest(d.bytes(), &b.requests[i]) != nil {
			return false
		}
	}
	for _, list := range []*[]entry{&b.rollouts, &b.uses, &b.state} {
		*list = make([]entry, d.length())
		for i := range *list {
			(*list)[i] = entry{d.bytes(), d.bytes()}
		}
	}
	return !d.failed && len(d.rest) == 0
}

// decoder reads numbers and byte strings. Once one is missing, the rest are empty.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) number(most uint64) uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 || x > most {
		d.rest, d.failed = nil, true
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

// length reads the length of a list or string, of which each element takes a byte at least.
func (d *decoder) length() int { return int(d.number(uint64(len(d.rest)))) }

func (d *decoder) bytes() []byte {
	n := d.length()
	if n > len(d.rest) {
		n, d.failed = 0, true
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// newLogID returns the id of a new log.
func newLogID() uint64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return max(binary.LittleEndian.Uint64(b[:]), 1)
}

// segmentsOf returns the segments beside a journal, the oldest first.
func segmentsOf(path string) ([]segment, error) {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("looking for the log of the journal %s: %w", path, err)
	}
	var found []segment
	for _, f := range files {
		number, ok := strings.CutPrefix(f.Name(), filepath.Base(path)+logInfix)
		if !ok {
			continue
		}
		if first, err := strconv.ParseUint(number, 10, 64); err == nil {
			found = append(found, segment{path + logInfix + number, first})
		}
	}
	slices.SortFunc(found, func(a, b segment) int { return cmp.Compare(a.last, b.last) })
	return found, nil
}

// pending reads the cuts that the file at a position does not have yet, in order, up to the first gap, and counts those
// behind it. torn is how many bytes of the log cannot be read: written, but not synced, before a loss of power, or not
// to their end.
func pending(path string, at position) (cuts []*batch, skipped, torn int, err error) {
	segments, err := segmentsOf(path)
	if err != nil {
		return nil, 0, 0, err
	}
	next := at.number + 1
	for _, s := range segments {
		b, err := os.ReadFile(s.path)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("reading the log of the journal %s: %w", path, err)
		}
		if len(b) >= logHeader && string(b[:len(logMagic)]) == logMagic {
			if id := binary.LittleEndian.Uint64(b[len(logMagic):]); id != at.log {
				return nil, 0, 0, fmt.Errorf("reading %s: it is the log of another journal than %s: put that journal "+
					"back in its place, or move the log away: what it holds is not in this journal", s.path, path)
			}
		}
		found, rest := frames(b, at.log)
		torn += rest
		for _, cut := range found {
			switch {
			case cut.position.number == next:
				cuts = append(cuts, cut)
				next++
			case cut.position.number > next:
				skipped++
			}
		}
	}
	return cuts, skipped, torn, nil
}

// removeLog removes the segments beside a journal, for good.
func removeLog(path string) error {
	segments, err := segmentsOf(path)
	if err != nil || len(segments) == 0 {
		return err
	}
	for _, s := range segments {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the log of the journal %s: %w", path, err)
		}
	}
	return disk.SyncFolder(filepath.Dir(path))
}

// Remove removes a journal that no process has open.
func Remove(path string) error {
	if err := removeLog(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the journal: %w", err)
	}
	return disk.SyncFolder(filepath.Dir(path))
}

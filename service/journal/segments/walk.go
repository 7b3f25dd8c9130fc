package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/faults"
)

// frame is a frame of a segment that was read.
type frame struct {
	offset                  int64 // in the segment
	position, synced, front uint64
	message                 []byte // valid until the next block is read
	length                  int    // of the message
}

func (f *frame) end() int64 { return f.offset + frameHeader + int64(f.length) }

// parseFrame reads the frame that bytes begin with. It reports whether there is one.
func parseFrame(b []byte, id uint64) (f frame, ok bool) {
	if len(b) < frameHeader || binary.LittleEndian.Uint64(b[8:]) != id {
		return f, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n > MessageBytes || n > uint64(len(b)-frameHeader) {
		return f, false
	}
	b = b[: frameHeader+n : frameHeader+n]
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	f = frame{position: u64(16), synced: u64(24), front: u64(32), message: b[frameHeader:], length: int(n)}
	return f, f.position > 0 && binary.LittleEndian.Uint32(b[4:]) == frameSum(b)
}

// parseFrames returns the frames in bytes that are at an offset of a segment, and where the last of them ends, or of
// what was to become one. What cannot be read is left out: the next frame is looked for by the id.
func parseFrames(b []byte, offset int64, id uint64) (frames []frame, end int64) {
	mark := binary.LittleEndian.AppendUint64(nil, id)
	for at := 0; at < len(b); {
		f, ok := parseFrame(b[at:], id)
		if ok {
			f.offset = offset + int64(at)
			frames, end = append(frames, f), max(end, f.end())
			at += frameHeader + f.length
			continue
		}
		if len(b)-at >= 16 && bytes.Equal(b[at+8:at+16], mark) { // it was to become one
			said := int(min(binary.LittleEndian.Uint32(b[at:]), MessageBytes))
			end = max(end, offset+int64(min(at+frameHeader+said, len(b))))
		}
		next := bytes.Index(b[min(at+9, len(b)):], mark) // of a frame from at+1 on
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return frames, end
}

// blockBytes is how much of a segment is read at a time: few enough to stay in a processor's caches until it is
// decoded.
const blockBytes = 2 << 20

// block is some frames of a segment.
type block struct {
	segment int // index
	name    string
	first   bool  // it begins the segment
	last    bool  // it ends the segment
	size    int64 // of the segment
	frames  []frame
	end     int64  // in the segment, of the last that is a frame or bears the id of one; 0: there is none
	header  string // what is wrong with the segment's; "": nothing
	foreign bool   // it is a segment of another log
	memory  []byte
	err     error
}

// reader reads a segment block by block.
type reader struct {
	file   disk.File
	name   string
	log    uint64 // its id
	id     uint64 // the segment's
	size   int64
	offset int64  // of what is read next
	tail   []byte // before that: of a frame that may go on
}

// begin opens a segment to read it up to a size; below 0: all of it.
func (l *Log) begin(s segment, size int64) (*reader, error) {
	f, err := l.Disk.Open(l.path(s), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		size = math.MaxInt64
	}
	r := &reader{file: f, name: l.name(s), log: l.id, id: s.id}
	return r, r.resize(size)
}

// resize sets how much of the segment is read: what it has up to a size. After an error the file is closed.
func (r *reader) resize(size int64) error {
	length, err := r.file.Size()
	if err != nil {
		return errors.Join(fmt.Errorf("reading %s: %w", r.name, err), r.file.Close())
	}
	r.size = max(r.offset, min(size, length))
	return nil
}

// next reads the next block into memory that is used again. After the last it closes the file.
func (r *reader) next(memory []byte) *block {
	b := &block{name: r.name, first: r.offset == 0, memory: append(memory[:0], r.tail...)}
	at := r.offset - int64(len(r.tail))
	want := int(min(blockBytes, r.size-r.offset))
	b.memory = slices.Grow(b.memory, want)[:len(r.tail)+want]
	n, err := r.file.ReadAt(b.memory[len(r.tail):], r.offset)
	if err != nil && err != io.EOF {
		b.err = fmt.Errorf("reading %s: %w", r.name, err)
	}
	b.memory = b.memory[:len(r.tail)+n]
	r.offset += int64(n)
	if n < want { // it was cut short meanwhile
		r.size = r.offset
	}
	b.size = r.size
	content := b.memory
	if b.first {
		b.checkHeader(r.log)
		content = content[min(segmentHeader, len(content)):]
		at = int64(segmentHeader)
	}
	b.frames, b.end = parseFrames(content, at, r.id)
	b.foreign = b.foreign && len(b.frames) == 0
	if n := len(b.frames); n > 0 {
		content = content[b.frames[n-1].end()-at:]
	}
	r.tail = bytes.Clone(content[max(0, len(content)-frameHeader-MessageBytes):])
	if b.last = r.offset == r.size; b.last || b.err != nil {
		b.err = errors.Join(b.err, r.file.Close())
	}
	return b
}

func (b *block) checkHeader(id uint64) {
	if len(b.memory) < segmentHeader {
		b.header = fmt.Sprintf("it has %d bytes, and its header %d", len(b.memory), segmentHeader)
		return
	}
	magic, said := string(b.memory[:len(segmentMagic)]), binary.LittleEndian.Uint64(b.memory[len(segmentMagic):])
	if magic != segmentMagic {
		b.header = fmt.Sprintf("it begins with %q: want %q", magic, segmentMagic)
	} else if said != id {
		b.header = fmt.Sprintf("it belongs to the journal with id %016x, not to this one", said)
		b.foreign = true
	}
}

// eachBlock reads all segments in order, ahead of visit.
func (l *Log) eachBlock(visit func(*block) error) (err error) {
	blocks, free, stop := make(chan *block), make(chan []byte, 3), make(chan struct{})
	for range cap(free) {
		free <- nil
	}
	send := func(b *block) bool {
		select {
		case blocks <- b:
			return b.err == nil
		case <-stop:
			return false
		}
	}
	read := func() error {
		for i := range l.segments {
			r, err := l.begin(l.segments[i], -1)
			if err != nil {
				return err
			}
			for more := true; more; {
				b := r.next(<-free)
				b.segment, more = i, !b.last
				if !send(b) {
					r.file.Close() //nolint:errcheck // it was only read, and may be closed already
					return nil
				}
			}
		}
		return nil
	}
	go func() {
		defer close(blocks)
		if err := faults.Recovered("reading a journal", read); err != nil {
			send(&block{err: err})
		}
	}()
	for b := range blocks {
		if err == nil {
			if err = b.err; err == nil {
				err = visit(b)
			}
			if err != nil {
				close(stop)
			}
		}
		select {
		case free <- b.memory:
		default: // it was none of them
		}
	}
	return err
}

// frames returns all frames of a segment, without their messages.
func (l *Log) frames(s segment, size int64) (all []frame, err error) {
	r, err := l.begin(s, size)
	if err != nil {
		return nil, err
	}
	var memory []byte
	for {
		b := r.next(memory)
		if b.err != nil {
			return nil, b.err
		}
		for _, f := range b.frames {
			f.message = nil
			all = append(all, f)
		}
		if memory = b.memory; b.last {
			return all, nil
		}
	}
}

// look reads what the last frame states.
func (l *Log) look() error {
	for _, s := range slices.Backward(l.segments) {
		frames, err := l.frames(s, -1)
		if err != nil {
			return err
		}
		if n := len(frames); n > 0 {
			l.synced, l.front = frames[n-1].synced, max(frames[n-1].front, 1)
			return nil
		}
	}
	return nil
}

// Read yields every message in order, some at a time; they are valid until yield returns. A damaged log is an error
// that wraps [ErrDamaged].
func (l *Log) Read(yield func([]Message) error) (err error) {
	return l.Walk(yield, func(d Damage) error { return fmt.Errorf("%w: %s", ErrDamaged, d) })
}

// Torn returns how many bytes [Log.Read] left out at the end because they were not known to be on disk, and how many
// messages among them could be read.
func (l *Log) Torn() (bytes int64, messages int) { return l.end.torn, l.end.left }

// Segments returns how many segments there are.
func (l *Log) Segments() int { return len(l.segments) }

// Damage is a place where a log is not what was written.
type Damage struct {
	Segment  string // file; "": of the log as a whole
	Offset   int64  // in the segment
	Position uint64 // of the first message concerned; 0: of none
	What     string
}

// String reads: segment 000001-…-….seg, offset 4711, message 12: 320 bytes are no message, and …
func (d Damage) String() string {
	at := d.What
	if d.Position != 0 {
		at = fmt.Sprintf("message %d: %s", d.Position, at)
	}
	if d.Segment != "" {
		at = fmt.Sprintf("segment %s, offset %d, %s", d.Segment, d.Offset, at)
	}
	return at
}

// ending is where a log ends.
type ending struct {
	segments int      // it has that many
	offset   int64    // in the last of them
	next     uint64   // position after its last frame
	front    uint64   // what that states
	firsts   []uint64 // positions of the first frames of the segments
	torn     int64    // bytes of the log after the end
	left     int      // messages among them that could be read
}

// hole is bytes that could not be read.
type hole struct {
	Damage
	tail bool // the segment ends with them: they may be what its file had before
}

// walk is one pass over a log, from its front to its end.
type walk struct {
	front   uint64
	yield   func([]Message) error
	damaged func(Damage) error // for what is missing; after an error the walk ends
	batch   []Message          // not yielded yet
	synced  uint64             // the greatest that a frame states
	at      int64              // where the next frame should be in its segment
	rest    int64              // where the log has ended in the segment, so far
	written int64              // where the last ends in the segment that is a frame, or was to become one
	hole    *hole              // bytes before the next frame that could not be read
	end     ending
	ended   *Damage // what is after the end; nil: it is not reached
}

func newWalk(front, synced uint64, yield func([]Message) error, damaged func(Damage) error) *walk {
	return &walk{front: front, yield: yield, damaged: damaged, synced: synced, end: ending{next: front}}
}

// Walk yields the messages of a log, and calls damaged for what is missing among them.
func (l *Log) Walk(yield func([]Message) error, damaged func(Damage) error) error {
	w := newWalk(l.front, l.synced, yield, damaged)
	for _, name := range l.foreign {
		if err := damaged(Damage{Segment: name, What: "it belongs to another journal: move it there"}); err != nil {
			return err
		}
	}
	err := l.eachBlock(func(b *block) error {
		l.segments[b.segment].bytes = b.size
		return w.block(b)
	})
	if err == nil && len(l.segments) == 0 {
		err = damaged(Damage{What: "there are no segments"})
	}
	if err == nil && w.ended == nil && w.hole != nil {
		err = w.gap(nil)
	}
	if err == nil && w.ended != nil && w.end.next <= w.synced { // the last segment does not belong there
		err = damaged(*w.ended)
	}
	l.end = w.end
	return err
}

// block goes on with the frames of a block.
func (w *walk) block(b *block) error {
	if b.first {
		w.at, w.rest, w.written = int64(segmentHeader), int64(segmentHeader), 0
		w.end.firsts = append(w.end.firsts, w.end.next)
		if b.foreign {
			if err := w.report(Damage{Segment: b.name, Position: w.end.next, What: b.header}); err != nil {
				return err
			}
			w.at = b.size
		} else if b.header != "" {
			w.unread(b, 0, false, b.header)
		}
		if len(b.frames) > 0 {
			w.end.firsts[b.segment] = b.frames[0].position
		}
	}
	for i := range b.frames {
		f := &b.frames[i]
		if f.offset > w.at {
			w.unread(b, w.at, false, fmt.Sprintf("%d bytes are no message", f.offset-w.at))
		}
		w.at = f.end()
		inLog, err := w.frame(b, f)
		if err != nil {
			return err
		}
		if inLog {
			w.rest = w.at
			w.end.segments, w.end.offset, w.end.front, w.end.torn = b.segment+1, w.at, f.front, 0
		}
	}
	w.written = max(w.written, b.end)
	if b.last {
		if b.size > w.at {
			w.unread(b, w.at, true, fmt.Sprintf("the last %d bytes are no message", b.size-w.at))
		}
		w.end.torn += max(w.written-w.rest, 0)
	}
	return w.flush()
}

// unread notes bytes that cannot be read: of one stretch the first, but for the tail of a segment.
func (w *walk) unread(b *block, offset int64, tail bool, what string) {
	if w.hole == nil || w.hole.tail {
		w.hole = &hole{Damage{Segment: b.name, Offset: offset, What: what}, tail}
	}
}

// frame goes on with one frame, and reports whether it is of the log.
func (w *walk) frame(b *block, f *frame) (inLog bool, err error) {
	w.synced = max(w.synced, f.synced)
	switch {
	case w.ended != nil:
	case f.position < w.front: // whatever is missing before it
		w.hole = nil
		return true, nil
	case f.position < w.end.next:
		return true, w.report(Damage{Segment: b.name, Offset: f.offset, Position: f.position,
			What: "it has a message that was there before"})
	case f.position == w.end.next && (w.hole == nil || w.hole.tail):
		w.hole = nil
	default:
		if w.hole == nil {
			w.unread(b, f.offset, false, "")
		}
		err = w.gap(f)
	}
	if w.ended != nil || err != nil {
		if f.length > 0 {
			w.end.left++
		}
		return false, err
	}
	w.end.next = f.position + 1
	if f.length > 0 {
		w.batch = append(w.batch, Message{f.position, f.message})
	}
	return true, nil
}

// gap tells damage from the end of the log. f is the frame after it, if there is one.
func (w *walk) gap(f *frame) error {
	d := w.hole.Damage
	d.Position, w.hole = w.end.next, nil
	if f != nil && f.position > d.Position {
		if d.What != "" {
			d.What += ", and "
		}
		if f.position == d.Position+1 {
			d.What += fmt.Sprintf("message %d is missing", d.Position)
		} else {
			d.What += fmt.Sprintf("messages %d to %d are missing", d.Position, f.position-1)
		}
	}
	if d.Position > w.synced {
		w.ended = &d
		return nil
	}
	return w.report(d)
}

// report yields what comes before a damage, and then reports it.
func (w *walk) report(d Damage) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.damaged(d)
}

func (w *walk) flush() error {
	b := w.batch
	w.batch = w.batch[:0]
	if len(b) == 0 {
		return nil
	}
	return w.yield(b)
}

// CutAfter moves the end to before the first message after a position. What is read then is not what was read before.
func (l *Log) CutAfter(position uint64) error {
	for size := l.end.offset; l.end.segments > 0; size = -1 {
		frames, err := l.frames(l.segments[l.end.segments-1], size)
		if err != nil {
			return err
		}
		end := int64(segmentHeader)
		if n := len(frames); n > 0 {
			end = frames[n-1].end()
		}
		var last *frame // what it states may be why segments are gone
		for i := len(frames) - 1; i >= 0; i-- {
			f := &frames[i]
			if f.position > position && f.length > 0 {
				last, l.end.left = nil, l.end.left+1
			} else if last == nil {
				last = f
			}
			if f.position <= position {
				l.end.torn += end - last.end()
				l.end.offset, l.end.next, l.end.front = last.end(), last.position+1, last.front
				return nil
			}
		}
		l.end.torn += end - int64(segmentHeader)
		l.end.segments--
	}
	return nil
}

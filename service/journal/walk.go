package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// frame is a frame of a segment that was read.
type frame struct {
	offset                  int64 // in the segment
	position, synced, front uint64
	message                 []byte
}

func (f *frame) end() int64 { return f.offset + frameHeader + int64(len(f.message)) }

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
	f = frame{position: u64(16), synced: u64(24), front: u64(32), message: b[frameHeader:]}
	return f, f.position > 0 && binary.LittleEndian.Uint32(b[4:]) == frameSum(b)
}

// parseFrames returns all frames after the header of a segment. What cannot be read is left out: the next frame is
// looked for by the id.
func parseFrames(b []byte, id uint64) (frames []frame) {
	mark := binary.LittleEndian.AppendUint64(nil, id)
	for at := segmentHeader; at < len(b); {
		f, ok := parseFrame(b[at:], id)
		if ok {
			f.offset = int64(at)
			frames = append(frames, f)
			at = int(f.end())
			continue
		}
		next := bytes.Index(b[min(at+9, len(b)):], mark) // of a frame from at+1 on
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return frames
}

// segmentRead is the content of a segment.
type segmentRead struct {
	name    string
	content []byte
	frames  []frame
	header  string // what is wrong with it; "": nothing
	foreign bool   // it is a segment of another log
}

// read reads a segment up to a size, below 0 all of it, into memory that is used again.
func (l *segmentLog) read(number uint64, size int64, memory []byte) (s *segmentRead, err error) {
	s = &segmentRead{name: l.name(number), content: memory[:0]}
	f, err := l.files.Open(l.path(number), os.O_RDONLY)
	if err != nil {
		return s, err
	}
	defer f.Close() // it is only read
	if size < 0 {
		if size, err = f.Size(); err != nil {
			return s, err
		}
	}
	s.content = slices.Grow(s.content, int(size))[:size]
	n, err := f.ReadAt(s.content, 0)
	s.content = s.content[:n]
	if err != nil && err != io.EOF {
		return s, fmt.Errorf("reading %s: %w", l.path(number), err)
	}
	s.frames = parseFrames(s.content, l.id)
	s.checkHeader(l.id)
	return s, nil
}

func (s *segmentRead) checkHeader(id uint64) {
	if len(s.content) < segmentHeader {
		s.header = fmt.Sprintf("it has %d bytes, and its header %d", len(s.content), segmentHeader)
		return
	}
	magic, said := string(s.content[:len(segmentMagic)]), binary.LittleEndian.Uint64(s.content[len(segmentMagic):])
	if magic != segmentMagic {
		s.header = fmt.Sprintf("it begins with %q: want %q", magic, segmentMagic)
	} else if said != id {
		s.header = fmt.Sprintf("it belongs to the journal with id %016x, not to this one", said)
		s.foreign = len(s.frames) == 0
	}
}

// eachSegment reads all segments in order, one while the one before is visited.
func (l *segmentLog) eachSegment(visit func(i int, s *segmentRead) error) error {
	type result struct {
		*segmentRead
		err error
	}
	var memory [2][]byte
	ahead := make(chan result, 1)
	begin := func(i int) {
		number, b := l.segments[i].number, memory[i%2]
		go func() {
			s, err := l.read(number, -1, b)
			ahead <- result{s, err}
		}()
	}
	for i := range l.segments {
		if i == 0 {
			begin(0)
		}
		s := <-ahead
		memory[i%2] = s.content
		l.segments[i].bytes = int64(len(s.content))
		if s.err != nil {
			return s.err
		}
		if i+1 < len(l.segments) {
			begin(i + 1)
		}
		if err := visit(i, s.segmentRead); err != nil {
			if i+1 < len(l.segments) {
				<-ahead
			}
			return err
		}
	}
	return nil
}

// look reads what the last frame states.
func (l *segmentLog) look() error {
	for i := len(l.segments) - 1; i >= 0; i-- {
		s, err := l.read(l.segments[i].number, -1, nil)
		if err != nil {
			return err
		}
		if n := len(s.frames); n > 0 {
			l.synced, l.front = s.frames[n-1].synced, max(s.frames[n-1].front, 1)
			return nil
		}
	}
	return nil
}

// Read implements [Log]. A damaged log is an error that wraps [ErrDamaged].
func (l *segmentLog) Read(yield func([]Message) error) (err error) {
	l.end, err = l.walk(yield, func(d Damage) error { return fmt.Errorf("%w: %s", ErrDamaged, d) })
	return err
}

// ending is where a log ends.
type ending struct {
	segments int      // it has that many
	offset   int64    // in the last of them
	next     uint64   // position after its last frame
	front    uint64   // what that states
	firsts   []uint64 // positions of the first frames of the segments
	torn     int64    // bytes after the end
	left     int      // messages among them that could be read
}

// walk is a way through a log from its front to its end.
type walk struct {
	front   uint64
	yield   func([]Message) error
	damaged func(Damage) error // for what is missing; after an error the walk ends
	batch   []Message          // not yielded yet
	synced  uint64             // the greatest that a frame states
	hole    *Damage            // bytes before the next frame that could not be read
	end     ending
	ended   *Damage // what is after the end; nil: it is not reached
}

func newWalk(front, synced uint64, yield func([]Message) error, damaged func(Damage) error) *walk {
	return &walk{front: front, yield: yield, damaged: damaged, synced: synced, end: ending{next: front}}
}

func (l *segmentLog) walk(yield func([]Message) error, damaged func(Damage) error) (ending, error) {
	w := newWalk(l.front, l.synced, yield, damaged)
	for _, name := range l.strangers {
		if err := damaged(Damage{Segment: name, What: "it belongs to another journal: move it there"}); err != nil {
			return w.end, err
		}
	}
	err := l.eachSegment(w.segment)
	if err == nil && len(l.segments) == 0 {
		err = damaged(Damage{What: "there are no segments"})
	}
	if err == nil && w.ended == nil && w.hole != nil {
		err = w.gap(nil)
	}
	if err == nil && w.ended != nil && w.end.next <= w.synced { // the last segment does not belong there
		err = damaged(*w.ended)
	}
	return w.end, err
}

// segment goes on with the frames of a segment.
func (w *walk) segment(i int, s *segmentRead) error {
	size, at := int64(len(s.content)), int64(segmentHeader)
	rest := max(size-at, 0) // bytes after the last frame of the log
	if s.foreign {
		if err := w.damaged(Damage{Segment: s.name, Position: w.end.next, What: s.header}); err != nil {
			return err
		}
	} else if s.header != "" {
		w.unread(s, 0, s.header)
	}
	first := w.end.next
	if len(s.frames) > 0 {
		first = s.frames[0].position
	}
	w.end.firsts = append(w.end.firsts, first)
	for k := range s.frames {
		f := &s.frames[k]
		if f.offset > at {
			w.unread(s, at, fmt.Sprintf("%d bytes are no message", f.offset-at))
		}
		at = f.end()
		inLog, err := w.frame(s, f)
		if err != nil {
			return err
		}
		if inLog {
			w.end.segments, w.end.offset, w.end.front, w.end.torn, rest = i+1, at, f.front, 0, size-at
		}
	}
	if size > at && !s.foreign {
		w.unread(s, at, fmt.Sprintf("the last %d bytes are no message", size-at))
	}
	w.end.torn += rest
	return w.flush()
}

// unread notes bytes that cannot be read: of one stretch the first.
func (w *walk) unread(s *segmentRead, offset int64, what string) {
	if w.hole == nil {
		w.hole = &Damage{Segment: s.name, Offset: offset, What: what}
	}
}

// frame goes on with one frame, and reports whether it is of the log.
func (w *walk) frame(s *segmentRead, f *frame) (inLog bool, err error) {
	w.synced = max(w.synced, f.synced)
	switch {
	case w.ended != nil:
	case f.position < w.front: // whatever is missing before it
		w.hole = nil
		return true, nil
	case f.position < w.end.next:
		return true, w.report(Damage{Segment: s.name, Offset: f.offset, Position: f.position,
			What: "it has a message that was there before"})
	case f.position > w.end.next || w.hole != nil:
		w.unread(s, f.offset, "")
		err = w.gap(f)
	}
	if w.ended != nil || err != nil {
		if len(f.message) > 0 {
			w.end.left++
		}
		return false, err
	}
	w.end.next = f.position + 1
	if len(f.message) > 0 {
		w.batch = append(w.batch, Message{f.position, f.message})
	}
	return true, nil
}

// gap tells damage from the end of the log. f is the frame after it, if there is one.
func (w *walk) gap(f *frame) error {
	d := *w.hole
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

// cutAfter moves the end to before the first message after a position: it is of a cut that is not whole.
func (l *segmentLog) cutAfter(position uint64) error {
	for size := l.end.offset; l.end.segments > 0; size = -1 {
		s, err := l.read(l.segments[l.end.segments-1].number, size, nil)
		if err != nil {
			return err
		}
		var last *frame // what it states may be why segments are gone
		for i := len(s.frames) - 1; i >= 0; i-- {
			f := &s.frames[i]
			if f.position > position && len(f.message) > 0 {
				last, l.end.left = nil, l.end.left+1
			} else if last == nil {
				last = f
			}
			if f.position <= position {
				l.end.torn += int64(len(s.content)) - last.end()
				l.end.offset, l.end.next, l.end.front = last.end(), last.position+1, last.front
				return nil
			}
		}
		l.end.torn += int64(len(s.content)) - int64(segmentHeader)
		l.end.segments--
	}
	return nil
}

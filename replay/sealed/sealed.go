// Package sealed is the envelope of what tables and buffers of prompts are saved as. What is damaged, cut off, foreign
// or of another format is refused before it is decoded, and no more is read than the snapshot.
//
// Every snapshot begins with 7 bytes of magic and one of the format's version. What follows is one of two, all numbers
// little-endian:
//
//   - a value, for [Format.Write] and [Format.Open]: the length and the CRC-32C of what follows, and a gob stream of the value;
//   - a stream of any length, for [Format.NewWriter] and [Format.NewReader]: chunks of up to 64 KiB, each behind its length and the CRC-32C of all
//     that came before and of itself, the last one empty. Both ends need memory for one chunk, and a chunk that is missing, doubled or out of
//     its place is damage as any other.
//
// Whether a value that decodes also makes sense is for its reader to say.
package sealed

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/reprise-rl/reprise/rollout"
)

// Format is a kind of snapshot.
type Format struct {
	Magic   string // 7 bytes
	Version byte
}

const (
	magicLength  = 7
	headerLength = magicLength + 1 + 8 + 4
)

// Seal returns a value as a snapshot.
func (f Format) Seal(value any) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, headerLength))
	if err := gob.NewEncoder(&b).Encode(value); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	head, body := b.Bytes()[:headerLength], b.Bytes()[headerLength:]
	copy(head, f.Magic)
	head[magicLength] = f.Version
	binary.LittleEndian.PutUint64(head[magicLength+1:], uint64(len(body)))
	binary.LittleEndian.PutUint32(head[magicLength+9:], further(0, body))
	return b.Bytes(), nil
}

// Write writes a value as a snapshot, in one Write.
func (f Format) Write(w io.Writer, value any) error {
	b, err := f.Seal(value)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// Open reads a snapshot of this format into a value, and from r no more than it. An error wraps rollout.ErrInvalid if
// what is there is another thing or damaged.
func (f Format) Open(r io.Reader, value any) error {
	begin, err := readHead(r, f.Magic)
	if err == nil {
		err = f.checkVersion(begin)
	}
	if err != nil {
		return err
	}
	var head [headerLength - magicLength - 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	length := binary.LittleEndian.Uint64(head[:])
	var body bytes.Buffer
	// Copying grows with what is there, whatever length the header claims.
	got, err := io.Copy(&body, io.LimitReader(r, int64(min(length, 1<<62))))
	if err != nil {
		return fmt.Errorf("reading %d bytes: %w", length, err)
	}
	if uint64(got) != length {
		return fmt.Errorf("it is cut off after %d of %d bytes: %w", got, length, io.ErrUnexpectedEOF)
	}
	if sum, want := further(0, body.Bytes()), binary.LittleEndian.Uint32(head[8:]); sum != want {
		return fmt.Errorf("its checksum is %08x, the header says %08x: it is damaged: %w", sum, want,
			rollout.ErrInvalid)
	}
	if err := gob.NewDecoder(&body).Decode(value); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	return nil
}

// Version returns the version of the snapshot of this kind that comes next, and a reader that begins with it: for kinds
// of which several versions are read. An error wraps rollout.ErrInvalid if what is there is another thing.
func Version(r io.Reader, magic string) (version byte, again io.Reader, err error) {
	head, err := readHead(r, magic)
	if err != nil {
		return 0, nil, err
	}
	return head[magicLength], io.MultiReader(bytes.NewReader(head), r), nil
}

// readHead reads the magic, which it checks, and the version.
func readHead(r io.Reader, magic string) ([]byte, error) {
	head := make([]byte, magicLength+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	if string(head[:magicLength]) != magic {
		return nil, fmt.Errorf("it begins with %q, its snapshots with %q: %w", head[:magicLength], magic,
			rollout.ErrInvalid)
	}
	return head, nil
}

func (f Format) checkVersion(head []byte) error {
	if v := head[magicLength]; v != f.Version {
		return fmt.Errorf("its format is %d, only %d is known: use the build that wrote it: %w", v, f.Version,
			rollout.ErrInvalid)
	}
	return nil
}

// A stream is cut into chunks of at most chunkLength bytes. Before each stand its length and a CRC-32C, of four bytes
// each; a chunk of length 0 is the end.
const (
	chunkLength = 1 << 16
	chunkHead   = 4 + 4
)

// Writer writes a snapshot as it comes: chunk by chunk, so that it needs memory for one. It is not safe for concurrent
// use.
type Writer struct {
	w     io.Writer
	chunk []byte // room for its head, and what waits to be written
	sum   uint32 // of everything so far but the sums themselves
	err   error  // the first, which sticks
}

// NewWriter begins a snapshot. What goes wrong with that is told by the Writer.
func (f Format) NewWriter(w io.Writer) *Writer {
	out := &Writer{w: w, chunk: make([]byte, chunkHead, chunkHead+chunkLength)}
	head := append([]byte(f.Magic), f.Version)
	out.sum = further(0, head)
	_, out.err = w.Write(head)
	return out
}

// Write takes in more of the snapshot.
func (w *Writer) Write(b []byte) (n int, err error) {
	for len(b) > n && w.err == nil {
		if len(w.chunk) == cap(w.chunk) {
			w.flush()
			continue
		}
		taken := min(cap(w.chunk)-len(w.chunk), len(b)-n)
		w.chunk = append(w.chunk, b[n:n+taken]...)
		n += taken
	}
	return n, w.err
}

// flush writes what waits as a chunk.
func (w *Writer) flush() {
	binary.LittleEndian.PutUint32(w.chunk, uint32(len(w.chunk)-chunkHead))
	w.sum = further(further(w.sum, w.chunk[:4]), w.chunk[chunkHead:])
	binary.LittleEndian.PutUint32(w.chunk[4:], w.sum)
	if w.err == nil {
		_, w.err = w.w.Write(w.chunk)
	}
	w.chunk = w.chunk[:chunkHead]
}

// Close writes what waits and the end. It closes nothing else.
func (w *Writer) Close() error {
	if len(w.chunk) > chunkHead {
		w.flush()
	}
	w.flush()
	return w.err
}

// Reader reads what a Writer wrote, and from what is below no more than it. It hands out nothing that was not checked,
// the place in the stream included, and needs memory for one chunk, whatever the snapshot claims. It is not safe for
// concurrent use.
type Reader struct {
	r      io.Reader
	buffer []byte // of a chunk
	chunk  []byte // of it, what was not handed out yet
	got    int64  // bytes of chunks so far
	sum    uint32
	err    error // the first, which sticks; io.EOF: the end was read
}

// NewReader begins to read a snapshot of this format. An error of this or of the Reader wraps rollout.ErrInvalid if
// what is there is another thing or damaged.
func (f Format) NewReader(r io.Reader) (*Reader, error) {
	head, err := readHead(r, f.Magic)
	if err == nil {
		err = f.checkVersion(head)
	}
	if err != nil {
		return nil, err
	}
	return &Reader{r: r, sum: further(0, head)}, nil
}

// Read reads on; io.EOF is the snapshot's end.
func (r *Reader) Read(b []byte) (int, error) {
	if !r.fill() {
		return 0, r.err
	}
	n := copy(b, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// ReadByte reads one byte, so that decoders need not read ahead.
func (r *Reader) ReadByte() (byte, error) {
	if !r.fill() {
		return 0, r.err
	}
	c := r.chunk[0]
	r.chunk = r.chunk[1:]
	return c, nil
}

// End reads the end, and tells if the snapshot goes on instead.
func (r *Reader) End() error {
	if r.fill() {
		return fmt.Errorf("it goes on after its end: %w", rollout.ErrInvalid)
	}
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

// fill reads the next chunk if none is left of the last, and tells whether there is any.
func (r *Reader) fill() bool {
	if len(r.chunk) == 0 && r.err == nil {
		r.chunk, r.err = r.next()
	}
	return r.err == nil
}

func (r *Reader) next() ([]byte, error) {
	var head [chunkHead]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return nil, r.cutOff(err)
	}
	length, want := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if length > chunkLength {
		return nil, fmt.Errorf("after %d bytes it has a chunk of %d, more than %d: it is damaged: %w", r.got, length,
			chunkLength, rollout.ErrInvalid)
	}
	if int(length) > len(r.buffer) {
		r.buffer = make([]byte, length)
	}
	chunk := r.buffer[:length]
	if _, err := io.ReadFull(r.r, chunk); err != nil {
		return nil, r.cutOff(err)
	}
	r.sum = further(further(r.sum, head[:4]), chunk)
	if r.sum != want {
		return nil, fmt.Errorf("after %d bytes a checksum is %08x and should be %08x: it is damaged: %w", r.got, want,
			r.sum, rollout.ErrInvalid)
	}
	if length == 0 {
		return nil, io.EOF
	}
	r.got += int64(length)
	return chunk, nil
}

func (r *Reader) cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("it is cut off after %d bytes: %w", r.got, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("reading on after %d bytes: %w", r.got, err)
}

// further is the CRC-32C of what a sum is of and of more.
func further(sum uint32, more []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), more)
}

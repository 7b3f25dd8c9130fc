package sealed

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
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
		return fmt.Errorf("its checksum is %08x, the header says %08x: it is damaged: %w", sum, want, rollout.ErrInvalid)
	}
	if err := gob.NewDecoder(&body).Decode(value); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	return nil
}

// Version returns the version of the snapshot of this kind that comes next, and a reader that begins with it: for kinds of which several versions
// are read. An error wraps rollout.ErrInvalid if what is there is another thing.
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
		return nil, fmt.Errorf("it begins with %q, its snapshots with %q: %w", head[:magicLength], magic, rollout.ErrInvalid)
	}
	return head, nil
}

func (f Format) checkVersion(head []byte) error {
	if v := head[magicLength]; v != f.Version {
		return fmt.Errorf("its format is %d, only %d is known: %w", v, f.Version, rollout.ErrInvalid)
	}
	return nil
}

package prompts

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/reprise-rl/reprise/rollout"
)

// A snapshot is a header, a gob stream of one image, and nothing else. The header is 8 bytes of magic and
// version, the length and the CRC-32C of what follows, both little-endian.
const (
	magicLength  = 7
	sealVersion  = 1
	headerLength = magicLength + 1 + 8 + 4
)

// seal writes an image as a snapshot, in one Write.
func seal(w io.Writer, magic string, image any) error {
	var b bytes.Buffer
	b.Write(make([]byte, headerLength))
	if err := gob.NewEncoder(&b).Encode(image); err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	head, body := b.Bytes()[:headerLength], b.Bytes()[headerLength:]
	copy(head, magic)
	head[magicLength] = sealVersion
	binary.LittleEndian.PutUint64(head[magicLength+1:], uint64(len(body)))
	binary.LittleEndian.PutUint32(head[magicLength+9:], checksum(body))
	_, err := w.Write(b.Bytes())
	return err
}

// unseal reads a snapshot into an image, and from r no more than it.
func unseal(r io.Reader, magic string, image any) error {
	head := make([]byte, headerLength)
	if _, err := io.ReadFull(r, head); err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	if string(head[:magicLength]) != magic {
		return fmt.Errorf("it begins with %q, its snapshots with %q: %w", head[:magicLength], magic, rollout.ErrInvalid)
	}
	if head[magicLength] != sealVersion {
		return fmt.Errorf("its format is %d, only %d is known: %w", head[magicLength], sealVersion, rollout.ErrInvalid)
	}
	length := binary.LittleEndian.Uint64(head[magicLength+1:])
	var body bytes.Buffer
	// Copying grows with what is there, whatever length the header claims.
	got, err := io.Copy(&body, io.LimitReader(r, int64(min(length, 1<<62))))
	if err != nil {
		return fmt.Errorf("reading %d bytes: %w", length, err)
	}
	if uint64(got) != length {
		return fmt.Errorf("it is cut off after %d of %d bytes: %w", got, length, io.ErrUnexpectedEOF)
	}
	if sum, want := checksum(body.Bytes()), binary.LittleEndian.Uint32(head[magicLength+9:]); sum != want {
		return fmt.Errorf("its checksum is %08x, the header says %08x: it is damaged: %w", sum, want, rollout.ErrInvalid)
	}
	if err := gob.NewDecoder(&body).Decode(image); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	return nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

package flightdata

import (
	"encoding/binary"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/wire"
)

// maxHeader bounds the header of a message, the descriptor and its like, in bytes.
const maxHeader = 1 << 20

// incoming is a message as it came. What is wrong with it stands in err: an error of gRPC would not say whose fault it is.
type incoming struct {
	allocator memory.Allocator // of the body; nil: the garbage collector's
	maxBytes  int64

	descriptor *flight.FlightDescriptor
	header     []byte
	metadata   []byte
	body       *memory.Buffer // nil: none
	err        error
}

// unmarshal reads FlightData, whose bytes go back to gRPC afterwards. The body is copied into one aligned block.
func (m *incoming) unmarshal(b mem.BufferSlice) {
	if int64(b.Len()) > m.maxBytes+4*maxHeader {
		m.err = wire.Errorf(wire.TooLarge, "message of %d bytes: want at most %d", b.Len(), m.maxBytes)
		return
	}
	r := b.Reader()
	defer r.Close()
	for r.Remaining() > 0 && m.err == nil {
		m.err = m.field(r)
	}
	if m.err != nil {
		m.free()
	}
}

// free gives the body back.
func (m *incoming) free() {
	if m.body != nil {
		m.body.Release()
		m.body = nil
	}
}

// field reads one field.
func (m *incoming) field(r *mem.Reader) error {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return malformed("a tag is cut off")
	}
	number, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return skip(r, kind)
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > uint64(r.Remaining()) {
		return malformed("a field is cut off")
	}
	n := int(size)
	switch number {
	case bodyField:
		return m.readBody(r, n)
	case descriptorField, headerField, metadataField:
	default:
		_, err := r.Discard(n)
		return err
	}
	if number != metadataField && n > maxHeader {
		return wire.Errorf(wire.TooLarge, "header of %d bytes: want at most %d", n, maxHeader)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil && n > 0 {
		return malformed("a field is cut off")
	}
	switch number {
	case headerField:
		m.header = b
	case metadataField:
		m.metadata = b
	case descriptorField:
		m.descriptor = new(flight.FlightDescriptor)
		if err := proto.Unmarshal(b, m.descriptor); err != nil {
			return malformed("the descriptor: %v", err)
		}
	}
	return nil
}

// readBody copies the body out.
func (m *incoming) readBody(r *mem.Reader, n int) error {
	if int64(n) > m.maxBytes {
		return wire.Errorf(wire.TooLarge, "body of %d bytes: want at most %d", n, m.maxBytes)
	}
	m.free()
	m.body = newBlock(m.allocator, n)
	pieces, err := r.Peek(n, make([][]byte, 0, 1+n/frameBytes))
	if err != nil {
		return malformed("the body is cut off")
	}
	copyAll(m.body.Bytes(), pieces)
	_, err = r.Discard(n)
	return err
}

// frameBytes is what gRPC sends at most at a time, and the usual size of what a message comes in.
const frameBytes = 16 << 10

// copyAll copies pieces one after another.
func copyAll(to []byte, pieces [][]byte) {
	at := make([]int, len(pieces))
	sum := 0
	for i, p := range pieces {
		at[i] = sum
		sum += len(p)
	}
	wire.InParts(len(pieces), int64(sum), func(first, end int) {
		for i := first; i < end; i++ {
			copy(to[at[i]:], pieces[i])
		}
	})
}

// newBlock returns a buffer of memory of an allocator, or of the garbage collector's.
func newBlock(a memory.Allocator, n int) *memory.Buffer {
	if n == 0 {
		return memory.NewBufferBytes(nil)
	}
	if a == nil {
		return memory.NewBufferBytes(make([]byte, n))
	}
	return memory.NewBufferWithAllocator(a.Allocate(n), a)
}

// skip passes over a field of no interest.
func skip(r *mem.Reader, kind protowire.Type) error {
	var err error
	switch kind {
	case protowire.VarintType:
		_, err = binary.ReadUvarint(r)
	case protowire.Fixed32Type:
		_, err = r.Discard(4)
	case protowire.Fixed64Type:
		_, err = r.Discard(8)
	default:
		return malformed("a field is of wire type %d", kind)
	}
	if err != nil {
		return malformed("a field is cut off")
	}
	return nil
}

func malformed(format string, args ...any) error {
	return wire.Errorf(wire.Invalid, "malformed Flight message: "+format, args...)
}

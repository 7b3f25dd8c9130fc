package flightdata

import (
	"encoding/binary"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/wire"
)

// ServerOption makes a server's streams carry the messages of [Writer] and [Reader].
func ServerOption() grpc.ServerOption { return grpc.ForceServerCodecV2(newCodec()) }

// CallOption does the same for a client's calls, as in grpc.WithDefaultCallOptions(flightdata.CallOption()).
func CallOption() grpc.CallOption { return grpc.ForceCodecV2(newCodec()) }

// codec leaves all messages but ours to gRPC's codec for protocol buffers, and has its name.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(encodingproto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*outgoing); ok {
		return m.marshal()
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	if m, ok := v.(*incoming); ok {
		m.unmarshal(b)
		return nil
	}
	return c.CodecV2.Unmarshal(b, v)
}

// The fields of Flight's message FlightData.
const (
	descriptorField = 1
	headerField     = 2
	metadataField   = 3
	bodyField       = 1000
)

// resultField is the app_metadata of Flight's message PutResult.
const resultField = 1

// Bounds of a message's fields besides app_metadata and body, in bytes. A descriptor is the name of a table.
const (
	maxHeader     = 1 << 20
	maxDescriptor = 4 << 10
)

// incoming is a received message. Its problem is in err: an error of gRPC would not tell the caller whose fault it is.
type incoming struct {
	allocator   memory.Allocator // of the body; nil: the garbage collector's
	maxBytes    int64
	maxMetadata int // 0: no bound

	descriptor *flight.FlightDescriptor
	header     []byte
	metadata   []byte
	body       *memory.Buffer // nil: none
	wireSize   int
	err        error
}

// WireSize returns the bytes that the message had on the wire, without gRPC's own.
func (m *incoming) WireSize() int { return m.wireSize }

// unmarshal reads FlightData, whose bytes gRPC reuses afterwards. The body is copied into one aligned block.
func (m *incoming) unmarshal(b mem.BufferSlice) {
	m.wireSize = b.Len()
	if int64(b.Len()) > m.maxBytes+4*maxHeader {
		m.err = wire.Errorf(wire.TooLarge, "message of %d bytes: want at most %d", b.Len(), m.maxBytes)
		return
	}
	r := b.Reader()
	defer r.Close()
	for r.Remaining() > 0 && m.err == nil {
		m.err = m.readField(r)
	}
	if m.err != nil {
		m.free()
	}
}

// free releases the body.
func (m *incoming) free() {
	if m.body != nil {
		m.body.Release()
		m.body = nil
	}
}

func (m *incoming) readField(r *mem.Reader) error {
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
	if number == metadataField && m.maxMetadata > 0 && n > m.maxMetadata {
		return wire.Errorf(wire.TooLarge, "app_metadata: %d bytes: want at most %d", n, m.maxMetadata)
	}
	if number == headerField && n > maxHeader {
		return wire.Errorf(wire.TooLarge, "header of %d bytes: want at most %d", n, maxHeader)
	}
	if number == descriptorField && n > maxDescriptor {
		return wire.Errorf(wire.TooLarge, "descriptor of %d bytes: want at most %d", n, maxDescriptor)
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

// skip discards a field that is not bytes.
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

// frameBytes is the size of gRPC's frames: a body comes in pieces of about this size.
const frameBytes = 16 << 10

// readBody copies the body.
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
	at := make([]int, len(pieces))
	for i := 1; i < len(pieces); i++ {
		at[i] = at[i-1] + len(pieces[i-1])
	}
	block := m.body.Bytes()
	wire.InParts(len(pieces), int64(n), func(from, to int) {
		for i := from; i < to; i++ {
			copy(block[at[i]:], pieces[i])
		}
	})
	_, err = r.Discard(n)
	return err
}

// newBlock returns a buffer of n bytes from an allocator, or from the garbage collector if it is nil.
func newBlock(a memory.Allocator, n int) *memory.Buffer {
	if n == 0 {
		return memory.NewBufferBytes(nil)
	}
	if a == nil {
		return memory.NewBufferBytes(make([]byte, n))
	}
	return memory.NewBufferWithAllocator(a.Allocate(n), a)
}

func malformed(format string, args ...any) error {
	return wire.Errorf(wire.Invalid, "malformed Flight message: "+format, args...)
}

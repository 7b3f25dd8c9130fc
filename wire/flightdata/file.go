package flightdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// An Arrow IPC file is: magic, messages, footer, size of the footer, magic. The footer tells where the messages are;
// some programs leave gaps between them.
const (
	fileMagic   = "ARROW1"
	fileTail    = 4 + len(fileMagic)
	maxFooter   = 64 << 20   // 24 bytes for each batch, beside the schema
	messageMark = 0xFFFFFFFF // before the length of a message; older files lack it
)

// NewFileReader returns a reader of the record batches of an Arrow IPC file. A file may have several readers.
func NewFileReader(f io.ReaderAt, size int64, o Options) (*Reader, error) {
	footer, err := readFooter(f, size)
	if err != nil {
		return nil, err
	}
	in := &file{in: f, size: size}
	table := &flat{b: footer}
	root := table.follow(0)
	schema := table.child(root, 1)
	if table.err == nil && schema == 0 {
		table.fail("its footer has no schema")
	}
	for i, k := range []kind{dictionaryKind, recordBatchKind} {
		in.blocks = append(in.blocks, table.blocks(root, 2+i, k)...)
	}
	if table.err != nil {
		return nil, table.err
	}
	in.schema = schemaMessage(footer, schema)
	return NewReader(in, o), in.checkBlocks()
}

// readFooter checks both ends of the file and returns the footer.
func readFooter(f io.ReaderAt, size int64) ([]byte, error) {
	if size < int64(len(fileMagic)+fileTail) {
		return nil, malformed("a file of %d bytes is no Arrow file", size)
	}
	head, tail := make([]byte, len(fileMagic)), make([]byte, fileTail)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if err := readAt(f, tail, size-int64(fileTail)); err != nil {
		return nil, err
	}
	if !bytes.Equal(head, []byte(fileMagic)) || !bytes.HasSuffix(tail, []byte(fileMagic)) {
		return nil, malformed("it does not begin and end with %s", fileMagic)
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if length > maxFooter || length > size-int64(len(fileMagic)+fileTail) {
		return nil, malformed("a footer of %d bytes in a file of %d", length, size)
	}
	footer := make([]byte, length)
	return footer, readAt(f, footer, size-int64(fileTail)-length)
}

// readAt fills p, which may end where the file ends.
func readAt(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) && errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// block locates a message in the file.
type block struct {
	kind   kind
	offset int64
	header int64 // bytes, its length included
	body   int64 // bytes
}

// blocks returns one of the footer's lists of messages.
func (f *flat) blocks(footer, slot int, k kind) []block {
	const width = 24 // an offset, a length of 4 bytes and 4 of padding, a length of 8
	first, n := f.vector(footer, slot, width)
	list := make([]block, n)
	for i := range list {
		at := first + width*i
		list[i] = block{k, f.i64(at), int64(int32(f.u32(at + 8))), f.i64(at + 16)}
	}
	return list
}

// schemaMessage makes a message of the schema in a footer. References in a flatbuffer are relative, so the footer can
// follow the message's table unchanged.
func schemaMessage(footer []byte, schema int) []byte {
	const (
		slots = 4  // position of the vtable
		table = 16 // position of the table: a reference to the vtable, one to the header, version, kind
		size  = 12
		end   = 32
	)
	b := make([]byte, end, end+len(footer))
	le := binary.LittleEndian
	le.PutUint32(b, table)
	// bytes of the vtable and of the table; version, kind, header, no body
	for i, v := range []uint16{12, size, 8, 10, 4, 0} {
		le.PutUint16(b[slots+2*i:], v)
	}
	le.PutUint32(b[table:], table-slots)
	le.PutUint32(b[table+4:], uint32(end+schema-(table+4)))
	le.PutUint16(b[table+8:], 4) // version 5 of the format
	b[table+10] = byte(schemaKind)
	return append(b, footer...)
}

// file is a [Receiver] of a file's messages: the schema, then those that the footer lists.
type file struct {
	in     io.ReaderAt
	size   int64
	schema []byte // nil once it was received
	blocks []block
}

// checkBlocks checks that the messages lie within the file and do not overlap.
func (f *file) checkBlocks() error {
	left := f.size
	for i, b := range f.blocks {
		if b.offset < 0 || b.header < 4 || b.body < 0 || b.header > maxHeader || b.offset > f.size || b.body > f.size ||
			b.header+b.body > f.size-b.offset {
			return malformed("message %d has %d and %d bytes from %d on, in a file of %d", i, b.header, b.body,
				b.offset, f.size)
		}
		if left -= b.header + b.body; left < 0 {
			return malformed("its messages overlap")
		}
	}
	return nil
}

// RecvMsg reads the next message into an *incoming.
func (f *file) RecvMsg(m any) error {
	in := m.(*incoming)
	if f.schema != nil {
		in.header, f.schema = f.schema, nil
		return nil
	}
	if len(f.blocks) == 0 {
		return io.EOF
	}
	b := f.blocks[0]
	f.blocks = f.blocks[1:]
	header := make([]byte, b.header)
	if err := readAt(f.in, header, b.offset); err != nil {
		return err
	}
	length := int64(binary.LittleEndian.Uint32(header))
	header = header[4:]
	if length == messageMark && len(header) >= 4 {
		length = int64(binary.LittleEndian.Uint32(header))
		header = header[4:]
	}
	if length > int64(len(header)) {
		return malformed("a header of %d bytes in %d", length, len(header))
	}
	in.header = header[:length]
	look := &flat{b: in.header}
	if pos := look.field(look.follow(0), 1); look.err != nil || pos == 0 || kind(look.u8(pos)) != b.kind {
		return malformed("it is of another kind than the footer says")
	}
	return f.readBody(in, b)
}

func (f *file) readBody(in *incoming, b block) error {
	if b.body == 0 {
		in.body = memory.NewBufferBytes(nil)
		return nil
	}
	in.body = newBlock(in.allocator, int(b.body))
	err := readAt(f.in, in.body.Bytes(), b.offset+b.header)
	if err != nil {
		in.free()
	}
	return err
}

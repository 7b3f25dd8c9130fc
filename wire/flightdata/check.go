package flightdata

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// kind is what a message's header says that it is.
type kind int

// The kinds, as Arrow's format numbers them.
const (
	noHeader        kind = 0
	schemaKind      kind = 1
	dictionaryKind  kind = 2
	recordBatchKind kind = 3
)

// Bounds of schemas: far above what any table needs.
const (
	maxFields = 4096
	maxDepth  = 32
)

// shape is what is known of a message's header: where the arrays of its body lie.
type shape struct {
	kind       kind
	rows       int64
	nodes      []node
	buffers    []extent
	views      []int64 // how many buffers the text of each array of views lies in
	compressed bool
	unpacked   int64 // bytes of the body once decompressed
}

// node is an array's length and its number of nulls, extent where a buffer lies in the body.
type (
	node   struct{ length, nulls int64 }
	extent struct{ offset, length int64 }
)

// check reads the header of a message and holds it against the body.
func check(header []byte, body *memory.Buffer, maxBytes int64) (shape, error) {
	f := &flat{b: header}
	message := f.follow(0)
	s := shape{}
	if pos := f.field(message, 1); pos > 0 {
		s.kind = kind(f.u8(pos))
	}
	inner := f.child(message, 2)
	if f.err == nil && inner == 0 {
		f.fail("its header is empty")
	}
	var length int64
	if pos := f.field(message, 3); pos > 0 {
		length = f.i64(pos)
	}
	var b []byte
	if body != nil {
		b = body.Bytes()
	}
	if f.err == nil && length != int64(len(b)) {
		f.fail("its header tells of a body of %d bytes, it has %d", length, len(b))
	}
	f.metadata(message, 4)
	switch s.kind {
	case schemaKind:
		f.schema(inner)
	case dictionaryKind:
		s.batch(f, f.child(inner, 1), b, maxBytes)
	case recordBatchKind:
		s.batch(f, inner, b, maxBytes)
	default:
		f.fail("its header is of kind %d, no schema, dictionary or record batch", s.kind)
	}
	return s, f.err
}

// metadata looks at a vector of pairs of strings.
func (f *flat) metadata(table, slot int) {
	first, n := f.vector(table, slot, 4)
	for i := 0; i < n && f.err == nil; i++ {
		pair := f.follow(first + 4*i)
		f.string(pair, 0)
		f.string(pair, 1)
	}
}

// schema looks at all fields of a schema.
func (f *flat) schema(table int) {
	if pos := f.field(table, 0); pos > 0 && f.u16(pos) != 0 {
		f.fail("its numbers are big-endian: write little-endian ones")
	}
	f.metadata(table, 2)
	left := maxFields
	f.fields(table, 1, maxDepth, &left)
}

// fields looks at fields and what is below them. Fields may be shared: left bounds how many are looked at in all.
func (f *flat) fields(table, slot, depth int, left *int) {
	first, n := f.vector(table, slot, 4)
	if *left -= n; *left < 0 || depth == 0 {
		f.fail("its schema has more than %d fields, or more than %d in one another", maxFields, maxDepth)
	}
	for i := 0; i < n && f.err == nil; i++ {
		field := f.follow(first + 4*i)
		f.string(field, 0)
		f.typ(field)
		f.metadata(field, 6)
		f.fields(field, 5, depth-1, left)
	}
}

// The types whose tables hold more than numbers, as Arrow's format numbers them: a zone, and the numbers of a union's types.
const (
	timestampType = 10
	unionType     = 14
)

func (f *flat) typ(field int) {
	pos := f.field(field, 2)
	table := f.child(field, 3)
	if pos == 0 || table == 0 {
		f.fail("a field of its schema has no type")
		return
	}
	switch f.u8(pos) {
	case timestampType:
		f.string(table, 1)
	case unionType:
		_, n := f.vector(table, 1, 4)
		if n > maxFields {
			f.fail("its schema has a union of %d types", n)
		}
	}
}

// batch looks at the arrays of a record batch or a dictionary. Buffers lie within the body, begin at multiples of eight bytes
// and do not share what there is.
func (s *shape) batch(f *flat, table int, body []byte, maxBytes int64) {
	if f.err == nil && table == 0 {
		f.fail("its header is empty")
	}
	if pos := f.field(table, 0); pos > 0 {
		s.rows = f.i64(pos)
	}
	s.readNodes(f, table)
	first, n := f.vector(table, 2, 16)
	s.buffers = make([]extent, n)
	sum := int64(0)
	for i := range s.buffers {
		e := extent{f.i64(first + 16*i), f.i64(first + 16*i + 8)}
		if e.offset < 0 || e.length < 0 || e.offset > int64(len(body)) || e.length > int64(len(body))-e.offset {
			f.fail("buffer %d is %d bytes from %d on, of a body of %d", i, e.length, e.offset, len(body))
		} else if e.length > 0 && e.offset%8 != 0 {
			f.fail("buffer %d begins at byte %d, no multiple of 8", i, e.offset)
		}
		sum += e.length
		s.buffers[i] = e
	}
	if f.err == nil && sum > int64(len(body)) {
		f.fail("its buffers overlap")
	}
	if compression := f.child(table, 3); compression > 0 && f.err == nil {
		s.compression(f, compression, body, maxBytes)
	}
	counts, n := f.vector(table, 4, 8)
	s.views = make([]int64, n)
	for i := range s.views {
		s.views[i] = f.i64(counts + 8*i)
		if c := s.views[i]; c < 0 || c > int64(len(s.buffers)) {
			f.fail("an array of views has %d of its %d buffers", c, len(s.buffers))
		}
	}
}

func (s *shape) readNodes(f *flat, table int) {
	first, n := f.vector(table, 1, 16)
	s.nodes = make([]node, n)
	for i := range s.nodes {
		s.nodes[i] = node{f.i64(first + 16*i), f.i64(first + 16*i + 8)}
		if l := s.nodes[i].length; l < 0 || s.nodes[i].nulls < 0 || s.nodes[i].nulls > l {
			f.fail("array %d has %d entries, %d of them null", i, l, s.nodes[i].nulls)
		}
	}
	if f.err == nil && s.rows < 0 {
		f.fail("it has %d rows", s.rows)
	}
}

// compression adds up what the buffers will be: each begins with its length, -1 if it is not compressed.
func (s *shape) compression(f *flat, table int, body []byte, maxBytes int64) {
	s.compressed = true
	codec, method := 0, 0
	if pos := f.field(table, 0); pos > 0 {
		codec = f.u8(pos)
	}
	if pos := f.field(table, 1); pos > 0 {
		method = f.u8(pos)
	}
	if codec > 1 || method > 0 {
		f.fail("it is compressed by codec %d, method %d: use lz4 or zstd, buffer by buffer", codec, method)
	}
	for i, e := range s.buffers {
		if e.length == 0 {
			continue
		}
		if e.length < 8 {
			f.fail("buffer %d is compressed into %d bytes", i, e.length)
			return
		}
		n := int64(binary.LittleEndian.Uint64(body[e.offset:]))
		if n == -1 {
			n = e.length - 8
		}
		if n < 0 || n > maxBytes-s.unpacked {
			if f.err == nil {
				f.err = wire.Errorf(wire.TooLarge, "body is more than %d bytes once decompressed: send less at a time", maxBytes)
			}
			return
		}
		s.unpacked += n
	}
}

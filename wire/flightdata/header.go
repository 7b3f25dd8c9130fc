package flightdata

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// kind is the kind of a message, numbered as in Arrow's format.
type kind int

const (
	schemaKind      kind = 1
	dictionaryKind  kind = 2
	recordBatchKind kind = 3
)

// Types whose tables hold more than numbers, numbered as in Arrow's format: a time zone, and the type ids of a union.
const (
	timestampType = 10
	unionType     = 14
)

// Bounds of schemas, far above what any table needs.
const (
	maxFields = 4096
	maxDepth  = 32
)

// header is a message's header after it was checked: the layout of the arrays in its body.
type header struct {
	kind       kind
	rows       int64
	nodes      []node
	buffers    []extent
	views      []int64 // number of text buffers of each array of views
	compressed bool
	unpacked   int64 // bytes of the body once decompressed
	decoded    int64 // bytes that a schema takes, header included, about
}

type (
	node   struct{ length, nulls int64 }  // of an array
	extent struct{ offset, length int64 } // of a buffer in the body
)

// readHeader reads the header of a message and checks it against the body.
func readHeader(b []byte, body *memory.Buffer, maxBytes int64) (header, error) {
	f := &flat{b: b}
	message := f.follow(0)
	h := header{}
	if pos := f.field(message, 1); pos > 0 {
		h.kind = kind(f.u8(pos))
	}
	inner := f.child(message, 2)
	if f.err == nil && inner == 0 {
		f.fail("its header is empty")
	}
	var length int64
	if pos := f.field(message, 3); pos > 0 {
		length = f.i64(pos)
	}
	var content []byte
	if body != nil {
		content = body.Bytes()
	}
	if f.err == nil && length != int64(len(content)) {
		f.fail("its header tells of a body of %d bytes, it has %d", length, len(content))
	}
	f.metadata(message, 4)
	switch h.kind {
	case schemaKind:
		f.schema(inner)
		h.decoded = int64(len(b) + f.text + f.strings*stringBytes + f.fieldCount*fieldBytes)
	case dictionaryKind:
		h.readBatch(f, f.child(inner, 1), content, maxBytes)
	case recordBatchKind:
		h.readBatch(f, inner, content, maxBytes)
	default:
		f.fail("its header is of kind %d, no schema, dictionary or record batch", h.kind)
	}
	return h, f.err
}

// readBatch reads the layout of a record batch or a dictionary. Buffers must lie within the body, begin at multiples of
// eight bytes and not overlap.
func (h *header) readBatch(f *flat, table int, body []byte, maxBytes int64) {
	if f.err == nil && table == 0 {
		f.fail("its header is empty")
	}
	if pos := f.field(table, 0); pos > 0 {
		h.rows = f.i64(pos)
	}
	if h.rows < 0 {
		f.fail("it has length %d: want 0 or more rows", h.rows)
	}
	first, n := f.vector(table, 1, 16)
	h.nodes = make([]node, n)
	for i := range h.nodes {
		h.nodes[i] = node{f.i64(first + 16*i), f.i64(first + 16*i + 8)}
		if l := h.nodes[i].length; l < 0 || h.nodes[i].nulls < 0 || h.nodes[i].nulls > l {
			f.fail("array %d has %d entries, %d of them null", i, l, h.nodes[i].nulls)
		}
	}
	first, n = f.vector(table, 2, 16)
	h.buffers = make([]extent, n)
	sum := int64(0)
	for i := range h.buffers {
		e := extent{f.i64(first + 16*i), f.i64(first + 16*i + 8)}
		if e.offset < 0 || e.length < 0 || e.offset > int64(len(body)) || e.length > int64(len(body))-e.offset {
			f.fail("buffer %d is %d bytes from %d on, of a body of %d", i, e.length, e.offset, len(body))
		} else if e.length > 0 && e.offset%8 != 0 {
			f.fail("buffer %d begins at byte %d, no multiple of 8", i, e.offset)
		}
		sum += e.length
		h.buffers[i] = e
	}
	if f.err == nil && sum > int64(len(body)) {
		f.fail("its buffers overlap")
	}
	if compression := f.child(table, 3); compression > 0 && f.err == nil {
		h.readCompression(f, compression, body, maxBytes)
	}
	counts, n := f.vector(table, 4, 8)
	h.views = make([]int64, n)
	for i := range h.views {
		h.views[i] = f.i64(counts + 8*i)
		if c := h.views[i]; c < 0 || c > int64(len(h.buffers)) {
			f.fail("an array of views has %d of its %d buffers", c, len(h.buffers))
		}
	}
}

// readCompression sums the decompressed lengths of the buffers. Each begins with its own, or -1 if it is not
// compressed.
func (h *header) readCompression(f *flat, table int, body []byte, maxBytes int64) {
	h.compressed = true
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
	for i, e := range h.buffers {
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
		if n < 0 || n > maxBytes-h.unpacked {
			if f.err == nil {
				f.err = wire.Errorf(wire.TooLarge, "body is more than %d bytes once decompressed: send less at a time",
					maxBytes)
			}
			return
		}
		h.unpacked += n
	}
}

// fits reports whether a record batch has as many arrays and buffers as its schema needs. Arrow's reader does not
// check: it would take whatever follows them.
func (h *header) fits(schema *arrow.Schema) bool {
	nodes, buffers, views, ok := 0, 0, h.views, true
	var count func(t arrow.DataType)
	count = func(t arrow.DataType) {
		nodes++
		switch t := t.(type) {
		case *arrow.NullType:
		case *arrow.DictionaryType:
			buffers += 2
		case arrow.BinaryViewDataType:
			if len(views) == 0 {
				ok = false
				return
			}
			buffers += 2 + int(views[0])
			views = views[1:]
		default:
			buffers += 1 + bufferCount(t)
			if nested, ok := t.(arrow.NestedType); ok {
				for _, f := range nested.Fields() {
					count(f.Type)
				}
			}
		}
	}
	for _, f := range schema.Fields() {
		count(f.Type)
	}
	return ok && nodes == len(h.nodes) && buffers == len(h.buffers)
}

// bufferCount returns the number of buffers of an array beside its validity bitmap.
func bufferCount(t arrow.DataType) int {
	switch t.(type) {
	case *arrow.StructType, *arrow.FixedSizeListType:
		return 0
	case *arrow.BinaryType, *arrow.StringType, *arrow.LargeBinaryType, *arrow.LargeStringType, *arrow.ListViewType,
		*arrow.LargeListViewType:
		return 2
	}
	return 1
}

// checkTypes refuses columns of types that neither a loader nor Arrow's reader reads safely. plain means that a loader
// knows all of them.
func checkTypes(schema *arrow.Schema) (plain bool, err error) {
	plain = true
	for _, f := range schema.Fields() {
		simple, ok := supported(f.Type)
		if !ok {
			return false, wire.Errorf(wire.Invalid, "column %s is of type %s: give numbers, text, lists, structs "+
				"or maps", f.Name, f.Type)
		}
		plain = plain && simple
	}
	return plain, nil
}

// supported reports whether a loader reads a type, and whether anyone does: Arrow's reader reads views and dictionaries
// of text.
func supported(t arrow.DataType) (plain, ok bool) {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		id := t.ValueType.ID()
		return false, arrow.IsInteger(t.IndexType.ID()) && (id == arrow.STRING || id == arrow.LARGE_STRING)
	case arrow.BinaryViewDataType:
		return false, true
	case arrow.ExtensionType, *arrow.RunEndEncodedType, arrow.UnionType:
		return false, false
	case arrow.NestedType:
		plain = true
		for _, f := range t.Fields() {
			simple, ok := supported(f.Type)
			if !ok {
				return false, false
			}
			plain = plain && simple
		}
		return plain, true
	}
	return true, true
}

// flat reads a flatbuffer and checks every position. The first problem sticks; later reads return zeros.
type flat struct {
	b   []byte
	err error

	// so far, counted as often as they are pointed to
	text       int // bytes of strings, with their lengths
	strings    int
	fieldCount int
}

// What strings and fields of a schema take once it is decoded, besides the text, in bytes: at least as much as Arrow's
// objects and their places in slices and maps.
const (
	stringBytes = 48
	fieldBytes  = 512
)

func (f *flat) fail(format string, args ...any) {
	if f.err == nil {
		f.err = malformed(format, args...)
	}
}

// at returns n bytes from a position, nil if they are out of bounds.
func (f *flat) at(pos, n int) []byte {
	if f.err == nil && (pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos) {
		f.fail("its header points beyond itself")
	}
	if f.err != nil {
		return nil
	}
	return f.b[pos : pos+n]
}

func (f *flat) u8(pos int) int {
	if b := f.at(pos, 1); b != nil {
		return int(b[0])
	}
	return 0
}

func (f *flat) u16(pos int) int {
	if b := f.at(pos, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (f *flat) u32(pos int) int {
	if b := f.at(pos, 4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (f *flat) i64(pos int) int64 {
	if b := f.at(pos, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// follow returns the target of an offset.
func (f *flat) follow(pos int) int { return pos + f.u32(pos) }

// field returns the position of a table's field, 0 if it is absent.
func (f *flat) field(table, slot int) int {
	b := f.at(table, 4)
	if b == nil {
		return 0
	}
	vtable := table - int(int32(binary.LittleEndian.Uint32(b)))
	if 4+2*slot+2 > f.u16(vtable) {
		return 0
	}
	if offset := f.u16(vtable + 4 + 2*slot); offset > 0 {
		return table + offset
	}
	return 0
}

// child returns the table that a field points to, 0 if it is absent.
func (f *flat) child(table, slot int) int {
	if pos := f.field(table, slot); pos > 0 {
		return f.follow(pos)
	}
	return 0
}

// vector returns the position of the first of n items of a field, each size bytes long.
func (f *flat) vector(table, slot, size int) (first, n int) {
	pos := f.child(table, slot)
	if pos == 0 {
		return 0, 0
	}
	n = f.u32(pos)
	if f.err == nil && n > len(f.b)/size {
		f.fail("its header points beyond itself")
	}
	if f.at(pos+4, n*size) == nil {
		return 0, 0
	}
	return pos + 4, n
}

// string checks a string. Strings, and what holds them, may be shared; their sum is bounded, so that reading all of
// them stays cheap.
func (f *flat) string(table, slot int) {
	_, n := f.vector(table, slot, 1)
	f.text += 4 + n
	f.strings++
	if f.text > 4*len(f.b) {
		f.fail("its header repeats its strings")
	}
}

// metadata checks a vector of pairs of strings.
func (f *flat) metadata(table, slot int) {
	first, n := f.vector(table, slot, 4)
	for i := 0; i < n && f.err == nil; i++ {
		pair := f.follow(first + 4*i)
		f.string(pair, 0)
		f.string(pair, 1)
	}
}

// schema checks all fields of a schema.
func (f *flat) schema(table int) {
	if pos := f.field(table, 0); pos > 0 && f.u16(pos) != 0 {
		f.fail("its numbers are big-endian: write little-endian ones")
	}
	f.metadata(table, 2)
	left := maxFields
	f.fields(table, 1, maxDepth, &left)
}

// fields checks fields and their children. Fields may be shared: left bounds how many are checked in all.
func (f *flat) fields(table, slot, depth int, left *int) {
	first, n := f.vector(table, slot, 4)
	if *left -= n; *left < 0 || depth == 0 {
		f.fail("its schema has more than %d fields, or more than %d in one another", maxFields, maxDepth)
	}
	f.fieldCount += n
	for i := 0; i < n && f.err == nil; i++ {
		field := f.follow(first + 4*i)
		f.string(field, 0)
		f.typ(field)
		f.metadata(field, 6)
		f.fields(field, 5, depth-1, left)
	}
}

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

// Package flightdata moves Arrow record batches over the gRPC streams of Arrow Flight. Sending copies nothing;
// receiving copies once.
//
// Streams of a server with [ServerOption], and calls with [CallOption], carry the messages of [Writer] and [Reader] and
// all other messages of Flight. The bytes on the wire are those of any Flight implementation: the other end may be
// stock.
//
// gRPC writes a message after SendMsg has returned. A Writer holds the memory of a record batch until gRPC releases it,
// so pooled memory is not reused too early.
//
// A Reader trusts nothing. It checks the header of a message against its body before Arrow's code sees it, and bounds
// what schemas, dictionaries and compressed bodies may expand to. Errors wrap rollout.ErrInvalid or wire.ErrTooLarge. A
// Reader does not check the offsets within arrays: wire.Groups and wire.Draws do.
package flightdata

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// DefaultMaxBytes is the default of Options.MaxBytes.
const DefaultMaxBytes = 256 << 20

// Options configure a [Reader].
type Options struct {
	// MaxBytes bounds the body of one message, also once decompressed, and the dictionaries of a stream together. 0:
	// DefaultMaxBytes.
	MaxBytes int64

	// MaxMetadata bounds the app_metadata of one message, in bytes. 0: as many as the message has.
	MaxMetadata int

	// Allocator provides the memory of bodies until the final Release of their batches. nil: the garbage collector's
	// memory, which needs no Release.
	Allocator memory.Allocator

	// Reserve, if it is set, is asked before a batch is decompressed and decoded: bytes is the size of its body, with
	// that of the decompressed one if it is compressed. Release is called when the frame is released. An error ends the
	// stream.
	Reserve func(bytes, rows int64) (release func(), err error)

	// Keep, if it is set, is asked before a schema or a dictionary is decoded; bytes is about what it takes until
	// the reader is closed, when release is called. An error ends the stream.
	Keep func(bytes int64, dictionary bool) (release func(), err error)
}

// Receiver is the receiving end of a gRPC stream, such as flight.FlightService_DoPutServer or
// flight.FlightService_DoGetClient, of a server with [ServerOption] or a call with [CallOption].
type Receiver interface{ RecvMsg(m any) error }

// Frame is a message with a batch, app_metadata, or both.
type Frame struct {
	Batch    arrow.RecordBatch // nil: none
	Metadata []byte            // app_metadata

	reserved func() // nil: nothing is
}

// Release releases the batch, if there is one, and what was reserved for it.
func (f *Frame) Release() {
	f.ReleaseBatch()
	if f.reserved != nil {
		f.reserved()
	}
}

// ReleaseBatch releases the batch, if there is one. What was reserved for it stays so until Release.
func (f *Frame) ReleaseBatch() {
	if f.Batch != nil {
		f.Batch.Release()
		f.Batch = nil
	}
}

// Reader receives record batches of one schema. One goroutine at a time may use it.
type Reader struct {
	stream  Receiver
	options Options

	descriptor      *flight.FlightDescriptor
	schema          *arrow.Schema
	plain           bool        // load can make all columns of the schema
	header          []byte      // of the schema's message
	dictionaries    []*incoming // messages of dictionaries
	dictionaryBytes int64
	kept            []func() // give back the memory of the schema and the dictionaries

	peeked *incoming
	err    error // sticky
}

// NewReader returns a reader of a stream.
func NewReader(stream Receiver, o Options) *Reader {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	return &Reader{stream: stream, options: o}
}

// Descriptor returns the descriptor of the first message, nil before it has arrived or if it had none.
func (r *Reader) Descriptor() *flight.FlightDescriptor { return r.descriptor }

// Peek waits for the next message, so that its descriptor is known. Next returns its other content.
func (r *Reader) Peek() error {
	if r.peeked != nil || r.err != nil {
		return r.err
	}
	m := &incoming{allocator: r.options.Allocator, maxBytes: r.options.MaxBytes, maxMetadata: r.options.MaxMetadata}
	if r.err = r.stream.RecvMsg(m); r.err == nil {
		r.err = m.err
	}
	if r.err != nil {
		return r.err
	}
	if r.descriptor == nil {
		r.descriptor = m.descriptor
	}
	r.peeked = m
	return nil
}

// Next returns the next batch or app_metadata, and io.EOF at the end of the stream. Errors are sticky.
func (r *Reader) Next() (Frame, error) {
	for {
		if err := r.Peek(); err != nil {
			return Frame{}, err
		}
		m := r.peeked
		r.peeked = nil
		batch, reserved, err := r.decode(m)
		if err != nil {
			m.free()
			r.err = err
			return Frame{}, err
		}
		// Some writers repeat a batch's app_metadata with the schema and the dictionaries before it.
		if batch != nil || len(m.header) == 0 && len(m.metadata) > 0 {
			return Frame{batch, m.metadata, reserved}, nil
		}
	}
}

// decode returns the batch of a message, nil if it has none, and what gives back the memory reserved for it. The batch
// takes over the body.
func (r *Reader) decode(m *incoming) (batch arrow.RecordBatch, reserved func(), err error) {
	if len(m.header) == 0 {
		if m.body != nil && m.body.Len() > 0 {
			return nil, nil, malformed("it has a body and no header")
		}
		m.free()
		return nil, nil, nil
	}
	h, err := readHeader(m.header, m.body, r.options.MaxBytes)
	if err != nil {
		return nil, nil, err
	}
	if h.kind != schemaKind && r.schema == nil {
		return nil, nil, malformed("it comes before a schema")
	}
	switch h.kind {
	case schemaKind:
		defer m.free()
		return nil, nil, r.decodeSchema(m, h)
	case dictionaryKind:
		return nil, nil, r.addDictionary(m, h)
	}
	if m.body == nil {
		m.body = memory.NewBufferBytes(nil)
	}
	if r.options.Reserve != nil {
		if reserved, err = r.options.Reserve(int64(m.body.Len())+h.unpacked, h.rows); err != nil {
			return nil, nil, err
		}
	}
	if batch, err = r.decodeBatch(m, h); err != nil {
		if reserved != nil {
			reserved()
		}
		return nil, nil, err
	}
	m.free()
	return batch, reserved, nil
}

func (r *Reader) decodeSchema(m *incoming, h header) (err error) {
	if r.schema != nil {
		return malformed("it is a second schema")
	}
	if err := r.keep(h.decoded, false); err != nil {
		return err
	}
	defer recoverPanic(&err)
	in, err := ipc.NewReaderFromMessageReader(&messageQueue{messages: []*ipc.Message{m.message()}})
	if err != nil {
		return malformed("%v", err)
	}
	defer in.Release()
	plain, err := checkTypes(in.Schema())
	if err == nil {
		r.schema, r.header, r.plain = in.Schema(), m.header, plain
	}
	return err
}

// dictionaryOverhead is what a dictionary takes besides its header and body, in bytes.
const dictionaryOverhead = 1 << 10

// addDictionary keeps a dictionary for the batches that follow.
func (r *Reader) addDictionary(m *incoming, h header) error {
	if r.plain {
		return malformed("it is a dictionary, and no column has one")
	}
	if len(h.nodes) != 1 || len(h.buffers) != 3 {
		return malformed("its dictionary is not of text")
	}
	m.descriptor, m.metadata = nil, nil
	bytes := dictionaryOverhead + int64(len(m.header))
	if m.body != nil {
		bytes += max(int64(m.body.Len()), h.unpacked)
	}
	if r.dictionaryBytes += bytes; r.dictionaryBytes > r.options.MaxBytes {
		return wire.Errorf(wire.TooLarge, "dictionaries of more than %d bytes: send text", r.options.MaxBytes)
	}
	if err := r.keep(bytes, true); err != nil {
		return err
	}
	r.dictionaries = append(r.dictionaries, m)
	return nil
}

// keep asks for the memory of a schema or a dictionary.
func (r *Reader) keep(bytes int64, dictionary bool) error {
	if r.options.Keep == nil {
		return nil
	}
	release, err := r.options.Keep(bytes, dictionary)
	if err == nil {
		r.kept = append(r.kept, release)
	}
	return err
}

// Close gives back the memory of the schema and the dictionaries. The reader is of no use afterwards.
func (r *Reader) Close() {
	for _, release := range r.kept {
		release()
	}
	r.kept, r.dictionaries = nil, nil
}

func (r *Reader) decodeBatch(m *incoming, h header) (batch arrow.RecordBatch, err error) {
	if !h.fits(r.schema) {
		return nil, malformed("it has %d arrays and %d buffers, other than its schema", len(h.nodes), len(h.buffers))
	}
	defer recoverPanic(&err)
	if r.plain && !h.compressed {
		l := &loader{header: h, body: m.body}
		return l.load(r.schema)
	}
	return r.readByArrow(m)
}

// readByArrow reads a batch with Arrow's reader: dictionaries, compressed bodies and uncommon types. The reader gets
// schema and dictionaries anew for each batch, because it would hold on to the batch until the next one.
func (r *Reader) readByArrow(m *incoming) (arrow.RecordBatch, error) {
	q := &messageQueue{messages: []*ipc.Message{(&incoming{header: r.header}).message()}}
	for _, d := range r.dictionaries {
		q.messages = append(q.messages, d.message())
	}
	q.messages = append(q.messages, m.message())
	allocator := r.options.Allocator
	if allocator == nil {
		allocator = memory.DefaultAllocator
	}
	in, err := ipc.NewReaderFromMessageReader(q, ipc.WithAllocator(allocator))
	if err != nil {
		return nil, malformed("%v", err)
	}
	defer in.Release()
	if !in.Next() {
		if in.Err() == nil {
			return nil, malformed("it comes before its dictionaries")
		}
		return nil, malformed("%v", in.Err())
	}
	batch := in.RecordBatch()
	batch.Retain()
	return batch, nil
}

func (m *incoming) message() *ipc.Message {
	body := m.body
	if body == nil {
		body = memory.NewBufferBytes(nil)
	}
	return ipc.NewMessage(memory.NewBufferBytes(m.header), body)
}

// messageQueue feeds messages to Arrow's reader.
type messageQueue struct {
	messages []*ipc.Message
	next     int
}

// Message returns the next message.
func (q *messageQueue) Message() (*ipc.Message, error) {
	if q.next == len(q.messages) {
		return nil, io.EOF
	}
	q.next++
	return q.messages[q.next-1], nil
}

// Retain does nothing: the queue has one reader.
func (q *messageQueue) Retain() {}

// Release releases the messages.
func (q *messageQueue) Release() {
	for _, m := range q.messages {
		m.Release()
	}
	q.messages, q.next = nil, 0
}

// loader makes the arrays of a record batch from its nodes and buffers, in the order of Arrow's format. Buffers are
// slices of the body. It knows all types but dictionaries and views.
type loader struct {
	header header // nodes and buffers are taken off
	body   *memory.Buffer
	err    error
}

// load returns the record batch. Like Arrow, it panics if arrays contradict their types.
func (l *loader) load(schema *arrow.Schema) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for _, f := range schema.Fields() {
		d := l.array(f.Type)
		if l.err != nil {
			return nil, l.err
		}
		if int64(d.Len()) != l.header.rows {
			return nil, malformed("column %s has %d entries in a batch of %d rows", f.Name, d.Len(), l.header.rows)
		}
		columns = append(columns, array.MakeFromData(d))
		d.Release()
	}
	return array.NewRecordBatch(schema, columns, l.header.rows), nil
}

// array takes the next array with its children.
func (l *loader) array(t arrow.DataType) arrow.ArrayData {
	n := l.node()
	if t.ID() == arrow.NULL {
		return array.NewData(t, int(n.length), []*memory.Buffer{nil}, nil, int(n.length), 0)
	}
	buffers := []*memory.Buffer{l.buffer()}
	if n.nulls == 0 {
		buffers[0].Release()
		buffers[0] = nil
	}
	for range bufferCount(t) {
		buffers = append(buffers, l.buffer())
	}
	var children []arrow.ArrayData
	if nested, ok := t.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			children = append(children, l.array(f.Type))
		}
	}
	d := array.NewData(t, int(n.length), buffers, children, int(n.nulls), 0)
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return d
}

func (l *loader) node() node {
	nodes := l.header.nodes
	if len(nodes) == 0 {
		l.err = malformed("it has fewer arrays than its schema")
		return node{}
	}
	l.header.nodes = nodes[1:]
	return nodes[0]
}

func (l *loader) buffer() *memory.Buffer {
	buffers := l.header.buffers
	if len(buffers) == 0 {
		l.err = malformed("it has fewer buffers than its schema")
		return memory.NewBufferBytes(nil)
	}
	l.header.buffers = buffers[1:]
	if buffers[0].length == 0 || l.err != nil {
		return memory.NewBufferBytes(nil)
	}
	return memory.SliceBuffer(l.body, int(buffers[0].offset), int(buffers[0].length))
}

// recoverPanic turns a panic of Arrow's code into an error.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = malformed("%s", fmt.Sprint(p))
	}
}

package flightdata

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// DefaultMaxBytes is Options.MaxBytes where it is 0.
const DefaultMaxBytes = 256 << 20

// Options bound what a Reader accepts, and say where it puts it.
type Options struct {
	// MaxBytes bounds the body of one message as it comes, the same once decompressed, and the dictionaries of a stream
	// together; 0: DefaultMaxBytes.
	MaxBytes int64

	// Allocator gives the memory of bodies and gets it back at the final Release of their batches; nil: the garbage
	// collector's, so that nothing needs a Release.
	Allocator memory.Allocator
}

// Receiver is a gRPC stream that messages come in on: a flight.FlightService_DoPutServer, a flight.FlightService_DoGetClient and
// their like, of a server with [ServerOption] or a call with [CallOption].
type Receiver interface{ RecvMsg(m any) error }

// Frame is a message with a batch, with app_metadata, or with both.
type Frame struct {
	Batch    arrow.RecordBatch // nil: none; the caller releases it
	Metadata []byte            // app_metadata
}

// Reader receives record batches of one schema. One goroutine at a time may use it.
type Reader struct {
	stream  Receiver
	options Options

	descriptor   *flight.FlightDescriptor
	schema       *arrow.Schema
	plain        bool        // the loader knows all types of the schema
	header       []byte      // of the schema's message
	dictionaries []*incoming // the messages of the dictionaries
	kept         int64       // bytes that they come to

	peeked *incoming
	err    error // sticks
}

// NewReader returns a reader of what a stream brings.
func NewReader(stream Receiver, o Options) *Reader {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	return &Reader{stream: stream, options: o}
}

// Schema is that of the batches, nil before it came.
func (r *Reader) Schema() *arrow.Schema { return r.schema }

// Descriptor is that of the first message, nil before it came and where there was none.
func (r *Reader) Descriptor() *flight.FlightDescriptor { return r.descriptor }

// Peek waits for the next message, so that its descriptor is known; Next returns what else it brought.
func (r *Reader) Peek() error {
	if r.peeked != nil || r.err != nil {
		return r.err
	}
	m := &incoming{allocator: r.options.Allocator, maxBytes: r.options.MaxBytes}
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

// Next returns the next batch or app_metadata. At the end of the stream it returns io.EOF; that and any other error stay.
func (r *Reader) Next() (Frame, error) {
	for {
		if err := r.Peek(); err != nil {
			return Frame{}, err
		}
		m := r.peeked
		r.peeked = nil
		batch, err := r.take(m)
		if err != nil {
			m.free()
			r.err = err
			return Frame{}, err
		}
		// Some writers send a batch's app_metadata with the schema and the dictionaries before it, too.
		if batch != nil || len(m.header) == 0 && len(m.metadata) > 0 {
			return Frame{batch, m.metadata}, nil
		}
	}
}

// take looks at a message and returns its batch, nil if it has none. The body is the batch's afterwards.
func (r *Reader) take(m *incoming) (arrow.RecordBatch, error) {
	if len(m.header) == 0 {
		if m.body != nil && m.body.Len() > 0 {
			return nil, malformed("it has a body and no header")
		}
		m.free()
		return nil, nil
	}
	s, err := check(m.header, m.body, r.options.MaxBytes)
	if err != nil {
		return nil, err
	}
	if s.kind != schemaKind && r.schema == nil {
		return nil, malformed("it comes before a schema")
	}
	switch s.kind {
	case schemaKind:
		defer m.free()
		return nil, r.takeSchema(m)
	case dictionaryKind:
		return nil, r.takeDictionary(m, s)
	}
	if m.body == nil {
		m.body = memory.NewBufferBytes(nil)
	}
	batch, err := r.batch(m, &s)
	if err == nil {
		m.free()
	}
	return batch, err
}

func (r *Reader) takeSchema(m *incoming) error {
	if r.schema != nil {
		return malformed("it is a second schema")
	}
	schema, err := readSchema(m)
	if err != nil {
		return err
	}
	r.schema, r.header = schema, m.header
	r.plain, err = checkTypes(schema)
	return err
}

// takeDictionary keeps a dictionary for the batches to come.
func (r *Reader) takeDictionary(m *incoming, s shape) error {
	if r.plain {
		return malformed("it is a dictionary, and no column has one")
	}
	if !s.fitsText() {
		return malformed("its dictionary is not of text")
	}
	if m.body != nil {
		r.kept += max(int64(m.body.Len()), s.unpacked)
	}
	if r.kept += int64(len(m.header)); r.kept > r.options.MaxBytes {
		return wire.Errorf(wire.TooLarge, "dictionaries of more than %d bytes: send text", r.options.MaxBytes)
	}
	r.dictionaries = append(r.dictionaries, m)
	return nil
}

// batch makes a record batch of a message.
func (r *Reader) batch(m *incoming, s *shape) (batch arrow.RecordBatch, err error) {
	if !s.fits(r.schema) {
		return nil, malformed("it has %d arrays and %d buffers, other than its schema", len(s.nodes), len(s.buffers))
	}
	if !r.plain || s.compressed {
		return r.readAny(m)
	}
	defer recovered(&err)
	return load(r.schema, s, m.body)
}

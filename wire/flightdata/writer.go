package flightdata

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Sender is the sending end of a gRPC stream, such as flight.FlightService_DoGetServer or
// flight.FlightService_DoPutClient, of a server with [ServerOption] or a call with [CallOption].
type Sender interface{ SendMsg(m any) error }

// Writer sends record batches of one schema. One goroutine at a time may use it.
type Writer struct {
	stream     Sender
	schema     *arrow.Schema
	descriptor *flight.FlightDescriptor // nil once it was sent
	begun      bool
}

// NewWriter returns a writer of batches of a schema without dictionaries. The schema is sent before the first batch, or
// by [Writer.Begin]. A descriptor is sent with the first message; servers send none.
func NewWriter(stream Sender, schema *arrow.Schema, descriptor *flight.FlightDescriptor) *Writer {
	return &Writer{stream: stream, schema: schema, descriptor: descriptor}
}

// Begin sends the schema if it was not sent yet.
func (w *Writer) Begin() error {
	if w.begun {
		return nil
	}
	for _, f := range w.schema.Fields() {
		if f.Type.ID() == arrow.DICTIONARY {
			return fmt.Errorf("column %s is a dictionary: write text", f.Name)
		}
	}
	w.begun = true
	payload := ipc.GetSchemaPayload(w.schema, memory.DefaultAllocator)
	return w.send(nil, &payload, func() {})
}

// Write sends a record batch, with app_metadata unless it is empty. The caller may release the batch at once but must
// not change its memory, which is held until gRPC releases it.
func (w *Writer) Write(rec arrow.RecordBatch, metadata []byte) error {
	return w.WriteThen(rec, metadata, func() {})
}

// WriteThen is Write, and calls done at most once, when gRPC releases the batch's memory: after all of it was written
// to the connection, or once it never will be. If the batch is so small that it was copied, that is at once. If a
// stream breaks while a message is queued, gRPC may drop the message without a release, and done is never called:
// whoever waits for it must watch the stream's context too.
func (w *Writer) WriteThen(rec arrow.RecordBatch, metadata []byte, done func()) error {
	payload, err := w.encode(rec)
	if err != nil {
		done()
		return err
	}
	return w.send(metadata, payload, done)
}

// WriteMetadata sends a message of app_metadata alone.
func (w *Writer) WriteMetadata(metadata []byte) error { return w.send(metadata, nil, func() {}) }

// SendPutResult sends the answer to a DoPut message; done is called as by [Writer.WriteThen]. It keeps metadata.
func SendPutResult(stream Sender, metadata []byte, done func()) error {
	body := pieces{lease: &lease{done: done}}
	body.small = protowire.AppendTag(nil, resultField, protowire.BytesType)
	body.small = protowire.AppendVarint(body.small, uint64(len(metadata)))
	_, _ = body.Write(metadata) // never fails
	body.flush()
	m := &outgoing{pieces: body.lend()}
	defer m.drop()
	return stream.SendMsg(m)
}

// encode encodes a record batch, after it has sent the schema.
func (w *Writer) encode(rec arrow.RecordBatch) (*ipc.Payload, error) {
	if err := w.Begin(); err != nil {
		return nil, err
	}
	if s := rec.Schema(); s != w.schema && !s.Equal(w.schema) {
		return nil, fmt.Errorf("batch has columns %v, the stream %v", s.Fields(), w.schema.Fields())
	}
	payload, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding a batch of %d rows: %w", rec.NumRows(), err)
	}
	return &payload, nil
}

func (w *Writer) send(metadata []byte, payload *ipc.Payload, done func()) error {
	m, err := newOutgoing(w.descriptor, metadata, payload, done)
	if err != nil {
		done()
		return err
	}
	w.descriptor = nil
	defer m.drop()
	return w.stream.SendMsg(m)
}

// outgoing is a message to send. Its large pieces are lent to gRPC.
type outgoing struct {
	pieces mem.BufferSlice
	sent   bool
}

// newOutgoing makes a message of a payload, which it takes over; nil is none. done is called when the payload is
// released, unless there is an error.
func newOutgoing(descriptor *flight.FlightDescriptor, metadata []byte, payload *ipc.Payload, done func()) (*outgoing,
	error) {
	var head []byte
	if descriptor != nil {
		b, err := proto.Marshal(descriptor)
		if err != nil {
			return nil, err
		}
		head = appendField(head, descriptorField, b)
	}
	if len(metadata) > 0 {
		head = appendField(head, metadataField, metadata)
	}
	if payload == nil {
		return &outgoing{pieces: mem.BufferSlice{mem.SliceBuffer(head)}}, nil
	}
	meta := payload.Meta()
	head = appendField(head, headerField, meta.Bytes())
	meta.Release()
	body := pieces{lease: &lease{payload: *payload, done: done}}
	if err := payload.SerializeBody(&body); err != nil {
		payload.Release()
		return nil, err
	}
	body.flush()
	// An empty body is sent too: some readers expect one with every header.
	head = protowire.AppendTag(head, bodyField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(body.size))
	return &outgoing{pieces: append(mem.BufferSlice{mem.SliceBuffer(head)}, body.lend()...)}, nil
}

func appendField(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

// marshal hands the pieces to gRPC, which frees them. A second call fails: the memory may be gone.
func (m *outgoing) marshal() (mem.BufferSlice, error) {
	if m.sent {
		return nil, errors.New("message was sent before")
	}
	m.sent = true
	return m.pieces, nil
}

// drop frees a message that gRPC never took.
func (m *outgoing) drop() {
	if !m.sent {
		m.sent = true
		m.pieces.Free()
	}
}

// smallPiece is the size in bytes up to which pieces of a body are copied together. gRPC does not count references to
// pieces below 1 KiB, so these cannot be lent.
const smallPiece = 4 << 10

// pieces is a body as it is written: small pieces copied together, large ones lent.
type pieces struct {
	lease *lease
	small []byte
	list  []piece
	size  int
}

type piece struct {
	b    []byte
	lent bool
}

// Write adds a piece.
func (p *pieces) Write(b []byte) (int, error) {
	p.size += len(b)
	if len(b) <= smallPiece {
		p.small = append(p.small, b...)
		return len(b), nil
	}
	p.flush()
	p.list = append(p.list, piece{b, true})
	return len(b), nil
}

// flush ends a run of small pieces.
func (p *pieces) flush() {
	if len(p.small) > 0 {
		p.list = append(p.list, piece{b: p.small})
		p.small = nil
	}
}

// lend makes buffers of the pieces. The payload is released when the last lent piece has come back, at once if none was
// lent.
func (p *pieces) lend() mem.BufferSlice {
	p.lease.out.Store(1)
	buffers := make(mem.BufferSlice, len(p.list))
	for i := range p.list {
		if piece := &p.list[i]; piece.lent {
			p.lease.out.Add(1)
			buffers[i] = mem.NewBuffer(&piece.b, p.lease)
		} else {
			buffers[i] = mem.SliceBuffer(piece.b)
		}
	}
	p.lease.Put(nil)
	return buffers
}

// lease is a payload lent to gRPC, which sees it as the pool of the pieces.
type lease struct {
	payload ipc.Payload
	done    func()       // called after the release
	out     atomic.Int64 // pieces that are not back
}

// Get is never called: gRPC takes no buffers from here.
func (l *lease) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put takes a piece back.
func (l *lease) Put(*[]byte) {
	if l.out.Add(-1) == 0 {
		l.payload.Release()
		l.done()
	}
}

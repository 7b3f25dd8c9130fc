package flightdata

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Sender is a gRPC stream that messages go out on: a flight.FlightService_DoGetServer, a flight.FlightService_DoPutClient and
// their like, of a server with [ServerOption] or a call with [CallOption].
type Sender interface{ SendMsg(m any) error }

// Writer sends record batches of one schema. One goroutine at a time may use it.
type Writer struct {
	stream     Sender
	schema     *arrow.Schema
	descriptor *flight.FlightDescriptor // until it has gone out
	begun      bool
}

// NewWriter returns a writer of batches of a schema, none of whose columns may be dictionaries. The schema goes out before the
// first batch, or with [Writer.Begin]. A descriptor goes out with the first message; servers send none.
func NewWriter(stream Sender, schema *arrow.Schema, descriptor *flight.FlightDescriptor) *Writer {
	return &Writer{stream: stream, schema: schema, descriptor: descriptor}
}

// Begin sends the schema if it has not gone out.
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

// Write sends a record batch, with app_metadata if there is any. The caller may release the batch at once: its memory stays
// until gRPC has let go of it. Nobody may change it until then.
func (w *Writer) Write(rec arrow.RecordBatch, metadata []byte) error {
	return w.WriteThen(rec, metadata, func() {})
}

// WriteThen is Write, and calls done at most once, when gRPC has let go of the batch's memory: after all of it was written to the
// connection, or once it never will be. A batch so small that its memory was copied is done at once. Where a stream breaks
// while a message waits to go out, gRPC may drop it without letting go, and done is never called: whoever waits for it has to
// look at the stream's context too.
func (w *Writer) WriteThen(rec arrow.RecordBatch, metadata []byte, done func()) error {
	payload, err := w.payload(rec)
	if err != nil {
		done()
		return err
	}
	return w.send(metadata, payload, done)
}

// payload encodes a record batch, after the schema has gone out.
func (w *Writer) payload(rec arrow.RecordBatch) (*ipc.Payload, error) {
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

// WriteMetadata sends a message of app_metadata alone.
func (w *Writer) WriteMetadata(metadata []byte) error { return w.send(metadata, nil, func() {}) }

func (w *Writer) send(metadata []byte, payload *ipc.Payload, done func()) error {
	m, err := envelope{w.descriptor, metadata}.encode(payload, done)
	if err != nil {
		done()
		return err
	}
	w.descriptor = nil
	defer m.drop()
	return w.stream.SendMsg(m)
}

package flightdata

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/wire"
)

// queue gives messages to Arrow's reader, which reads what a loader cannot: dictionaries, compressed bodies, uncommon types.
type queue struct {
	messages []*ipc.Message
	given    int
}

func (q *queue) add(m *incoming) {
	body := m.body
	if body == nil {
		body = memory.NewBufferBytes(nil)
	}
	q.messages = append(q.messages, ipc.NewMessage(memory.NewBufferBytes(m.header), body))
}

// Message gives the next message.
func (q *queue) Message() (*ipc.Message, error) {
	if q.given == len(q.messages) {
		return nil, io.EOF
	}
	q.given++
	return q.messages[q.given-1], nil
}

// Retain is never called: the queue is used by one reader.
func (q *queue) Retain() {}

// Release lets go of the messages.
func (q *queue) Release() {
	for _, m := range q.messages {
		m.Release()
	}
	q.messages, q.given = nil, 0
}

// readSchema reads the message of a schema.
func readSchema(m *incoming) (schema *arrow.Schema, err error) {
	defer recovered(&err)
	q := &queue{}
	q.add(m)
	r, err := ipc.NewReaderFromMessageReader(q)
	if err != nil {
		return nil, malformed("%v", err)
	}
	defer r.Release()
	return r.Schema(), nil
}

// readAny reads a batch by Arrow's reader. It gets schema and dictionaries anew for each batch, as it would keep the batch until
// it gets the next.
func (r *Reader) readAny(m *incoming) (batch arrow.RecordBatch, err error) {
	defer recovered(&err)
	q := &queue{}
	q.add(&incoming{header: r.header})
	for _, d := range r.dictionaries {
		q.add(d)
	}
	q.add(m)
	reader, err := ipc.NewReaderFromMessageReader(q, ipc.WithAllocator(newAllocator(r.options.Allocator)))
	if err != nil {
		return nil, malformed("%v", err)
	}
	defer reader.Release()
	if !reader.Next() {
		if reader.Err() == nil {
			return nil, malformed("it comes before its dictionaries")
		}
		return nil, wire.Errorf(wire.Invalid, "malformed Flight message: %v", reader.Err())
	}
	batch = reader.RecordBatch()
	batch.Retain()
	return batch, nil
}

// newAllocator is where decompressed memory comes from.
func newAllocator(a memory.Allocator) memory.Allocator {
	if a == nil {
		return memory.DefaultAllocator
	}
	return a
}

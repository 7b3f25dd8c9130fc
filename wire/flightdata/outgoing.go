package flightdata

import (
	"errors"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The fields of Flight's message FlightData.
const (
	descriptorField = 1
	headerField     = 2
	metadataField   = 3
	bodyField       = 1000
)

// smallPiece is the size in bytes up to which pieces of a body are copied together. gRPC counts no references to pieces below
// 1 KiB, so these could not be lent to it.
const smallPiece = 4 << 10

// outgoing is a message on its way out: its pieces, of which the large ones are lent.
type outgoing struct {
	pieces mem.BufferSlice
	sent   bool
}

// errTwice is returned for a message that is marshalled once more, when its memory may be gone.
func errTwice() error { return errors.New("message was sent before") }

// marshal gives the pieces to gRPC, which frees them.
func (m *outgoing) marshal() (mem.BufferSlice, error) {
	if m.sent {
		return nil, errTwice()
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

// envelope is what a message says beside its body.
type envelope struct {
	descriptor *flight.FlightDescriptor
	metadata   []byte
}

// encode makes a message of a payload, which it takes over; nil is none. Done is called when the payload is released, unless there is an error.
func (e envelope) encode(payload *ipc.Payload, done func()) (*outgoing, error) {
	var head []byte
	if e.descriptor != nil {
		b, err := proto.Marshal(e.descriptor)
		if err != nil {
			return nil, err
		}
		head = appendField(head, descriptorField, b)
	}
	if len(e.metadata) > 0 {
		head = appendField(head, metadataField, e.metadata)
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
	// An empty body goes out too: some readers expect one with every header.
	head = protowire.AppendTag(head, bodyField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(body.size))
	return &outgoing{pieces: append(mem.BufferSlice{mem.SliceBuffer(head)}, body.lend()...)}, nil
}

func appendField(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

// pieces is a body as it is written: small pieces copied together, large ones as they are.
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

// Write takes the next piece.
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

// lend makes buffers of the pieces. The payload is released when the last one that was lent has come back, at once if none was.
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

// lease is a payload lent to gRPC. To gRPC it is the pool that the pieces go back to.
type lease struct {
	payload ipc.Payload
	done    func()       // called after the release
	out     atomic.Int64 // pieces that are not back
}

// Get is never called: gRPC takes no buffers of its own from here.
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

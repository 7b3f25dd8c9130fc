package client

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// ReuseMemory has the stream's batches use memory in turns, from the next connection on: call it before the first batch. A
// batch with all its rollouts is then good until another is asked for; who keeps something of it copies it. For batches of megabytes
// that halves the client's time, which goes into clearing new memory and collecting old otherwise.
func (s *Stream) ReuseMemory() { s.pool = new(wire.Pool) }

// recycled is the memory of an exchange whose batches use it in turns.
type recycled struct {
	pool *wire.Pool        // nil: each batch has its own
	last arrow.RecordBatch // handed out, nil if there is none
}

// recycle has the batches to come take their memory from a pool.
func (x *exchange) recycle(pool *wire.Pool, maxBytes int) {
	x.recycled.pool = pool
	x.reader = flightdata.NewReader(x.stream, flightdata.Options{MaxBytes: int64(maxBytes), Allocator: pool})
}

// handOut notes the batch that its memory is to come back from.
func (r *recycled) handOut(batch arrow.RecordBatch) {
	if r.pool != nil {
		r.last = batch
	}
}

// takeBack gives the memory of the batch before to the next.
func (r *recycled) takeBack() {
	if r.last != nil {
		r.last.Release()
		r.last = nil
	}
}

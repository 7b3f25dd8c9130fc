package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// packedBatch is a batch as the record batch that is sent.
type packedBatch struct {
	batch  *rollout.Batch
	record arrow.RecordBatch
	bytes  int64  // estimate
	free   func() // releases its share of the outgoing budget, once
}

// discard frees a batch that is not sent.
func (p *packedBatch) discard() {
	p.record.Release()
	p.free()
}

// rowBytes estimates what a row takes besides its payload.
const rowBytes = 96

// estimateBytes returns about how many bytes draws take when packed.
func estimateBytes(draws []rollout.Draw) int64 {
	sum := int64(rowBytes * len(draws))
	for i := range draws {
		sum += draws[i].Rollout.Bytes()
	}
	return sum
}

// packedBytes estimates the size of a batch. It refuses one that no message can hold.
func (t *table) packedBytes(b *rollout.Batch) (bytes int64, err error) {
	bytes = estimateBytes(b.Draws)
	if most := t.service.options.MaxMessageBytes; bytes > most {
		return bytes, wire.Errorf(wire.TooLarge, "a batch of %d rollouts takes about %d bytes, above "+
			"max_message_bytes %d: ask for fewer rollouts, or raise max_message_bytes", len(b.Draws), bytes, most)
	}
	return bytes, nil
}

// pack packs a batch, after waiting for memory.
func (t *table) pack(ctx context.Context, b *rollout.Batch, schema *arrow.Schema) (*packedBatch, error) {
	bytes, err := t.packedBytes(b)
	if err != nil {
		return nil, err
	}
	free, err := t.service.outgoing.acquire(ctx, t.service.accountOf(ctx), t.Name, bytes)
	if err != nil {
		return nil, err
	}
	return t.packInto(b, schema, bytes, free)
}

// tryPack packs a batch if there is plenty of memory; it returns nil otherwise.
func (t *table) tryPack(ctx context.Context, b *rollout.Batch, schema *arrow.Schema) (*packedBatch, error) {
	bytes := estimateBytes(b.Draws)
	free := t.service.outgoing.tryAcquire(t.service.accountOf(ctx), t.Name, bytes, keepHalf)
	if free == nil {
		return nil, nil
	}
	return t.packInto(b, schema, bytes, free)
}

// packInto packs a batch into memory taken from the outgoing budget.
func (t *table) packInto(b *rollout.Batch, schema *arrow.Schema, bytes int64, free func()) (*packedBatch, error) {
	p := &packedBatch{batch: b, bytes: bytes, free: free}
	var err error
	if p.record, err = t.service.gatherer.Batch(b.Draws, schema); err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// sender sends record batches of one schema to a caller, or answers. Each is written out before the next is sent,
// so that a stream holds the memory of one batch besides the prefetched ones.
type sender struct {
	service *Service
	ctx     context.Context
	conn    *conn // nil: unknown
	schema  *arrow.Schema
	writer  *flightdata.Writer
}

// stream is a Flight stream to send on.
type stream interface {
	Context() context.Context
	SendMsg(m any) error
}

func (s *Service) newSender(to stream, schema *arrow.Schema) *sender {
	return &sender{s, to.Context(), connOf(to.Context()), schema, flightdata.NewWriter(to, schema, nil)}
}

// send sends a record batch, which it releases, and returns once all of it is written out. It calls free once the
// memory is free or about to be: gRPC drops what it holds for a connection that ended without reporting that it was
// written.
func (s *sender) send(rec arrow.RecordBatch, metadata []byte, free func()) error {
	defer free()
	return s.writeOut(func(done func()) error {
		defer rec.Release()
		return s.writer.WriteThen(rec, metadata, done)
	})
}

// writeOut writes a message, and returns once all of it is written out: then write has called done. A caller that takes
// nothing for Options.SendTimeout is disconnected.
func (s *sender) writeOut(write func(done func()) error) error {
	written := make(chan struct{})
	dog := s.watch()
	defer dog.stop()
	if err := write(func() { close(written) }); err != nil {
		return err
	}
	select {
	case <-written:
	case <-s.ctx.Done():
	case <-dog.fired:
	}
	select {
	case <-written: // whoever has all of it may leave at once
		return nil
	default:
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if dog.timedOut.Load() {
		return wire.Errorf(wire.Closing, "the reader took nothing for %v (send_timeout)", s.service.options.SendTimeout)
	}
	return nil
}

// sendMetadata sends a message without a record batch.
func (s *sender) sendMetadata(metadata []byte) error {
	dog := s.watch()
	defer dog.stop()
	return s.writer.WriteMetadata(metadata)
}

// A message may take maxSendTimeouts send timeouts, if its connection takes at least minSendBytes in each.
const (
	maxSendTimeouts = 10
	minSendBytes    = 64 << 10
)

// watchdog disconnects a reader that takes nothing.
type watchdog struct {
	mu       sync.Mutex // guards timer and stopped
	timer    *time.Timer
	stopped  bool
	timedOut atomic.Bool
	fired    chan struct{} // closed when it disconnects
}

// watch starts a watchdog for one message.
func (s *sender) watch() *watchdog {
	d := &watchdog{fired: make(chan struct{})}
	timeout := s.service.options.SendTimeout
	before, rounds := s.bytesSent(), 0
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(timeout, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stopped {
			return
		}
		sent := s.bytesSent()
		if rounds++; sent-before >= minSendBytes && rounds < maxSendTimeouts {
			before = sent
			d.timer.Reset(timeout)
			return
		}
		d.timedOut.Store(true)
		close(d.fired)
		s.disconnect()
	})
	return d
}

func (d *watchdog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.timer.Stop()
}

// bytesSent returns how many bytes the connection has taken.
func (s *sender) bytesSent() uint64 {
	if s.conn == nil {
		return 0
	}
	return s.conn.sent.Load()
}

func (s *sender) disconnect() {
	s.service.slowReaders.Add(1)
	if s.conn == nil {
		return
	}
	s.service.log.Warn("disconnecting a reader that takes nothing", "peer", s.conn.peer, "send_timeout",
		s.service.options.SendTimeout)
	if err := s.conn.Close(); err != nil {
		s.service.log.Debug("closing a connection", "peer", s.conn.peer, "error", err)
	}
}

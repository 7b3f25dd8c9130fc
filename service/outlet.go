package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// outlet sends record batches of one schema to a caller, one at a time: each is written out before the next is sent, so that a
// stream holds no more memory than one batch beside those prefetched.
type outlet struct {
	service *Service
	ctx     context.Context
	conn    *conn // nil: unknown
	writer  *flightdata.Writer
}

// stream is what answers of record batches are sent on.
type stream interface {
	Context() context.Context
	SendMsg(m any) error
}

func (s *Service) newOutlet(to stream, schema *arrow.Schema) *outlet {
	return &outlet{s, to.Context(), connOf(to.Context()), flightdata.NewWriter(to, schema, nil)}
}

// send sends a record batch, which it releases, and returns once all of it was written out. A caller that takes nothing for
// Options.SendTimeout is disconnected. Paid is called once the memory is free, or about to be: gRPC drops what it holds for a
// connection that ended without giving it back.
func (o *outlet) send(rec arrow.RecordBatch, metadata []byte, paid func()) error {
	defer paid()
	written := make(chan struct{})
	dog := o.guard()
	defer dog.stop()
	err := o.writer.WriteThen(rec, metadata, func() { close(written) })
	rec.Release()
	if err != nil {
		return err
	}
	select {
	case <-written:
	case <-o.ctx.Done():
	case <-dog.bites:
	}
	if err := o.ctx.Err(); err != nil {
		return err
	}
	if dog.bit.Load() {
		return wire.Errorf(wire.Closing, "the reader took nothing for %v (send_timeout)", o.service.options.SendTimeout)
	}
	return nil
}

// tell sends metadata alone.
func (o *outlet) tell(metadata []byte) error {
	dog := o.guard()
	defer dog.stop()
	return o.writer.WriteMetadata(metadata)
}

// patientFor is how many times SendTimeout one message may take while others on its connection move.
const patientFor = 10

// watchdog disconnects a reader that takes nothing.
type watchdog struct {
	timer *time.Timer
	mu    sync.Mutex // guards stopped
	ended bool
	bit   atomic.Bool
	bites chan struct{} // closed when it bites
}

// guard starts to watch over one message.
func (o *outlet) guard() *watchdog {
	d := &watchdog{bites: make(chan struct{})}
	limit := o.service.options.SendTimeout
	seen, rounds := o.progress(), 0
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(limit, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.ended {
			return
		}
		now := o.progress()
		if rounds++; now != seen && rounds < patientFor {
			seen = now
			d.timer.Reset(limit)
			return
		}
		d.bit.Store(true)
		close(d.bites)
		o.disconnect()
	})
	return d
}

// progress is how many bytes the connection has taken.
func (o *outlet) progress() uint64 {
	if o.conn == nil {
		return 0
	}
	return o.conn.sent.Load()
}

func (o *outlet) disconnect() {
	o.service.slowReaders.Add(1)
	if o.conn == nil {
		return
	}
	o.service.log.Warn("disconnecting a reader that takes nothing", "peer", o.conn.peer, "send_timeout", o.service.options.SendTimeout)
	if err := o.conn.Close(); err != nil {
		o.service.log.Debug("closing a connection", "peer", o.conn.peer, "error", err)
	}
}

func (d *watchdog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.timer.Stop()
}

package client

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// errClosed is what a closed stream answers.
var errClosed = errors.New("stream is closed")

// Stream gives batch after batch on lease. The service draws and packs the next one ahead (wire.SampleRequest.Prefetch,
// default 1). One goroutine at a time may use it.
//
// A batch counts as used once the next is asked for, or once it is acknowledged. What was not goes back when the stream is
// closed or its connection breaks; the stream then connects anew by itself, and a batch that was on its way is drawn anew.
type Stream struct {
	table   *Table
	request wire.SampleRequest
	x       *exchange       // nil before the first request, and after a loss
	handed  rollout.BatchID // the last batch, 0 once it is settled
	pool    *wire.Pool      // see ReuseMemory; nil: none
	ahead   ahead           // see ReadAhead

	life // ends with Close, and with it the connection
}

// Stream returns a stream of batches as req describes them, each like the first; its request id, if any, is that of the first
// batch. Nothing is asked for yet. How long Next waits for rollouts says [Table.Waiting].
func (t *Table) Stream(ctx context.Context, req wire.SampleRequest) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Export || req.UseAtDraw {
		return nil, t.failed("stream", wire.Errorf(wire.Invalid, "export and use_at_draw are not of streams: want neither"))
	}
	req.Table = ""
	return &Stream{table: t, request: req, life: newLife()}, nil
}

// Next acknowledges the batch before and returns another.
func (s *Stream) Next(ctx context.Context) (*rollout.Batch, error) {
	return s.next(ctx, nil)
}

// Exchange releases the batch before, uncounted, and returns another.
func (s *Stream) Exchange(ctx context.Context) (*rollout.Batch, error) {
	var release []uint64
	if s.handed != 0 {
		release = []uint64{uint64(s.handed)}
	}
	return s.next(ctx, release)
}

func (s *Stream) next(ctx context.Context, release []uint64) (*rollout.Batch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	t := s.table
	req := s.request
	req.Release = release
	if a, ok := s.arrived(ctx, &req); ok {
		return s.take(a, release), nil
	}
	var a answered
	err := t.waitOut(ctx, rollout.ErrStarved, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		req.TimeoutMS = &ms
		return t.client.repeat(ctx, t.client.options.Patience, wait, func(ctx context.Context, _ int) (err error) {
			a, err = s.once(ctx, &req)
			return err
		})
	})
	if err != nil {
		return nil, t.failed("stream", err)
	}
	return s.take(a, release), nil
}

// take hands a batch over. The one before, where no request has settled it yet, is released or else acknowledged.
func (s *Stream) take(a answered, release []uint64) *rollout.Batch {
	s.request.RequestID = ""
	before := s.handed
	s.handed = a.batch.ID
	s.table.heard(a.present)
	s.askAhead(before, release)
	return a.batch
}

// once asks on the present connection, or on a new one: there nothing is left to be settled.
func (s *Stream) once(ctx context.Context, req *wire.SampleRequest) (a answered, err error) {
	if s.x == nil {
		req.Acknowledge, req.Release, s.handed = nil, nil, 0
		if s.x, err = s.table.openExchange(); err != nil {
			return a, err
		}
		if s.pool != nil {
			s.x.recycle(s.pool, s.table.client.options.MaxMessageBytes)
		}
		context.AfterFunc(s.ctx, s.x.end)
	}
	lost := true
	a, err = s.x.askDuring(ctx, *req, func() { lost = false })
	if lost {
		s.lose()
		return a, err
	}
	s.handed, req.Acknowledge, req.Release = 0, nil, nil // the request has settled what was handed over, whatever came of it
	return a, err
}

// lose gives the connection up; what was on lease over it goes back.
func (s *Stream) lose() {
	s.x.end()
	s.x, s.ahead.asked = nil, false
}

// Acknowledge counts the last batch as used, where no other is to be asked for.
func (s *Stream) Acknowledge(ctx context.Context) error {
	if s.handed == 0 {
		return nil
	}
	err := s.table.Acknowledge(ctx, s.handed)
	if err == nil {
		s.handed = 0
	}
	return err
}

// Close ends the stream; a batch that was not acknowledged goes back. It may be called from any goroutine, and more than once.
func (s *Stream) Close() error {
	s.end()
	return nil
}

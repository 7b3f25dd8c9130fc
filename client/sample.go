package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Sample draws a batch, receives it whole, acknowledges it, and returns it once the service has answered that. If this
// program ends before, or ctx does, the draws go back: a queue delivers its rollouts again and names them
// (rollout.Draw.Redelivered). Nothing is returned by two calls unless it is so named, and nothing is lost before this
// returns. What a program that crashes afterwards had not finished with is used: [Table.Lease] and [Table.Stream]
// acknowledge when the program says so.
//
// Callers that may die set a request id of their own: repeated, it gets the same batch, with rollout.Batch.Repeated if
// it had been acknowledged. The rollouts of a queue's acknowledged batch may be gone from the service: then the error
// wraps rollout.ErrNoLease and names them. It wraps rollout.ErrStarved if the table holds too few rollouts.
func (t *Table) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if req.ID == "" {
		req.ID = t.client.nextID()
	}
	wireReq := wire.Single(req)
	wireReq.UseAtDraw = t.atDraw
	var held *rollout.Batch // received, and its acknowledgement sent
	err := t.waitOut(ctx, rollout.ErrStarved, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		wireReq.TimeoutMS = &ms
		return t.client.retry(ctx, wait, func(ctx context.Context) error { return t.trySample(ctx, wireReq, &held) })
	})
	if errors.Is(err, rollout.ErrNoLease) && held != nil {
		err = nil // the service had acknowledged it; only the answer was lost
	}
	if err != nil {
		return nil, t.failed("sample", err)
	}
	return held, nil
}

// trySample leases a batch on a pooled stream and acknowledges it. The batch is held once it was received, unless it
// went back.
func (t *Table) trySample(ctx context.Context, req wire.SampleRequest, held **rollout.Batch) error {
	s, ok := t.samples.get()
	if !ok {
		var err error
		if s, err = t.newSampleStream(nil); err != nil {
			return err
		}
	}
	wentBack := false
	a, usable, err := s.roundTrip(ctx, req)
	if err == nil && !usable {
		err = context.Cause(ctx) // it ended as the answer came
	}
	if b := a.batch; err == nil && b != nil {
		if *held == nil || !b.Repeated {
			*held = b // a service that crashed may give other rollouts under the same batch id
		}
		if !b.Repeated && !req.UseAtDraw {
			a, usable, err = s.roundTrip(ctx, wire.SampleRequest{Acknowledge: []uint64{uint64(b.ID)}})
			wentBack = a.status != nil && a.status.Code == wire.NoLease
		}
	}
	if usable {
		t.samples.put(s)
	}
	switch {
	case err != nil:
		t.samples.endAll()
		return err
	case wentBack: // its time was over, or the table was rewound
		*held = nil
		return status.Error(codes.Aborted, a.status.Message) // draw another
	}
	return a.err()
}

// Lease draws a batch whose draws become uses when it is acknowledged ([Table.Acknowledge]). They go back if it is
// released, or not settled before the connection breaks or the table's lease time ends. For batch after batch a
// [Stream] costs less.
func (t *Table) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, err := t.Stream(ctx, wire.Single(req))
	if err != nil {
		return nil, err
	}
	b, err := s.Next(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.leased[b.ID]; before != nil { // a repeated request id: the lease has passed to this stream
		before.end()
	}
	t.leased[b.ID] = s
	return b, nil
}

// Acknowledge counts the draws of leased batches as used, all or none. The error wraps rollout.ErrNoLease if one is not
// on lease.
func (t *Table) Acknowledge(ctx context.Context, batches ...rollout.BatchID) error {
	return t.settle(ctx, wire.Acknowledge, batches)
}

// Release returns the draws of leased batches, uncounted. The error wraps rollout.ErrNoLease if one is not on lease.
func (t *Table) Release(ctx context.Context, batches ...rollout.BatchID) error {
	return t.settle(ctx, wire.Release, batches)
}

// settle ends leases. It does not retry: a broken connection ends them too, and the error wraps ErrUnreachable.
func (t *Table) settle(ctx context.Context, kind string, batches []rollout.BatchID) error {
	if len(batches) == 0 {
		return nil
	}
	req := wire.SettleRequest{Table: t.name, Batches: make([]uint64, len(batches))}
	for i, id := range batches {
		req.Batches[i] = uint64(id)
	}
	err := t.client.actWithoutRetry(ctx, t.name, kind, req, new(wire.TableInfo))
	away := err != nil && isTransient(err)
	if gone := errors.Is(err, rollout.ErrNoLease) && len(batches) == 1; err != nil && !gone && !away {
		return err
	}
	if away {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range batches {
		if s := t.leased[id]; s != nil {
			delete(t.leased, id)
			s.end()
		}
	}
	return err
}

var errStreamClosed = errors.New("stream is closed")

// Stream gives batch after batch on lease. The service prefetches the next one (wire.SampleRequest.Prefetch, default
// 1). One goroutine at a time may use it.
//
// A batch counts as used once the next is asked for, or once it is acknowledged. Otherwise it goes back when the stream
// is closed or its connection breaks. The stream reconnects by itself, and a batch that was in transit is drawn again.
type Stream struct {
	table     *Table
	request   wire.SampleRequest
	stream    *sampleStream   // nil before the first request, and after a loss
	leased    rollout.BatchID // the last batch, 0 once it is settled
	pool      *wire.Pool      // see ReuseMemory; nil: none
	readAhead bool            // see ReadAhead
	asked     bool            // the answer to a request made ahead is on its way

	lifetime // ends with Close, and the connection with it
}

// Stream returns a stream of batches that req describes; its request id, if any, is that of the first batch. The stream
// asks for nothing yet. [Table.Waiting] sets how long Next waits for rollouts.
func (t *Table) Stream(ctx context.Context, req wire.SampleRequest) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Export || req.UseAtDraw {
		return nil, t.failed("stream", wire.Errorf(wire.Invalid, "export and use_at_draw: want neither on a stream"))
	}
	req.Table = ""
	return &Stream{table: t, request: req, lifetime: newLifetime()}, nil
}

// ReadAhead has the stream ask for the next batch as soon as one arrives, so that it travels while the caller works.
// Call it before the first batch. The service has then handed out one batch more, which goes back when the stream is
// closed. So may the batch before the last, whose acknowledgement is still on its way: [Stream.Acknowledge] settles the
// last and waits for that.
//
// If this program advances the table by more than wire.SampleRequest.PrefetchSlack versions while a batch waits, that
// batch goes back and the stream asks for another. It does not know of advances by other programs.
func (s *Stream) ReadAhead() { s.readAhead = true }

// ReuseMemory has the stream's batches take turns with memory, from the next connection on. Call it before the first
// batch. A batch is then valid until the next is asked for; a caller that keeps something of it copies it. For batches
// of megabytes this halves the client's time, most of which clears and collects memory otherwise.
func (s *Stream) ReuseMemory() { s.pool = new(wire.Pool) }

// Next acknowledges the batch before and returns another.
func (s *Stream) Next(ctx context.Context) (*rollout.Batch, error) { return s.next(ctx, false) }

// Exchange releases the batch before, uncounted, and returns another.
func (s *Stream) Exchange(ctx context.Context) (*rollout.Batch, error) {
	return s.next(ctx, s.leased != 0)
}

func (s *Stream) next(ctx context.Context, release bool) (*rollout.Batch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errStreamClosed) })()
	req := s.request
	if release {
		req.Release = []uint64{uint64(s.leased)}
	}
	if b := s.receiveAhead(ctx, &req, release); b != nil {
		return s.deliver(b, release), nil
	}
	var b *rollout.Batch
	err := s.table.waitOut(ctx, rollout.ErrStarved, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		req.TimeoutMS = &ms
		return s.table.client.retry(ctx, wait, func(ctx context.Context) (err error) {
			b, err = s.try(ctx, &req)
			return err
		})
	})
	if err != nil {
		return nil, s.table.failed("stream", err)
	}
	return s.deliver(b, release), nil
}

// try sends a request on the present connection, or on a new one, where nothing is left to settle.
func (s *Stream) try(ctx context.Context, req *wire.SampleRequest) (*rollout.Batch, error) {
	if s.stream == nil {
		req.Acknowledge, req.Release, s.leased = nil, nil, 0
		var err error
		if s.stream, err = s.table.newSampleStream(s.pool); err != nil {
			return nil, err
		}
		context.AfterFunc(s.ctx, s.stream.end)
	}
	a, usable, err := s.stream.roundTrip(ctx, *req)
	if usable {
		// the request settled the batch before, whatever its answer
		s.leased, req.Acknowledge, req.Release = 0, nil, nil
	} else {
		s.disconnect()
	}
	if err != nil {
		return nil, err
	}
	return a.batch, a.err()
}

// disconnect gives the connection up; what was leased over it goes back.
func (s *Stream) disconnect() {
	s.stream.end()
	s.stream, s.asked = nil, false
}

// disconnectIfOpen gives the connection up, if there is one.
func (s *Stream) disconnectIfOpen() {
	if s.stream != nil {
		s.disconnect()
	}
}

// deliver hands a batch to the caller. If the batch before is still on lease, the request made ahead settles it.
func (s *Stream) deliver(b *rollout.Batch, release bool) *rollout.Batch {
	s.request.RequestID = ""
	before := s.leased
	s.leased = b.ID
	if s.readAhead && s.stream != nil {
		s.askAhead(before, release)
	}
	return b
}

// askAhead asks for the batch after the one that is delivered. before is the batch before it, 0 if it is settled.
func (s *Stream) askAhead(before rollout.BatchID, release bool) {
	req := s.request
	req.Acknowledge, req.Release = []uint64{}, nil
	if before != 0 {
		req.Acknowledge, req.Release = settlement(before, release)
	}
	ms := min(s.table.wait, maxWait).Milliseconds()
	req.TimeoutMS = &ms
	if s.asked = s.stream.send(req) == nil; !s.asked {
		s.disconnect() // the next request reports why
	}
}

// receiveAhead returns the batch that was asked for ahead. If there is none, or it is too old by now, it returns nil
// and has req settle what is left to settle.
func (s *Stream) receiveAhead(ctx context.Context, req *wire.SampleRequest, release bool) *rollout.Batch {
	if !s.asked {
		return nil
	}
	s.asked = false
	a, usable, err := s.stream.answer(ctx, func() (sampleAnswer, error) { return s.stream.receive(false) })
	switch {
	case !usable:
		s.disconnect()
		return nil
	case err != nil || a.status != nil: // too few rollouts at that time, or an expired lease: ask again
		return nil
	case int64(a.batch.Version)+int64(req.PrefetchSlack) < int64(s.table.lastVersion()):
		req.Acknowledge, req.Release = nil, nil
		if s.leased != 0 {
			req.Acknowledge, req.Release = settlement(s.leased, release)
		}
		req.Release = append(req.Release, uint64(a.batch.ID))
		return nil
	}
	return a.batch
}

// settlement returns the lists of a request that release or acknowledge a batch.
func settlement(batch rollout.BatchID, release bool) (acknowledged, released []uint64) {
	if release {
		return []uint64{}, []uint64{uint64(batch)}
	}
	return []uint64{uint64(batch)}, nil
}

// Acknowledge counts the last batch as used, when no other is to be asked for.
func (s *Stream) Acknowledge(ctx context.Context) error {
	if s.leased == 0 {
		return nil
	}
	err := s.table.Acknowledge(ctx, s.leased)
	if err == nil {
		s.leased = 0
	}
	return err
}

// Close ends the stream; a batch that was not acknowledged goes back. It may be called from any goroutine, and more
// than once.
func (s *Stream) Close() error {
	s.end()
	return nil
}

// sampleStream is a DoExchange stream: requests out, batches in.
type sampleStream struct {
	lifetime
	stream flight.FlightService_DoExchangeClient
	reader *flightdata.Reader
	first  *flight.FlightDescriptor // goes with the first request
	reuses bool                     // the batches take turns with memory
	last   arrow.RecordBatch        // whose memory the next batch reuses; nil if there is none
}

// newSampleStream opens a stream. Its batches take turns with the memory of a pool; nil: each has its own.
func (t *Table) newSampleStream(pool *wire.Pool) (*sampleStream, error) {
	s := &sampleStream{lifetime: newLifetime(), first: t.descriptor(), reuses: pool != nil}
	var err error
	if s.stream, err = t.client.flight.DoExchange(s.ctx); err != nil {
		s.end()
		return nil, err
	}
	o := flightdata.Options{MaxBytes: int64(t.client.options.MaxMessageBytes)}
	if pool != nil {
		o.Allocator = pool
	}
	s.reader = flightdata.NewReader(s.stream, o)
	return s, nil
}

// sampleAnswer is the answer to a request.
type sampleAnswer struct {
	batch  *rollout.Batch
	status *wire.Status // instead of a batch: the stream goes on
}

// err returns the status as an error.
func (a sampleAnswer) err() error {
	if a.status == nil {
		return nil
	}
	if err := a.status.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %s", a.status.Code, a.status.Message)
}

// roundTrip sends a request and receives its answer.
func (s *sampleStream) roundTrip(ctx context.Context, req wire.SampleRequest) (a sampleAnswer, usable bool, err error) {
	return s.answer(ctx, func() (sampleAnswer, error) {
		if err := s.send(req); err != nil {
			return sampleAnswer{}, err
		}
		return s.receive(req.OnlySettles())
	})
}

// answer receives an answer, unless the context ends before. It reports whether the stream can be used again.
func (s *sampleStream) answer(
	ctx context.Context, receive func() (sampleAnswer, error),
) (a sampleAnswer, usable bool, err error) {
	usable, err = s.during(ctx, func() error {
		a, err = receive()
		return err
	})
	return a, usable, err
}

func (s *sampleStream) send(req wire.SampleRequest) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	message := &flight.FlightData{FlightDescriptor: s.first, AppMetadata: text}
	if err := s.stream.Send(message); err != nil && !errors.Is(err, io.EOF) { // after io.EOF receive returns the reason
		return err
	}
	s.first = nil
	return nil
}

// receive returns the answer to the oldest request without one, which asked for a batch or only settled. An error ends
// the stream.
func (s *sampleStream) receive(settles bool) (sampleAnswer, error) {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
	frame, err := s.reader.Next()
	if err != nil {
		return sampleAnswer{}, err
	}
	var info wire.BatchInfo
	if err := json.Unmarshal(frame.Metadata, &info); err != nil {
		return sampleAnswer{}, fmt.Errorf("reading the answer %.100q: %w", frame.Metadata, err)
	}
	if info.Error != nil {
		return sampleAnswer{status: info.Error}, nil
	}
	if frame.Batch == nil && settles {
		return sampleAnswer{}, nil
	}
	if frame.Batch == nil {
		return sampleAnswer{}, fmt.Errorf("the service answered %.100q without a batch: is it another version?",
			frame.Metadata)
	}
	if s.reuses {
		s.last = frame.Batch // otherwise the garbage collector frees the memory that the draws refer to
	}
	draws, err := wire.Draws(frame.Batch, ownFields(frame.Batch.Schema()))
	if err != nil {
		return sampleAnswer{}, fmt.Errorf("batch %d: %w", info.Batch, err)
	}
	if len(draws) != info.Rows {
		return sampleAnswer{}, fmt.Errorf("batch %d has %d rows, %d were announced", info.Batch, len(draws), info.Rows)
	}
	batch := &rollout.Batch{ID: rollout.BatchID(info.Batch), Version: rollout.Version(info.Version), Shard: info.Shard,
		Draws: slices.Clip(draws), PromptCounts: info.PromptCounts, SourceCounts: info.SourceCounts,
		LogWeightScale: info.LogWeightScale, Repeated: info.Repeated}
	return sampleAnswer{batch: batch}, nil
}

// ownFields returns the fields of a schema that are the table's own columns.
func ownFields(s *arrow.Schema) []arrow.Field {
	var own []arrow.Field
	for _, f := range s.Fields() {
		if strings.HasPrefix(f.Name, "x_") {
			own = append(own, f)
		}
	}
	return own
}

// ExportOptions say what [Table.Export] passes on.
type ExportOptions struct {
	Rows    int      // to a record batch; 0: 256
	Columns []string // of the sampling schema; none: all
	Where   string   // a condition, such as reward >= 1 && age < 8; none: everything
}

// Export passes what the table holds to each, in order of ids. It draws nothing. A record batch is valid until each
// returns unless it retains it. Export does not retry: the table may have changed.
func (t *Table) Export(ctx context.Context, o ExportOptions, each func(arrow.RecordBatch) error) error {
	ticket, err := json.Marshal(wire.SampleRequest{Table: t.name, Size: o.Rows, Columns: o.Columns, Where: o.Where,
		Export: true})
	if err != nil {
		return t.failed("export", err)
	}
	t.client.lookAgain(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := t.client.options.CallTimeout
	timer := time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("nothing came for %v: %w", timeout, context.DeadlineExceeded))
	})
	defer timer.Stop()
	stream, err := t.client.flight.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		return t.failed("export", decodeError(err))
	}
	reader := flightdata.NewReader(stream, flightdata.Options{MaxBytes: int64(t.client.options.MaxMessageBytes)})
	for {
		frame, err := reader.Next()
		timer.Stop()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return t.failed("export", context.Cause(ctx))
		case err != nil:
			return t.failed("export", decodeError(err))
		case frame.Batch == nil:
			continue
		}
		err = each(frame.Batch)
		frame.Batch.Release()
		if err != nil {
			return err
		}
		timer.Reset(timeout)
	}
}

// Scan is [Table.Export] with the rollouts as draws, whose probability is that of the next draw and whose weight is 1.
// They share the memory of the rows that came with them.
func (t *Table) Scan(ctx context.Context, rows int, each func([]rollout.Draw) error) error {
	return t.Export(ctx, ExportOptions{Rows: rows}, func(rec arrow.RecordBatch) error {
		rec.Retain() // the draws refer to it; the garbage collector frees it
		draws, err := wire.Draws(rec, ownFields(rec.Schema()))
		if err != nil {
			return t.failed("scan", err)
		}
		return each(draws)
	})
}

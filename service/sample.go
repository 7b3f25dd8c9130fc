package service

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// DoGet samples one batch and acknowledges it once it is written out, or exports a table.
func (s *Service) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "DoGet")
	defer c.end(&err)
	text := ticket.GetTicket()
	if len(text) > maxStreamRequestBytes {
		return wire.Errorf(wire.TooLarge, "ticket: %d bytes: want at most %d", len(text), maxStreamRequestBytes)
	}
	var req wire.SampleRequest
	if err := decodeJSON("ticket", text, &req); err != nil {
		return err
	}
	t, err := s.allowed(ctx, req.Table, toRead)
	if err != nil {
		return err
	}
	c.uses(t.Name)
	if err := s.requests.begin(); err != nil {
		return err
	}
	defer s.requests.end()
	schema, err := t.sampleSchema(req.Columns)
	if err != nil {
		return err
	}
	if req.Prefetch != nil || req.PrefetchSlack != 0 || req.Acknowledge != nil || req.Release != nil {
		return wire.Errorf(wire.Invalid,
			"ticket: prefetch, prefetch_slack, acknowledge, release: want them on a DoExchange stream only")
	}
	to := s.newSender(stream, schema)
	if req.Export {
		return t.export(&req, to)
	}
	return t.get(ctx, &req, to)
}

// sampleSchema returns the schema of the columns a request names, of all if it names none.
func (t *table) sampleSchema(columns []string) (*arrow.Schema, error) {
	if len(columns) == 0 {
		return t.schema, nil
	}
	return wire.SampleSchema(columns, t.fields...)
}

// get draws one batch, sends it and acknowledges it.
func (t *table) get(ctx context.Context, req *wire.SampleRequest, to *sender) error {
	began := time.Now()
	h := &holder{caller: t.service.callerOf(ctx)}
	r, err := t.newDrawRequest(req, h)
	if err != nil {
		return err
	}
	p, err := t.drawAndPack(ctx, r, h, to.schema)
	if err != nil {
		return err
	}
	err = t.sendBatch(ctx, r, p, to, began)
	if r.useAtDraw || p.batch.Repeated {
		return err
	}
	if err != nil {
		t.returnBatch(p.batch, h)
		return err
	}
	if err := t.acknowledgeSent(p.batch.ID, h); err != nil {
		return err
	}
	return t.flushConsumed(ctx)
}

// acknowledgeSent acknowledges a batch that was sent. One that is no longer on lease is only counted: its lease
// expired, or it repeats a batch that was acknowledged before.
func (t *table) acknowledgeSent(id rollout.BatchID, h *holder) error {
	err := t.acknowledge(id, h)
	if errors.Is(err, rollout.ErrNoLease) {
		t.meter.lapsed.Add(1)
		return nil
	}
	return err
}

// drawAndPack draws a batch and packs it. The batch is leased to the holder unless it is used at draw.
func (t *table) drawAndPack(ctx context.Context, r drawRequest, h *holder, schema *arrow.Schema) (*packedBatch, error) {
	b, err := t.draw(ctx, r, h)
	if err != nil {
		t.countStarved(err)
		return nil, err
	}
	p, err := t.pack(ctx, b, schema)
	if err != nil && !r.useAtDraw {
		t.returnBatch(b, h)
	}
	return p, err
}

func (t *table) countStarved(err error) {
	if errors.Is(err, rollout.ErrStarved) {
		t.meter.starved.Add(1)
	}
}

// sendBatch sends a packed batch, after what a queue gave out before is on disk and what is in the batch is committed.
// It frees the batch's memory.
func (t *table) sendBatch(ctx context.Context, r drawRequest, p *packedBatch, to *sender, began time.Time) error {
	err := t.flushConsumed(ctx)
	if err == nil {
		err = t.commitShown(ctx, newestOf(p.batch.Draws))
	}
	if err == nil && !(r.useAtDraw && t.Sampler.Consumes()) { // what has left a queue for good is sent: no other has it
		err = t.service.checkLease() // it may have ended since the draw
	}
	var metadata []byte
	if err == nil {
		metadata, err = encodeJSON(wire.BatchInfo{
			Batch: uint64(p.batch.ID), Version: int32(p.batch.Version), Shard: p.batch.Shard, Rows: len(p.batch.Draws),
			PromptCounts: p.batch.PromptCounts, SourceCounts: p.batch.SourceCounts,
			LogWeightScale: p.batch.LogWeightScale, Repeated: p.batch.Repeated, Present: t.present(),
		})
	}
	if err != nil {
		p.discard()
		return err
	}
	t.countSampled(p)
	if err := to.send(p.record, metadata, p.free); err != nil {
		return err
	}
	t.meter.sampleTimes.add(time.Since(began))
	return nil
}

func (t *table) countSampled(p *packedBatch) {
	m := &t.meter
	m.samples.Add(1)
	m.sampledRows.Add(uint64(len(p.batch.Draws)))
	m.sampledBytes.Add(uint64(p.bytes))
	tokens := 0
	for i := range p.batch.Draws {
		tokens += len(p.batch.Draws[i].Rollout.Tokens)
	}
	m.sampledTokens.Add(uint64(tokens))
}

// Batches that a stream prefetches, by default and at most.
const (
	defaultPrefetch = 1
	maxPrefetch     = 8
)

func errNoInsertions() error {
	return wire.Errorf(wire.Invalid, "a record batch or dictionary came on a sampling stream: want insertions on DoPut")
}

// DoExchange samples batch after batch. Each message carries a wire.SampleRequest as app_metadata, and the answer is a
// batch, leased until the next request.
func (s *Service) DoExchange(stream flight.FlightService_DoExchangeServer) (err error) {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	c := s.begin(ctx, "DoExchange")
	defer c.end(&err)
	reader := flightdata.NewReader(stream, flightdata.Options{
		MaxBytes: maxStreamRequestBytes, MaxMetadata: maxStreamRequestBytes, Allocator: s.pool,
		Reserve: func(int64, int64) (func(), error) { return nil, errNoInsertions() },
		Keep: func(bytes int64, dictionary bool) (func(), error) {
			if dictionary {
				return nil, errNoInsertions()
			}
			return s.chargeCall(ctx, bytes)
		},
	})
	defer reader.Close()
	name, err := descriptorTable(reader)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	x := &sampleStream{service: s, call: c, ctx: ctx, stream: stream, name: name,
		holder: &holder{caller: s.callerOf(ctx)}}
	defer x.close()
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(frame.Metadata) == 0 {
			continue
		}
		if err := x.handle(frame.Metadata); err != nil {
			return err
		}
	}
}

// sampleStream is one DoExchange stream.
type sampleStream struct {
	service *Service
	call    *call
	ctx     context.Context
	stream  flight.FlightService_DoExchangeServer
	name    string // of the table; "" until a request names it
	holder  *holder

	table      *table // nil until the first request
	to         *sender
	prefetcher *prefetcher       // nil: none
	leased     []rollout.BatchID // sent and not settled
}

// handle answers one request. An error ends the stream, unless it may pass: then the caller is told, and the stream
// goes on.
func (x *sampleStream) handle(text []byte) error {
	began := time.Now()
	var req wire.SampleRequest
	if err := decodeJSON("app_metadata", text, &req); err != nil {
		return err
	}
	if err := x.open(&req); err != nil {
		return err
	}
	if err := x.service.requests.begin(); err != nil {
		return err
	}
	defer x.service.requests.end()
	err := x.serve(&req, began)
	code := wire.CodeOf(err)
	ends := code == wire.Closing || code == wire.Interrupted
	if err != nil && x.ctx.Err() == nil && (code.Retryable() && !ends || code == wire.NoLease) {
		x.service.counts.failed(err)
		return x.sendInfo(wire.StatusOf(err))
	}
	return err
}

// open finds the table at the first request. Later requests must name the same table and still be allowed.
func (x *sampleStream) open(req *wire.SampleRequest) error {
	if x.name == "" {
		x.name = req.Table
	}
	if req.Table != "" && req.Table != x.name {
		return wire.Errorf(wire.Invalid, "table: %q: this stream samples %q: open another one", req.Table, x.name)
	}
	if req.Export {
		return wire.Errorf(wire.Invalid, "export: true: want it in the ticket of a DoGet")
	}
	if x.table != nil {
		return x.table.allowedStill(x.ctx, toRead)
	}
	t, err := x.service.allowed(x.ctx, x.name, toRead)
	if err != nil {
		return err
	}
	schema, err := t.sampleSchema(req.Columns)
	if err != nil {
		return err
	}
	x.table = t
	x.call.uses(t.Name)
	x.to = x.service.newSender(x.stream, schema)
	return x.to.writer.Begin()
}

// sendInfo sends the state of the table without a batch, with the error if there is one.
func (x *sampleStream) sendInfo(status *wire.Status) error {
	text, err := encodeJSON(&wire.BatchInfo{Version: int32(x.table.version()), Present: x.table.present(),
		Error: status})
	if err != nil {
		return err
	}
	return x.to.sendMetadata(text)
}

// serve settles the batches sent before and sends the next.
func (x *sampleStream) serve(req *wire.SampleRequest, began time.Time) error {
	if err := x.settle(req); err != nil {
		return err
	}
	t := x.table
	if req.OnlySettles() {
		if err := t.flushConsumed(x.ctx); err != nil {
			return err
		}
		return x.sendInfo(nil)
	}
	r, err := t.newDrawRequest(req, x.holder)
	if err != nil {
		return err
	}
	p, err := x.next(r, req)
	if err != nil {
		t.countStarved(err)
		if unsafe := t.flushConsumed(x.ctx); unsafe != nil { // the answer implies that the batches before are settled
			return unsafe
		}
		return err
	}
	if err := t.sendBatch(x.ctx, r, p, x.to, began); err != nil {
		if !r.useAtDraw {
			t.returnBatch(p.batch, x.holder)
		}
		return err
	}
	if !r.useAtDraw && !p.batch.Repeated {
		x.leased = append(x.leased, p.batch.ID)
	}
	return nil
}

// settle acknowledges and releases what the request names, or acknowledges everything if it names nothing.
func (x *sampleStream) settle(req *wire.SampleRequest) error {
	t := x.table
	if req.Acknowledge == nil && req.Release == nil {
		x.forgetSettled()
		for _, id := range x.leased {
			if err := t.acknowledgeSent(id, x.holder); err != nil {
				return err
			}
		}
		x.leased = x.leased[:0]
		return nil
	}
	defer x.forgetSettled()
	return t.settleAll(req.Acknowledge, req.Release, x.holder)
}

// forgetSettled forgets the batches that were settled, by this stream or by an action.
func (x *sampleStream) forgetSettled() {
	x.leased = slices.DeleteFunc(x.leased, func(id rollout.BatchID) bool { return !x.table.leases.has(id, x.holder) })
}

// next returns the next packed batch, a prefetched one where the request allows it.
func (x *sampleStream) next(r drawRequest, req *wire.SampleRequest) (*packedBatch, error) {
	depth := defaultPrefetch
	if req.Prefetch != nil {
		depth = *req.Prefetch
	}
	if depth < 0 || depth > maxPrefetch {
		return nil, wire.Errorf(wire.Invalid, "prefetch: %d: want 0 to %d batches", depth, maxPrefetch)
	}
	if req.PrefetchSlack < 0 {
		return nil, wire.Errorf(wire.Invalid, "prefetch_slack: %d: want versions, 0 or more", req.PrefetchSlack)
	}
	// A batch that is used at draw, or that has a request id, cannot be drawn before its request comes. The prompts of
	// the next request are others.
	if depth == 0 || r.useAtDraw || r.ID != "" || len(r.Prompts) > 0 {
		x.stopPrefetch()
		return x.table.drawAndPack(x.ctx, r, x.holder, x.to.schema)
	}
	if x.prefetcher == nil || !x.prefetcher.serves(r, depth) {
		x.stopPrefetch()
		x.prefetcher = x.table.prefetch(x.ctx, r, depth, x.holder, x.to.schema)
	}
	p, err := x.prefetcher.next(x.ctx, r.timeout, req.PrefetchSlack)
	if err != nil && x.prefetcher.failed() {
		x.stopPrefetch()
	}
	return p, err
}

func (x *sampleStream) stopPrefetch() {
	if x.prefetcher != nil {
		x.prefetcher.stop()
		x.prefetcher = nil
	}
}

// close returns the batches that were not settled.
func (x *sampleStream) close() {
	x.stopPrefetch()
	for _, id := range x.leased {
		x.table.returnBatch(&rollout.Batch{ID: id}, x.holder)
	}
}

// maxBatchRows bounds a batch, whatever the samplers allow.
const maxBatchRows = 1 << 20

// drawRequest is a validated request for a batch.
type drawRequest struct {
	rollout.Request
	timeout   time.Duration
	useAtDraw bool
}

// newDrawRequest validates a holder's request against the table. Its id is the caller's own: under another's id nobody
// gets, or takes over, the batch of that caller.
func (t *table) newDrawRequest(r *wire.SampleRequest, h *holder) (drawRequest, error) {
	d := drawRequest{Request: r.Draw(), useAtDraw: r.UseAtDraw}
	err := checkID("request_id", r.RequestID)
	if err != nil {
		return d, err
	}
	if h.caller != "" && d.ID != "" {
		d.ID = strconv.Quote(h.caller) + " " + d.ID
	}
	switch d.timeout, err = timeoutOf(r.TimeoutMS); {
	case err != nil:
		return d, err
	case r.Shard < 0 || r.Shard >= t.Shards:
		return d, wire.Errorf(wire.Invalid, "shard: %d: want 0 to %d", r.Shard, t.Shards-1)
	case len(r.Prompts) > 0 && r.PerPrompt < 1:
		return d, wire.Errorf(wire.Invalid, "per_prompt: %d: want 1 or more rollouts of each prompt", r.PerPrompt)
	case len(r.Prompts) > 0 && t.maxRows(d) > maxBatchRows:
		return d, wire.Errorf(wire.Invalid, "prompts: %d with per_prompt %d: want at most %d rollouts of all prompts",
			len(r.Prompts), r.PerPrompt, maxBatchRows)
	case len(r.Prompts) > 0: // the table checks them
		return d, nil
	case r.Size < 1 || r.Size > maxBatchRows:
		return d, wire.Errorf(wire.Invalid, "size: %d: want 1 to %d rollouts", r.Size, maxBatchRows)
	case r.Fresh < 0 || r.Fresh > r.Size:
		return d, wire.Errorf(wire.Invalid, "fresh: %d: want 0 to size, %d", r.Fresh, r.Size)
	}
	return d, nil
}

// maxRows returns the most rollouts that a request gets: of those of given prompts none comes twice.
func (t *table) maxRows(r drawRequest) int {
	if len(r.Prompts) == 0 {
		return r.Size
	}
	return min(r.MaxRows(), t.Capacity/t.Shards)
}

// draw draws a batch, after waiting for rollouts and the limiter. The batch is leased to the holder unless it is used
// at draw.
func (t *table) draw(ctx context.Context, r drawRequest, h *holder) (b *rollout.Batch, err error) {
	w := wait{
		place: place(r.Shard), holder: h, alone: t.rollouts.ServiceView().Repeats(r.Request),
		waiting: &t.meter.samplesWaiting, timeout: r.timeout, now: t.now,
		next: func() (time.Time, bool) { return t.nextLeaseExpiry(r.Shard) },
	}
	err = t.retry(ctx, w, func() error {
		return t.unlessDropped(func() (err error) {
			if b, err = t.tryDraw(ctx, r, h); errors.Is(err, rollout.ErrStarved) {
				err = t.neverFilled(t.maxRows(r), err)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	t.lines.roomChanged() // the limiter allows more, and a use at draw made room in a queue
	return b, nil
}

// nextLeaseExpiry returns when the next lease expires whose draws a sample of the shard may wait for. A limiter counts
// the draws of all shards.
func (t *table) nextLeaseExpiry(shard int) (first time.Time, ok bool) {
	if t.limiter == nil {
		return t.rollouts.ServiceView().NextExpiry(shard)
	}
	for s := range t.Shards {
		if at, found := t.rollouts.ServiceView().NextExpiry(s); found && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}

// tryDraw draws a batch now, if the limiter allows.
func (t *table) tryDraw(ctx context.Context, r drawRequest, h *holder) (b *rollout.Batch, err error) {
	if t.limiter == nil || t.rollouts.ServiceView().Repeats(r.Request) {
		return t.leaseOrUse(ctx, r, h)
	}
	starved, err := t.limiter.Sample(t.maxRows(r), t.rollouts.ServiceView().Flow, func() (err error) {
		b, err = t.leaseOrUse(ctx, r, h)
		return err
	})
	if starved {
		t.lines.sampleStarved()
	}
	return b, err
}

func (t *table) leaseOrUse(ctx context.Context, r drawRequest, h *holder) (*rollout.Batch, error) {
	release, err := t.reserveLease(ctx, t.maxRows(r), len(r.Prompts))
	if err != nil {
		return nil, err
	}
	b, err := t.rollouts.ServiceView().Lease(t.named(ctx), r.Request)
	switch {
	case err != nil || b.Repeated:
		release()
		return b, err
	case r.useAtDraw:
		defer release()
		return b, t.use(b)
	}
	t.leases.begin(b.ID, h, release)
	return b, nil
}

// use acknowledges a batch at draw. One that no message can hold goes back instead.
func (t *table) use(b *rollout.Batch) error {
	if _, err := t.packedBytes(b); err != nil {
		if failed := t.rollouts.Release(context.Background(), b.ID); failed != nil &&
			!errors.Is(failed, rollout.ErrNoLease) {
			return failed
		}
		return err
	}
	err := t.rollouts.Acknowledge(context.Background(), b.ID)
	if err == nil && t.Sampler.Consumes() {
		t.consumed.Add(1)
	}
	return err
}

package service

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// The batches that are drawn ahead for a stream, by default and at most.
const (
	defaultPrefetch = 1
	maxPrefetch     = 8
)

// DoExchange samples: each message with a wire.SampleRequest as app_metadata is answered by a batch, leased until the next one.
func (s *Service) DoExchange(stream flight.FlightService_DoExchangeServer) (err error) {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	c := s.begin(ctx, "DoExchange")
	defer c.end(&err)
	reader := flightdata.NewReader(stream, flightdata.Options{MaxBytes: maxJSON, Allocator: s.pool})
	name, err := target(reader)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	x := &exchange{service: s, call: c, ctx: ctx, stream: stream, name: name, holder: new(holder)}
	defer x.close()
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if frame.Batch != nil {
			release(frame)
			return wire.Errorf(wire.Invalid, "a record batch came on a sampling stream: want insertions on DoPut")
		}
		if len(frame.Metadata) == 0 {
			continue
		}
		if err := x.request(frame.Metadata); err != nil {
			return err
		}
	}
}

// exchange is a sampling stream.
type exchange struct {
	service *Service
	call    *call
	ctx     context.Context
	stream  flight.FlightService_DoExchangeServer
	name    string // of the table; "": not known yet
	holder  *holder

	table  *table // nil until the first request
	schema *arrow.Schema
	out    *outlet
	ahead  *lookahead        // nil: none
	handed []rollout.BatchID // on lease to the caller
}

// request serves one request. An error ends the stream; those that may go away are told instead.
func (x *exchange) request(text []byte) error {
	began := time.Now()
	var req wire.SampleRequest
	if err := readJSON("app_metadata", text, &req); err != nil {
		return err
	}
	if err := x.open(&req); err != nil {
		return err
	}
	if err := x.service.work.begin(); err != nil {
		return err
	}
	defer x.service.work.end()
	err := x.serve(&req, began)
	if code := wire.CodeOf(err); err != nil && x.ctx.Err() == nil && (code.Retryable() && code != wire.Closing || code == wire.NoLease) {
		x.service.tally.failed(err)
		return x.tell(&wire.BatchInfo{Version: int32(x.table.version()), Present: x.table.store.Len(), Error: wire.StatusOf(err)})
	}
	return err
}

// open finds the table at the first request, and sees that the later ones mean it too and are still allowed.
func (x *exchange) open(req *wire.SampleRequest) error {
	if x.name == "" {
		x.name = req.Table
	}
	if req.Table != "" && req.Table != x.name {
		return wire.Errorf(wire.Invalid, "table: %q: this stream samples %q: open another one", req.Table, x.name)
	}
	if req.Export {
		return wire.Errorf(wire.Invalid, "export: true: want it in the ticket of a DoGet")
	}
	t, err := x.service.allowed(x.ctx, x.name, false)
	if err != nil || x.table != nil {
		return err
	}
	if x.schema, err = t.columns(req.Columns); err != nil {
		return err
	}
	x.table = t
	x.call.about(t.Name)
	x.out = x.service.newOutlet(x.stream, x.schema)
	return x.out.writer.Begin()
}

func (x *exchange) tell(info *wire.BatchInfo) error {
	text, err := writeJSON(info)
	if err != nil {
		return err
	}
	return x.out.tell(text)
}

// serve settles what was handed over before and hands over the next batch.
func (x *exchange) serve(req *wire.SampleRequest, began time.Time) error {
	if err := x.settle(req); err != nil {
		return err
	}
	t := x.table
	if req.Size == 0 && (req.Acknowledge != nil || req.Release != nil) { // nothing else is asked for
		if err := t.written(x.ctx); err != nil {
			return err
		}
		return x.tell(&wire.BatchInfo{Version: int32(t.version()), Present: t.store.Len()})
	}
	d, err := t.demandOf(req)
	if err != nil {
		return err
	}
	p, err := x.next(d, req)
	if err != nil {
		t.starved(err)
		if unsafe := t.written(x.ctx); unsafe != nil { // the answer tells that what was handed over before is settled
			return unsafe
		}
		return err
	}
	if err := t.handOver(x.ctx, p, x.out, began); err != nil {
		if !d.useAtDraw {
			t.giveBack(p.batch, x.holder)
		}
		return err
	}
	if !d.useAtDraw {
		x.handed = append(x.handed, p.batch.ID)
	}
	return nil
}

// settle acknowledges what was handed over before, or what the request says.
func (x *exchange) settle(req *wire.SampleRequest) error {
	t := x.table
	if req.Acknowledge == nil && req.Release == nil {
		for _, id := range x.handed {
			switch err := t.acknowledge(id, x.holder); {
			case errors.Is(err, rollout.ErrNoLease): // it took longer than its lease: the draws went back
				t.meter.lapsed.Add(1)
			case err != nil:
				return err
			}
		}
		x.handed = x.handed[:0]
		return nil
	}
	settled := make(map[rollout.BatchID]bool)
	for _, b := range req.Acknowledge {
		settled[rollout.BatchID(b)] = true
	}
	for _, b := range req.Release {
		if settled[rollout.BatchID(b)] {
			return wire.Errorf(wire.Invalid, "release: %d: want it there or in acknowledge", b)
		}
	}
	if err := t.settleAll(req.Acknowledge, x.holder, true); err != nil {
		return err
	}
	if err := t.settleAll(req.Release, x.holder, false); err != nil {
		return err
	}
	for _, b := range req.Release {
		settled[rollout.BatchID(b)] = true
	}
	x.handed = slices.DeleteFunc(x.handed, func(id rollout.BatchID) bool { return settled[id] })
	return nil
}

// next returns the next batch, from those drawn ahead where the request allows it.
func (x *exchange) next(d demand, req *wire.SampleRequest) (*parcel, error) {
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
	// What is used when it is drawn, and what is known by a request's id, cannot be drawn before the request is there.
	if depth == 0 || d.useAtDraw || d.ID != "" {
		x.stopAhead()
		return x.table.drawPacked(x.ctx, d, x.holder, x.schema)
	}
	if x.ahead == nil || !x.ahead.serves(d, depth) {
		x.stopAhead()
		x.ahead = x.table.lookAhead(x.ctx, d, depth, x.holder, x.schema)
	}
	p, err := x.ahead.next(x.ctx, d, req.PrefetchSlack)
	if err != nil && x.ahead.over() {
		x.stopAhead()
	}
	return p, err
}

func (x *exchange) stopAhead() {
	if x.ahead != nil {
		x.ahead.stop()
		x.ahead = nil
	}
}

// close gives back what was not acknowledged.
func (x *exchange) close() {
	x.stopAhead()
	for _, id := range x.handed {
		x.table.giveBack(&rollout.Batch{ID: id}, x.holder)
	}
}

package service

import (
	"context"
	"errors"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// DoGet samples one batch, acknowledged once it was written out, or exports a table.
func (s *Service) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "DoGet")
	defer c.end(&err)
	var req wire.SampleRequest
	if err := readJSON("ticket", ticket.GetTicket(), &req); err != nil {
		return err
	}
	t, err := s.allowed(ctx, req.Table, false)
	if err != nil {
		return err
	}
	c.about(t.Name)
	if err := s.work.begin(); err != nil {
		return err
	}
	defer s.work.end()
	schema, err := t.columns(req.Columns)
	if err != nil {
		return err
	}
	if req.Prefetch != nil || req.PrefetchSlack != 0 || req.Acknowledge != nil || req.Release != nil {
		return wire.Errorf(wire.Invalid, "ticket: prefetch, prefetch_slack, acknowledge, release: want them on a DoExchange stream only")
	}
	out := s.newOutlet(stream, schema)
	if req.Export {
		return t.export(&req, schema, out)
	}
	return t.get(ctx, &req, schema, out)
}

// columns returns the schema of a request's columns, all if it names none.
func (t *table) columns(names []string) (*arrow.Schema, error) {
	if len(names) == 0 {
		return t.schema, nil
	}
	return wire.SampleSchema(names, t.fields...)
}

// get draws one batch and sends it.
func (t *table) get(ctx context.Context, req *wire.SampleRequest, schema *arrow.Schema, out *outlet) error {
	began := time.Now()
	d, err := t.demandOf(req)
	if err != nil {
		return err
	}
	to := new(holder)
	p, err := t.drawPacked(ctx, d, to, schema)
	if err != nil {
		return err
	}
	err = t.handOver(ctx, p, out, began)
	if d.useAtDraw {
		return err
	}
	if err != nil {
		t.giveBack(p.batch, to)
		return err
	}
	switch err := t.acknowledge(p.batch.ID, to); {
	case errors.Is(err, rollout.ErrNoLease): // a repeat of a batch that was acknowledged, or one that took longer than its lease
		t.meter.lapsed.Add(1)
	case err != nil:
		return err
	}
	return t.written(ctx)
}

// drawPacked draws a batch and packs it; it is leased to the holder unless it is used at once.
func (t *table) drawPacked(ctx context.Context, d demand, to *holder, schema *arrow.Schema) (*parcel, error) {
	b, err := t.draw(ctx, d, to)
	if err != nil {
		t.starved(err)
		return nil, err
	}
	p, err := t.pack(ctx, b, schema)
	if err != nil && !d.useAtDraw {
		t.giveBack(b, to)
	}
	return p, err
}

// starved counts a sample that found too little.
func (t *table) starved(err error) {
	if errors.Is(err, rollout.ErrStarved) {
		t.meter.starved.Add(1)
	}
}

// giveBack releases a batch that did not arrive; one that is gone already is left alone.
func (t *table) giveBack(b *rollout.Batch, from *holder) {
	if err := t.release(b.ID, from); err != nil && !errors.Is(err, rollout.ErrNoLease) {
		t.service.log.Debug("releasing a batch", "table", t.Name, "batch", b.ID, "error", err)
	}
}

// handOver sends a batch, after what the queue gave out before is on disk. It takes the parcel over.
func (t *table) handOver(ctx context.Context, p *parcel, out *outlet, began time.Time) error {
	err := t.written(ctx)
	if err == nil {
		err = t.label(p)
	}
	if err != nil {
		p.discard()
		return err
	}
	t.sampled(p)
	if err := out.send(p.record, p.metadata, p.paid); err != nil {
		return err
	}
	t.meter.sampleTimes.add(time.Since(began))
	return nil
}

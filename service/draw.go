package service

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// maxSize is how many rollouts a batch may have, whatever the samplers allow.
const maxSize = 1 << 20

// demand is a request for a batch, checked.
type demand struct {
	rollout.Request
	wait      patience
	useAtDraw bool
}

// demandOf checks what a request asks of the table.
func (t *table) demandOf(r *wire.SampleRequest) (demand, error) {
	d := demand{Request: rollout.Request{Size: r.Size, Fresh: r.Fresh, Shard: r.Shard, ID: r.RequestID}, useAtDraw: r.UseAtDraw}
	err := checkID("request_id", r.RequestID)
	if err != nil {
		return d, err
	}
	switch d.wait, err = patienceOf(r.TimeoutMS); {
	case err != nil:
		return d, err
	case r.Size < 1 || r.Size > maxSize:
		return d, wire.Errorf(wire.Invalid, "size: %d: want 1 to %d rollouts", r.Size, maxSize)
	case r.Fresh < 0 || r.Fresh > r.Size:
		return d, wire.Errorf(wire.Invalid, "fresh: %d: want 0 to size, %d", r.Fresh, r.Size)
	case r.Shard < 0 || r.Shard >= t.Shards:
		return d, wire.Errorf(wire.Invalid, "shard: %d: want 0 to %d", r.Shard, t.Shards-1)
	}
	return d, nil
}

// draw draws a batch, waiting for rollouts and for the limiter. Unless it is used at once it is leased to the holder.
func (t *table) draw(ctx context.Context, d demand, to *holder) (*rollout.Batch, error) {
	var b *rollout.Batch
	w := waiter{on: &t.stock, count: &t.meter.samplesWaiting, patience: d.wait, now: t.now, next: func() (time.Time, bool) { return t.nextExpiry(d.Shard) }}
	err := t.until(ctx, w, func() error {
		return t.alive(func() (err error) {
			b, err = t.take(ctx, d, to)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	t.room.wake() // the limiter's, and a queue's where the draw was a use
	return b, nil
}

// nextExpiry is when the first lease ends whose draws a sample of a shard may wait for: with a limiter, of any shard.
func (t *table) nextExpiry(shard int) (first time.Time, ok bool) {
	if t.limiter == nil {
		return t.store.NextExpiry(shard)
	}
	for s := range t.Shards {
		if at, stands := t.store.NextExpiry(s); stands && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}

// take draws a batch now if the limiter lets it.
func (t *table) take(ctx context.Context, d demand, to *holder) (*rollout.Batch, error) {
	if t.limiter == nil || t.store.Repeats(d.Request) {
		return t.leaseOrUse(ctx, d, to)
	}
	var b *rollout.Batch
	hungry, err := t.limiter.Sample(d.Size, t.store.Flow, func() (err error) {
		b, err = t.leaseOrUse(ctx, d, to)
		return err
	})
	if hungry {
		t.room.wake() // not those who wait to sample: what failed here helps none of them, and this one is among them
	}
	return b, err
}

func (t *table) leaseOrUse(ctx context.Context, d demand, to *holder) (*rollout.Batch, error) {
	b, err := t.store.Lease(ctx, d.Request)
	switch {
	case err != nil:
		return nil, err
	case d.useAtDraw:
		return b, t.use(b)
	}
	t.leases.give(b.ID, to)
	return b, nil
}

// use counts a batch as used, unless it can never be sent: then it goes back.
func (t *table) use(b *rollout.Batch) error {
	if _, err := t.fits(b); err != nil {
		if back := t.store.Release(b.ID); back != nil && !errors.Is(back, rollout.ErrNoLease) {
			return back
		}
		return err
	}
	switch err := t.store.Acknowledge(b.ID); {
	case errors.Is(err, rollout.ErrNoLease): // the request is a repeated one, whose batch was used then
	case err != nil:
		return err
	case t.options.Sampler.Consumes():
		t.consumed.Add(1)
	}
	return nil
}

// current tells whether a batch that was drawn ahead may be handed over: it is on lease still, at most slack versions older
// than the table, and no rollout of it has become too stale since (invariant 3). Its lease begins anew.
func (t *table) current(b *rollout.Batch, slack int, from *holder) bool {
	return t.alive(func() error {
		v := t.version()
		older := int64(v) - int64(b.Version)
		if older < 0 || older > int64(slack) || !t.leases.has(b.ID, from) || t.tooStale(b, older) {
			return rollout.ErrNoLease
		}
		return t.store.Renew(b.ID)
	}) == nil
}

// tooStale tells whether a rollout of a batch exceeds MaxStaleness so many versions after its draw.
func (t *table) tooStale(b *rollout.Batch, later int64) bool {
	if t.MaxStaleness == 0 || later == 0 {
		return false
	}
	for i := range b.Draws {
		if int64(b.Draws[i].Staleness)+later > int64(t.MaxStaleness) {
			return true
		}
	}
	return false
}

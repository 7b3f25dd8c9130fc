package client

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Sample draws a batch and counts its draws as used when they are drawn. If the connection breaks the service repeats the
// batch: it is drawn once. An error wraps rollout.ErrStarved if the table holds too little.
func (t *Table) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if req.ID == "" {
		req.ID = t.client.nextID()
	}
	none := 0
	ask := wire.SampleRequest{Size: req.Size, Fresh: req.Fresh, Shard: req.Shard, RequestID: req.ID, UseAtDraw: true, Prefetch: &none}
	var a answered
	err := t.waitOut(ctx, rollout.ErrStarved, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		ask.TimeoutMS = &ms
		return t.client.repeat(ctx, t.client.options.Patience, wait, func(ctx context.Context, _ int) (err error) {
			a, err = t.sampleOnce(ctx, ask)
			return err
		})
	})
	if err != nil {
		return nil, t.failed("sample", err)
	}
	t.heard(a.present)
	return a.batch, nil
}

// sampleOnce asks on a stream that is kept for the next.
func (t *Table) sampleOnce(ctx context.Context, req wire.SampleRequest) (answered, error) {
	x, ok := t.exchanges.take()
	if !ok {
		var err error
		if x, err = t.openExchange(); err != nil {
			return answered{}, err
		}
	}
	a, err := x.askDuring(ctx, req, func() { t.exchanges.keep(x) })
	if err != nil && a.status == nil {
		t.exchanges.drop()
	}
	return a, err
}

// Lease draws a batch whose draws become uses when it is acknowledged ([Table.Acknowledge]). Released, or not settled before the
// connection breaks or the table's lease time ends, they go back. Streams give batch after batch at less cost.
func (t *Table) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	none := 0
	s, err := t.Stream(ctx, wire.SampleRequest{Size: req.Size, Fresh: req.Fresh, Shard: req.Shard, RequestID: req.ID, Prefetch: &none})
	if err != nil {
		return nil, err
	}
	b, err := s.Next(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leased[b.ID] = s
	return b, nil
}

// Acknowledge counts the draws of leased batches as used, all or none. An error wraps rollout.ErrNoLease if one is not on
// lease.
func (t *Table) Acknowledge(ctx context.Context, ids ...rollout.BatchID) error {
	return t.settle(ctx, wire.Acknowledge, ids)
}

// Release gives the draws of leased batches back, uncounted. An error wraps rollout.ErrNoLease if one is not on lease.
func (t *Table) Release(ctx context.Context, ids ...rollout.BatchID) error {
	return t.settle(ctx, wire.Release, ids)
}

// settle ends leases. It is not repeated when the connection breaks, which ends them too.
func (t *Table) settle(ctx context.Context, kind string, ids []rollout.BatchID) error {
	if len(ids) == 0 {
		return nil
	}
	req := wire.SettleRequest{Table: t.name, Batches: make([]uint64, len(ids))}
	for i, id := range ids {
		req.Batches[i] = uint64(id)
	}
	var info wire.TableInfo
	if err := t.client.actAtOnce(ctx, t.name, kind, req, &info); err != nil {
		return err
	}
	t.heard(info.Present)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if s := t.leased[id]; s != nil {
			delete(t.leased, id)
			s.end()
		}
	}
	return nil
}

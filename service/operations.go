package service

import (
	"context"
	"math"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// answered is the answer of an operation that changed the table: what it is now, once that is as safe as the journal promises.
func (t *table) answered(ctx context.Context, err error) (any, error) {
	t.changed()
	if err == nil {
		err = t.promised(ctx)
	}
	if err != nil {
		return nil, err
	}
	return t.info(), nil
}

func advance(ctx context.Context, t *table, r *wire.VersionRequest) (any, error) {
	err := t.alive(func() error { return t.store.Advance(ctx, rollout.Version(r.Version)) })
	return t.answered(ctx, err)
}

// rewind sets the version back, with the gate: what the undone updates took, and what leaves thereby, may be started again.
func rewind(ctx context.Context, t *table, r *wire.VersionRequest) (any, error) {
	t.life.Lock() // nothing else moves the version or the counts meanwhile
	err := t.rewindLocked(ctx, rollout.Version(r.Version))
	t.life.Unlock()
	return t.answered(ctx, err)
}

func (t *table) rewindLocked(ctx context.Context, v rollout.Version) error {
	if t.gone.Load() {
		return notFound(t.Name)
	}
	from, before := t.version(), t.store.Flow().Rewound
	if err := t.store.Rewind(ctx, v); err != nil {
		return err
	}
	t.gate.Load().Rewind(int(from-v), t.store.Flow().Rewound-before)
	return nil
}

func updatePriorities(ctx context.Context, t *table, r *wire.PriorityUpdate) (any, error) {
	if len(r.IDs) != len(r.Priorities) {
		return nil, wire.Errorf(wire.Invalid, "priorities: %d of them for %d ids: want one for each", len(r.Priorities), len(r.IDs))
	}
	list := make([]replay.Priority, len(r.IDs))
	for i, id := range r.IDs {
		list[i] = replay.Priority{ID: rollout.ID(id), Value: r.Priorities[i]}
	}
	err := t.alive(func() error { return t.store.Update(ctx, list...) })
	return t.noted(err)
}

func reportDraws(ctx context.Context, t *table, r *wire.DrawReport) (any, error) {
	if err := checkID("request_id", r.RequestID); err != nil {
		return nil, err
	}
	list := make([]rollout.Feedback, len(r.Draws))
	for i, d := range r.Draws {
		list[i] = rollout.Feedback{
			ID: rollout.ID(d.ID), Staleness: d.Staleness,
			Advantage: measurement(d.Advantage), TDError: measurement(d.TDError), GradNorm: measurement(d.GradNorm),
			Tokens: d.Tokens, RatioSum: d.RatioSum, RatioSquares: d.RatioSquares,
		}
	}
	err := t.alive(func() error {
		return t.reports.once(r.RequestID, func() error { return t.store.Report(ctx, list...) })
	})
	return t.noted(err)
}

func measurement(x *float64) rollout.Measurement {
	if x == nil {
		return rollout.Measurement{}
	}
	return rollout.Measured(*x)
}

// noted is the answer of an operation that rides along with the journal's next transaction (invariant 6): priorities, and prompts.
func (t *table) noted(err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t.info(), nil
}

func acknowledgeBatches(ctx context.Context, t *table, r *wire.SettleRequest) (any, error) {
	if err := t.settleAll(r.Batches, nil, true); err != nil {
		return nil, err
	}
	if err := t.written(ctx); err != nil {
		return nil, err
	}
	return t.info(), nil
}

func releaseBatches(_ context.Context, t *table, r *wire.SettleRequest) (any, error) {
	if err := t.settleAll(r.Batches, nil, false); err != nil {
		return nil, err
	}
	return t.info(), nil
}

// start grants groups, waiting for the first.
func start(ctx context.Context, t *table, r *wire.StartRequest) (any, error) {
	wait, err := patienceOf(&r.TimeoutMS)
	if err != nil {
		return nil, err
	}
	size := r.GroupSize
	if size == 0 {
		size = t.GroupSize
	}
	var answer wire.StartAnswer
	w := waiter{
		on: &t.room, count: &t.meter.startsWaiting, patience: wait, now: t.now,
		next: func() (time.Time, bool) { return t.gate.Load().NextExpiry(t.now()) },
	}
	err = t.until(ctx, w, func() error {
		return t.alive(func() error {
			v, gate := t.version(), t.gate.Load()
			number, groups, err := gate.Start(t.now(), r.Groups, size, v, t.freeRoom())
			if err != nil {
				return err
			}
			answer = wire.StartAnswer{Grant: number, Groups: groups, Version: int32(v)}
			if groups == 0 {
				return rollout.ErrFull
			}
			answer.ExpiresSeconds = gate.last.Seconds()
			return nil
		})
	})
	if waitable(err) && ctx.Err() == nil {
		err = nil // none could be granted, which is an answer too
	}
	return answer, err
}

// freeRoom is how many rollouts a queue has room for; other tables take all.
func (t *table) freeRoom() int64 {
	if !t.options.Sampler.Consumes() {
		return math.MaxInt64
	}
	return int64(t.Capacity - t.store.Len())
}

func abandon(_ context.Context, t *table, r *wire.AbandonRequest) (any, error) {
	if r.Groups < 1 {
		return nil, wire.Errorf(wire.Invalid, "groups: %d: want at least 1", r.Groups)
	}
	t.gate.Load().Abandon(t.now(), r.Grant, r.Groups)
	t.room.wake()
	return t.info(), nil
}

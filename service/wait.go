package service

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// patience is how long a request may wait: as long as its context allows where it gives no timeout.
type patience struct {
	bounded bool
	limit   time.Duration
}

// patienceOf reads a request's timeout_ms.
func patienceOf(ms *int64) (patience, error) {
	switch {
	case ms == nil:
		return patience{}, nil
	case *ms < 0 || *ms > int64(maxSeconds)*1000:
		return patience{}, wire.Errorf(wire.Invalid, "timeout_ms: %d: want milliseconds, 0 to %d, or none to wait as long as the call's deadline allows", *ms, int64(maxSeconds)*1000)
	}
	return patience{true, time.Duration(*ms) * time.Millisecond}, nil
}

// waiter is how a request waits.
type waiter struct {
	on       *signal       // tells that it may succeed now
	count    *atomic.Int64 // of those who wait
	patience patience
	next     func() (time.Time, bool) // when it may succeed without a signal, because a lease or a grant ends; nil: never
	now      func() time.Time
}

// waitable tells whether an error may go away by itself.
func waitable(err error) bool {
	return errors.Is(err, rollout.ErrFull) || errors.Is(err, rollout.ErrStarved)
}

// until repeats try until it succeeds or fails for good, its patience or its context ends, or the service is closing.
func (t *table) until(ctx context.Context, w waiter, try func() error) error {
	woken := w.on.watch() // before the look, so that no change is lost
	err := try()
	if !waitable(err) || w.patience.bounded && w.patience.limit == 0 {
		return err
	}
	w.count.Add(1)
	defer w.count.Add(-1)
	var over <-chan time.Time
	if w.patience.bounded {
		timer := time.NewTimer(w.patience.limit)
		defer timer.Stop()
		over = timer.C
	}
	for {
		elapsed, stop := w.alarm()
		select {
		case <-woken:
		case <-elapsed:
		case <-over:
			stop()
			return err
		case <-ctx.Done():
			stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-t.service.closing:
			stop()
			return closing()
		}
		stop()
		woken = w.on.watch()
		if err = try(); !waitable(err) {
			return err
		}
	}
}

// alarm returns what fires at the waiter's next moment.
func (w *waiter) alarm() (<-chan time.Time, func() bool) {
	none := func() bool { return false }
	if w.next == nil {
		return nil, none
	}
	at, ok := w.next()
	if !ok {
		return nil, none
	}
	timer := time.NewTimer(max(at.Sub(w.now()), 0) + time.Millisecond)
	return timer.C, timer.Stop
}

func closing() error {
	return wire.Errorf(wire.Closing, "the service is stopping: connect again once it is back")
}

package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// noTimeout lets a request wait as long as its context.
const noTimeout = time.Duration(math.MaxInt64)

// timeoutOf reads a request's timeout_ms; nil is [noTimeout].
func timeoutOf(ms *int64) (time.Duration, error) {
	switch {
	case ms == nil:
		return noTimeout, nil
	case *ms < 0 || *ms > int64(maxSeconds)*1000:
		return 0, wire.Errorf(wire.Invalid, "timeout_ms: %d: want milliseconds, 0 to %d, or none to wait as long as "+
			"the call's deadline allows", *ms, int64(maxSeconds)*1000)
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// wait is how a request waits.
type wait struct {
	on      *signal       // wakes it
	waiting *atomic.Int64 // counts those who wait
	timeout time.Duration
	next    func() (time.Time, bool) // when a lease or a grant ends, which no signal announces; nil: never
	now     func() time.Time
}

// mayPass reports whether an error may go away while the request waits.
func mayPass(err error) bool {
	return errors.Is(err, rollout.ErrFull) || errors.Is(err, rollout.ErrStarved)
}

// retry repeats try until it succeeds or fails for good, the timeout or the context ends, or the service stops.
func (t *table) retry(ctx context.Context, w wait, try func() error) error {
	changed := w.on.watch() // before the try, so that no change is lost
	err := try()
	if !mayPass(err) || w.timeout == 0 {
		return err
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	timeout := time.NewTimer(w.timeout)
	defer timeout.Stop()
	for {
		expiry, stop := w.expiry()
		select {
		case <-changed:
		case <-expiry:
		case <-timeout.C:
			stop()
			return err
		case <-ctx.Done():
			stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-t.service.closing:
			stop()
			return errClosing()
		}
		stop()
		changed = w.on.watch()
		if err = try(); !mayPass(err) {
			return err
		}
	}
}

// expiry returns a channel that fires when the next lease or grant ends.
func (w *wait) expiry() (fires <-chan time.Time, stop func() bool) {
	if w.next != nil {
		if at, ok := w.next(); ok {
			timer := time.NewTimer(max(at.Sub(w.now()), 0) + time.Millisecond)
			return timer.C, timer.Stop
		}
	}
	return nil, func() bool { return false }
}

// signal wakes everyone who waits for a change. The zero signal is ready. A waiter calls [signal.watch] before it
// looks, so that no change between the look and the wait is lost.
type signal struct {
	mu      sync.Mutex
	changed chan struct{} // nil: nobody watches
}

// watch returns a channel that the next change closes.
func (s *signal) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// notify wakes all watchers.
func (s *signal) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// budget bounds the bytes in use at once. Requests for more than is free wait in order of arrival, so that large ones
// get their turn.
type budget struct {
	most int64
	free *semaphore.Weighted
	used atomic.Int64
}

func newBudget(most int64) *budget { return &budget{most: most, free: semaphore.NewWeighted(most)} }

// acquire waits until the bytes are free and takes them; more than the whole budget counts as all of it. The caller
// releases what it returns.
func (b *budget) acquire(ctx context.Context, bytes int64) (taken int64, err error) {
	taken = min(bytes, b.most)
	if err := b.free.Acquire(ctx, taken); err != nil {
		return 0, err
	}
	b.used.Add(taken)
	return taken, nil
}

// tryAcquire takes the bytes if about half of the budget stays free, for work that can wait.
func (b *budget) tryAcquire(bytes int64) bool {
	if b.used.Load()+bytes > b.most/2 || !b.free.TryAcquire(bytes) {
		return false
	}
	b.used.Add(bytes)
	return true
}

func (b *budget) release(taken int64) {
	b.used.Add(-taken)
	b.free.Release(taken)
}

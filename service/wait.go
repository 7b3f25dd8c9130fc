package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// noTimeout lets a request wait as long as its context.
const noTimeout = time.Duration(math.MaxInt64)

// maxSeconds bounds every time of a request: a year.
const maxSeconds = 366 * 24 * 3600

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
	place   place         // where
	holder  *holder       // the call that a sample is for; nil for others
	alone   bool          // it competes with nobody, and need not wait for those ahead
	waiting *atomic.Int64 // counts those who wait
	timeout time.Duration
	next    func() (time.Time, bool) // when a lease or a grant ends, which nobody announces; nil: never
	now     func() time.Time
}

// mayPass reports whether an error may go away while the request waits.
func mayPass(err error) bool {
	return errors.Is(err, rollout.ErrFull) || errors.Is(err, rollout.ErrStarved)
}

// recording makes an attempt wait for the journal where the table gave ids too far ahead of it.
func (t *table) recording(ctx context.Context, try func() error) func() error {
	return func() error {
		for {
			err := try()
			if !errors.Is(err, replay.ErrUnrecorded) {
				return err
			}
			if err := t.journal.Flush(ctx); err != nil {
				return t.journalError(err)
			}
		}
	}
}

// retry repeats try, in order of arrival (see [lines]), until it succeeds or fails for good, the timeout or the context
// ends, or the service stops. With a timeout of 0 a request behind others is refused untried; with noTimeout it waits
// as long as its context.
func (t *table) retry(ctx context.Context, w wait, try func() error) error {
	try = t.recording(ctx, try)
	tried, err := t.lines.arrive(w.place, w.holder)
	if err == nil || w.alone {
		if err = try(); !mayPass(err) {
			return err
		}
		t.lines.refused(w.place, nil)
	}
	if w.timeout == 0 {
		return err
	}
	me, full := t.lines.join(w.place, w.holder, tried)
	if full != nil {
		return full
	}
	defer t.lines.leave(me)
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	timeout := time.NewTimer(w.timeout)
	defer timeout.Stop()
	for {
		expiry, stop := w.expiry(t.lines.first(me))
		select {
		case <-me.wake:
		case <-expiry:
			t.lines.expired()
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
		t.lines.tries(me)
		if err = try(); !mayPass(err) {
			return err
		}
		t.lines.refused(w.place, me)
	}
}

// expiry returns a channel that fires when the next lease or grant ends, for the first of a line.
func (w *wait) expiry(first bool) (fires <-chan time.Time, stop func() bool) {
	if first && w.next != nil {
		if at, ok := w.next(); ok {
			timer := time.NewTimer(max(at.Sub(w.now()), 0) + time.Millisecond)
			return timer.C, timer.Stop
		}
	}
	return nil, func() bool { return false }
}

// signal wakes everyone who waits for a change: few do. The zero signal is ready. A waiter calls [signal.watch] before
// it looks, so that no change between the look and the wait is lost.
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

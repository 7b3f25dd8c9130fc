package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// ErrUnreachable is returned when a service could not be reached, or was stopping, for as long as Options.Patience.
var ErrUnreachable = errors.New("service cannot be reached")

// Pauses between attempts grow from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// repeat calls once until it succeeds, fails for good, the context ends, or what it meets has been a lost connection or a
// stopping service for as long as patience. Each attempt has its own deadline: Options.CallTimeout after what the service
// was asked to wait. Attempts are counted from 0; one above it may find that an earlier one got through.
func (c *Client) repeat(ctx context.Context, patience, wait time.Duration, once func(ctx context.Context, attempt int) error) error {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := c.attempt(ctx, wait, attempt, once)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case !passing(err):
			return err
		case patience >= 0 && time.Since(began) >= patience:
			return fmt.Errorf("%w: %d attempts in %v, the last one: %s", ErrUnreachable, attempt+1, time.Since(began).Round(time.Millisecond), status.Convert(err).Message())
		}
		pause := c.pause(attempt)
		if patience >= 0 {
			pause = min(pause, patience-time.Since(began))
		}
		if err := rest(ctx, pause); err != nil {
			return err
		}
	}
}

// attempt calls once under a deadline of its own.
func (c *Client) attempt(ctx context.Context, wait time.Duration, attempt int, once func(ctx context.Context, attempt int) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait+c.options.CallTimeout)
	defer cancel()
	return understood(once(ctx, attempt))
}

// understood is the error of package wire that a status stands for. What gRPC itself says of a message above a limit gets the remedy.
func understood(err error) error {
	said := wire.FromGRPC(err)
	if errors.Is(said, wire.ErrTooLarge) && !strings.HasPrefix(status.Convert(err).Message(), string(wire.TooLarge)) {
		return fmt.Errorf("%w: move less at a time, or raise max_message_bytes on both sides", said)
	}
	return said
}

// passing reports whether an error says nothing of the request, only that it or its answer got lost.
func passing(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, wire.ErrClosing) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if coded(err) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted: // Canceled and DeadlineExceeded of the attempt or the other side
		return true
	default:
		return false
	}
}

// coded reports whether the service itself said what is wrong.
func coded(err error) bool {
	for _, e := range []error{
		rollout.ErrFull, rollout.ErrStarved, rollout.ErrAhead, rollout.ErrInvalid, rollout.ErrNoLease,
		wire.ErrNotFound, wire.ErrExists, wire.ErrDenied, wire.ErrTooLarge,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// pause returns how long to rest after an attempt: twice as long after each, by a random share less so that clients do not
// come back all at once.
func (c *Client) pause(attempt int) time.Duration {
	p := longestPause
	if attempt < 7 {
		p = min(p, firstPause<<attempt)
	}
	return p - time.Duration(rollout.Stream(c.name, "pause", uint64(attempt)).Float64()*float64(p)/2)
}

// rest waits, unless the context ends before.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

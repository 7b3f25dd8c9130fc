package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/internal/faults"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// How many bytes of journals a service reads per second, by itself and when it is asked to.
const (
	scrubRate      = 64 << 20
	scrubRateAsked = 256 << 20
)

// scrubJournals reads each journal through once it was not for Options.ScrubInterval, one at a time, until the service
// stops; with copies, as in a cluster, all of its tables' copies.
func (s *Service) scrubJournals(copied bool) {
	ctx, cancel := s.untilClosing(context.Background())
	defer cancel()
	every := s.options.ScrubInterval
	pause := every
	if !copied { // copies do not say when they were read
		pause = max(every/10, time.Millisecond)
	}
	look := time.NewTicker(pause)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case <-look.C:
		case <-ctx.Done():
		}
		for _, t := range s.list() {
			if t.journal == nil || !copied && time.Since(t.journal.Stats().Verified) < every {
				continue
			}
			_, err := s.scrubTable(ctx, t, scrubRate)
			if err != nil && ctx.Err() == nil && !errors.Is(err, journal.ErrClosed) {
				s.log.Warn("reading a journal through", "table", t.Name, "error", err)
			}
		}
	}
}

// scrubTable reads a table's journal through, in a cluster every copy.
func (s *Service) scrubTable(ctx context.Context, t *table, bytesPerSecond int64) (
	copies []wire.ScrubbedCopy, err error,
) {
	err = faults.Recovered("scrubbing", func() (err error) {
		if c := s.options.Cluster; c != nil {
			copies, err = c.Scrub(ctx, t.Name, bytesPerSecond)
			return err
		}
		if err := t.journal.Scrub(ctx, bytesPerSecond); err != nil {
			return err
		}
		var found wire.ScrubbedCopy
		for _, d := range t.journal.Stats().Damage {
			found.Damage = append(found.Damage, d.String())
		}
		copies = []wire.ScrubbedCopy{found}
		return nil
	})
	return copies, err
}

// scrub answers wire.Scrub. One journal is read at a time, beside those that the service reads by itself.
func (s *Service) scrub(ctx context.Context, t *table, _ *wire.TableRequest) (any, error) {
	if t.journal == nil {
		return nil, wire.Errorf(wire.Invalid, "table %q has no journal to read: want a service with --data", t.Name)
	}
	ctx, cancel := s.untilClosing(ctx)
	defer cancel()
	select {
	case s.scrubs <- struct{}{}:
		defer func() { <-s.scrubs }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	copies, err := s.scrubTable(ctx, t, scrubRateAsked)
	switch {
	case err != nil && ctx.Err() == nil && len(copies) > 0: // the other nodes could not be told of it
		s.log.Warn("reading a journal through", "table", t.Name, "error", err)
	case err != nil:
		return nil, fmt.Errorf("reading the journal of table %q through: %w", t.Name, err)
	}
	return wire.ScrubAnswer{Table: t.Name, Copies: copies}, nil
}

// untilClosing returns a context that ends once the service is closing, too.
func (s *Service) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

package service

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// table is a named table with everything around it.
//
// Lock order: life, then those of the parts. Nobody waits for anything while holding life.
type table struct {
	*definition
	service *Service
	created time.Time
	store   *replay.Table
	journal *journal.Journal // nil: not durable
	prompts *prompts.Buffer  // nil: no prompt replay
	limiter *Limiter         // nil: none

	life sync.RWMutex // held by every operation; whole by those that replace or end the table
	gone atomic.Bool  // dropped; set under life
	gate atomic.Pointer[Gate]

	incoming *budget // of insertions being handled, so that those who wait for this table leave something to the others
	room     signal  // what insertions and starts wait for may have come
	stock    signal  // what samples wait for may have come
	leases   leases
	pending  pending // batch ids of insertions under way
	reports  reports // request ids of reports
	meter    meter

	consumed, flushed atomic.Uint64 // times that a queue's rollouts left for good, and of them those that are on disk
}

// alive carries out an operation on a table that is there; it may not wait.
func (t *table) alive(operation func() error) error {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.gone.Load() {
		return notFound(t.Name)
	}
	return operation()
}

func notFound(name string) error {
	return wire.Errorf(wire.NotFound, "table %q: there is none of that name: create it, or name one of those that list_flights shows", name)
}

// now is the service's time.
func (t *table) now() time.Time { return t.service.options.Clock() }

// promised waits until what the table did is as safe as its journal promises.
func (t *table) promised(ctx context.Context) error {
	if t.journal == nil {
		return nil
	}
	return t.journalError(t.journal.Commit(ctx))
}

// written waits until what a queue gave out for good is on disk, so that no crash brings it back.
func (t *table) written(ctx context.Context) error {
	if t.journal == nil {
		return nil
	}
	upTo := t.consumed.Load()
	if t.flushed.Load() >= upTo {
		return nil
	}
	if err := t.journal.Flush(ctx); err != nil {
		return t.journalError(err)
	}
	for at := t.flushed.Load(); at < upTo && !t.flushed.CompareAndSwap(at, upTo); at = t.flushed.Load() {
	}
	return nil
}

// healthy returns an error if the journal takes nothing more: then nothing may enter that could not be kept.
func (t *table) healthy() error {
	if t.journal == nil {
		return nil
	}
	return t.journalError(t.journal.Err())
}

// journalError says what an error of the journal means to a caller. One that was closed is so because the table was dropped or the
// service stops, as far as it goes.
func (t *table) journalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, journal.ErrClosed) && t.service.stopping():
		return closing()
	case errors.Is(err, journal.ErrClosed):
		if t.gone.Load() {
			return notFound(t.Name)
		}
	}
	return wire.Errorf(wire.Failed, "journal: %s", err)
}

// changed wakes everybody: after what may help either side.
func (t *table) changed() {
	t.room.wake()
	t.stock.wake()
}

// info is what most actions answer with.
func (t *table) info() wire.TableInfo {
	f := t.store.Flow()
	return wire.TableInfo{Table: t.Name, Version: int32(t.store.Version()), Present: f.Present, Bytes: f.Bytes}
}

// version is the table's.
func (t *table) version() rollout.Version { return t.store.Version() }

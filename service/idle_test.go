package service

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/wire"
)

// Who waits looks again when something has changed, and not because it looked.
func TestWaitingTakesNoTimeOfTheProcessor(t *testing.T) {
	limiter := &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 8}
	within(t, wire.Table{Name: "a", Sampler: "fifo", Capacity: 4, LeaseSeconds: 1e5, Limiter: limiter}, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(4, 0)...)
		if _, err := table.draw(t.Context(), sized(2), new(holder)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 4)
		for range 2 {
			go func() { // two are there, and two on lease
				_, err := table.draw(ctx, sized(3), new(holder))
				ended <- err
			}()
			go func() { // it is full; the limiter would let them in
				in, err := table.newInsertion(wire.InsertRequest{}, alone(1, 0), nil)
				if err == nil {
					_, err = table.insert(ctx, in)
				}
				ended <- err
			}()
		}
		synctest.Wait() // for ever if they wake themselves, or each other
		time.Sleep(time.Hour)
		cancel()
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// All that came has left unused: the limiter holds insertions back until a sample asks in vain.
func TestASampleInVainWakesAnInsertionThatTheLimiterHolds(t *testing.T) {
	w := wire.Table{Name: "a", MaxStaleness: 1, Limiter: &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}}
	within(t, w, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(4, 0)...)
		if err := table.store.Advance(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		var inserted, sampled atomic.Bool
		go func() {
			table.mustInsert(t, alone(2, 5)...)
			inserted.Store(true)
		}()
		synctest.Wait()
		if inserted.Load() {
			t.Fatal("the limiter let an insertion in that nobody asked for")
		}
		go func() {
			if _, err := table.draw(t.Context(), sized(2), new(holder)); err != nil {
				t.Error(err)
			}
			sampled.Store(true)
		}()
		synctest.Wait()
		if !inserted.Load() || !sampled.Load() {
			t.Errorf("inserted: %v, sampled: %v", inserted.Load(), sampled.Load())
		}
	})
}

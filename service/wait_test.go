package service

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// within runs a test of waiting in a bubble whose clock jumps, on a table without a network.
func inBubble(t *testing.T, w wire.Table, test func(t *testing.T, table *table)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Logger: quiet(), Tables: []wire.Table{w}})
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.table(w.Name)
		if err != nil {
			t.Fatal(err)
		}
		test(t, table)
		if _, err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func (t *table) mustInsert(tb testing.TB, groups ...rollout.Group) {
	tb.Helper()
	in, err := t.newInsertion(wire.InsertRequest{}, groups, nil)
	if err == nil {
		_, err = t.insert(context.Background(), in)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func sized(n int) drawRequest {
	return drawRequest{Request: rollout.Request{Size: n}, timeout: noTimeout}
}

func TestASampleWaitsForMinSizeAndNoLonger(t *testing.T) {
	inBubble(t, wire.Table{Name: "a", Options: replay.Options{MinSize: 3}}, func(t *testing.T, table *table) {
		var done atomic.Bool
		go func() {
			if _, err := table.draw(t.Context(), sized(2), new(holder)); err != nil {
				t.Error(err)
			}
			done.Store(true)
		}()
		table.mustInsert(t, alone(2, 0)...)
		synctest.Wait()
		if done.Load() {
			t.Fatal("a sample came below MinSize")
		}
		if n := table.meter.samplesWaiting.Load(); n != 1 {
			t.Errorf("%d samples wait", n)
		}
		table.mustInsert(t, alone(1, 0)...)
		synctest.Wait()
		if !done.Load() {
			t.Fatal("no sample came at MinSize")
		}
		if n := table.meter.samplesWaiting.Load(); n != 0 {
			t.Errorf("%d samples wait", n)
		}
	})
}

func TestATimeoutEndsAWaitWithItsReason(t *testing.T) {
	inBubble(t, wire.Table{Name: "a"}, func(t *testing.T, table *table) {
		began := time.Now()
		d := sized(1)
		d.timeout = 5 * time.Second
		_, err := table.draw(t.Context(), d, new(holder))
		if !errors.Is(err, rollout.ErrStarved) || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = table.draw(ctx, sized(1), new(holder))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("at the deadline: %v", err)
		}
	})
}

func TestEveryWaiterIsServedOnceThereIsEnoughForAll(t *testing.T) {
	inBubble(t, wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}}, func(t *testing.T, table *table) {
		var served atomic.Int64
		for range 50 {
			go func() {
				if _, err := table.draw(t.Context(), sized(2), new(holder)); err != nil {
					t.Error(err)
				}
				served.Add(1)
			}()
		}
		synctest.Wait()
		for range 50 {
			table.mustInsert(t, alone(2, 0)...)
		}
		synctest.Wait()
		if served.Load() != 50 {
			t.Errorf("%d of 50 waiters were served", served.Load())
		}
	})
}

func TestAWaiterIsWokenWhenALeaseRunsOut(t *testing.T) {
	inBubble(t, wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", LeaseSeconds: 7}},
		func(t *testing.T, table *table) {
			table.mustInsert(t, alone(1, 0)...)
			if _, err := table.draw(t.Context(), sized(1), new(holder)); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := table.draw(t.Context(), sized(1), new(holder)); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited < 7*time.Second || waited > 7*time.Second+10*time.Millisecond {
				t.Errorf("the rollout came again after %v, its lease is 7s", waited)
			}
		})
}

func TestReleasedRolloutsWakeTheNextWaiter(t *testing.T) {
	inBubble(t, wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}}, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(1, 0)...)
		first := new(holder)
		b, err := table.draw(t.Context(), sized(1), first)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := table.draw(t.Context(), sized(1), new(holder))
			got <- err
		}()
		synctest.Wait()
		table.returnBatch(b, first)
		synctest.Wait()
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the waiter sleeps on")
		}
	})
}

// Insertions and samples of one table with a limiter, by many at once: all get through, and the ratio holds at the end.
func TestTheLimiterSlowsWhicheverSideRunsAhead(t *testing.T) {
	limits := wire.Limiter{SamplesPerInsert: 2, ErrorBuffer: 32}
	inBubble(t, wire.Table{Name: "a", Options: replay.Options{Sampler: "uniform"}, Limiter: &limits},
		func(t *testing.T, table *table) {
			var left atomic.Int64
			left.Store(8 + 4)
			for range 8 {
				go func() {
					defer left.Add(-1)
					for range 50 {
						table.mustInsert(t, alone(2, 0)...)
					}
				}()
			}
			synctest.Wait()
			if f := table.rollouts.ServiceView().Flow(); f.Inserted != 16 {
				t.Errorf("without samples %d rollouts got in, want 16: 16 x 2 - 0 = 32", f.Inserted)
			}
			for range 4 {
				go func() {
					defer left.Add(-1)
					for range 50 {
						h := new(holder)
						b, err := table.draw(t.Context(), sized(8), h)
						if err == nil {
							err = table.acknowledge(b.ID, h)
						}
						if err != nil {
							t.Error(err)
						}
					}
				}()
			}
			synctest.Wait()
			if left.Load() != 0 {
				t.Errorf("%d of 12 are held back for ever: %+v", left.Load(),
					table.limiter.State(table.rollouts.ServiceView().Flow()))
			}
			if f := table.rollouts.ServiceView().Flow(); f.Inserted != 800 || f.Drawn != 1600 {
				t.Errorf("flow %+v", f)
			}
		})
}

func TestWaitingForAGateEndsWithTheNextVersion(t *testing.T) {
	inBubble(t, wire.Table{Name: "a", Options: replay.Options{GroupSize: 4}, Gate: &wire.Gate{RolloutsPerUpdate: 4,
		GrantSeconds: 60}}, func(t *testing.T, table *table) {
		ask := func(ms int64) wire.StartAnswer {
			answer, err := start(t.Context(), table, &wire.StartRequest{Groups: 3, TimeoutMS: ms})
			if err != nil {
				t.Fatal(err)
			}
			return answer.(wire.StartAnswer)
		}
		if a := ask(0); a.Groups != 1 || a.ExpiresSeconds != 60 {
			t.Errorf("at once: %+v", a)
		}
		began := time.Now()
		if a := ask(1000); a.Groups != 0 || a.Grant != 0 || time.Since(began) != time.Second {
			t.Errorf("after %v: %+v", time.Since(began), a)
		}
		got := make(chan wire.StartAnswer, 1)
		go func() { got <- ask(30_000) }()
		synctest.Wait()
		if _, err := advance(t.Context(), table, &wire.VersionRequest{Version: 1}); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.Groups != 1 || a.Version != 1 {
			t.Errorf("after an update: %+v", a)
		}
		began = time.Now()
		if a := ask(1000_000); a.Groups != 1 || time.Since(began) > 61*time.Second {
			t.Errorf("after %v, when the first grant went back: %+v", time.Since(began), a)
		}
	})
}

func TestStoppingEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Logger: quiet(), Tables: []wire.Table{{Name: "a"}}})
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.table("a")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := table.draw(t.Context(), sized(1), new(holder))
			got <- err
		}()
		synctest.Wait()
		if _, err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, wire.ErrClosing) {
			t.Errorf("the waiter got %v", err)
		}
	})
}

func TestAnAcknowledgementThatMakesRoomWakesAnInsertion(t *testing.T) {
	inBubble(t, wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: 1}},
		func(t *testing.T, table *table) {
			table.mustInsert(t, alone(1, 0)...)
			h := new(holder)
			b, err := table.draw(t.Context(), sized(1), h)
			if err != nil {
				t.Fatal(err)
			}
			var done atomic.Bool
			go func() {
				table.mustInsert(t, alone(1, 0)...)
				done.Store(true)
			}()
			synctest.Wait()
			if done.Load() {
				t.Fatal("a full queue took an insertion")
			}
			if err := table.acknowledge(b.ID, h); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !done.Load() {
				t.Error("the insertion sleeps on")
			}
		})
}

func TestAPrefetchedBatchIsSentWithAFullLeaseOrNotAtAll(t *testing.T) {
	inBubble(t, wire.Table{Name: "a", Options: replay.Options{LeaseSeconds: 10}}, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(4, 0)...)
		h := new(holder)
		b, err := table.draw(t.Context(), sized(2), h)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second) // of the bubble's clock
		if !table.renewIfCurrent(b, 0, h) {
			t.Fatal("a batch on lease was refused")
		}
		time.Sleep(9 * time.Second)
		if err := table.acknowledge(b.ID, h); err != nil {
			t.Errorf("9 of 10 seconds after its hand-over: %v", err)
		}
		if b, err = table.draw(t.Context(), sized(2), h); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if table.renewIfCurrent(b, 0, h) {
			t.Error("a batch whose lease is over was handed over")
		}
	})
}

// Who waits looks again when something has changed, and not because it looked.
func TestWaitersSleep(t *testing.T) {
	limiter := &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 8}
	inBubble(t, wire.Table{Name: "a", Options: replay.Options{Sampler: "fifo", Capacity: 4, LeaseSeconds: 1e5},
		Limiter: limiter}, func(t *testing.T, table *table) {
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
func TestAStarvedSampleWakesAnInsertionThatTheLimiterHolds(t *testing.T) {
	w := wire.Table{Name: "a", Options: replay.Options{MaxStaleness: 1},
		Limiter: &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 4}}
	inBubble(t, w, func(t *testing.T, table *table) {
		table.mustInsert(t, alone(4, 0)...)
		if err := table.rollouts.Advance(t.Context(), 5); err != nil {
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

func TestABudgetServesRequestsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		take := func(n int64) chan int64 {
			got := make(chan int64, 1)
			go func() {
				taken, err := b.acquire(t.Context(), n)
				if err != nil {
					t.Error(err)
				}
				got <- taken
			}()
			synctest.Wait()
			return got
		}
		first := take(6)
		large, small := take(8), take(1) // the small one does not overtake
		if len(first) != 1 || len(large) != 0 || len(small) != 0 {
			t.Fatalf("%d, %d and %d were served", len(first), len(large), len(small))
		}
		b.release(<-first)
		synctest.Wait()
		if len(large) != 1 || len(small) != 1 || b.used.Load() != 9 {
			t.Errorf("after the first: %d and %d were served, %d in use", len(large), len(small), b.used.Load())
		}
		b.release(9)
		if all := take(1000); len(all) != 1 || <-all != 10 {
			t.Error("more than the budget does not count as all of it")
		}
	})
}

func TestACancelledRequestLetsOthersIntoTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		if _, err := b.acquire(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, served := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := b.acquire(ctx, 8)
			left <- err
		}()
		synctest.Wait()
		go func() {
			_, err := b.acquire(t.Context(), 4)
			served <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled request got %v", err)
		}
		select {
		case err := <-served:
			if err != nil || b.used.Load() != 10 {
				t.Errorf("%v, %d in use", err, b.used.Load())
			}
		default:
			t.Error("the request behind it still waits")
		}
	})
}

func TestWorkThatCanWaitTakesOnlyHalfOfABudget(t *testing.T) {
	b := newBudget(10)
	if b.tryAcquire(6, keepHalf) {
		t.Error("it took 6 of 10")
	}
	if !b.tryAcquire(5, keepHalf) || b.used.Load() != 5 {
		t.Errorf("of 5 wanted %d are in use", b.used.Load())
	}
	if b.tryAcquire(1, keepHalf) {
		t.Error("it took more than half")
	}
}

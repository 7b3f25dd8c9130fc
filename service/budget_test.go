package service

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/reprise-rl/reprise/rollout"
)

func TestABudgetServesWhoWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		take := func(n int64) chan int64 {
			got := make(chan int64, 1)
			go func() {
				taken, err := b.take(t.Context(), n)
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
		b.give(<-first)
		synctest.Wait()
		if len(large) != 1 || len(small) != 1 || b.inUse() != 9 {
			t.Errorf("after the first: %d and %d were served, %d in use", len(large), len(small), b.inUse())
		}
		b.give(9)
		if all := take(1000); len(all) != 1 || <-all != 10 {
			t.Error("more than the budget does not count as all of it")
		}
	})
}

func TestWhoLeavesTheQueueOfABudgetLetsTheOthersThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		if _, err := b.take(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, served := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := b.take(ctx, 8)
			left <- err
		}()
		synctest.Wait()
		go func() {
			_, err := b.take(t.Context(), 4)
			served <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		select {
		case err := <-served:
			if err != nil || b.inUse() != 10 {
				t.Errorf("%v, %d in use", err, b.inUse())
			}
		default:
			t.Error("who stood behind still waits")
		}
	})
}

func TestOnlyHalfOfABudgetIsForWhatCanWait(t *testing.T) {
	b := newBudget(10)
	if _, ok := b.try(6); ok {
		t.Error("6 of 10 were given to what can wait")
	}
	if n, ok := b.try(5); !ok || n != 5 || b.inUse() != 5 {
		t.Errorf("5 of 10: %v, %d in use", ok, b.inUse())
	}
	if _, ok := b.try(1); ok {
		t.Error("beyond half")
	}
}

func TestABudgetIsNeverExceededAndComesBackWhole(t *testing.T) {
	b := newBudget(100)
	var all sync.WaitGroup
	for i := range uint64(16) {
		all.Go(func() {
			random := rollout.Stream(1, "service/budget_test", i)
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					cancel()
				}
				n, err := b.take(ctx, 1+random.Int64N(60))
				if used := b.inUse(); used > 100 {
					t.Errorf("%d of 100 in use", used)
				}
				if err == nil {
					b.give(n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if b.inUse() != 0 || len(b.queue) != 0 {
		t.Errorf("%d in use, %d wait", b.inUse(), len(b.queue))
	}
}

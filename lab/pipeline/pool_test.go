package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func TestPoolComputesWhatIsNeededFirstWithinItsLimit(t *testing.T) {
	p := newPool(context.Background(), 1)
	defer p.close()
	var spent time.Duration
	var order []float64 // written by one work at a time
	begun, release := make(chan struct{}), make(chan struct{})
	first := p.submit(9, &spent, func(context.Context) error { close(begun); <-release; return nil })
	<-begun
	var works []*work
	for _, due := range []float64{5, 3, 8, 3.5, 1} {
		works = append(works,
			p.submit(due, &spent, func(context.Context) error { order = append(order, due); return nil }))
	}
	close(release)
	for _, w := range append(works, first) {
		if err := p.await(w); err != nil {
			t.Fatal(err)
		}
	}
	if want := []float64{1, 3, 3.5, 5, 8}; !slices.Equal(order, want) {
		t.Errorf("computed in the order %v, want %v", order, want)
	}
}

func TestPoolRunsNoMoreThanItsLimitAtATime(t *testing.T) {
	p := newPool(context.Background(), 3)
	defer p.close()
	var spent time.Duration
	var running, most atomic.Int32
	begun, release := make(chan struct{}, 30), make(chan struct{})
	var works []*work
	for i := range 30 {
		works = append(works, p.submit(float64(i), &spent, func(context.Context) error {
			now := running.Add(1)
			for {
				seen := most.Load()
				if now <= seen || most.CompareAndSwap(seen, now) {
					break
				}
			}
			begun <- struct{}{}
			<-release
			running.Add(-1)
			return nil
		}))
	}
	for range 3 {
		<-begun
	}
	close(release)
	for _, w := range works {
		if err := p.await(w); err != nil {
			t.Fatal(err)
		}
	}
	if most.Load() != 3 {
		t.Errorf("%d works ran at a time, want 3", most.Load())
	}
}

func TestAClosedPoolHasNothingRunningAndStartsNothing(t *testing.T) {
	p := newPool(context.Background(), 1)
	var spent time.Duration
	begun := make(chan struct{})
	running := p.submit(1, &spent, func(ctx context.Context) error { close(begun); <-ctx.Done(); return ctx.Err() })
	waiting := p.submit(2, &spent, func(context.Context) error { t.Error("a dropped work ran"); return nil })
	<-begun
	p.close()
	if err := p.await(running); !errors.Is(err, context.Canceled) {
		t.Errorf("running work ended with %v", err)
	}
	if err := p.await(waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting work ended with %v", err)
	}
}

func TestHeapGivesEventsInOrderUnderRandomOperations(t *testing.T) {
	r := rollout.Stream(1, "test/heap", 0)
	var h heap[Event]
	var model []Event
	for i := range 20000 {
		if len(model) == 0 || r.IntN(100) < 52 {
			e := Event{Time: float64(r.IntN(50)), Kind: Kind(1 + r.IntN(6)), Worker: r.IntN(4), Number: uint64(i)}
			h.push(e)
			at, _ := slices.BinarySearchFunc(model, e, Event.Compare)
			model = slices.Insert(model, at, e)
			continue
		}
		if got := h.pop(); got != model[0] {
			t.Fatalf("operation %d: popped %+v, want %+v", i, got, model[0])
		}
		model = model[1:]
	}
	if h.len() != len(model) || h.len() == 0 {
		t.Errorf("heap holds %d events, the model %d", h.len(), len(model))
	}
}

func TestEventsAtOneInstantHappenInTheDocumentedOrder(t *testing.T) {
	want := []Event{
		{Time: 1, Kind: trainersDraw},
		{Time: 2, Kind: stepEnd},
		{Time: 2, Kind: weightsArrive, Number: 3},
		{Time: 2, Kind: decodeEnd, Worker: 0, Number: 9},
		{Time: 2, Kind: rewardArrive, Worker: 0, Number: 8},
		{Time: 2, Kind: rewardArrive, Worker: 1, Number: 5},
		{Time: 2, Kind: rewardArrive, Worker: 1, Number: 6},
		{Time: 2, Kind: workerStart, Worker: 2},
		{Time: 2, Kind: trainersDraw},
	}
	var h heap[Event]
	for _, e := range slices.Backward(want) {
		h.push(e)
	}
	for i, w := range want {
		if got := h.pop(); got != w {
			t.Errorf("event %d is %+v, want %+v", i, got, w)
		}
	}
}

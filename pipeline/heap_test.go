package pipeline

import (
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

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
		{Time: 1, Kind: TrainersDraw},
		{Time: 2, Kind: StepEnd},
		{Time: 2, Kind: WeightsArrive, Number: 3},
		{Time: 2, Kind: DecodeEnd, Worker: 0, Number: 9},
		{Time: 2, Kind: RewardArrive, Worker: 0, Number: 8},
		{Time: 2, Kind: RewardArrive, Worker: 1, Number: 5},
		{Time: 2, Kind: RewardArrive, Worker: 1, Number: 6},
		{Time: 2, Kind: WorkerStart, Worker: 2},
		{Time: 2, Kind: TrainersDraw},
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

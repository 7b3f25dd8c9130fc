package pipeline

import "cmp"

// Kind is what an event is about. At one instant, lower kinds come first: whoever looks for weights,
// rollouts or room then finds everything that was there by that time.
type Kind uint8

// The kinds of events, in the order in which they happen at one instant.
const (
	StepEnd       Kind = iota + 1 // the trainers finish an update
	WeightsArrive                 // workers may take up the weights of version Number
	DecodeEnd                     // Worker reaches the end of a chunk, or of its group
	RewardArrive                  // the rewards of Worker's group of job Number are known
	WorkerStart                   // Worker looks for its next job
	TrainersDraw                  // the trainers ask the buffer for what they miss of a batch each
)

// Event is something that is due on the virtual clock.
type Event struct {
	Time   float64 // >= the clock, in the time one trainer takes for one rollout
	Kind   Kind
	Worker int    // 0 where none is concerned
	Number uint64 // version or job; 0 where neither is concerned
}

// Compare orders events by (time, kind, worker, number).
func (e Event) Compare(o Event) int {
	if c := cmp.Compare(e.Time, o.Time); c != 0 {
		return c
	}
	if c := cmp.Compare(e.Kind, o.Kind); c != 0 {
		return c
	}
	if c := cmp.Compare(e.Worker, o.Worker); c != 0 {
		return c
	}
	return cmp.Compare(e.Number, o.Number)
}

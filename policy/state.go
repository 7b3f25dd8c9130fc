package policy

import (
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// LearnerState is what a checkpoint holds of a Learner, in the order of [hf.Config.Specs].
type LearnerState struct {
	Version       rollout.Version
	Step          int // optimizer steps taken, which sets the bias correction and the warm-up
	Weights       [][]float32
	First, Second [][]float32 // Adam's moments
}

// State returns a copy of the learner's state.
func (l *Learner) State() (s LearnerState, err error) {
	s = LearnerState{Version: l.weights.Version, Step: l.step}
	for _, part := range []struct {
		to   *[][]float32
		from []*tensors.Tensor
	}{{&s.Weights, l.weights.tensors}, {&s.First, l.first}, {&s.Second, l.second}} {
		if *part.to, err = copyAll(part.from); err != nil {
			return LearnerState{}, fmt.Errorf("copy the learner's state: %w", err)
		}
	}
	return s, nil
}

// Restore puts a learner back to a state that State returned: it goes on as if it had never stopped.
func (l *Learner) Restore(s LearnerState) error {
	var parts [3][]*tensors.Tensor
	for i, flat := range [][][]float32{s.Weights, s.First, s.Second} {
		var err error
		if parts[i], err = l.model.tensors(flat); err != nil {
			return fmt.Errorf("restore the learner: %w", err)
		}
	}
	l.weights = &Weights{Version: s.Version, tensors: parts[0]}
	l.first, l.second, l.step = parts[1], parts[2], s.Step
	return nil
}

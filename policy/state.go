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
	c := l.model.config
	var parts [3]*Weights
	for i, flat := range [][][]float32{s.Weights, s.First, s.Second} {
		w, err := NewWeights(c, s.Version, flat)
		if err != nil {
			return fmt.Errorf("restore the learner: %w", err)
		}
		parts[i] = w
	}
	l.weights, l.first, l.second, l.step = parts[0], parts[1].tensors, parts[2].tensors, s.Step
	return nil
}

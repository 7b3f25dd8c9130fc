package policy

import (
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// LearnerState is what a checkpoint holds of a Learner, in the order of [hf.Config.Specs].
type LearnerState struct {
	Version       rollout.Version
	Step          int // optimizer steps taken, which sets the bias correction, the warm-up and which steps begin a batch
	Weights       [][]float32
	First, Second [][]float32 // Adam's moments
	Began         [][]float32 // weights at the start of a batch some of whose steps are still to come; nil: there is none
	Reference     [][]float32 // weights of the reference policy; nil: there is none
	Swaps         int         // of the reference policy so far
}

// State returns a copy of the learner's state.
func (l *Learner) State() (s LearnerState, err error) {
	s = LearnerState{Version: l.weights.Version, Step: l.step, Swaps: l.swaps}
	for _, part := range []struct {
		to   *[][]float32
		from []*tensors.Tensor
	}{{&s.Weights, l.weights.tensors}, {&s.First, l.first}, {&s.Second, l.second}, {&s.Began, parameters(l.began)}, {&s.Reference, parameters(l.reference)}} {
		if part.from == nil {
			continue
		}
		if *part.to, err = copyAll(part.from); err != nil {
			return LearnerState{}, fmt.Errorf("copy the learner's state: %w", err)
		}
	}
	return s, nil
}

func parameters(w *Weights) []*tensors.Tensor {
	if w == nil {
		return nil
	}
	return w.tensors
}

// Restore puts a learner back to a state that State returned: it goes on as if it had never stopped.
func (l *Learner) Restore(s LearnerState) error {
	if l.reference != nil && s.Reference == nil {
		return errors.New("restore the learner: its objective needs a reference policy, and the state has none: go on with the objective that the state was saved with")
	}
	within := l.options.needsStart() && s.Step%l.options.Updates != 0
	if within && s.Began == nil {
		return fmt.Errorf("restore the learner: step %d stands within a batch of %d, and the state does not have the batch's first weights: go on with the batch_updates that the state was saved with", s.Step, l.options.Updates)
	}
	var parts [5][]*tensors.Tensor
	for i, flat := range [][][]float32{s.Weights, s.First, s.Second, s.Began, s.Reference} {
		if flat == nil && i >= 3 {
			continue
		}
		var err error
		if parts[i], err = l.model.tensors(flat); err != nil {
			return fmt.Errorf("restore the learner: %w", err)
		}
	}
	l.weights = &Weights{Version: s.Version, tensors: parts[0]}
	l.first, l.second, l.step, l.swaps = parts[1], parts[2], s.Step, s.Swaps
	l.began, l.reference, l.memory = nil, nil, nil
	if within {
		l.began = &Weights{tensors: parts[3]}
	}
	if l.options.needsReference() {
		l.reference = &Weights{tensors: parts[4]}
	}
	return nil
}

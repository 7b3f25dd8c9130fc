package policy

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

func TestWhatIsKnownOfABatchIsNotAskedAgain(t *testing.T) {
	m := newTestModel(t, judging())
	w := randomWeights(t, m, 151)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, o := range map[string]Learning{
		"r' and reference": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.1}},
		"values":           {Objective: objective.PPO{}, Advantage: advantage.Critic},
		"bound":            {Objective: objective.GRPO{}, MaxLogRatio: 9, BoundEvery: 1}, // which asks the policy after the step
	} {
		o.Updates, o.PassElements = 3, 3*16*m.config.VocabSize
		l := newTestLearner(t, m, w, o)
		batches, others := episodes(t, m, w), episodes(t, m, w)
		for n := range 7 {
			_, again := l.prepare(over, batches)
			_, another := l.prepare(over, others)
			if known := n%3 != 0; (again == nil) != known || !known && !errors.Is(again, context.Canceled) || !errors.Is(another, context.Canceled) {
				t.Errorf("%s, step %d: asked of the batch before: %v, of another: %v", name, n, again, another)
			}
			step(t, l, batches...)
		}
	}
}

// Some steps are on the batch before, some on one that shares its first rollouts, in passes of another length or not.
func TestALearnerWithoutMemoryTakesTheSameSteps(t *testing.T) {
	m := newTestModel(t, judging())
	w := randomWeights(t, m, 152)
	longer := func(batches []*rollout.Batch) []*rollout.Batch {
		var list []*rollout.Batch
		for _, b := range batches {
			c := *b
			c.Draws = slices.Clone(b.Draws)
			last := &c.Draws[len(c.Draws)-1]
			r := *last.Rollout
			for len(r.Tokens) < 20 {
				r.Tokens, r.Mask, r.Logprobs, r.Values = append(r.Tokens, 3), append(r.Mask, 1), append(r.Logprobs, -2), append(r.Values, 0.5)
			}
			last.Rollout = &r
			list = append(list, &c)
		}
		return list
	}
	for name, o := range learners() {
		o.PassElements = 1 // so that a pass is one rollout, at the length of the longest of those to come
		var states [2]LearnerState
		var measured [2][]StepResult
		for i, forgetful := range []bool{false, true} {
			l := newTestLearner(t, m, w, o)
			batches := episodes(t, m, w)
			for n := range 7 {
				if n == 4 {
					batches = longer(batches)
				}
				if forgetful {
					l.previous = nil
				}
				measured[i] = append(measured[i], measure(t, l, batches...))
			}
			states[i] = state(t, l)
		}
		if !reflect.DeepEqual(states[0], states[1]) || !reflect.DeepEqual(measured[0], measured[1]) {
			t.Errorf("%s: a learner that remembers goes another way", name)
		}
	}
}

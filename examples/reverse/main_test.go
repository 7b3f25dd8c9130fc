package main

import (
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

func TestTheTaskKeepsThePromisesOfATask(t *testing.T) {
	one, _ := newReverse(1)
	again, _ := newReverse(1)
	other, _ := newReverse(2)
	tasktest.SeedOrdersTraining(t, one, again, other, 555, 20)
	tasktest.HeldOut(t, one, 70, 2*555, func(p task.Prompt) string { return p.Text })
	tasktest.Characters(t, one, 555) // the demonstrations among them
}

func TestTheRewardIsTheShareOfLettersInTheirPlaces(t *testing.T) {
	for response, want := range map[string]task.Verdict{
		"dcba":     {Reward: 1, Correct: true},
		"dcbb":     {Reward: 0.75},
		"abcd":     {},
		"dc":       {Reward: 0.5},
		"dcbadcba": {Reward: 0.5}, // more letters do not help
		"":         {},
	} {
		want.Extracted = response
		if got := (reverse{}).Verify(task.Prompt{Answer: "dcba"}, response); got != want {
			t.Errorf("%q: %+v, want %+v", response, got, want)
		}
	}
}

func TestAModelLearnsTheTask(t *testing.T) {
	tests.Long(t)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := train(t.Context(), dir, []string{"budget.updates=4"}); err != nil {
		t.Fatal(err)
	}
	if _, err := train(t.Context(), dir, []string{"budget.updates=16"}); err != nil { // continues the run
		t.Fatal(err)
	}
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, last := r.Evals[0], r.Evals[len(r.Evals)-1]
	if last.Update != 16 || last.Reward.Float() < first.Reward.Float()+0.03 {
		t.Errorf("reward %.3f at first, %.3f after update %d: want more after update 16", first.Reward.Float(),
			last.Reward.Float(), last.Update)
	}
}

package run

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

// Tasks may take long to make: a command makes its own once, whatever asks for it.
func TestACommandMakesItsTaskOnce(t *testing.T) {
	for name, set := range map[string][]string{
		"turns by token": {"pipeline.weight_sync=token", "pipeline.chunk=1", "budget.updates=3"},
		"dr_grpo":        {"learner.objective=dr_grpo", "budget.updates=3"},
	} {
		var times atomic.Int32
		of := func(seed uint64) (task.Task, error) {
			times.Add(1)
			return counting{turns: 4, seed: seed}, nil
		}
		c := counts(t, counting{turns: 4}, set...).WithTask("counting", of)
		dir := filepath.Join(t.TempDir(), "run")
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if sum := train(t, c, dir); sum.Updates != 3 || times.Load() != 1 {
			t.Errorf("%s: %d updates took %d tasks, want 3 and 1", name, sum.Updates, times.Load())
		}
		c.Seed++ // its prompts come in another order
		if _, err := c.newTask(); err != nil || times.Load() != 2 {
			t.Errorf("%s: another seed has its own task: %d were made, %v", name, times.Load(), err)
		}
		other := c.WithTask("other", of)
		if _, err := other.newTask(); err != nil || times.Load() != 3 {
			t.Errorf("%s: another task takes the place of the first: %d were made, %v", name, times.Load(), err)
		}
	}
}

// Settings of the catalog are told apart by what they mean: defaults that are spelled out make no other task.
func TestSettingsAreToldApartByWhatTheyMean(t *testing.T) {
	c := small(t)
	c.Task = map[string]any{"name": "search", "held_out": 10}
	first, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	written, err := c.resolved()
	if err != nil {
		t.Fatal(err)
	}
	if len(written.Task) <= len(c.Task) {
		t.Fatalf("written out the task is %v, was %v", written.Task, c.Task)
	}
	if again, err := written.newTask(); err != nil || again != first {
		t.Errorf("written out it is another task: %v", err)
	}
	changed := c
	changed.Task = map[string]any{"name": "search", "held_out": 11}
	if other, err := changed.newTask(); err != nil || other == first || len(other.HeldOut()) != 11 {
		t.Errorf("another setting makes no other task: %v", err)
	}
}

func TestATaskThatCouldNotBeMadeIsTriedAgain(t *testing.T) {
	fail := true
	c := Default().WithTask("counting", func(seed uint64) (task.Task, error) {
		if fail {
			return nil, errors.New("no disk")
		}
		return counting{turns: 2, seed: seed}, nil
	})
	if _, err := c.newTask(); err == nil {
		t.Fatal("the error is lost")
	}
	fail = false
	if got, err := c.newTask(); err != nil || got == nil {
		t.Errorf("the error is kept: %v", err)
	}
	if _, err := (Config{Task: map[string]any{"name": "arithmetic"}}).newTask(); err != nil {
		t.Errorf("a configuration that keeps no task: %v", err)
	}
	if _, err := Begin(context.Background(), Config{Task: map[string]any{"name": "nothing"}}, nil); err == nil {
		t.Error("a task that nobody knows is begun")
	}
}

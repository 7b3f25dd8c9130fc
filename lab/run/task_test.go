package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
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
func TestFilledInDefaultsGiveTheSameTask(t *testing.T) {
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

func TestAFailedTaskIsTriedAgain(t *testing.T) {
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

func TestOnlyItsProgramContinuesARunOfAnOwnTask(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, results.ConfigFile), []byte("task: {name: sorted}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFolder(dir, nil); err == nil || !strings.Contains(err.Error(), "task sorted is of a program of its own") {
		t.Errorf("it says %v", err)
	}
}

// counted chooses prompts from 10 up and notes which are reported.
type counted struct {
	next     uint64
	reported []uint64
}

func (c *counted) Choose(uint64, rollout.Version) (uint64, bool) {
	c.next++
	return 9 + c.next, c.next%2 == 0
}

func (c *counted) Report(_ rollout.Version, prompt uint64, _ bool, _ []*rollout.Rollout) error {
	c.reported = append(c.reported, prompt)
	return nil
}

func TestLimitedPromptsRepeatInOrder(t *testing.T) {
	var asked []uint64
	for job := range uint64(7) {
		prompt, replayed := limitedPrompts{limit: 3}.Choose(job, 0)
		if replayed {
			t.Errorf("prompt %d of job %d is called replayed", prompt, job)
		}
		asked = append(asked, prompt)
	}
	if want := []uint64{0, 1, 2, 0, 1, 2, 0}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if err := (limitedPrompts{limit: 3}).Report(0, 1, false, nil); err != nil {
		t.Error(err)
	}
}

func TestTheLimitHoldsForAChooserToo(t *testing.T) {
	c := &counted{}
	var p pipeline.Prompts = limitedPrompts{4, c}
	for job, want := range []uint64{2, 3, 0} { // of 10, 11, 12
		prompt, replayed := p.Choose(uint64(job), 0)
		if prompt != want || replayed != (job == 1) {
			t.Errorf("job %d: prompt %d, replayed %t", job, prompt, replayed)
		}
		if err := p.Report(1, prompt, replayed, nil); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(c.reported, []uint64{2, 3, 0}) {
		t.Errorf("reported %v", c.reported)
	}
}

func TestARunWithALimitTrainsOnSoManyPrompts(t *testing.T) {
	all, few := small(t, "replay.capacity=320"), small(t, "replay.capacity=320", "prompts.limit=2",
		"prompts.fraction=0.5", "prompts.band=0.5")
	dir := t.TempDir()
	train(t, all, filepath.Join(dir, "all"))
	if chosen := train(t, few, filepath.Join(dir, "few")).PromptReplay; chosen.Fresh+chosen.Replayed == 0 {
		t.Error("prompt replay has chosen nothing among the few")
	}
	if n := len(prompted(t, filepath.Join(dir, "all"))); n <= 2 {
		t.Fatalf("without a limit %d prompts", n)
	}
	if asked := prompted(t, filepath.Join(dir, "few")); len(asked) != 2 {
		t.Errorf("with a limit of 2: %v", asked)
	}
	first := func(name string) string {
		line, _, _ := strings.Cut(written(t, filepath.Join(dir, name))["eval.jsonl"], "\n")
		return line
	}
	if first("all") != first("few") {
		t.Errorf("the warm starts differ:\n%s\n%s", first("all"), first("few"))
	}
}

// prompted returns the prompts of the rollouts that a run's table holds.
func prompted(t *testing.T, dir string) []string {
	t.Helper()
	in, err := Inspect(dir, 320)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range append(in.Top, in.Bottom...) {
		names = append(names, d.Prompt)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestANegativeLimitIsRefused(t *testing.T) {
	_, err := Load("", []string{"prompts.limit=-1", "prompts.fraction=2"})
	for _, want := range []string{"prompts.limit: -1: want", "prompts.fraction: 2: want"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

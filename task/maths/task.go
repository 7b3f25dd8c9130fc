package maths

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the split of one file: a constant, so that all runs share it.
const heldOutSeed = 0x7265707269736537

// Task asks the problems of a file. It is safe for concurrent use.
type Task struct {
	Verifier
	problems map[string]Problem // by ID, those of both lists
	train    []string           // IDs
	heldOut  []string
	order    task.Order
	template string
	overlap  int
}

// New reads the files and returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{problems: map[string]Problem{}, template: s.Template}
	all, err := t.read("train_file", s.TrainFile)
	if err != nil {
		return nil, err
	}
	if s.HeldOutFile != "" {
		if t.heldOut, err = t.read("held_out_file", s.HeldOutFile); err != nil {
			return nil, err
		}
	} else {
		t.heldOut = chosen(all, max(1, int(math.Round(s.HeldOutFraction*float64(len(all))))))
	}
	t.train = without(all, t.heldOut)
	if s.HeldOutFile != "" {
		t.overlap = len(all) - len(t.train)
	}
	if len(t.train) == 0 {
		return nil, fmt.Errorf("train_file %s: no problems remain to train on, %d are held out: want at least one, use a larger file",
			s.TrainFile, len(t.heldOut))
	}
	if s.HeldOut > 0 && s.HeldOut < len(t.heldOut) {
		t.heldOut = chosen(t.heldOut, s.HeldOut)
	}
	t.order = task.Order{Seed: seed, Purpose: "math train", N: len(t.train)}
	return t, nil
}

// read adds the problems of a file and returns their IDs in its order.
func (t *Task) read(key, path string) ([]string, error) {
	list, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
		t.problems[p.ID] = p
	}
	return ids, nil
}

// chosen returns n of the problems, the same for every seed, in their order.
func chosen(ids []string, n int) []string {
	var picked []string
	for _, at := range (task.Order{Seed: heldOutSeed, Purpose: "math held-out", N: len(ids)}).Pick(n) {
		picked = append(picked, ids[at])
	}
	return picked
}

// without returns the problems that are not among the others.
func without(ids, others []string) []string {
	out := make(map[string]bool, len(others))
	for _, id := range others {
		out[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return out[id] })
}

// Train returns the i-th training prompt: every problem once per epoch, in a fresh order.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)]) }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt {
	prompts := make([]task.Prompt, len(t.heldOut))
	for i, id := range t.heldOut {
		prompts[i] = t.prompt(id)
	}
	return prompts
}

func (t *Task) prompt(id string) task.Prompt {
	p := t.problems[id]
	return task.Prompt{ID: id, Text: strings.Replace(t.template, Slot, p.Question, 1), Answer: p.Answer}
}

// Demonstrate returns the solution of the file, with the answer in a box after it if its own is no right answer; without a
// solution the box alone.
func (t *Task) Demonstrate(p task.Prompt) string {
	box := `\boxed{` + p.Answer + "}"
	solution := t.problems[p.ID].Solution
	switch {
	case solution == "":
		return box
	case t.Verify(p, solution).Correct:
		return solution
	}
	return solution + "\n" + box
}

// Problems returns how many problems there are to train on.
func (t *Task) Problems() int { return len(t.train) }

// Overlap returns how many problems of the training file were left out because they are held out.
func (t *Task) Overlap() int { return t.overlap }

package gsm8k

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the split of one file: a constant, so that all runs share it.
const heldOutSeed = 0x7265707269736532

// Task asks the questions of a file. It is safe for concurrent use.
type Task struct {
	Verifier
	train     []Problem
	heldOut   []Problem
	solutions map[string]string // by ID
	order     task.Order
	template  string
	overlap   int
}

// New reads the files and returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	train, err := ReadFile(s.TrainFile)
	if err != nil {
		return nil, fmt.Errorf("train_file: %w", err)
	}
	t := &Task{template: s.Template, solutions: map[string]string{}}
	if s.HeldOutFile != "" {
		if t.heldOut, err = ReadFile(s.HeldOutFile); err != nil {
			return nil, fmt.Errorf("held_out_file: %w", err)
		}
		t.train = without(train, t.heldOut)
		t.overlap = len(train) - len(t.train)
	} else {
		t.train, t.heldOut = split(train, s.HeldOutFraction)
	}
	if len(t.train) == 0 || len(t.heldOut) == 0 {
		return nil, fmt.Errorf("train_file %s: %d training and %d held-out questions remain: want at least one of each, use a larger file",
			s.TrainFile, len(t.train), len(t.heldOut))
	}
	if s.HeldOut > 0 && s.HeldOut < len(t.heldOut) {
		t.heldOut = choose(t.heldOut, s.HeldOut)
	}
	for _, p := range slices.Concat(t.train, t.heldOut) {
		t.solutions[p.ID] = p.Solution
	}
	t.order = task.Order{Seed: seed, Purpose: "gsm8k train", N: len(t.train)}
	return t, nil
}

// Train returns the i-th training prompt: every question once per epoch, in a fresh order.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)]) }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt {
	prompts := make([]task.Prompt, len(t.heldOut))
	for i, p := range t.heldOut {
		prompts[i] = t.prompt(p)
	}
	return prompts
}

// Demonstrate returns the solution of the file, for a prompt of other origin its marked answer.
func (t *Task) Demonstrate(p task.Prompt) string {
	if solution, ok := t.solutions[p.ID]; ok {
		return solution
	}
	return hashes + " " + p.Answer
}

// Questions returns how many questions there are to train on.
func (t *Task) Questions() int { return len(t.train) }

// Overlap returns how many questions of the training file were left out because they are held out.
func (t *Task) Overlap() int { return t.overlap }

func (t *Task) prompt(p Problem) task.Prompt {
	return task.Prompt{ID: p.ID, Text: strings.Replace(t.template, Slot, p.Question, 1), Answer: p.Answer}
}

// split holds out a share of the problems, at least one.
func split(problems []Problem, fraction float64) (train, heldOut []Problem) {
	n := max(1, int(math.Round(fraction*float64(len(problems)))))
	heldOut = choose(problems, n)
	return without(problems, heldOut), heldOut
}

// choose returns n problems, the same for every seed, in the order of the file.
func choose(problems []Problem, n int) []Problem {
	var picked []Problem
	for _, at := range (task.Order{Seed: heldOutSeed, Purpose: "gsm8k held-out", N: len(problems)}).Pick(n) {
		picked = append(picked, problems[at])
	}
	return picked
}

// without returns the problems whose questions are not among the others.
func without(problems, others []Problem) []Problem {
	out := make(map[string]bool, len(others))
	for _, p := range others {
		out[p.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return out[p.ID] })
}

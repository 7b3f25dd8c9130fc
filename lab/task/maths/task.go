// Package maths is the task named math: problems such as those of MATH and AIME, from public files, whose answers are
// numbers, expressions, intervals, sets, points, matrices, equations or words.
//
// A [Task] reads the field names that public files have. It is a task.Demonstrator: it shows the solution if the file
// has one, and the answer in a box.
//
// [Verifier] works without any file. It finds the answer of a response (the last \boxed, else what follows "answer is",
// else the last line) and compares it with the reference by package answer. Like gsm8k's verifier it avoids rewards by
// accident: an answer that hedges ("4 or 5"), a box that was cut off, or an ambiguous text earns nothing.
package maths

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/dataset"
	"github.com/reprise-rl/reprise/lab/task/maths/answer"
)

// Settings of the task. Only TrainFile is required: .json or .jsonl, also with .gz.
type Settings dataset.Settings

// format returns how the task reads its files.
func format() dataset.Format {
	return dataset.Format{
		Name: "math", HeldOutSeed: 0x7265707269736537, Slot: "{problem}",
		// For a model that has not learned a chat format.
		Template: "Problem: {problem}\nReason step by step, and put the final answer in \\boxed{}.\nSolution:\n",
		Chat:     "{problem}\nReason step by step, and put the final answer in \\boxed{}.",
		File:     "JSON lines, or a JSON array, of objects with problem and answer",
		Object:   `{"problem": ..., "answer": ...}`,
		Parse:    parse, Same: func(a, b string) bool { return answer.Equal(answer.Parse(a), answer.Parse(b)) },
	}
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() { (*dataset.Settings)(s).Resolve(format()) }

// Validate reports every problem with the settings, each an [option.Error]. It does not look into the files.
func (s Settings) Validate() error {
	s.Resolve()
	return dataset.Settings(s).Validate(format())
}

// Task asks the problems of a file. It is safe for concurrent use.
type Task struct {
	Verifier
	*dataset.Set
}

// New reads the files and returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	set, err := dataset.New(format(), dataset.Settings(s), seed)
	if err != nil {
		return nil, err
	}
	return &Task{Set: set}, nil
}

// Without returns the task without the problems of these IDs.
func (t *Task) Without(ids map[string]bool) task.Task { return &Task{t.Verifier, t.Set.Without(ids)} }

// Demonstrate returns the solution of the file, followed by the answer in a box if the solution's own is not correct.
// Without a solution it returns the box alone.
func (t *Task) Demonstrate(p task.Prompt) string {
	box := `\boxed{` + p.Answer + "}"
	solution := t.Solution(p)
	switch {
	case solution == "":
		return box
	case t.Verify(p, solution).Correct:
		return solution
	}
	return solution + "\n" + box
}

// parse reads a problem: problem, question or prompt; answer, ground_truth or, for its box, solution.
func parse(fields map[string]json.RawMessage) (p dataset.Problem, err error) {
	name, err := first(fields, "problem", "question", "prompt")
	if err != nil {
		return p, err
	}
	if p.Question, err = dataset.StringField(fields, name, "a problem"); err != nil {
		return p, err
	}
	if _, ok := fields["solution"]; ok {
		if p.Solution, err = task.StringField(fields, "solution"); err != nil {
			return p, err
		}
	}
	if name, err = first(fields, "answer", "ground_truth", "solution"); err != nil {
		return p, err
	}
	text, err := answerField(fields, name)
	if err != nil {
		return p, err
	}
	p.Answer = text
	if short := reference(text); short != strings.TrimSpace(text) { // the answer is a whole solution
		p.Answer = short
		p.Solution = cmp.Or(p.Solution, text)
	}
	return p, nil
}

// answerField reads a field that holds an answer: a string, or a number as written.
func answerField(fields map[string]json.RawMessage, name string) (string, error) {
	raw := fields[name]
	if string(raw) == "null" || string(raw) == `""` {
		return "", dataset.ErrNoAnswer
	}
	if len(raw) > 0 && strings.IndexByte("-0123456789", raw[0]) >= 0 {
		return string(raw), nil
	}
	text, err := task.StringField(fields, name)
	if err != nil {
		return "", err
	}
	if _, found := boxed(text); name == "solution" && !found {
		return "", fmt.Errorf("field solution: %.40q has no \\boxed{}: want one, or a field answer", text)
	}
	if err := (Verifier{}).CheckAnswer(text); err != nil {
		return "", fmt.Errorf("field %s: %w", name, err)
	}
	return text, nil
}

// first returns the first of several names that an object has a field of.
func first(fields map[string]json.RawMessage, names ...string) (string, error) {
	for _, name := range names {
		if _, ok := fields[name]; ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("field %s: missing: want a string", strings.Join(names, " or "))
}

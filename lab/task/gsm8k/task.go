// Package gsm8k is the task of word problems with one number as the answer: any file of JSON lines with "question" and
// "answer", where the answer is a solution that ends in "#### " and the number.
//
// A [Task] is a task.Demonstrator: the solutions of the file are the demonstrations.
//
// [Verifier] works without any file. It takes the last "#### n" of a response, else the last "\boxed{n}", else the last
// number, and compares exactly, as rational numbers. It reads thousands separators (1,234 and LaTeX's 1{,}234 and
// 1\,234), decimals, fractions (3/4, 3 1/2, ½, \frac{3}{4}), signs, currency ($, €, £, ¥, ₹, before or after),
// scientific notation (1.5e3, 1.5 \times 10^3), words of scale (5 million) and LaTeX spacing and text. It ignores
// percent signs and units: "12%" is 12, not 0.12.
//
// If an answer is present but is not one plain number, nothing is extracted, and nothing is taken from elsewhere,
// because a reward given by accident is learned: expressions (3 + 4, 5x, 5\pi), ranges, dates, times, "1,2", "1.2.3",
// "1/0", two numbers after ####, a box that was cut off, numbers of more than 300 digits or powers beyond 10^300. An
// equation counts by its right side.
//
// A flexible verifier takes the last number wherever it stands, as verl's method "flexible" does.
package gsm8k

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/dataset"
)

// Settings of the task. Only TrainFile is required.
type Settings struct {
	dataset.Settings `yaml:",inline"`

	Flexible bool `yaml:"flexible"` // take the last number of a response, marked or not
}

// format returns how the task reads its files.
func format() dataset.Format {
	return dataset.Format{
		Name: "gsm8k", HeldOutSeed: 0x7265707269736532, Slot: "{question}",
		Template: "Question: {question}\nAnswer:\n", // for a model that has not learned a chat format
		Chat:     "{question}\nThink step by step. End with #### and the number that answers the question.",
		File:     "JSON lines with question and answer", Object: `{"question": ..., "answer": ...}`,
		Parse: parse, Same: func(a, b string) bool { return a == b },
	}
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() { s.Settings.Resolve(format()) }

// Validate reports every problem with the settings, each an [option.Error]. It does not look into the files.
func (s Settings) Validate() error {
	s.Resolve()
	return s.Settings.Validate(format())
}

// Task asks the questions of a file. It is safe for concurrent use.
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
	set, err := dataset.New(format(), s.Settings, seed)
	if err != nil {
		return nil, err
	}
	return &Task{Verifier{Flexible: s.Flexible}, set}, nil
}

// Without returns the task without the problems of these IDs.
func (t *Task) Without(ids map[string]bool) task.Task { return &Task{t.Verifier, t.Set.Without(ids)} }

// Demonstrate returns the solution of the file; for a prompt from elsewhere, its marked answer.
func (t *Task) Demonstrate(p task.Prompt) string { return cmp.Or(t.Solution(p), hashes+" "+p.Answer) }

// parse reads one problem.
func parse(fields map[string]json.RawMessage) (p dataset.Problem, err error) {
	if p.Question, err = dataset.StringField(fields, "question", "a question"); err != nil {
		return p, err
	}
	if p.Solution, err = task.StringField(fields, "answer"); err != nil {
		return p, err
	}
	value, what := marked(p.Solution)
	if what != found {
		end := strings.TrimSpace(p.Solution)
		return p, fmt.Errorf("field answer: ends in %q: want a solution that ends in \"#### \" and one number",
			end[max(0, len(end)-40):])
	}
	p.Answer = canonical(value)
	return p, nil
}

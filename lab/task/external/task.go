// Package external is the task of questions from a file whose answers a program judges: any program that reads JSON
// lines and writes JSON lines, in any language.
//
// A [Verifier] starts the program without a shell, sends it one line for each response,
//
//	{"id":17,"prompt_id":"…","prompt":"…","response":"…","answer":"…"}
//
// and expects one line for each id, in any order: {"id":17,"reward":0.5}, with optional "correct" and "extracted". If
// the program dies, hangs or answers anything else, verification fails with an error that names the command, the line
// and the remedy.
//
// [Task] gives the questions of a file, as gsm8k does. It is a task.Demonstrator if every question has a solution or an
// answer, and a task.Alphabet of the file's characters. Its verdicts are as deterministic as the program's: ids, the
// order of the questions and how many are under way depend on time, the rest does not.
package external

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/dataset"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Name of the task in a configuration.
const Name = "external"

// Settings of the task. Command and TrainFile are required; a [Verifier] needs no files.
type Settings struct {
	Command   []string `yaml:"command"`    // the program and its arguments, started without a shell; required
	Timeout   float64  `yaml:"timeout"`    // seconds without any answer until the program counts as hung; 0: 30
	InFlight  int      `yaml:"in_flight"`  // questions that may wait for their answers at once; 0: 64; at most 4096
	MaxReward float64  `yaml:"max_reward"` // rewards are from minus this to this, which a right response gets; 0: 1

	dataset.Settings `yaml:",inline"`
}

// format returns how the task reads its files.
func format() dataset.Format {
	return dataset.Format{
		Name: Name, HeldOutSeed: 0x7265707269736539, Slot: "{question}", Template: "{question}",
		Chat: "{question}",
		File: "JSON lines with question, and perhaps answer and solution", Object: `{"question": ..., "answer": ...}`,
		Parse: parse, Same: func(a, b string) bool { return a == b },
	}
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	s.Timeout = cmp.Or(s.Timeout, 30)
	s.InFlight = cmp.Or(s.InFlight, 64)
	s.MaxReward = cmp.Or(s.MaxReward, 1)
	s.Settings.Resolve(format())
}

// Validate reports every problem with the settings, each an [option.Error]. It does not look into the files, nor for
// the program.
func (s Settings) Validate() error {
	s.Resolve()
	return errors.Join(s.validateProgram(), s.Settings.Validate(format()))
}

// validateProgram reports the problems with resolved settings of the program.
func (s Settings) validateProgram() error {
	var problems option.Problems
	problems.Check(len(s.Command) > 0 && s.Command[0] != "", "command", s.Command,
		"a program and its arguments, such as [python3, verify.py]")
	problems.Check(s.Timeout > 0 && s.Timeout <= 86400, "timeout", s.Timeout, "0 (30) to 86400 seconds")
	problems.Check(s.InFlight >= 1 && s.InFlight <= 4096, "in_flight", s.InFlight, "0 (64) to 4096")
	problems.Check(s.MaxReward > 0 && s.MaxReward <= 1e6, "max_reward", s.MaxReward, "above 0, at most 1e6; 0 means 1")
	return problems.Err()
}

// Task asks the questions of a file. It is safe for concurrent use.
type Task struct {
	*Verifier
	*dataset.Set
}

// demonstrated is a Task each of whose questions has a solution or an answer.
type demonstrated struct{ *Task }

// New reads the files, looks for the program, and returns the task; the seed orders its training prompts. The program
// starts with the first question.
func New(s Settings, seed uint64) (task.Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	set, err := dataset.New(format(), s.Settings, seed)
	if err != nil {
		return nil, err
	}
	v, err := NewVerifier(s)
	if err != nil {
		return nil, err
	}
	t := &Task{v, set}
	for _, p := range set.Problems() {
		if p.Answer == "" && p.Solution == "" {
			return t, nil
		}
	}
	return demonstrated{t}, nil
}

// Without returns the task without the questions of these IDs. Both ask the same program.
func (t *Task) Without(ids map[string]bool) task.Task { return &Task{t.Verifier, t.Set.Without(ids)} }

// Without is that of Task.
func (d demonstrated) Without(ids map[string]bool) task.Task {
	return demonstrated{&Task{d.Verifier, d.Set.Without(ids)}}
}

// Demonstrate returns the solution of the file, or the answer if there is none.
func (d demonstrated) Demonstrate(p task.Prompt) string { return cmp.Or(d.Solution(p), p.Answer) }

// Characters returns the characters of the prompts, answers and solutions, for a policy with random weights.
func (t *Task) Characters() string {
	found := map[rune]bool{}
	note := func(texts ...string) {
		for _, r := range strings.Join(texts, "") {
			found[r] = true
		}
	}
	note(t.Train(0).Text) // the template among it
	for _, p := range t.Problems() {
		note(p.Question, p.Answer, p.Solution)
	}
	return string(slices.Sorted(maps.Keys(found)))
}

// parse reads a question, problem or prompt, and the answer and the solution if there are any. An answer that is no
// string counts as its JSON text.
func parse(fields map[string]json.RawMessage) (p dataset.Problem, err error) {
	name := "question"
	for _, other := range []string{"problem", "prompt"} {
		if _, ok := fields[name]; !ok {
			name = other
		}
	}
	if _, ok := fields[name]; !ok {
		return p, errors.New("field question, problem or prompt: missing: want a string")
	}
	if p.Question, err = dataset.StringField(fields, name, "a question"); err != nil {
		return p, err
	}
	if _, ok := fields["solution"]; ok {
		if p.Solution, err = task.StringField(fields, "solution"); err != nil {
			return p, err
		}
	}
	raw := fields["answer"]
	switch {
	case string(raw) == "null":
	case len(raw) > 0 && raw[0] == '"':
		p.Answer, err = task.StringField(fields, "answer")
	default:
		p.Answer = string(raw)
	}
	return p, err
}

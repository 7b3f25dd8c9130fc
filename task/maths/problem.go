package maths

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Problem is one problem of a file.
type Problem struct {
	ID       string // of the question, the same in every file
	Question string
	Answer   string // the answer alone, as the file writes it
	Solution string // empty: the file has none
}

// errNoAnswer is that of a problem whose answer is null or empty: public files have a few, and they are passed over.
var errNoAnswer = errors.New("no answer")

// problemOf reads the fields of a problem: problem, question or prompt; answer, ground_truth or, for its box, solution.
func problemOf(fields map[string]json.RawMessage) (Problem, error) {
	var p Problem
	name, err := first(fields, "problem", "question", "prompt")
	if err != nil {
		return Problem{}, err
	}
	if p.Question, err = task.StringField(fields, name); err != nil {
		return Problem{}, err
	}
	if p.Question = strings.TrimSpace(p.Question); p.Question == "" {
		return Problem{}, fmt.Errorf("field %s: %s: want a problem", name, fields[name])
	}
	p.ID = identity(p.Question)
	if _, ok := fields["solution"]; ok {
		if p.Solution, err = task.StringField(fields, "solution"); err != nil {
			return Problem{}, err
		}
	}
	if name, err = first(fields, "answer", "ground_truth", "solution"); err != nil {
		return Problem{}, err
	}
	p.Answer, err = answerOf(fields, name)
	if text := p.Answer; err == nil && reference(text) != strings.TrimSpace(text) {
		p.Answer = reference(text)
		if p.Solution == "" { // the answer is a whole solution
			p.Solution = text
		}
	}
	return p, err
}

// answerOf reads a field that holds an answer: a string, or a number as it is written.
func answerOf(fields map[string]json.RawMessage, name string) (string, error) {
	raw := fields[name]
	if string(raw) == "null" || string(raw) == `""` {
		return "", errNoAnswer
	}
	if len(raw) > 0 && strings.IndexByte("-0123456789", raw[0]) >= 0 {
		return string(raw), nil
	}
	text, err := task.StringField(fields, name)
	if err != nil {
		return "", err
	}
	_, inBox := boxed(text)
	if name == "solution" && !inBox {
		return "", fmt.Errorf("field solution: %.40q has no \\boxed{}: want one, or a field answer", text)
	}
	if err := (Verifier{}).CheckAnswer(text); err != nil {
		return "", fmt.Errorf("field %s: %w", name, err)
	}
	return text, nil
}

// first returns the first of several fields that an object has.
func first(fields map[string]json.RawMessage, names ...string) (string, error) {
	for _, name := range names {
		if _, ok := fields[name]; ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("field %s: missing: want a string", strings.Join(names, " or "))
}

// identity names a question by its words, so that differences in spacing do not make it another.
func identity(question string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(question), " ")))
	return "math/" + hex.EncodeToString(sum[:8])
}

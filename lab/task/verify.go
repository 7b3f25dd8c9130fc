package task

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/reprise-rl/reprise/rollout"
)

// Reward sets the rewards of the responses of a group to a prompt. Groups have numbers, unique within a run, and one
// size, so that each rollout has a number of its own for a [Chancy] verifier, whoever generates it and when. A [Remote]
// is asked for all of them at once.
func Reward(v Verifier, p Prompt, group uint64, responses []*rollout.Rollout) error {
	_, remote := v.(Remote)
	var wait sync.WaitGroup
	for i, r := range responses {
		if !remote {
			r.Reward = verify(v, p, r.Text, group*uint64(len(responses))+uint64(i)).Reward
			continue
		}
		wait.Go(func() { r.Reward = v.Verify(p, r.Text).Reward })
	}
	wait.Wait()
	return Err(v)
}

// verify asks for the verdict on the rollout of a number.
func verify(v Verifier, p Prompt, response string, number uint64) Verdict {
	if c, ok := v.(Chancy); ok {
		return c.VerifyRollout(p, response, number)
	}
	return v.Verify(p, response)
}

// VerifyLines rewards JSON lines. Every line of r is an object with the strings "response" and "answer", and optionally
// "prompt" for a [Remote]. Each line is written to w with one Write: "reward", "correct" and "extracted" are added, or
// replaced, and the other fields are kept, sorted by name. If the verifier cannot use the answer (see AnswerChecker),
// "problem" tells why.
//
// A line that is no such object, or longer than maxLine, ends the call with an error that names the line and the field.
// The lines before it have been written.
func VerifyLines(ctx context.Context, v Verifier, r io.Reader, w io.Writer) error {
	return EachLine(r, func(_ int, line []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		verified, err := verifyLine(v, line)
		if err != nil {
			return err
		}
		_, err = w.Write(verified)
		return err
	})
}

func verifyLine(v Verifier, line []byte) ([]byte, error) {
	fields, err := Object(line, `{"response": ..., "answer": ...}`)
	if err != nil {
		return nil, err
	}
	response, err := StringField(fields, "response")
	if err != nil {
		return nil, err
	}
	answer, err := StringField(fields, "answer")
	if err != nil {
		return nil, err
	}
	verified := make(map[string]any, len(fields)+4)
	for name, raw := range fields {
		verified[name] = raw
	}
	prompt := Prompt{Answer: answer}
	if text, err := StringField(fields, "prompt"); err == nil { // some files hold messages
		prompt.Text = text
	}
	verdict := v.Verify(prompt, response)
	if err := Err(v); err != nil {
		return nil, err
	}
	verified["reward"], verified["correct"], verified["extracted"] = verdict.Reward, verdict.Correct, verdict.Extracted
	delete(verified, "problem")
	if checker, ok := v.(AnswerChecker); ok {
		if problem := checker.CheckAnswer(answer); problem != nil {
			verified["problem"] = problem.Error()
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out) // sorts the fields and ends the line
	e.SetEscapeHTML(false)
	err = e.Encode(verified)
	return out.Bytes(), err
}

// maxLine is the maximum length of a JSON line in bytes.
const maxLine = 16 << 20

// EachLine calls visit for every line that is not blank, with its number from 1. Every error names its line. The bytes
// are valid during the call only.
func EachLine(r io.Reader, visit func(number int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine+2) // and its line end
	number := 0
	for lines.Scan() {
		number++
		line := lines.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := visit(number, line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes: shorten or split it", number+1, maxLine)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	return nil
}

// Object decodes a JSON object; want describes it in the error.
func Object(text []byte, want string) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%.60q is not a JSON object: want %s", text, want)
	}
	return fields, nil
}

// StringField returns a field that must be a string.
func StringField(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", fmt.Errorf("field %s: missing: want a string", name)
	}
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("field %s: %.40s: want a string, in quotes", name, raw)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("field %s: %w", name, err)
	}
	return s, nil
}

package task

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Verifier rewards responses. Every Task is one; those of gsm8k, arithmetic and words also exist
// without the prompts of a task. It is safe for concurrent use.
type Verifier interface {
	// Verify rewards a response to a prompt, of which it may need nothing but the answer.
	Verify(p Prompt, response string) Verdict
}

// AnswerChecker is a Verifier that can say why a reference answer is of no use to it.
type AnswerChecker interface {
	// CheckAnswer returns nil if responses can be verified against the answer.
	CheckAnswer(answer string) error
}

// VerifyLines rewards JSON lines. Every line of r is an object with the strings "response" and
// "answer"; it is written to w, in one Write, with "reward", "correct" and "extracted" added (in
// place of fields of these names) and its other fields kept, sorted by name. Where the answer is of
// no use to the verifier (see AnswerChecker), "problem" says why and nothing is right.
//
// A line that is no such object, or longer than MaxLine, ends it with an error that names line and
// field; the lines before it have been written.
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
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%.60q is no JSON object: want {\"response\": ..., \"answer\": ...}", line)
	}
	response, err := StringField(fields, "response")
	if err != nil {
		return nil, err
	}
	answer, err := StringField(fields, "answer")
	if err != nil {
		return nil, err
	}
	verdict := v.Verify(Prompt{Answer: answer}, response)
	var problem error
	if checker, ok := v.(AnswerChecker); ok {
		problem = checker.CheckAnswer(answer)
	}
	return encode(fields, verdict, problem)
}

// encode adds a verdict to the fields of a line and writes them as one line.
func encode(fields map[string]json.RawMessage, verdict Verdict, problem error) ([]byte, error) {
	line := make(map[string]any, len(fields)+4)
	for name, raw := range fields {
		line[name] = raw
	}
	line["reward"], line["correct"], line["extracted"] = verdict.Reward, verdict.Correct, verdict.Extracted
	delete(line, "problem")
	if problem != nil {
		line["problem"] = problem.Error()
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out) // sorts the fields and ends the line
	e.SetEscapeHTML(false)
	err := e.Encode(line)
	return out.Bytes(), err
}

package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// echo rewards responses that equal the answer and cannot use an answer of "?".
type echo struct{}

func (echo) Verify(p Prompt, response string) Verdict {
	if response != p.Answer {
		return Verdict{Extracted: response}
	}
	return Verdict{Reward: 1, Correct: true, Extracted: response}
}

func (echo) CheckAnswer(answer string) error {
	if answer == "?" {
		return errors.New("unknown")
	}
	return nil
}

func TestVerifiedLinesKeepTheirFieldsAndOrder(t *testing.T) {
	in := "\ufeff" + `{"response": "<5>", "answer": "<5>", "id": [1, 2.50]}` + "\r\n\n" +
		`{"response": "6", "answer": "5", "reward": 9, "problem": "old"}` + "\n" +
		`{"answer": "?", "response": ""}`
	want := `{"answer":"<5>","correct":true,"extracted":"<5>","id":[1,2.50],"response":"<5>","reward":1}` + "\n" +
		`{"answer":"5","correct":false,"extracted":"6","response":"6","reward":0}` + "\n" +
		`{"answer":"?","correct":false,"extracted":"","problem":"unknown","response":"","reward":0}` + "\n"
	var out bytes.Buffer
	if err := VerifyLines(context.Background(), echo{}, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestMalformedLinesEndVerificationByLineAndField(t *testing.T) {
	const good = `{"response": "a", "answer": "a"}` + "\n"
	for want, in := range map[string]string{
		`line 2: "{" is not a JSON object`:                    "{",
		`line 2: "[]" is not a JSON object`:                   "[]",
		`line 2: "null" is not a JSON object`:                 "null",
		`line 2: "{} {}" is not a JSON object`:                "{} {}",
		`line 2: field response: missing: want a string`:      `{"answer": "a"}`,
		`line 2: field answer: missing: want a string`:        `{"response": "a"}`,
		`line 2: field answer: 5: want a string, in quotes`:   `{"response": "a", "answer": 5}`,
		`line 2: field response: null: want a string, in quo`: `{"response": null, "answer": "a"}`,
		`line 3: field response: ["a"]: want a string, in qu`: "\n" + `{"response": ["a"], "answer": "a"}`,
		`line 2: longer than 16777216 bytes`: `{"response": "` + strings.Repeat("a",
			maxLine) + `", "answer": "a"}`,
	} {
		var out bytes.Buffer
		err := VerifyLines(context.Background(), echo{}, strings.NewReader(good+in), &out)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", in, err, want)
		}
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%.60q: wrote %q", in, out.String())
		}
	}
}

func TestLinesOfSixteenMegabytesAreVerified(t *testing.T) {
	const frame = `{"response":"","answer":""}`
	line := `{"response":"` + strings.Repeat("a", maxLine-len(frame)) + `","answer":""}`
	var out bytes.Buffer
	if err := VerifyLines(context.Background(), echo{}, strings.NewReader(line+"\r\n"), &out); err != nil ||
		len(line) != maxLine {
		t.Fatalf("%d bytes: %v", len(line), err)
	}
	if out.Len() < maxLine {
		t.Errorf("wrote %d bytes", out.Len())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, errors.New("torn cable") }
func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestVerificationEndsWithContextReaderAndWriter(t *testing.T) {
	const good = `{"response": "a", "answer": "a"}`
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := VerifyLines(ctx, echo{}, strings.NewReader(good), &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := VerifyLines(context.Background(), echo{}, broken{}, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "torn cable") {
		t.Errorf("broken reader: %v", err)
	}
	if err := VerifyLines(context.Background(), echo{}, strings.NewReader(good), broken{}); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Errorf("broken writer: %v", err)
	}
}

func FuzzVerifyLines(f *testing.F) {
	f.Add([]byte(`{"response": "a", "answer": "a"}` + "\n" + `{"response": "\u2028<", "answer": "", "x": 1e3}`))
	f.Add([]byte(`{"response": "a", "response": "b", "answer": "b"}` + "\r\n\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		err := VerifyLines(context.Background(), echo{}, bytes.NewReader(in), &out)
		if err != nil && !strings.HasPrefix(err.Error(), "line ") {
			t.Fatalf("%v does not name the line", err)
		}
		if err != nil {
			return
		}
		for line := range strings.Lines(out.String()) {
			var got struct {
				Response, Answer, Extracted string
				Reward                      float32
				Correct                     bool
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if got.Correct != (got.Response == got.Answer) || (got.Reward == 1) != got.Correct {
				t.Fatalf("%q is wrong", line)
			}
		}
		// Verifying what was verified changes nothing.
		var again bytes.Buffer
		if err := VerifyLines(context.Background(), echo{}, bytes.NewReader(out.Bytes()), &again); err != nil ||
			again.String() != out.String() {
			t.Fatalf("%q became %q, %v", out.String(), again.String(), err)
		}
	})
}

package gsm8k

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/dataset"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
)

// write makes a file of JSON lines.
func write(t *testing.T, lines ...string) string {
	t.Helper()
	return tests.File(t, "problems.jsonl", strings.Join(lines, "\n"))
}

// sums are n problems, numbered from first.
func sums(first, n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"question": "What is %d and 1?", "answer": "It is %[1]d+1.\n#### %[2]d"}`,
			first+i, first+i+1)
	}
	return lines
}

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

func TestPromptsAndDemonstrationsComeFromTheFile(t *testing.T) {
	made := newTask(t, Settings{Settings: dataset.Settings{TrainFile: write(t, sums(7, 2)...), HeldOutFraction: 0.5,
		Template: "Q: {question} A: "}}, 1)
	p := made.Train(0)
	if p.Text != "Q: What is 7 and 1? A: " && p.Text != "Q: What is 8 and 1? A: " {
		t.Errorf("prompt %q", p.Text)
	}
	demonstration := made.Demonstrate(p)
	if want := "+1.\n#### " + p.Answer; !strings.HasSuffix(demonstration, want) ||
		!made.Verify(p, demonstration).Correct {
		t.Errorf("demonstration %q of %q", demonstration, p.Text)
	}
	foreign := task.Prompt{ID: "other", Answer: "1/3"}
	if got := made.Demonstrate(foreign); got != "#### 1/3" || !made.Verify(foreign, got).Correct {
		t.Errorf("demonstration %q of a prompt from elsewhere", got)
	}
}

func TestBadProblemsAreRefusedByField(t *testing.T) {
	for want, line := range map[string]string{
		"field question: missing":                       `{"answer": "#### 1"}`,
		"field question: \" \": want a question":        `{"question": " ", "answer": "#### 1"}`,
		"field question: 5: want a string":              `{"question": 5, "answer": "#### 1"}`,
		"field answer: missing":                         `{"question": "q"}`,
		"field answer: 5: want a string":                `{"question": "q", "answer": 5}`,
		"field answer: ends in \"It is 5.\"":            `{"question": "q", "answer": "It is 5."}`,
		"field answer: ends in \"#### 1/0\"":            `{"question": "q", "answer": "#### 1/0"}`,
		"asked at line 1 already, answered \"1\" there": `{"question": "What is 0 and 1?", "answer": "#### 2"}`,
	} {
		path := write(t, sums(0, 1)[0], line)
		if _, err := New(Settings{Settings: dataset.Settings{TrainFile: path}}, 0); err == nil ||
			!strings.Contains(err.Error(), "line 2: "+want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestSettingsAreThoseOfADataset(t *testing.T) {
	tasktest.Problems(t, Settings.Validate, []tasktest.Case[Settings]{
		{Settings{Settings: dataset.Settings{TrainFile: "a"}}, ""},
		{Settings{Settings: dataset.Settings{Template: "{problem}"}}, "train_file template"},
	})
}

func TestTheTaskIsFlexibleIfItIsSetSo(t *testing.T) {
	for _, flexible := range []bool{false, true} {
		files := dataset.Settings{TrainFile: write(t, sums(7, 2)...), HeldOutFraction: 0.5}
		made := newTask(t, Settings{files, flexible}, 1)
		p := made.HeldOut()[0]
		response := "#### 1000\nso " + p.Answer
		for _, v := range []task.Verifier{made, made.Without(nil).(task.Verifier)} {
			if v.Verify(p, response).Correct != flexible {
				t.Errorf("flexible: %t: %q for %s: %+v", flexible, response, p.Answer, v.Verify(p, response))
			}
		}
	}
}

func FuzzParsedSolutionsVerify(f *testing.F) {
	f.Add("q", "It is 1.\n#### 1")
	f.Add("q", "#### 1 1/2")
	f.Fuzz(func(t *testing.T, question, answer string) {
		line, err := json.Marshal(map[string]string{"question": question, "answer": answer})
		if err != nil {
			t.Fatal(err)
		}
		problems, _ := format().Read(bytes.NewReader(line))
		for _, p := range problems {
			if !(Verifier{}).Verify(task.Prompt{Answer: p.Answer}, p.Solution).Correct {
				t.Fatalf("solution %q does not verify against %q", p.Solution, p.Answer)
			}
		}
	})
}

// realFiles returns the paths of the public data, which may be in a folder next to the repository.
func realFiles(t *testing.T) (train, test string) {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "..", "shared", "data", "gsm8k")
	train, test = filepath.Join(folder, "train.jsonl"), filepath.Join(folder, "test.jsonl")
	for _, path := range []string{train, test} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("the public GSM8K files are not at hand in %s", folder)
		}
	}
	return train, test
}

func TestEveryRealReferenceVerifiesAgainstItselfAndNoOther(t *testing.T) {
	train, test := realFiles(t)
	for path, want := range map[string]int{train: 7473, test: 1319} {
		problems, err := format().ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) != want {
			t.Errorf("%s: %d problems, want %d", path, len(problems), want)
		}
		for i, p := range problems {
			next := problems[(i+1)%len(problems)]
			for _, reference := range []string{p.Answer, p.Solution} {
				prompt := task.Prompt{Answer: reference}
				if v := (Verifier{}).Verify(prompt, p.Solution); !v.Correct || v.Extracted != p.Answer {
					t.Errorf("%s: solution of %q: %+v", path, p.Question, v)
				}
				if v := (Verifier{}).Verify(prompt, next.Solution); v.Correct != (next.Answer == p.Answer) {
					t.Errorf("%s: solution of %q for %q: %+v", path, next.Question, p.Question, v)
				}
			}
		}
	}
}

func TestRealFilesMakeATask(t *testing.T) {
	train, test := realFiles(t)
	made, err := New(Settings{Settings: dataset.Settings{TrainFile: train, HeldOutFile: test, HeldOut: 200}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.HeldOut()) != 200 {
		t.Errorf("%d held out, want 200", len(made.HeldOut()))
	}
	for i := range uint64(7473) {
		if p := made.Train(i); !made.Verify(p, made.Demonstrate(p)).Correct {
			t.Errorf("the demonstration of %q is wrong", p.Text)
		}
	}
}

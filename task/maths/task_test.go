package maths

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Verifier      = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
)

// write makes a file.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines are n problems, numbered from first.
func lines(first, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"problem": "Halve %d.", "answer": "\\frac{%[1]d}{2}"}`, first+i)
	}
	return list
}

func newTask(t *testing.T, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestEveryProblemIsEitherTrainedOrHeldOut(t *testing.T) {
	train := write(t, "train.jsonl", strings.Join(append(lines(0, 100), lines(0, 5)...), "\n"))
	both := write(t, "test.json", "["+strings.Join(append(lines(90, 30), `{"problem": " Halve  50. ", "answer": "25"}`), ",")+"]") // 10 and 1 of the training file
	for name, c := range map[string]struct {
		settings                 Settings
		train, heldOut, overlaps int
	}{
		"tenth":    {Settings{TrainFile: train}, 90, 10, 0},
		"fraction": {Settings{TrainFile: train, HeldOutFraction: 0.5}, 50, 50, 0},
		"least":    {Settings{TrainFile: train, HeldOutFraction: 0.001}, 99, 1, 0},
		"some":     {Settings{TrainFile: train, HeldOutFraction: 0.25, HeldOut: 7}, 75, 7, 0},
		"file":     {Settings{TrainFile: train, HeldOutFile: both}, 89, 31, 11},
	} {
		made := newTask(t, c.settings, 3)
		trained := map[string]int{}
		for i := range uint64(2 * c.train) {
			trained[made.Train(i).ID]++
		}
		for id, times := range trained {
			if times != 2 {
				t.Errorf("%s: %s trained %d times in two epochs", name, id, times)
			}
		}
		held := map[string]bool{}
		for _, p := range made.HeldOut() {
			held[p.ID] = true
			if trained[p.ID] > 0 {
				t.Errorf("%s: %q is trained and held out", name, p.Text)
			}
		}
		if !slices.IsSortedFunc(made.HeldOut(), func(a, b task.Prompt) int { return halved(a) - halved(b) }) && name != "file" {
			t.Errorf("%s: held-out problems are not in the order of the file", name)
		}
		if len(trained) != c.train || made.Problems() != c.train || len(held) != c.heldOut || made.Overlap() != c.overlaps {
			t.Errorf("%s: %d trained, %d held out, %d in both, want %+v", name, len(trained), len(held), made.Overlap(), c)
		}
	}
}

// halved returns the number of a problem that lines made.
func halved(p task.Prompt) int {
	n := 0
	_, _ = fmt.Sscanf(p.Answer, `\frac{%d}{2}`, &n)
	return n
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{TrainFile: write(t, "p.jsonl", strings.Join(lines(0, 200), "\n"))}
	one, again, other := newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2)
	if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) {
		t.Error("held-out prompts depend on the seed")
	}
	same := 0
	for i := range uint64(180) {
		if one.Train(i).ID != again.Train(i).ID {
			t.Fatalf("training prompt %d differs for one seed", i)
		}
		if one.Train(i).ID == other.Train(i).ID {
			same++
		}
	}
	if same > 8 { // Poisson of mean 1
		t.Errorf("%d of 180 training prompts agree between seeds", same)
	}
}

// Every form that public files come in, packed or not, gives the same problem.
func TestFilesOfEveryFormAreRead(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"prompt": "Halve 3.", "ground_truth": "\\frac32", "messages": "[]"}`))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	want := Problem{ID: identity("Halve 3."), Question: "Halve 3.", Answer: `\frac32`}
	solved := want
	solved.Solution = `It is $\boxed{\frac32}$.`
	marked := want
	marked.Solution, marked.Answer = "3/2=1.5\n#### 1.5", "1.5"
	number := want
	number.Answer = "1.5"
	for content, problem := range map[string]Problem{
		`{"problem": "Halve 3.", "answer": "\\frac32", "level": 5}`:                                 want,
		"\ufeff" + `{"question": " Halve 3. ", "ground_truth": "\\frac32"}` + "\r\n\r\n":            want,
		" \n" + `[{"problem": "Halve 3.", "answer": "\\frac32"}, {"problem": "x", "answer": null}]`: want,
		"\ufeff" + `[{"problem": "x", "answer": ""}, {"prompt": "Halve 3.", "answer": "\\frac32"}]`: want,
		packed.String(): want,
		`{"problem": "Halve 3.", "solution": "It is $\\boxed{\\frac32}$."}`:                                  solved,
		`{"problem": "Halve 3.", "answer": "\\frac32", "solution": "It is $\\boxed{\\frac32}$."}`:            solved,
		`{"problem": "Halve 3.", "answer": "It is $\\boxed{\\frac32}$."}`:                                    solved,
		`{"question": "Halve 3.", "answer": "3/2=1.5\n#### 1.5"}`:                                            marked,
		`{"problem": "Halve 3.", "answer": 1.5}`:                                                             number,
		`{"problem": "Halve 3.", "answer": "\\frac32"}` + "\n" + `{"problem": "Halve  3.", "answer": "1.5"}`: want,
	} {
		problems, err := Read(strings.NewReader(content), "test")
		if err != nil || !reflect.DeepEqual(problems, []Problem{problem}) {
			t.Errorf("%.90q: %+v, %v", content, problems, err)
		}
	}
}

func TestDemonstrationsAreRight(t *testing.T) {
	path := write(t, "p.jsonl", `{"problem": "a", "answer": "5", "solution": "Thus \\boxed{5}."}
{"problem": "b", "answer": "5", "solution": "Thus five."}
{"problem": "c", "answer": "5"}
{"problem": "d", "answer": "5"}`)
	made := newTask(t, Settings{TrainFile: path, HeldOutFraction: 0.01, Template: "Q {problem} A"}, 1)
	want := map[string]string{"Q a A": `Thus \boxed{5}.`, "Q b A": "Thus five.\n" + `\boxed{5}`, "Q c A": `\boxed{5}`, "Q d A": `\boxed{5}`}
	for i := range uint64(3) {
		p := made.Train(i)
		if got := made.Demonstrate(p); got != want[p.Text] || !made.Verify(p, got).Correct {
			t.Errorf("demonstration %q of %q", got, p.Text)
		}
	}
	foreign := task.Prompt{ID: "other", Answer: `\frac13`}
	if got := made.Demonstrate(foreign); got != `\boxed{\frac13}` || !made.Verify(foreign, got).Correct {
		t.Errorf("demonstration %q of a prompt from elsewhere", got)
	}
}

func TestBadFilesAreRefusedByPlaceAndField(t *testing.T) {
	good := lines(1, 1)[0]
	for want, content := range map[string]string{
		`line 2: "{" is no JSON object`:                                          good + "\n{",
		`problem 2: "[1]" is no JSON object`:                                     "[" + good + ", [1]]",
		`problem 2: unexpected EOF`:                                              "[" + good + ", {",
		`problem 2: unexpected end`:                                              "[" + good,
		`line 1: field problem or question or prompt: missing`:                   `{"answer": "1"}`,
		`line 1: field question: " ": want a problem`:                            `{"question": " ", "answer": "1"}`,
		`line 1: field problem: 5: want a string`:                                `{"problem": 5, "answer": "1"}`,
		`line 1: field answer or ground_truth or solution: missing`:              `{"problem": "q"}`,
		`line 1: field ground_truth: true: want a string`:                        `{"problem": "q", "ground_truth": true}`,
		`line 1: field answer: "$ $" holds no answer`:                            `{"problem": "q", "answer": "$ $"}`,
		`line 1: field solution: "It is 5." has no \boxed{}`:                     `{"problem": "q", "solution": "It is 5."}`,
		`line 1: field solution: 5: want a string`:                               `{"problem": "q", "solution": 5, "answer": "5"}`,
		`line 2: asked at line 1 already, answered "\\frac{1}{2}" there and "2"`: good + "\n" + `{"problem": "Halve 1.", "answer": "2"}`,
		`no problems: want JSON lines, or a JSON array`:                          `[{"problem": "q", "answer": null}]`,
		`no problems remain to train on, 1 are held out`:                         good,
	} {
		path := write(t, "p.json", content)
		_, err := New(Settings{TrainFile: path}, 0)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
	if _, err := New(Settings{TrainFile: filepath.Join(t.TempDir(), "none")}, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := ReadFile(write(t, "p.gz", "\x1f\x8bnot packed")); err == nil {
		t.Error("a torn gzip file is read")
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{TrainFile: "a"}, ""},
		{Settings{TrainFile: "a", HeldOutFile: "b", Template: "{problem}"}, ""},
		{Settings{}, "train_file"},
		{Settings{HeldOutFraction: 0.6, HeldOut: -1, Template: "none"}, "train_file held_out_fraction held_out template"},
		{Settings{TrainFile: "a", HeldOutFile: "a", HeldOutFraction: 0.1}, "held_out_fraction held_out_file"},
		{Settings{TrainFile: "a", Template: "{problem}{problem}"}, "template"},
	} {
		var keys []string
		if joined, ok := c.settings.Validate().(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				var setting *task.SettingError
				if errors.As(e, &setting) {
					keys = append(keys, setting.Key)
				}
			}
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%+v: problems with %q, want %q", c.settings, got, c.keys)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(strings.Join(lines(0, 3), "\n")))
	f.Add([]byte("[" + strings.Join(lines(0, 3), ",") + "]"))
	f.Add([]byte(`{"question": "q", "answer": 1.5}` + "\r\n\r\n" + `{"prompt": "r", "solution": "\\boxed{x}"}`))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, file []byte) {
		problems, err := Read(bytes.NewReader(file), "fuzz")
		if (err == nil) == (len(problems) == 0) {
			t.Fatalf("%d problems and error %v", len(problems), err)
		}
		ids := map[string]bool{}
		for _, p := range problems {
			if p.Question == "" || p.Answer == "" || ids[p.ID] || (Verifier{}).CheckAnswer(p.Answer) != nil {
				t.Fatalf("problem %+v", p)
			}
			ids[p.ID] = true
		}
	})
}

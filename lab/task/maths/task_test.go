package maths

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/dataset"
	"github.com/reprise-rl/reprise/lab/task/maths/answer"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Verifier      = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

func TestTheFieldsOfPublicFilesAreRead(t *testing.T) {
	want := dataset.Problem{Question: "Halve 3.", Answer: `\frac32`}
	solved := want
	solved.Solution = `It is $\boxed{\frac32}$.`
	marked := want
	marked.Solution, marked.Answer = "3/2=1.5\n#### 1.5", "1.5"
	number := want
	number.Answer = "1.5"
	for content, problem := range map[string]dataset.Problem{
		`{"problem": "Halve 3.", "answer": "\\frac32", "level": 5}`:                                          want,
		`{"question": " Halve 3. ", "ground_truth": "\\frac32"}`:                                             want,
		`{"prompt": "Halve 3.", "ground_truth": "\\frac32", "messages": "[]"}`:                               want,
		`[{"problem": "Halve 3.", "answer": "\\frac32"}, {"problem": "x", "answer": null}]`:                  want,
		`{"problem": "Halve 3.", "solution": "It is $\\boxed{\\frac32}$."}`:                                  solved,
		`{"problem": "Halve 3.", "answer": "\\frac32", "solution": "It is $\\boxed{\\frac32}$."}`:            solved,
		`{"problem": "Halve 3.", "answer": "It is $\\boxed{\\frac32}$."}`:                                    solved,
		`{"question": "Halve 3.", "answer": "3/2=1.5\n#### 1.5"}`:                                            marked,
		`{"problem": "Halve 3.", "answer": 1.5}`:                                                             number,
		`{"problem": "Halve 3.", "answer": "\\frac32"}` + "\n" + `{"problem": "Halve  3.", "answer": "1.5"}`: want,
	} {
		problems, err := format().Read(strings.NewReader(content))
		if err != nil || len(problems) != 1 {
			t.Errorf("%.90q: %+v, %v", content, problems, err)
			continue
		}
		problem.ID = problems[0].ID
		if problems[0] != problem {
			t.Errorf("%.90q: %+v", content, problems)
		}
	}
}

func TestDemonstrationsAreRight(t *testing.T) {
	path := tests.File(t, "p.jsonl", `{"problem": "a", "answer": "5", "solution": "Thus \\boxed{5}."}
{"problem": "b", "answer": "5", "solution": "Thus five."}
{"problem": "c", "answer": "5"}
{"problem": "d", "answer": "5"}`)
	made := newTask(t, Settings{TrainFile: path, HeldOutFraction: 0.01, Template: "Q {problem} A"}, 1)
	want := map[string]string{"Q a A": `Thus \boxed{5}.`, "Q b A": "Thus five.\n" + `\boxed{5}`, "Q c A": `\boxed{5}`,
		"Q d A": `\boxed{5}`}
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

func TestBadProblemsAreRefusedByField(t *testing.T) {
	for want, content := range map[string]string{
		`field problem or question or prompt: missing`:                   `{"answer": "1"}`,
		`field question: " ": want a problem`:                            `{"question": " ", "answer": "1"}`,
		`field problem: 5: want a string`:                                `{"problem": 5, "answer": "1"}`,
		`field answer or ground_truth or solution: missing`:              `{"problem": "q"}`,
		`field ground_truth: true: want a string`:                        `{"problem": "q", "ground_truth": true}`,
		`field answer: "$ $" holds no answer`:                            `{"problem": "q", "answer": "$ $"}`,
		`field solution: "It is 5." has no \boxed{}`:                     `{"problem": "q", "solution": "It is 5."}`,
		`field solution: 5: want a string`:                               `{"problem": "q", "solution": 5, "answer": "5"}`,
		`asked at line 1 already, answered "\\frac{1}{2}" there and "2"`: `{"problem": "Halve 1.", "answer": "2"}`,
	} {
		path := tests.File(t, "p.json", `{"problem": "Halve 1.", "answer": "\\frac{1}{2}"}`+"\n"+content)
		if _, err := New(Settings{TrainFile: path}, 0); err == nil || !strings.Contains(err.Error(), "line 2: "+want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

func TestSettingsAreThoseOfADataset(t *testing.T) {
	tasktest.Problems(t, Settings.Validate, []tasktest.Case[Settings]{
		{Settings{TrainFile: "a"}, ""},
		{Settings{Template: "{question}"}, "train_file template"},
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`[{"problem": "Halve 1.", "answer": "\\frac12"}]`))
	f.Add([]byte(`{"question": "q", "answer": 1.5}` + "\r\n\r\n" + `{"prompt": "r", "solution": "\\boxed{x}"}`))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, file []byte) {
		problems, err := format().Read(bytes.NewReader(file))
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

// realFiles returns the paths of public files, which lie beside the repository where they are at hand, with their
// numbers of problems.
func realFiles(t *testing.T) map[string]int {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "..", "shared", "data", "math")
	files := map[string]int{}
	for name, problems := range map[string]int{"rllm_train_math.json": 7469, "roll_math_benchmarks.jsonl": 560,
		"roll_math_deepmath_deal.jsonl.gz": 4990} {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err != nil {
			t.Skipf("the public files of problems are not at hand in %s", folder)
		}
		files[path] = problems
	}
	return files
}

func TestEveryRealAnswerIsRightForItself(t *testing.T) {
	for path, want := range realFiles(t) {
		problems, err := format().ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		right, unread, every := 0, 0, tests.Count(1, 10)
		for i := 0; i < len(problems); i += every {
			p := problems[i]
			if (Verifier{}).Verify(task.Prompt{Answer: p.Answer}, `\boxed{`+p.Answer+"}").Correct {
				right++
			}
			if answer.Parse(p.Answer).Err() != nil {
				unread++
			}
		}
		if len(problems) != want || every*right < want*99/100 || every*unread > want/100 {
			t.Errorf("%s: %d problems, %d right for themselves, %d not read; want %d, 99%% of them and at most 1%%",
				path, len(problems), right, unread, want)
		}
	}
}

// Two answers that the verifier says are equal have to be equal by their digits too, where both are plain numbers. (The
// other equal pairs among all 4,291 different writings of these files, 872, were read by eye once, most of them.)
func TestDifferentRealNumbersAreNotEqual(t *testing.T) {
	tests.Long(t)
	var numbers []string
	for path := range realFiles(t) {
		problems, err := format().ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if len(p.Answer) < 9 {
				numbers = append(numbers, p.Answer)
			}
		}
	}
	r := rollout.Stream(1, "pairs of answers", 0)
	equal := 0
	for range 20_000 {
		a, b := numbers[r.IntN(len(numbers))], numbers[r.IntN(len(numbers))]
		if !(Verifier{}).Verify(task.Prompt{Answer: a}, `\boxed{`+b+"}").Correct {
			if a == b {
				t.Errorf("%q is not right for itself", a)
			}
			continue
		}
		equal++
		if plain(a) && plain(b) && a != b {
			t.Errorf("%q is right for %q", b, a)
		}
	}
	if equal == 0 {
		t.Error("no two answers were equal")
	}
}

// plain reports whether a text is an integer in its one writing.
func plain(text string) bool {
	for i, c := range text {
		if c < '0' || c > '9' || i == 0 && c == '0' && len(text) > 1 {
			return false
		}
	}
	return text != ""
}

func TestRealFilesMakeATask(t *testing.T) {
	tests.Long(t)
	for path, problems := range realFiles(t) {
		made, err := New(Settings{TrainFile: path, HeldOut: 50}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(made.HeldOut()) != 50 {
			t.Errorf("%s: %d held out", path, len(made.HeldOut()))
		}
		for i := range uint64(problems / 2) {
			if p := made.Train(i); !made.Verify(p, made.Demonstrate(p)).Correct {
				t.Errorf("the demonstration of %q is wrong: %q for %q", p.Text, made.Demonstrate(p), p.Answer)
			}
		}
	}
}

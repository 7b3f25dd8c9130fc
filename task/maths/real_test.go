package maths

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/maths/answer"
)

// realFiles returns the paths of public files, which lie beside the repository where they are at hand, with their numbers of problems.
func realFiles(t *testing.T) map[string]int {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "shared", "data", "math")
	files := map[string]int{}
	for name, problems := range map[string]int{"rllm_train_math.json": 7469, "roll_math_benchmarks.jsonl": 560, "roll_math_deepmath_deal.jsonl.gz": 4990} {
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
		problems, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		right, unread := 0, 0
		for _, p := range problems {
			if (Verifier{}).Verify(task.Prompt{Answer: p.Answer}, `\boxed{`+p.Answer+"}").Correct {
				right++
			}
			if answer.Parse(p.Answer).Err() != nil {
				unread++
			}
		}
		if len(problems) != want || right < want*99/100 || unread > want/100 {
			t.Errorf("%s: %d problems, %d right for themselves, %d not read; want %d, 99%% of them and at most 1%%", path, len(problems), right, unread, want)
		}
	}
}

// Two answers that the verifier says are equal have to be equal by their digits too, where both are plain numbers. (The other equal
// pairs among all 4,291 different writings of these files, 872, were read by eye once, most of them.)
func TestDifferentRealNumbersAreNotEqual(t *testing.T) {
	var numbers []string
	for path := range realFiles(t) {
		problems, err := ReadFile(path)
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
	for path := range realFiles(t) {
		made, err := New(Settings{TrainFile: path, HeldOut: 50}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(made.HeldOut()) != 50 {
			t.Errorf("%s: %d held out", path, len(made.HeldOut()))
		}
		for i := range uint64(made.Problems()) {
			if p := made.Train(i); !made.Verify(p, made.Demonstrate(p)).Correct {
				t.Errorf("the demonstration of %q is wrong: %q for %q", p.Text, made.Demonstrate(p), p.Answer)
			}
		}
	}
}

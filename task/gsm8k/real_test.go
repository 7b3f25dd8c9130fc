package gsm8k

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

// realFiles returns the paths of the public data, which lies beside the repository where it is at hand.
func realFiles(t *testing.T) (train, test string) {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "shared", "data", "gsm8k")
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
		problems, err := ReadFile(path)
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
	made, err := New(Settings{TrainFile: train, HeldOutFile: test, HeldOut: 200}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.HeldOut()) != 200 || made.Questions() != 7473-made.Overlap() {
		t.Errorf("%d held out, %d to train on, %d in both", len(made.HeldOut()), made.Questions(), made.Overlap())
	}
	for i := range uint64(made.Questions()) {
		if p := made.Train(i); !made.Verify(p, made.Demonstrate(p)).Correct {
			t.Errorf("the demonstration of %q is wrong", p.Text)
		}
	}
}

package gsm8k

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
)

// write makes a file of JSON lines.
func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sums are n problems, numbered from first.
func sums(first, n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"question": "What is %d and 1?", "answer": "It is %[1]d+1.\n#### %[2]d"}`, first+i, first+i+1)
	}
	return lines
}

func newTask(t *testing.T, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestEveryQuestionIsEitherTrainedOrHeldOut(t *testing.T) {
	both := append(sums(90, 30), `{"question": " What  is 50 and 1? ", "answer": "#### 51"}`) // 10 and 1 of the training file
	train := write(t, append(sums(0, 100), sums(0, 5)...)...)
	for name, c := range map[string]struct {
		settings                 Settings
		train, heldOut, overlaps int
	}{
		"tenth":    {Settings{TrainFile: train}, 90, 10, 0},
		"fraction": {Settings{TrainFile: train, HeldOutFraction: 0.5}, 50, 50, 0},
		"least":    {Settings{TrainFile: train, HeldOutFraction: 0.001}, 99, 1, 0},
		"some":     {Settings{TrainFile: train, HeldOutFraction: 0.25, HeldOut: 7}, 75, 7, 0},
		"file":     {Settings{TrainFile: train, HeldOutFile: write(t, both...)}, 89, 31, 11},
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
		if len(trained) != c.train || made.Questions() != c.train || len(held) != c.heldOut || made.Overlap() != c.overlaps {
			t.Errorf("%s: %d trained, %d held out, %d in both, want %+v", name, len(trained), len(held), made.Overlap(), c)
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{TrainFile: write(t, sums(0, 200)...)}
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

func TestPromptsAndDemonstrationsComeFromTheFile(t *testing.T) {
	made := newTask(t, Settings{TrainFile: write(t, sums(7, 2)...), HeldOutFraction: 0.5, Template: "Q: {question} A: "}, 1)
	p := made.Train(0)
	if p.Text != "Q: What is 7 and 1? A: " && p.Text != "Q: What is 8 and 1? A: " {
		t.Errorf("prompt %q", p.Text)
	}
	demonstration := made.Demonstrate(p)
	if want := "+1.\n#### " + p.Answer; !strings.HasSuffix(demonstration, want) || !made.Verify(p, demonstration).Correct {
		t.Errorf("demonstration %q of %q", demonstration, p.Text)
	}
	foreign := task.Prompt{ID: "other", Answer: "1/3"}
	if got := made.Demonstrate(foreign); got != "#### 1/3" || !made.Verify(foreign, got).Correct {
		t.Errorf("demonstration %q of a prompt from elsewhere", got)
	}
}

func TestBadFilesAreRefusedByLineAndField(t *testing.T) {
	good := sums(0, 1)[0]
	for want, lines := range map[string][]string{
		"line 2: \"{\" is no JSON object":                     {good, "{"},
		"line 2: \"[1]\" is no JSON object":                   {good, "[1]"},
		"line 1: \"null\" is no JSON object":                  {"null"},
		"line 3: field question: missing":                     {good, "", `{"answer": "#### 1"}`},
		"line 1: field question: \"\\\" \\\"\": want":         {`{"question": " ", "answer": "#### 1"}`},
		"line 2: field question: 5: want a string":            {good, `{"question": 5, "answer": "#### 1"}`},
		"line 1: field answer: missing":                       {`{"question": "q"}`},
		"line 1: field answer: 5: want a string":              {`{"question": "q", "answer": 5}`},
		"line 1: field answer: ends in \"It is 5.\"":          {`{"question": "q", "answer": "It is 5."}`},
		"line 1: field answer: ends in \"#### 1/0\"":          {`{"question": "q", "answer": "#### 1/0"}`},
		"line 2: field question: asked on line 1 already":     {good, strings.Replace(good, "#### 1", "#### 2", 1)},
		"no problems: want a JSON object with question":       {"", " "},
		"0 training and 1 held-out questions remain: want at": {good},
	} {
		path := write(t, lines...)
		_, err := New(Settings{TrainFile: path}, 0)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", lines, err, want)
		}
	}
	if _, err := New(Settings{TrainFile: filepath.Join(t.TempDir(), "none")}, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func TestByteOrderMarkAndLineEndsOfOtherSystemsAreRead(t *testing.T) {
	path := write(t, "\ufeff"+sums(0, 1)[0]+"\r", sums(1, 1)[0]+"\r")
	problems, err := ReadFile(path)
	if err != nil || len(problems) != 2 || problems[0].Answer != "1" {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{TrainFile: "a"}, ""},
		{Settings{TrainFile: "a", HeldOutFile: "b", Template: "{question}"}, ""},
		{Settings{}, "train_file"},
		{Settings{HeldOutFraction: 0.6, HeldOut: -1, Template: "none"}, "train_file held_out_fraction held_out template"},
		{Settings{TrainFile: "a", HeldOutFile: "a", HeldOutFraction: 0.1}, "held_out_fraction held_out_file"},
		{Settings{TrainFile: "a", Template: "{question}{question}"}, "template"},
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
	f.Add([]byte(strings.Join(sums(0, 3), "\n")))
	f.Add([]byte("{\"question\": \"q\", \"answer\": \"#### 1/3\"}\r\n\r\n{}"))
	f.Add([]byte(`{"question": "q", "answer": "#### 1 1/2", "answer": "#### 2"}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		problems, err := Read(strings.NewReader(string(file)), "fuzz")
		if (err == nil) == (len(problems) == 0) {
			t.Fatalf("%d problems and error %v", len(problems), err)
		}
		ids := map[string]bool{}
		for _, p := range problems {
			if !(Verifier{}).Verify(task.Prompt{Answer: p.Answer}, p.Solution).Correct {
				t.Fatalf("solution %q does not verify against %q", p.Solution, p.Answer)
			}
			if p.Question == "" || ids[p.ID] {
				t.Fatalf("question %q with ID %s", p.Question, p.ID)
			}
			ids[p.ID] = true
		}
	})
}

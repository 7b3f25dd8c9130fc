package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

// sums is a format with the strings question and answer; answers agree in any case.
func sums() Format {
	return Format{
		Name: "sums", HeldOutSeed: 5, Slot: "{question}", Template: "{question}=", File: "sums", Object: "a sum",
		Parse: func(fields map[string]json.RawMessage) (p Problem, err error) {
			if p.Question, err = StringField(fields, "question", "a question"); err != nil {
				return p, err
			}
			if p.Answer, err = task.StringField(fields, "answer"); p.Answer == "" && err == nil {
				return p, ErrNoAnswer
			}
			return p, err
		},
		Same: strings.EqualFold,
	}
}

// lines are n problems, numbered from first.
func lines(first, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"question": "%d + 1", "answer": "%d"}`, first+i, first+i+1)
	}
	return list
}

func newSet(t *testing.T, s Settings, seed uint64) *Set {
	t.Helper()
	s.Resolve(sums())
	set, err := New(sums(), s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEveryProblemIsEitherTrainedOrHeldOut(t *testing.T) {
	train := tests.File(t, "train.jsonl", strings.Join(append(lines(0, 100), lines(0, 5)...), "\n"))
	both := tests.File(t, "test.json", "["+strings.Join(append(lines(90, 30), `{"question": " 50  + 1 ", "answer": "51"}`), ",")+"]") // 10 and 1 of the training file
	for name, c := range map[string]struct {
		settings       Settings
		train, heldOut int
	}{
		"tenth":    {Settings{TrainFile: train}, 90, 10},
		"fraction": {Settings{TrainFile: train, HeldOutFraction: 0.5}, 50, 50},
		"least":    {Settings{TrainFile: train, HeldOutFraction: 0.001}, 99, 1},
		"some":     {Settings{TrainFile: train, HeldOutFraction: 0.25, HeldOut: 7}, 75, 7},
		"file":     {Settings{TrainFile: train, HeldOutFile: both}, 89, 31},
	} {
		set := newSet(t, c.settings, 3)
		tasktest.HeldOut(t, set, c.heldOut, uint64(2*c.train), func(p task.Prompt) string { return p.ID })
		trained := map[string]int{}
		for i := range uint64(2 * c.train) {
			trained[set.Train(i).ID]++
		}
		for id, times := range trained {
			if times != 2 {
				t.Errorf("%s: %s trained %d times in two epochs", name, id, times)
			}
		}
		if len(trained) != c.train {
			t.Errorf("%s: %d problems trained, want %d", name, len(trained), c.train)
		}
		if !slices.IsSortedFunc(set.HeldOut(), func(a, b task.Prompt) int { return number(a) - number(b) }) &&
			name != "file" {
			t.Errorf("%s: held-out problems are not in the order of the file", name)
		}
	}
}

// number returns the number of a problem that lines made.
func number(p task.Prompt) int {
	n := 0
	_, _ = fmt.Sscanf(p.Answer, "%d", &n)
	return n
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{TrainFile: tests.File(t, "p.jsonl", strings.Join(lines(0, 200), "\n"))}
	tasktest.SeedOrdersTraining(t, newSet(t, s, 1), newSet(t, s, 1), newSet(t, s, 2), 180, 8)
}

func TestProblemsCanBeLeftOut(t *testing.T) {
	file := tests.File(t, "p.jsonl", strings.Join(lines(0, 40), "\n"))
	set := newSet(t, Settings{TrainFile: file, HeldOutFraction: 0.25}, 1)
	unwanted := map[string]bool{set.HeldOut()[3].ID: true}
	for _, p := range set.Training()[:20] {
		unwanted[p.ID] = true
	}
	left := set.Without(unwanted)
	if n := len(left.HeldOut()); n != 9 || len(left.Training()) != 10 {
		t.Errorf("%d held-out and %d training problems are left, want 9 and 10", n, len(left.Training()))
	}
	tasktest.HeldOut(t, left, 9, 20, func(p task.Prompt) string { return p.ID })
	seen := make(map[string]bool)
	for i := range uint64(10) {
		id := left.Train(i).ID
		if seen[id] || unwanted[id] {
			t.Errorf("prompt %d is %s: seen %t, unwanted %t", i, id, seen[id], unwanted[id])
		}
		seen[id] = true
	}
	if len(set.HeldOut()) != 10 || len(set.Training()) != 30 {
		t.Error("the set itself has changed")
	}
}

func TestPromptsFillTheTemplate(t *testing.T) {
	set := newSet(t, Settings{TrainFile: tests.File(t, "p.jsonl", strings.Join(lines(7, 2), "\n")),
		Template: "Q: {question} A: "}, 1)
	for _, p := range append(set.HeldOut(), set.Train(0)) {
		if want := fmt.Sprintf("Q: %d + 1 A: ", number(p)-1); p.Text != want {
			t.Errorf("prompt %q, want %q", p.Text, want)
		}
	}
}

func TestFilesOfEveryFormAreRead(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"question": "a b", "answer": "c"}`))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{
		`{"question": "a b", "answer": "c", "level": 5}`,
		"\ufeff" + `{"question": " a b ", "answer": "c"}` + "\r\n\r\n",
		" \n" + `[{"question": "a b", "answer": "c"}, {"question": "x", "answer": ""}]`,
		"\ufeff" + `[{"question": "x", "answer": ""}, {"question": "a b", "answer": "c"}]`,
		`{"question": "a b", "answer": "c"}` + "\n" + `{"question": "a  b", "answer": "C"}`,
		packed.String(),
	} {
		problems, err := sums().Read(strings.NewReader(content))
		if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].ID, "sums/") {
			t.Errorf("%.90q: %+v, %v", content, problems, err)
			continue
		}
		problems[0].ID = ""
		if want := (Problem{Question: "a b", Answer: "c"}); !reflect.DeepEqual(problems[0], want) {
			t.Errorf("%.90q: %+v", content, problems)
		}
	}
}

func TestBadFilesAreRefusedByPlaceAndField(t *testing.T) {
	good := lines(1, 1)[0]
	for want, content := range map[string]string{
		`line 2: "{" is not a JSON object: want a sum`:                  good + "\n{",
		`line 1: "null" is not a JSON object`:                           "null",
		`problem 2: "[1]" is not a JSON object`:                         "[" + good + ", [1]]",
		`problem 2: unexpected EOF`:                                     "[" + good + ", {",
		`problem 2: unexpected end`:                                     "[" + good,
		`line 3: field question: missing`:                               good + "\n\n" + `{"answer": "1"}`,
		`line 1: field question: " ": want a question`:                  `{"question": " ", "answer": "1"}`,
		`line 2: field question: 5: want a string`:                      good + "\n" + `{"question": 5, "answer": "1"}`,
		`line 2: asked at line 1 already, answered "2" there and "3" h`: good + "\n" + `{"question": "1  + 1", "answer": "3"}`,
		`no problems: want sums`:                                        " \n",
		`no problems remain to train on, 1 are held out`:                good,
	} {
		path := tests.File(t, "p.json", content)
		_, err := New(sums(), Settings{TrainFile: path, HeldOutFraction: 0.1}, 0)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
	if _, err := New(sums(), Settings{TrainFile: filepath.Join(t.TempDir(), "none")}, 0); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := sums().ReadFile(tests.File(t, "p.gz", "\x1f\x8bnot packed")); err == nil {
		t.Error("a torn gzip file is read")
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	validate := func(s Settings) error {
		s.Resolve(sums())
		return s.Validate(sums())
	}
	tasktest.Problems(t, validate, []tasktest.Case[Settings]{
		{Settings{TrainFile: "a"}, ""},
		{Settings{TrainFile: "a", HeldOutFile: "b", Template: "{question}"}, ""},
		{Settings{}, "train_file"},
		{Settings{HeldOutFraction: 0.6, HeldOut: -1, Template: "none", MaxPromptTokens: -1},
			"train_file held_out_fraction held_out max_prompt_tokens template"},
		{Settings{TrainFile: "a", HeldOutFile: "a", HeldOutFraction: 0.1}, "held_out_fraction held_out_file"},
		{Settings{TrainFile: "a", Template: "{question}{question}"}, "template"},
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(strings.Join(lines(0, 3), "\n")))
	f.Add([]byte("[" + strings.Join(lines(0, 3), ",") + "]"))
	f.Add([]byte(`{"question": "q", "answer": "1", "answer": "2"}` + "\r\n\r\n{}"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, file []byte) {
		problems, err := sums().Read(bytes.NewReader(file))
		if (err == nil) == (len(problems) == 0) {
			t.Fatalf("%d problems and error %v", len(problems), err)
		}
		ids := map[string]bool{}
		for _, p := range problems {
			if p.Question == "" || p.Answer == "" || ids[p.ID] {
				t.Fatalf("problem %+v", p)
			}
			ids[p.ID] = true
		}
	})
}

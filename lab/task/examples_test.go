package task_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
)

// additions asks for sums below a bound. Held-out ones have the sum 7.
type additions struct {
	below, examples int
	chat            bool
	opening, answer string // of every question; of every solution, before the sum
}

func (a additions) prompt(x, y int) task.Prompt {
	return task.Prompt{ID: fmt.Sprint(x, "+", y), Text: fmt.Sprintf("%s%d+%d=", a.opening, x, y),
		Answer: fmt.Sprint(x + y)}
}

func (a additions) Train(i uint64) task.Prompt {
	for ; ; i++ {
		x, y := int(i%uint64(a.below)), int(i/uint64(a.below)%uint64(a.below))
		if x+y != 7 {
			return a.prompt(x, y)
		}
	}
}

func (a additions) HeldOut() []task.Prompt                { return []task.Prompt{a.prompt(3, 4)} }
func (a additions) Demonstrate(p task.Prompt) string      { return a.answer + p.Answer }
func (a additions) Examples() int                         { return a.examples }
func (a additions) Chat() bool                            { return a.chat }
func (additions) Verify(task.Prompt, string) task.Verdict { return task.Verdict{} }

// unsolved is additions without solutions.
type unsolved struct{ task.Task }

func (unsolved) Examples() int { return 2 }

func examplesOf(t *testing.T, a additions) *task.Examples {
	t.Helper()
	e, err := task.NewExamples(a)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestExamplesAreSolvedTrainingProblemsTheSameBeforeEveryPrompt(t *testing.T) {
	a := additions{below: 9, examples: 3, opening: "Sum: "}
	e := examplesOf(t, a)
	held := a.HeldOut()[0]
	before, found := strings.CutSuffix(strings.Join(e.Ask(held), ""), held.Text)
	if !found {
		t.Fatalf("%q does not end in the prompt", e.Ask(held))
	}
	examples := strings.Split(strings.TrimSuffix(before, "\n\n"), "\n\n")
	seen := map[string]bool{}
	for _, example := range examples {
		var x, y, sum int
		if _, err := fmt.Sscanf(example, "Sum: %d+%d=%d", &x, &y, &sum); err != nil || x+y != sum || sum == 7 {
			t.Errorf("example %q: want a solved training problem", example)
		}
		seen[example] = true
	}
	if len(seen) != 3 {
		t.Errorf("examples %q, want 3 different ones", examples)
	}
	own := 0
	for i := range uint64(81) {
		p := a.Train(i)
		text := strings.Join(e.Ask(p), "")
		if strings.Count(text, p.Text) != 1 || strings.Count(text, "Sum: ") != 4 {
			t.Fatalf("%q: want 3 examples, none of them the problem", text)
		}
		if seen[p.Text+p.Answer] {
			own++
		} else if text != before+p.Text {
			t.Errorf("%q has other examples than %q", text, before)
		}
	}
	if own == 0 {
		t.Error("no training problem is among the examples")
	}
	if again := examplesOf(t, a); !reflect.DeepEqual(again, e) {
		t.Error("another call gives other examples")
	}
}

func TestExamplesInChatAreMessages(t *testing.T) {
	a := additions{below: 9, examples: 2, chat: true}
	e := examplesOf(t, a)
	asked := e.Ask(a.HeldOut()[0])
	if len(asked) != 5 || asked[4] != "3+4=" {
		t.Fatalf("%q: want two questions with their answers, and the prompt", asked)
	}
	for i := 0; i < 4; i += 2 {
		var x, y int
		if _, err := fmt.Sscanf(asked[i], "%d+%d=", &x, &y); err != nil || asked[i+1] != fmt.Sprint(x+y) {
			t.Errorf("%q is answered by %q", asked[i], asked[i+1])
		}
	}
	if e.Stop() != "" || e.Answer("1\n\n2") != "1\n\n2" {
		t.Errorf("%q ends a message", e.Stop())
	}
}

func TestACompletionEndsWhereTheNextProblemBegins(t *testing.T) {
	for opening, stop := range map[string]string{"": "\n\n", "Sum: ": "\n\nSum: ", "Add:\nthese ": "\n\nAdd:",
		"Add these two numbers now, please: ": "\n\nAdd these two numbers no"} {
		e := examplesOf(t, additions{below: 30, examples: 1, opening: opening})
		if e.Stop() != stop || e.Answer("12"+stop+"3+4=7") != "12" || e.Answer("12\n") != "12\n" {
			t.Errorf("opening %q: %q ends a completion, want %q", opening, e.Stop(), stop)
		}
	}
}

func TestATaskWithoutExamplesAsksThePrompt(t *testing.T) {
	e := examplesOf(t, additions{below: 9})
	if got := e.Ask(task.Prompt{Text: "1+2="}); e != nil || !reflect.DeepEqual(got, []string{"1+2="}) || e.Stop() != "" ||
		e.Answer("3\n\n4") != "3\n\n4" {
		t.Errorf("%v asks %q, stops at %q", e, got, e.Stop())
	}
}

func TestExamplesThatCannotBeGivenAreRefused(t *testing.T) {
	for want, made := range map[string]task.Task{
		"task.examples: 4: want at most 3: the training problems have one more": additions{below: 2, examples: 4},
		"task.examples: 2: want 0: the task has no solutions to show":           unsolved{additions{below: 9}},
		`task.examples: 1: want 0, or a task.template`:                          additions{below: 9, examples: 1, answer: "a\n\nb"},
	} {
		if _, err := task.NewExamples(made); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

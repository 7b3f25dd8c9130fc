package countdown

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Verifier      = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.Alphabet      = (*Task)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// variety is settings that between them reach every operation, count and format.
func variety() []Settings {
	return []Settings{
		{},
		{MinNumbers: 2, MaxNumbers: 2, Operations: []string{"-", "+"}, HeldOut: 50},
		{MinNumbers: 6, MaxNumbers: 6, Max: 500, MaxTarget: 1_000_000, Use: Any, HeldOut: 20},
		{MaxNumbers: 3, Format: task.Words, Max: 9, HeldOut: 60},
		{Operations: []string{"*", "/"}, Min: 2, Format: task.Words, Use: Any, MinTarget: 5, MaxTarget: 5000,
			HeldOut: 30},
	}
}

func some(made *Task, n uint64) []task.Prompt {
	prompts := made.HeldOut()
	for i := range n {
		prompts = append(prompts, made.Train(i))
	}
	return prompts
}

// asked reads a terse prompt.
func asked(t *testing.T, text string) (numbers []int, target int) {
	t.Helper()
	left, right, _ := strings.Cut(strings.TrimSuffix(text, ":"), "=")
	for _, f := range strings.Fields(left) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		numbers = append(numbers, n)
	}
	target, err := strconv.Atoi(right)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return numbers, target
}

func TestEveryProblemIsSolvedByItsDemonstration(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		for _, p := range some(made, 300) {
			shown := made.Demonstrate(p)
			if v := made.Verify(p, shown); !v.Correct || v.Reward != 1 {
				t.Fatalf("%q: demonstration %q: %+v", p.Text, shown, v)
			}
			name := strings.TrimPrefix(p.ID, "countdown/")
			if s.Format == task.Terse && p.Text != name+":" {
				t.Fatalf("%q is called %q", p.Text, p.ID)
			}
			numbers, target := asked(t, name)
			if len(numbers) < s.MinNumbers || len(numbers) > s.MaxNumbers || slices.Min(numbers) < s.Min ||
				slices.Max(numbers) > s.Max ||
				target < s.MinTarget || target > s.MaxTarget {
				t.Fatalf("%+v: %q", s, p.ID)
			}
			if e, err := parse(p.Answer); err != nil ||
				strings.Trim(p.Answer, "0123456789()"+strings.Join(s.Operations, "")) != "" ||
				len(e.numbers) != len(numbers) {
				t.Fatalf("%+v: %q is answered by %q", s, p.Text, p.Answer)
			}
			if v := made.Verify(task.Prompt{Answer: name}, shown); !v.Correct {
				t.Fatalf("%q: %q does not solve %q", p.Text, shown, name)
			}
		}
	}
}

func TestUnknownDemonstrationsAreSearchedFor(t *testing.T) {
	terse, words := newTask(t, Settings{}, 1),
		newTask(t, Settings{Format: task.Words, Use: Any, Operations: []string{"+"}}, 1)
	if got := terse.Demonstrate(task.Prompt{Answer: "3 3 8 8=24"}); got != "8/(3-8/3)" {
		t.Errorf("%q", got)
	}
	if got := words.Demonstrate(task.Prompt{Answer: "3 9 8=11"}); got != "<answer>3+8</answer>" {
		t.Errorf("%q", got)
	}
	for _, answer := range []string{"1 1 1=50", "x=", "3 5 7=99999999999999999999", "900 1=901"} {
		if got := terse.Demonstrate(task.Prompt{Answer: answer}); got != "" {
			t.Errorf("%s: %q", answer, got)
		}
	}
}

func TestHeldOutProblemsAreDistinctAndNeverTrainedInAnyOrder(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 3)
		s.Resolve()
		tasktest.HeldOut(t, made, s.HeldOut, 3000, func(p task.Prompt) string {
			numbers, target := asked(t, strings.TrimPrefix(p.ID, "countdown/"))
			slices.Sort(numbers)
			return list(numbers) + "=" + strconv.Itoa(target)
		})
		tasktest.Characters(t, made, 300)
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	turned := Settings{Operations: []string{"/", "*", "-", "+"}}
	tasktest.SeedOrdersTraining(t, newTask(t, Settings{}, 1), newTask(t, turned, 1), newTask(t, Settings{}, 2), 500, 5)
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{MinNumbers: 5}, ""},
		{Settings{MaxNumbers: 2, HeldOut: 50}, ""},
		{Settings{MinNumbers: 1, MaxNumbers: 7}, "min_numbers max_numbers"},
		{Settings{MinNumbers: 5, MaxNumbers: 4}, "max_numbers"},
		{Settings{Min: -1, Max: 501}, "min max"},
		{Settings{Min: 30}, "max"},
		{Settings{MinTarget: 200}, "max_target"},
		{Settings{MinTarget: -1, MaxTarget: 2_000_000}, "min_target max_target"},
		{Settings{Operations: []string{"^", "+", "+"}}, "operations operations"},
		{Settings{Use: "some", Format: "xml", FormatReward: 1, HeldOut: -1}, "use format format_reward held_out"},
		{Settings{FormatReward: -0.5}, "format_reward"},
		{Settings{FormatReward: -1}, ""},
		// These need the numbers tried.
		{Settings{Min: 50, Max: 60, Operations: []string{"+"}}, "max_target"},
		{Settings{MinNumbers: 2, MaxNumbers: 2, Max: 5, Operations: []string{"+"}, HeldOut: 14}, "held_out"}, // of 15
		{Settings{MinNumbers: 2, MaxNumbers: 2, Max: 5, Operations: []string{"+"}, HeldOut: 16}, "held_out"},
		{Settings{MinNumbers: 2, MaxNumbers: 2, Max: 5, Operations: []string{"+"}, HeldOut: 4}, ""},
	})
}

func TestPromptsExplainTheRules(t *testing.T) {
	made := newTask(t, Settings{Format: task.Words, Use: Any, Operations: []string{"*", "+"}}, 1)
	want := "Make 15 from the numbers 3, 5, each at most once, with + * and parentheses. Think first, then write the " +
		"expression alone between tags, as in <answer>(1+2)*3</answer>.\n"
	if got := made.question(drawn{numbers: []int{3, 5}, target: 15}); got != want {
		t.Errorf("%q", got)
	}
	if text := newTask(t, Settings{Format: task.Words}, 1).Train(0).Text; !strings.Contains(text,
		"each exactly once, with + - * / and") {
		t.Errorf("%q", text)
	}
}

func BenchmarkTrain(b *testing.B) {
	made := newTask(b, Settings{}, 1)
	var i uint64
	for b.Loop() {
		made.Train(i)
		i++
	}
}

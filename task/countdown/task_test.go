package countdown

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.Verifier      = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
	_ task.Demonstrator  = (*Task)(nil)
	_ task.Alphabet      = (*Task)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// variety is settings that between them reach every operation, count and format.
func variety() []Settings {
	return []Settings{
		{},
		{MinNumbers: 2, MaxNumbers: 2, Operations: []string{"-", "+"}, HeldOut: 50},
		{MinNumbers: 6, MaxNumbers: 6, Max: 500, MaxTarget: 1_000_000, Use: Any, HeldOut: 20},
		{MaxNumbers: 3, Format: Words, Max: 9, HeldOut: 60},
		{Operations: []string{"*", "/"}, Min: 2, Format: Words, Use: Any, MinTarget: 5, MaxTarget: 5000, HeldOut: 30},
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

func TestEveryProblemIsSolvedByItsDemonstrationInTheAlphabet(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		for _, p := range some(made, 300) {
			shown := made.Demonstrate(p)
			if v := made.Verify(p, shown); !v.Correct || v.Reward != 1 {
				t.Fatalf("%q: demonstration %q: %+v", p.Text, shown, v)
			}
			if rest := strings.Trim(p.Text+shown, made.Characters()); rest != "" {
				t.Fatalf("%q %q: %q is not in the alphabet %q", p.Text, shown, rest, made.Characters())
			}
			name := strings.TrimPrefix(p.ID, "countdown/")
			if s.Format == Terse && p.Text != name+":" {
				t.Fatalf("%q is called %q", p.Text, p.ID)
			}
			numbers, target := asked(t, name)
			if len(numbers) < s.MinNumbers || len(numbers) > s.MaxNumbers || slices.Min(numbers) < s.Min || slices.Max(numbers) > s.Max ||
				target < s.MinTarget || target > s.MaxTarget {
				t.Fatalf("%+v: %q", s, p.ID)
			}
			if e, err := Parse(p.Answer); err != nil || strings.Trim(p.Answer, "0123456789()"+strings.Join(s.Operations, "")) != "" || len(e.Numbers) != len(numbers) {
				t.Fatalf("%+v: %q is answered by %q", s, p.Text, p.Answer)
			}
			if v := made.Verify(task.Prompt{Answer: name}, shown); !v.Correct {
				t.Fatalf("%q: %q does not solve %q", p.Text, shown, name)
			}
		}
	}
}

func TestDemonstrationsAreSearchedForWhereNoneIsKnown(t *testing.T) {
	terse, words := newTask(t, Settings{}, 1), newTask(t, Settings{Format: Words, Use: Any, Operations: []string{"+"}}, 1)
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
		key := func(p task.Prompt) string {
			numbers, target := asked(t, strings.TrimPrefix(p.ID, "countdown/"))
			slices.Sort(numbers)
			return list(numbers) + "=" + strconv.Itoa(target)
		}
		held := map[string]bool{}
		for _, p := range made.HeldOut() {
			held[key(p)] = true
		}
		if len(held) != s.HeldOut {
			t.Errorf("%+v: %d distinct held-out problems", s, len(held))
		}
		for i := range uint64(3000) {
			if p := made.Train(i); held[key(p)] {
				t.Fatalf("%+v: training problem %d, %q, is held out", s, i, p.ID)
			}
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	turned := Settings{Operations: []string{"/", "*", "-", "+"}}
	one, again, other := newTask(t, Settings{}, 1), newTask(t, turned, 1), newTask(t, Settings{}, 2)
	if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) || !reflect.DeepEqual(one.HeldOut(), again.HeldOut()) {
		t.Error("held-out prompts depend on the seed or on the order of the operations")
	}
	same := 0
	for i := range uint64(500) {
		if !reflect.DeepEqual(one.Train(i), again.Train(i)) {
			t.Fatalf("training prompt %d differs for one seed", i)
		}
		if one.Train(i).ID == other.Train(i).ID {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 500 training prompts agree between seeds", same)
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
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
	} {
		err := c.settings.Validate()
		_, made := New(c.settings, 0)
		if err == nil {
			err = made
		} else if made == nil {
			t.Errorf("%+v: made in spite of %v", c.settings, err)
		}
		all := []error{}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			all = joined.Unwrap()
		} else if err != nil {
			all = append(all, err)
		}
		var keys []string
		for _, e := range all {
			var setting *task.SettingError
			if !errors.As(e, &setting) || setting.Want == "" {
				t.Errorf("%v is no complete setting error", e)
				continue
			}
			keys = append(keys, setting.Key)
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%+v: problems with %q, want %q (%v)", c.settings, got, c.keys, err)
		}
	}
}

func TestPromptsSayTheRules(t *testing.T) {
	made := newTask(t, Settings{Format: Words, Use: Any, Operations: []string{"*", "+"}}, 1)
	want := "Make 15 from the numbers 3, 5, each at most once, with + * and parentheses. Think first, then write the expression alone " +
		"between tags, as in <answer>(1+2)*3</answer>.\n"
	if got := made.question(given{numbers: []int{3, 5}, target: 15}); got != want {
		t.Errorf("%q", got)
	}
	if text := newTask(t, Settings{Format: Words}, 1).Train(0).Text; !strings.Contains(text, "each exactly once, with + - * / and") {
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

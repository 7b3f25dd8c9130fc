package arithmetic

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

var (
	_ task.Task         = (*Task)(nil)
	_ task.Demonstrator = (*Task)(nil)
	_ task.Alphabet     = (*Task)(nil)
)

func newTask(t *testing.T, s Settings, seed uint64) *Task {
	t.Helper()
	made, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// settings that between them reach every operation, sign and size of range.
func variety() []Settings {
	return []Settings{
		{},
		{Operations: []string{Subtract}, Max: 30},
		{Operations: []string{Multiply, Add}, Max: 20, HeldOut: 100},
		{Operations: []string{Add, Subtract, Multiply}, Min: -15, Max: 15},
		{Operations: []string{Multiply}, Min: 999_000, Max: 1_000_000, HeldOut: 5},
		{Operations: []string{Add}, Min: 3, Max: 5, HeldOut: 2}, // half of 4 problems
	}
}

func TestHeldOutProblemsAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		held := map[string]bool{}
		for _, p := range made.HeldOut() {
			held[p.Text] = true
		}
		if len(held) != s.HeldOut {
			t.Errorf("%+v: %d distinct held-out prompts, want %d", s, len(held), s.HeldOut)
		}
		for i := range uint64(5000) {
			if p := made.Train(i); held[p.Text] {
				t.Fatalf("%+v: training prompt %d, %q, is held out", s, i, p.Text)
			}
		}
	}
}

func TestAnswersAreRightAndWrittenInTheAlphabet(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 1)
		prompts := made.HeldOut()
		for i := range uint64(500) {
			prompts = append(prompts, made.Train(i))
		}
		for _, p := range prompts {
			var a, b, want int64
			var op rune
			if _, err := fmt.Sscanf(p.Text, "%d%c%d=", &a, &op, &b); err != nil {
				t.Fatalf("%q: %v", p.Text, err)
			}
			switch op {
			case '+':
				want = a + b
			case '-':
				want = a - b
			case '*':
				want = a * b
			}
			if p.Answer != fmt.Sprint(want) {
				t.Errorf("%q answered %q, want %d", p.Text, p.Answer, want)
			}
			if rest := strings.Trim(p.Text+p.Answer, made.Characters()); rest != "" {
				t.Errorf("%q %q: %q is not in the alphabet %q", p.Text, p.Answer, rest, made.Characters())
			}
			if v := made.Verify(p, made.Demonstrate(p)); !v.Correct || v.Reward != 1 || v.Extracted != p.Answer {
				t.Errorf("demonstration of %q: %+v", p.Text, v)
			}
		}
	}
}

func TestCharactersNameEachOnce(t *testing.T) {
	for want, s := range map[string]Settings{
		"0123456789+=":   {},
		"0123456789-=":   {Operations: []string{Subtract}},
		"0123456789+-=":  {Min: -5},
		"0123456789+-*=": {Operations: []string{Multiply, Subtract, Add}, Min: -100},
	} {
		if got := newTask(t, s, 0).Characters(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{Operations: []string{Add, Multiply}}
	turned := Settings{Operations: []string{Multiply, Add}}
	one, again, other := newTask(t, s, 1), newTask(t, turned, 1), newTask(t, s, 2)
	if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) || !reflect.DeepEqual(one.HeldOut(), again.HeldOut()) {
		t.Error("held-out prompts depend on the seed or on the order of the operations")
	}
	same := 0
	for i := range uint64(1000) {
		if one.Train(i).ID != again.Train(i).ID {
			t.Fatalf("training prompt %d differs for one seed", i)
		}
		if one.Train(i).ID == other.Train(i).ID {
			same++
		}
	}
	if same > 10 { // one in 20,000 expected
		t.Errorf("%d of 1000 training prompts agree between seeds", same)
	}
}

// Chi-square over the 100 - 20 remaining problems, 16,000 draws: 79 degrees of freedom, the 99.9%
// quantile is 122.
func TestTrainingProblemsAreEquallyLikely(t *testing.T) {
	made := newTask(t, Settings{Max: 10, HeldOut: 20}, 5)
	counts := map[string]float64{}
	const draws = 16000
	for i := range uint64(draws) {
		counts[made.Train(i).Text]++
	}
	if len(counts) != 80 {
		t.Fatalf("%d problems occur, want 80", len(counts))
	}
	chi, expected := 0.0, float64(draws)/80
	for _, c := range counts {
		chi += math.Pow(c-expected, 2) / expected
	}
	if chi > 122 {
		t.Errorf("chi-square %.1f over 122", chi)
	}
}

func TestOnlyTheExactAnswerIsRight(t *testing.T) {
	for _, c := range []struct {
		response, answer string
		correct          bool
		extracted        string
	}{
		{"19", "19", true, "19"},
		{"-3", "-3", true, "-3"},
		{"20", "19", false, "20"},
		{"019", "19", false, "019"},
		{"+19", "19", false, ""},
		{" 19", "19", false, ""},
		{"19\n", "19", false, ""},
		{"19.0", "19", false, ""},
		{"-", "-", false, ""},
		{"", "19", false, ""},
		{"", "", false, ""},
		{"１９", "19", false, ""},
	} {
		v := Verifier{}.Verify(task.Prompt{Answer: c.answer}, c.response)
		if v.Correct != c.correct || (v.Reward == 1) != c.correct || v.Extracted != c.extracted {
			t.Errorf("%q against %q: %+v", c.response, c.answer, v)
		}
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{}, ""},
		{Settings{Operations: []string{"divide", Add, Add}}, "operations operations"},
		{Settings{Min: 100}, "max"},
		{Settings{Min: -2_000_000, Max: 2_000_000, HeldOut: -1}, "min max held_out"},
		{Settings{Max: 10}, "held_out"}, // 400 of 100
		{Settings{Max: 10, HeldOut: 51}, "held_out"},
		{Settings{Max: 10, HeldOut: 50}, ""},
		{Settings{RandomRewards: 1}, ""},
		{Settings{RandomRewards: -0.1, HeldOut: -1}, "held_out random_rewards"},
		{Settings{RandomRewards: 1.1}, "random_rewards"},
		{Settings{RandomRewards: math.NaN()}, "random_rewards"},
	} {
		err := c.settings.Validate()
		var keys []string
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				var setting *task.SettingError
				if !errors.As(e, &setting) || setting.Want == "" {
					t.Errorf("%v is no complete setting error", e)
					continue
				}
				keys = append(keys, setting.Key)
			}
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%+v: problems with %q, want %q (%v)", c.settings, got, c.keys, err)
		}
		if _, made := New(c.settings, 0); (made == nil) != (c.keys == "") {
			t.Errorf("%+v: New says %v", c.settings, made)
		}
	}
}

func FuzzVerifyAcceptsOnlyTheAnswer(f *testing.F) {
	f.Add("19", "19")
	f.Add("-0", "0")
	f.Fuzz(func(t *testing.T, response, answer string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if v.Correct && (response != answer || response == "") {
			t.Errorf("%q is right for %q", response, answer)
		}
	})
}

func BenchmarkTrain(b *testing.B) {
	made, err := New(Settings{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	var i uint64
	for b.Loop() {
		made.Train(i)
		i++
	}
}

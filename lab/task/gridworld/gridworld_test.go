package gridworld

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout/option"
)

func compass(format string, perTurn int) Protocol {
	return Protocol{Format: format, Letters: "LDRU", Names: []string{"Left", "Down", "Right", "Up"}, PerTurn: perTurn}
}

func TestTurnsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		format  string
		perTurn int
		text    string
		want    []int // nil: no actions
	}{
		{task.Terse, 1, "L", []int{0}},
		{task.Terse, 1, "U", []int{3}},
		{task.Terse, 1, "LL", nil},
		{task.Terse, 3, "LUR", []int{0, 3, 2}},
		{task.Terse, 3, "LURD", nil},
		{task.Terse, 3, "", nil},
		{task.Terse, 3, "l", nil},
		{task.Terse, 3, " L", nil},
		{task.Terse, 3, "LX", nil},
		{task.Terse, 5, "Left", nil},
		{task.Terse, 3, "\xff", nil},
		{task.Terse, 3, "Ł", nil},
		{task.Words, 1, "<answer>Left</answer>", []int{0}},
		{task.Words, 1, "I go down, so <answer> \n uP\t</answer>.", []int{3}},
		{task.Words, 1, "<answer>Left, Up</answer>", nil},
		{task.Words, 2, "<answer>Left, Up</answer>", []int{0, 3}},
		{task.Words, 2, "<answer>left up</answer>", []int{0, 3}},
		{task.Words, 2, "<answer>left up left</answer>", nil},
		{task.Words, 2, "<answer></answer>", nil},
		{task.Words, 2, "<answer>L</answer>", nil},
		{task.Words, 2, "<answer>jump</answer>", nil},
		{task.Words, 2, "<answer>left; up</answer>", nil},
		{task.Words, 1, "<answer>Left</answer> no, <answer>Right</answer>", []int{2}},
		{task.Words, 1, "<answer>Left</answer> no, <answer>Right", []int{0}},
		{task.Words, 1, "<answer>Left<answer>Right</answer>", []int{2}},
		{task.Words, 1, "Left", nil},
		{task.Words, 1, "</answer>Left<answer>", nil},
		{task.Words, 1, "<answer>Left", nil},
		{task.Words, 1, "<answer>\xff</answer>", nil},
	} {
		got, ok := compass(c.format, c.perTurn).Parse(c.text)
		if ok != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s, up to %d, %q: %v, %v, want %v", c.format, c.perTurn, c.text, got, ok, c.want)
		}
	}
}

func TestActionsAreReadAsTheyAreWritten(t *testing.T) {
	for _, format := range []string{task.Terse, task.Words} {
		p := compass(format, 2)
		for a, text := range p.Actions() {
			if got, ok := p.Parse(text); !ok || !slices.Equal(got, []int{a}) {
				t.Errorf("%q: %v", text, got)
			}
			for b := range p.Names {
				if got, ok := p.Parse(p.Write(a, b)); !ok || !slices.Equal(got, []int{a, b}) {
					t.Errorf("%q: %v", p.Write(a, b), got)
				}
			}
		}
	}
	for n, want := range []string{1: "<answer>Left</answer>", 3: "<answer>Left, Down</answer>"} {
		if want == "" {
			continue
		}
		if r := compass(task.Words, n).Request(); !strings.HasSuffix(r, want) {
			t.Errorf("%d per turn: %q gives no form", n, r)
		}
	}
}

func TestEveryBadSettingIsReported(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	validate := func(s Settings) error {
		s.Resolve(50, -1, 7)
		var problems option.Problems
		s.Validate(&problems)
		return problems.Err()
	}
	tasktest.Problems(t, validate, []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Format: "verse", MaxSteps: -1, ActionsPerTurn: -1, InvalidPenalty: number(1)},
			"format max_steps actions_per_turn invalid_penalty"},
		{Settings{MaxSteps: 10, MaxTurns: 11}, "max_turns"},
		{Settings{MaxSteps: 10, MaxTurns: 10, InvalidPenalty: number(0)}, ""},
		{Settings{MaxSteps: 1001}, "max_steps"},
		{Settings{MaxTurns: -1, ActionsPerTurn: 101}, "max_turns actions_per_turn"},
	})
}

func TestDefaultsAreFilledInOnce(t *testing.T) {
	var s Settings
	s.Resolve(50, -1, 7)
	if got, want := fmt.Sprint(s.Format, s.MaxSteps, s.MaxTurns, s.ActionsPerTurn, *s.InvalidPenalty, s.HeldOut),
		"terse50 50 1 -1 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Resolve(60, -2, 8)
	if s.MaxSteps != 50 || *s.InvalidPenalty != -1 || s.HeldOut != 7 {
		t.Errorf("%+v was filled again", s)
	}
}

func FuzzParsedTurnsCanBeWrittenAgain(f *testing.F) {
	for _, text := range []string{"L", "LDRU", "<answer>Left</answer>", "<answer>up,up\nleft</answer>",
		"</answer><answer>", "<answer>||No  Operation,push up\n</answer>", "\xff"} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, perTurn int) {
		spaced := Protocol{Letters: "NUu", Names: []string{"No Operation", "Push Up", "Move Up"}, Separators: "|"}
		for i := range 4 {
			p, format := compass("", 1), []string{task.Terse, task.Words}[i%2]
			if i > 1 {
				p = spaced
			}
			p.Format, p.PerTurn = format, 1+(perTurn&7)
			actions, ok := p.Parse(text)
			if ok != (len(actions) > 0) || len(actions) > p.PerTurn {
				t.Fatalf("%q: %v, %v of up to %d", text, actions, ok, p.PerTurn)
			}
			if again, _ := p.Parse(p.Write(actions...)); ok && !slices.Equal(actions, again) {
				t.Errorf("%q: %v, written and read %v", text, actions, again)
			}
			if ok && format == task.Terse && p.Write(actions...) != text {
				t.Errorf("%q is read as %v", text, actions)
			}
		}
	})
}

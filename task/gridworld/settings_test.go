package gridworld

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

func TestEveryBadSettingIsReported(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{}, ""},
		{Settings{Format: "verse", MaxSteps: -1, ActionsPerTurn: -1, InvalidPenalty: number(1), HeldOut: -1},
			"format max_steps actions_per_turn invalid_penalty held_out"},
		{Settings{MaxSteps: 10, MaxTurns: 11}, "max_turns"},
		{Settings{MaxSteps: 10, MaxTurns: 10, InvalidPenalty: number(0)}, ""},
		{Settings{MaxSteps: 1001}, "max_steps"},
		{Settings{MaxTurns: -1, ActionsPerTurn: 101, HeldOut: 10_001}, "max_turns actions_per_turn held_out"},
	} {
		c.settings.Fill(50, -1, 7)
		var errs []error
		c.settings.Check(Collect(&errs))
		var keys []string
		for _, err := range errs {
			var e *task.SettingError
			if !errors.As(err, &e) || e.Want == "" {
				t.Fatalf("%v is no complete setting error", err)
			}
			keys = append(keys, e.Key)
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%+v: %q, want %q", c.settings, got, c.keys)
		}
	}
}

func TestDefaultsAreFilledInOnce(t *testing.T) {
	var s Settings
	s.Fill(50, -1, 7)
	if got, want := fmt.Sprint(s.Format, s.MaxSteps, s.MaxTurns, s.ActionsPerTurn, *s.InvalidPenalty, s.HeldOut), "terse50 50 1 -1 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Fill(60, -2, 8)
	if s.MaxSteps != 50 || *s.InvalidPenalty != -1 || s.HeldOut != 7 {
		t.Errorf("%+v was filled again", s)
	}
}

func TestStartsAreDealtOnceEach(t *testing.T) {
	cells := []int{3, 5, 6, 8, 9, 12, 20}
	for held := 1; held < len(cells); held++ {
		heldOut, train := DealStarts(cells, []int{8}, held)
		if len(heldOut) != held || heldOut[0] != 8 || !slices.IsSorted(heldOut[1:]) || !slices.IsSorted(train) {
			t.Errorf("%d held out: %v, want 8 first, the others and %v in order", held, heldOut, train)
		}
		all := append(slices.Clone(heldOut), train...)
		if slices.Sort(all); !slices.Equal(all, cells) {
			t.Errorf("%v and %v are not %v", heldOut, train, cells)
		}
	}
	if heldOut, train := DealStarts(cells, []int{20, 3}, 1); !slices.Equal(heldOut, []int{20}) || !slices.Contains(train, 3) {
		t.Errorf("of two first cells one is held out: %v, %v", heldOut, train)
	}
}

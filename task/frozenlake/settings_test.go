package frozenlake

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/gridworld"
)

func TestValidateReportsEveryProblem(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		keys     string
	}{
		{Settings{}, ""},
		{Settings{Size: 8}, ""},
		{Settings{Size: 8, Map: Map4x4}, "size"},
		{Settings{Size: 1}, "size"},
		{Settings{Size: -4}, "size"},
		{Settings{Size: 17}, "size"},
		{Settings{Size: 16}, ""},
		{Settings{Map: "5x5"}, "map"},
		{Settings{Map: MapRows}, "rows"},
		{Settings{Map: MapRandom, Rows: []string{"SG"}}, "rows"},
		{Settings{Rows: []string{"SG"}}, ""},
		{Settings{Rows: []string{"SG"}, Size: 3}, "size"},
		{Settings{Rows: []string{"SG"}, Images: true}, "images"},
		{Settings{Rows: []string{"SF", "FG"}, Images: true}, ""},
		{Settings{Rows: []string{"SF", "G"}}, "rows"},
		{Settings{Rows: []string{""}}, "rows"},
		{Settings{Rows: []string{"SFP", "FFG"}}, "rows"},
		{Settings{Rows: []string{"SH", "HG"}}, "rows"},
		{Settings{Rows: []string{"FF", "FG"}}, "rows"},
		{Settings{Rows: []string{"SHS", "HHG"}}, "rows"},
		{Settings{Rows: []string{strings.Repeat("F", 16) + "SG"}}, "rows"},
		{Settings{Frozen: 0.4, SuccessRate: 1.5, RewardSchedule: []float64{1}, Tile: 65, Settings: gridworld.Settings{Format: "x", HeldOut: -1}},
			"frozen success_rate reward_schedule tile format held_out"},
		{Settings{Frozen: math.NaN(), SuccessRate: math.NaN(), RewardSchedule: []float64{1, math.Inf(1), math.NaN()}},
			"frozen success_rate reward_schedule reward_schedule"},
		{common(gridworld.Settings{RandomStart: true, HeldOut: 11}), "held_out"},
		{common(gridworld.Settings{RandomStart: true, HeldOut: 10}), ""},
		{common(gridworld.Settings{MaxSteps: 20, MaxTurns: 21}), "max_turns"},
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

func TestNoMoreMapsAreHeldOutThanThereAre(t *testing.T) {
	for _, s := range []Settings{
		{Size: 2}, // three maps in all
		{Size: 2, Settings: gridworld.Settings{HeldOut: 3}}, // nothing would be left to train on
		{Map: MapRandom, Frozen: 1},
		{Size: 3, Frozen: 0.95, Settings: gridworld.Settings{HeldOut: 60}},
	} {
		made, err := New(s, 1)
		var e *task.SettingError
		if made != nil || !errors.As(err, &e) || e.Key != "held_out" {
			t.Errorf("%+v: %v", s, err)
		}
	}
	newTask(t, Settings{Size: 2, Settings: gridworld.Settings{HeldOut: 1}}, 1).Train(0)
}

func TestDefaultsAreThoseOfGymnasium(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		size     int
		kind     string
		steps    int
		heldOut  int
	}{
		{Settings{}, 4, Map4x4, 100, 100},
		{Settings{Size: 8}, 8, Map8x8, 200, 100},
		{Settings{Map: Map8x8, Slippery: firm()}, 8, Map8x8, 200, 1},
		{Settings{Size: 6}, 6, MapRandom, 200, 200},
		{Settings{Map: MapRandom}, 4, MapRandom, 100, 200},
		{Settings{Size: 3}, 3, MapRandom, 100, 200},
		{Settings{Rows: []string{"SFFFFG"}}, 6, MapRows, 200, 100},
		{common(gridworld.Settings{RandomStart: true}), 4, Map4x4, 100, 2},
	} {
		s := c.settings
		s.Resolve()
		if s.Size != c.size || s.Map != c.kind || s.MaxSteps != c.steps || s.MaxTurns != c.steps || s.HeldOut != c.heldOut {
			t.Errorf("%+v: resolved to %+v", c.settings, s)
		}
	}
	var s Settings
	s.Resolve()
	if !*s.Slippery || s.SuccessRate != 1.0/3 || s.Frozen != 0.8 || s.Tile != 8 || *s.InvalidPenalty != -0.1 ||
		len(s.RewardSchedule) != 3 || s.RewardSchedule[0] != 1 || s.RewardSchedule[1] != 0 || s.RewardSchedule[2] != 0 {
		t.Errorf("%+v", s)
	}
}

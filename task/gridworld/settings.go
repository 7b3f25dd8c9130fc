package gridworld

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/task"
)

// Bounds of the settings.
const (
	maxSteps   = 1000
	maxActions = 100
	maxPenalty = 1000
	maxHeldOut = 10_000
)

// Settings are those that tasks of this kind have in common; they are embedded into the tasks' own. Zero is the default.
type Settings struct {
	Format         string   `yaml:"format" json:"format"`                     // terse or words; empty: terse
	MaxSteps       int      `yaml:"max_steps" json:"max_steps"`               // actions of an episode, to 1000; 0: the task's own limit
	MaxTurns       int      `yaml:"max_turns" json:"max_turns"`               // turns of an episode; 0: max_steps
	ActionsPerTurn int      `yaml:"actions_per_turn" json:"actions_per_turn"` // that a turn may hold, to 100; 0: 1
	InvalidPenalty *float64 `yaml:"invalid_penalty" json:"invalid_penalty"`   // reward of a turn that is no action; null: the task's own
	RandomStart    bool     `yaml:"random_start" json:"random_start"`         // episodes begin in any cell from which the goal can be reached
	HeldOut        int      `yaml:"held_out" json:"held_out"`                 // evaluation prompts, to 10,000; 0: the task's own number
}

// Fill puts defaults where nothing is set.
func (s *Settings) Fill(steps int, penalty float64, heldOut int) {
	if s.Format == "" {
		s.Format = Terse
	}
	if s.MaxSteps == 0 {
		s.MaxSteps = steps
	}
	if s.MaxTurns == 0 {
		s.MaxTurns = s.MaxSteps
	}
	if s.ActionsPerTurn == 0 {
		s.ActionsPerTurn = 1
	}
	if s.InvalidPenalty == nil {
		s.InvalidPenalty = &penalty
	}
	if s.HeldOut == 0 {
		s.HeldOut = heldOut
	}
}

// Report takes a problem: the key, its value, and what is wanted, as fmt.Sprintf writes it.
type Report func(key string, value any, format string, args ...any)

// Collect returns a Report that appends to errs.
func Collect(errs *[]error) Report {
	return func(key string, value any, format string, args ...any) {
		*errs = append(*errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
}

// Check reports what is wrong with filled settings.
func (s Settings) Check(bad Report) {
	if s.Format != Terse && s.Format != Words {
		bad("format", s.Format, "%s or %s", Terse, Words)
	}
	if s.MaxSteps < 1 || s.MaxSteps > maxSteps {
		bad("max_steps", s.MaxSteps, "0 (the task's limit) to %d", maxSteps)
	} else if s.MaxTurns < 1 || s.MaxTurns > s.MaxSteps {
		bad("max_turns", s.MaxTurns, "0 (max_steps) to max_steps (%d)", s.MaxSteps)
	}
	if s.ActionsPerTurn < 1 || s.ActionsPerTurn > maxActions {
		bad("actions_per_turn", s.ActionsPerTurn, "0 (1) to %d", maxActions)
	}
	if p := *s.InvalidPenalty; math.IsNaN(p) || p > 0 || p < -maxPenalty {
		bad("invalid_penalty", p, "-%d to 0, a reward", maxPenalty)
	}
	if s.HeldOut < 1 || s.HeldOut > maxHeldOut {
		bad("held_out", s.HeldOut, "0 (the default) to %d", maxHeldOut)
	}
}

// Rules returns the rules of an episode, of filled settings.
func (s Settings) Rules(names []string) Rules {
	return Rules{
		Protocol: Protocol{Format: s.Format, Names: names, PerTurn: s.ActionsPerTurn},
		MaxSteps: s.MaxSteps, MaxTurns: s.MaxTurns, InvalidReward: *s.InvalidPenalty,
	}
}

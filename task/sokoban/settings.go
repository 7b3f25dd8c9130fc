package sokoban

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/task"
)

// Difficulties of generated levels.
const (
	Simple = "simple" // 6x6, one box
	Hard   = "hard"   // 8x8, two boxes
)

// Formats in which a policy and a room talk.
const (
	Terse = "terse" // one character per cell and per action
	Words = "words" // an explanation, and <answer>Up</answer>
)

// Sets of actions.
const (
	Push     = "push"      // the four that push, or move where there is no box
	PushMove = "push_move" // all nine of gym-sokoban
)

// gymSteps is the limit of gym-sokoban.
const gymSteps = 120

// Settings of the task; the zero value is simple generated levels in the terse format.
type Settings struct {
	Difficulty string `yaml:"difficulty" json:"difficulty"` // of generated levels: simple (default) or hard
	Size       int    `yaml:"size" json:"size"`             // rows and columns with their walls, 5 to 16; 0: 6 (simple) or 8 (hard)
	Boxes      int    `yaml:"boxes" json:"boxes"`           // 1 to 4; 0: 1 (simple) or 2 (hard)
	MinPushes  int    `yaml:"min_pushes" json:"min_pushes"` // a level needs at least so many pushes; 0: two per box

	Levels        string `yaml:"levels" json:"levels"`                   // a file of levels, or a folder of them, in place of generated ones
	HeldOutLevels string `yaml:"held_out_levels" json:"held_out_levels"` // likewise; empty: some of levels
	HeldOut       int    `yaml:"held_out" json:"held_out"`               // 0: 200 generated, a tenth of levels, or all of held_out_levels

	Format         string   `yaml:"format" json:"format"`                     // terse (default) or words
	Actions        string   `yaml:"actions" json:"actions"`                   // push (default) or push_move
	ActionsPerTurn int      `yaml:"actions_per_turn" json:"actions_per_turn"` // that a turn may hold, to 100; 0: 1
	MaxSteps       int      `yaml:"max_steps" json:"max_steps"`               // actions of an episode, to 1000; 0: 120, as in gym-sokoban
	MaxTurns       int      `yaml:"max_turns" json:"max_turns"`               // turns of an episode; 0: max_steps
	InvalidPenalty *float64 `yaml:"invalid_penalty" json:"invalid_penalty"`   // reward of a turn that is no action; null: -0.2
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	if s.Levels == "" {
		s.resolveGenerated()
	}
	if s.Format == "" {
		s.Format = Terse
	}
	if s.Actions == "" {
		s.Actions = Push
	}
	if s.ActionsPerTurn == 0 {
		s.ActionsPerTurn = 1
	}
	if s.MaxSteps == 0 {
		s.MaxSteps = gymSteps
	}
	if s.MaxTurns == 0 {
		s.MaxTurns = s.MaxSteps
	}
	if s.InvalidPenalty == nil {
		penalty := 2 * rewardStep // worse than a step that leads nowhere
		s.InvalidPenalty = &penalty
	}
}

func (s *Settings) resolveGenerated() {
	if s.Difficulty == "" {
		s.Difficulty = Simple
	}
	size, boxes := 6, 1
	if s.Difficulty == Hard {
		size, boxes = 8, 2
	}
	if s.Size == 0 {
		s.Size = size
	}
	if s.Boxes == 0 {
		s.Boxes = boxes
	}
	if s.MinPushes == 0 {
		s.MinPushes = 2 * s.Boxes
	}
	if s.HeldOut == 0 {
		s.HeldOut = 200
	}
}

// shape is that of generated levels.
func (s Settings) shape() Shape { return Shape{Size: s.Size, Boxes: s.Boxes, MinPushes: s.MinPushes} }

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError. It does not look into
// the files.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	if s.Levels == "" {
		s.validateGenerated(bad)
	} else {
		s.validateRead(bad)
	}
	if s.HeldOut < 0 || s.HeldOut > 100_000 {
		bad("held_out", s.HeldOut, "0 (default) to 100,000")
	}
	if s.Format != Terse && s.Format != Words {
		bad("format", s.Format, "%s or %s", Terse, Words)
	}
	if s.Actions != Push && s.Actions != PushMove {
		bad("actions", s.Actions, "%s or %s", Push, PushMove)
	}
	if s.MaxSteps < 1 || s.MaxSteps > 1000 {
		bad("max_steps", s.MaxSteps, "0 (default: %d) to 1000", gymSteps)
	} else if s.MaxTurns < 1 || s.MaxTurns > s.MaxSteps {
		bad("max_turns", s.MaxTurns, "0 (default: max_steps) to max_steps (%d)", s.MaxSteps)
	}
	if s.ActionsPerTurn < 1 || s.ActionsPerTurn > 100 {
		bad("actions_per_turn", s.ActionsPerTurn, "0 (default: 1) to 100")
	}
	if p := *s.InvalidPenalty; !(p >= -1000 && p <= 0) {
		bad("invalid_penalty", p, "-1000 to 0, a reward")
	}
	return errors.Join(errs...)
}

func (s Settings) validateGenerated(bad func(key string, value any, format string, args ...any)) {
	if s.Difficulty != Simple && s.Difficulty != Hard {
		bad("difficulty", s.Difficulty, "%s or %s", Simple, Hard)
	}
	if s.Size < 5 || s.Size > 16 {
		bad("size", s.Size, "0 (default) or 5 to 16")
	}
	if s.Boxes < 1 || s.Boxes > 4 {
		bad("boxes", s.Boxes, "0 (default) to 4")
	}
	if s.MinPushes < 1 {
		bad("min_pushes", s.MinPushes, "0 (default: two per box) or more")
	}
	if s.HeldOutLevels != "" {
		bad("held_out_levels", s.HeldOutLevels, "nothing, or a path in levels too: generated levels hold out generated ones")
	}
}

func (s Settings) validateRead(bad func(key string, value any, format string, args ...any)) {
	const want = "nothing: it is for generated levels, and levels is given"
	if s.Difficulty != "" {
		bad("difficulty", s.Difficulty, want)
	}
	if s.Size != 0 {
		bad("size", s.Size, want)
	}
	if s.Boxes != 0 {
		bad("boxes", s.Boxes, want)
	}
	if s.MinPushes != 0 {
		bad("min_pushes", s.MinPushes, want)
	}
	if s.HeldOutLevels == s.Levels {
		bad("held_out_levels", s.HeldOutLevels, "another path than levels: leave it out and set held_out to split one")
	}
}

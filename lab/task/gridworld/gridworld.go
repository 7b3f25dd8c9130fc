// Package gridworld is what the tasks on grids share: frozenlake, cliffwalking and sokoban.
//
// [Settings] are their common settings, and a [Protocol] reads and writes the player's actions: single letters for
// small models, words in a tag for pretrained ones. Where the rules are a table of transitions, a [World] is one map
// and a [Walk] an episode on it; [Solve] finds the best [Plan] for a limited number of steps by value iteration.
// Experts follow it, and reports draw its value as the bound.
//
// Everything here is a pure function of its arguments, except a Walk, which draws from the stream it was given.
package gridworld

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Limits of the settings.
const (
	maxSteps   = 1000
	maxActions = 100
	maxPenalty = 1000
)

// Settings are embedded into the settings of each task. Zero is the default.
type Settings struct {
	Format         string   `yaml:"format"`           // terse, words or chat; empty: terse
	MaxSteps       int      `yaml:"max_steps"`        // actions of an episode, at most 1000; 0: the task's own limit
	MaxTurns       int      `yaml:"max_turns"`        // turns of an episode; 0: max_steps
	ActionsPerTurn int      `yaml:"actions_per_turn"` // actions that a turn may hold, at most 100; 0: 1
	InvalidPenalty *float64 `yaml:"invalid_penalty"`  // reward of a turn that is not an action; null: the task's own
	HeldOut        int      `yaml:"held_out"`         // evaluation prompts; 0: the task's own number
}

// Resolve fills in the defaults, given those that each task has of its own.
func (s *Settings) Resolve(steps int, penalty float64, heldOut int) {
	s.Format = cmp.Or(s.Format, task.Terse)
	s.MaxSteps = cmp.Or(s.MaxSteps, steps)
	s.MaxTurns = cmp.Or(s.MaxTurns, s.MaxSteps)
	s.ActionsPerTurn = cmp.Or(s.ActionsPerTurn, 1)
	if s.InvalidPenalty == nil {
		s.InvalidPenalty = &penalty
	}
	s.HeldOut = cmp.Or(s.HeldOut, heldOut)
}

// Validate reports the problems of resolved settings, except that of HeldOut, whose range is the task's.
func (s Settings) Validate(problems *option.Problems) {
	task.CheckFormat(problems, s.Format)
	if s.MaxSteps < 1 || s.MaxSteps > maxSteps {
		problems.Check(false, "max_steps", s.MaxSteps, "0 (the task's limit) to %d", maxSteps)
	} else {
		problems.Check(s.MaxTurns >= 1 && s.MaxTurns <= s.MaxSteps, "max_turns", s.MaxTurns,
			"0 (max_steps) to max_steps (%d)", s.MaxSteps)
	}
	problems.Check(s.ActionsPerTurn >= 1 && s.ActionsPerTurn <= maxActions, "actions_per_turn", s.ActionsPerTurn,
		"0 (1) to %d", maxActions)
	penalty := *s.InvalidPenalty
	problems.Check(penalty >= -maxPenalty && penalty <= 0, "invalid_penalty", penalty, "-%d to 0, a reward", maxPenalty)
}

// Protocol is how actions are written in the text of a turn.
type Protocol struct {
	// task.Terse: the letters of the actions and nothing else; task.Words: their names in <answer> tags
	Format     string
	Letters    string   // one ASCII character per action
	Names      []string // of the actions, in the same order
	PerTurn    int      // maximum number of actions in a turn, at least 1
	Separators string   // between names, besides commas and white space
}

// Protocol returns the protocol of the settings, which must be resolved.
func (s Settings) Protocol(letters string, names []string) Protocol {
	return Protocol{Format: s.Format, Letters: letters, Names: names, PerTurn: s.ActionsPerTurn}
}

// Parse reads the actions of a turn, 1 to PerTurn of them, and reports false for any other text. In the format Words
// the last closed <answer> counts, and names are matched in any case.
func (p Protocol) Parse(text string) ([]int, bool) {
	var fields []string
	if task.InWords(p.Format) {
		answer, ok := task.TaggedAnswer(text)
		if !ok {
			return nil, false
		}
		fields = p.split(answer)
	} else if len(text) <= p.PerTurn {
		fields = strings.Split(text, "")
	}
	if len(fields) < 1 || len(fields) > p.PerTurn {
		return nil, false
	}
	actions := make([]int, len(fields))
	for i, field := range fields {
		if actions[i] = p.action(field); actions[i] < 0 {
			return nil, false
		}
	}
	return actions, true
}

// split separates names. White space separates them only if no name contains any; a line break always does.
func (p Protocol) split(answer string) []string {
	spaced := slices.ContainsFunc(p.Names, func(name string) bool { return strings.Contains(name, " ") })
	parts := strings.FieldsFunc(answer, func(r rune) bool {
		return r == ',' || r == '\n' || strings.ContainsRune(p.Separators, r) || !spaced && unicode.IsSpace(r)
	})
	for i, part := range parts {
		parts[i] = strings.Join(strings.Fields(part), " ")
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}

// action returns the number of an action, -1 if the text is none.
func (p Protocol) action(text string) int {
	if task.InWords(p.Format) {
		return slices.IndexFunc(p.Names, func(name string) bool { return strings.EqualFold(text, name) })
	}
	return strings.Index(p.Letters, text)
}

// Write is the inverse of Parse.
func (p Protocol) Write(actions ...int) string {
	letters, names := make([]byte, len(actions)), make([]string, len(actions))
	for i, a := range actions {
		letters[i], names[i] = p.Letters[a], p.Names[a]
	}
	if task.InWords(p.Format) {
		return task.TagAnswer(strings.Join(names, ", "))
	}
	return string(letters)
}

// Actions returns the text of each action alone.
func (p Protocol) Actions() []string {
	texts := make([]string, len(p.Names))
	for a := range texts {
		texts[a] = p.Write(a)
	}
	return texts
}

// Request is the sentence that asks for an answer in words.
func (p Protocol) Request() string {
	names := strings.Join(p.Names, ", ")
	if p.PerTurn == 1 {
		return fmt.Sprintf("Answer with one of %s, in this form: %s", names, p.Write(0))
	}
	return fmt.Sprintf("Answer with 1 to %d of %s, with commas between them, in this form: %s", p.PerTurn, names,
		p.Write(0, 1))
}

// Reply begins what is said after a turn in words: it repeats the request if the turn was invalid.
func (p Protocol) Reply(invalid bool) string {
	if invalid {
		return "\nThat was no answer. " + p.Request() + "\n"
	}
	return "\n"
}

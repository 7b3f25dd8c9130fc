package countdown

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// What a solution uses of the given numbers.
const (
	All = "all" // each exactly once
	Any = "any" // each at most once
)

// Formats of prompt and response.
const (
	Terse = "terse" // "3 5 5 7=24:" and an expression
	Words = "words" // a question, and an expression between <answer> and </answer>
)

// The limits of the numbers: the fractions that come up between them fit into 64 bits (see fraction).
const (
	mostNumbers = 6
	mostNumber  = 500
	mostTarget  = 1_000_000
)

// Settings of the task; the zero value is three or four numbers below 20 that make at most 100.
type Settings struct {
	MinNumbers   int      `yaml:"min_numbers" json:"min_numbers"`     // given; 0: 3, or max_numbers if that is less; 2 to 6
	MaxNumbers   int      `yaml:"max_numbers" json:"max_numbers"`     // 0: 4, or min_numbers if that is more
	Min          int      `yaml:"min" json:"min"`                     // least number; 0: 1
	Max          int      `yaml:"max" json:"max"`                     // numbers are at most this; 0: 20; <= 500
	MinTarget    int      `yaml:"min_target" json:"min_target"`       // 0: 1
	MaxTarget    int      `yaml:"max_target" json:"max_target"`       // 0: 100; <= 1,000,000
	Operations   []string `yaml:"operations" json:"operations"`       // of +, -, *, /; none: all
	Use          string   `yaml:"use" json:"use"`                     // all or any of the numbers; empty: all
	Format       string   `yaml:"format" json:"format"`               // terse or words; empty: terse
	FormatReward float64  `yaml:"format_reward" json:"format_reward"` // of a wrong value from the right numbers; 0: 0.1; -1: none; below 1
	HeldOut      int      `yaml:"held_out" json:"held_out"`           // problems kept for evaluation; 0: 400
}

// none is the format reward of nothing.
const none = -1

// Resolve fills in the defaults and puts the operations into their canonical order.
func (s *Settings) Resolve() {
	switch {
	case s.MinNumbers == 0 && s.MaxNumbers == 0:
		s.MinNumbers, s.MaxNumbers = 3, 4
	case s.MinNumbers == 0:
		s.MinNumbers = min(3, s.MaxNumbers)
	case s.MaxNumbers == 0:
		s.MaxNumbers = max(4, s.MinNumbers)
	}
	for setting, value := range map[*int]int{&s.Min: 1, &s.Max: 20, &s.MinTarget: 1, &s.MaxTarget: 100, &s.HeldOut: 400} {
		if *setting == 0 {
			*setting = value
		}
	}
	if len(s.Operations) == 0 {
		s.Operations = operations()
	}
	s.Operations = slices.Clone(s.Operations)
	slices.SortStableFunc(s.Operations, func(a, b string) int {
		return slices.Index(operations(), a) - slices.Index(operations(), b)
	})
	if s.Use == "" {
		s.Use = All
	}
	if s.Format == "" {
		s.Format = Terse
	}
	if s.FormatReward == 0 {
		s.FormatReward = 0.1
	}
}

func operations() []string { return []string{"+", "-", "*", "/"} }

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	within := func(key string, value, least, most int) {
		if value < least || value > most {
			bad(key, value, "%d to %d", least, most)
		}
	}
	within("min_numbers", s.MinNumbers, 2, mostNumbers)
	within("max_numbers", s.MaxNumbers, max(2, s.MinNumbers), mostNumbers)
	within("min", s.Min, 1, mostNumber)
	within("max", s.Max, max(1, s.Min), mostNumber)
	within("min_target", s.MinTarget, 1, mostTarget)
	within("max_target", s.MaxTarget, max(1, s.MinTarget), mostTarget)
	for i, op := range s.Operations {
		if !slices.Contains(operations(), op) {
			bad("operations", op, "one of %s", strings.Join(operations(), " "))
		} else if slices.Contains(s.Operations[:i], op) {
			bad("operations", op, "each of %s at most once", strings.Join(operations(), " "))
		}
	}
	if s.Use != All && s.Use != Any {
		bad("use", s.Use, "%s or %s", All, Any)
	}
	if s.Format != Terse && s.Format != Words {
		bad("format", s.Format, "%s or %s", Terse, Words)
	}
	if s.FormatReward != none && !(s.FormatReward >= 0 && s.FormatReward < 1) {
		bad("format_reward", s.FormatReward, "0 (default: 0.1) to below 1, or %d for none", none)
	}
	if s.HeldOut < 0 {
		bad("held_out", s.HeldOut, "0 (default: 400) or more")
	}
	return errors.Join(errs...)
}

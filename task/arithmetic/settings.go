package arithmetic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Operations in their canonical order.
const (
	Add      = "add"      // a+b=
	Subtract = "subtract" // a-b=
	Multiply = "multiply" // a*b=
)

// limit bounds the operands: three operations on 2*limit values squared still count in an int64.
const limit = 1_000_000

// Settings of the task; the zero value is addition of 0 <= a, b < 100 with 400 held-out problems.
type Settings struct {
	Operations []string `yaml:"operations" json:"operations"` // of add, subtract, multiply; none: add
	Min        int      `yaml:"min" json:"min"`               // least operand; >= -1,000,000
	Max        int      `yaml:"max" json:"max"`               // operands stay below; 0: 100; <= 1,000,000
	HeldOut    int      `yaml:"held_out" json:"held_out"`     // problems kept for evaluation; 0: 400; at most half of all
	// RandomRewards is the share of responses that get the reward, whatever they say; 0: exactly the right ones. It is a control, which
	// teaches no arithmetic. What is correct stays what it is.
	RandomRewards float64 `yaml:"random_rewards" json:"random_rewards"`
}

// Resolve fills in the defaults and puts the operations into their canonical order.
func (s *Settings) Resolve() {
	if len(s.Operations) == 0 {
		s.Operations = []string{Add}
	}
	s.Operations = slices.Clone(s.Operations)
	slices.SortStableFunc(s.Operations, func(a, b string) int {
		return slices.Index(operations(), a) - slices.Index(operations(), b)
	})
	if s.Max == 0 {
		s.Max = 100
	}
	if s.HeldOut == 0 {
		s.HeldOut = 400
	}
}

func operations() []string { return []string{Add, Subtract, Multiply} }

// sign returns how an operation is written in a prompt.
func sign(operation string) byte {
	switch operation {
	case Subtract:
		return '-'
	case Multiply:
		return '*'
	}
	return '+'
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	known := strings.Join(operations(), ", ")
	for i, op := range s.Operations {
		if !slices.Contains(operations(), op) {
			bad("operations", op, "one of %s", known)
		} else if slices.Contains(s.Operations[:i], op) {
			bad("operations", op, "each of %s at most once", known)
		}
	}
	if s.Min < -limit || s.Min >= limit {
		bad("min", s.Min, "-%d <= min < %[1]d", limit)
	}
	if s.Max <= s.Min || s.Max > limit {
		bad("max", s.Max, "min (%d) < max <= %d", s.Min, limit)
	}
	switch {
	case s.HeldOut < 0:
		bad("held_out", s.HeldOut, "0 (default: 400) or more")
	case len(errs) == 0 && uint64(s.HeldOut) > s.problems()/2:
		bad("held_out", s.HeldOut, "at most %d, half of the %d problems with %d <= a, b < %d: "+
			"hold out fewer, or widen min and max", s.problems()/2, s.problems(), s.Min, s.Max)
	}
	if !(s.RandomRewards >= 0 && s.RandomRewards <= 1) {
		bad("random_rewards", s.RandomRewards, "a share of responses in (0, 1], or 0 to reward the right ones")
	}
	return errors.Join(errs...)
}

// problems counts all problems; the settings are resolved and valid but for HeldOut.
func (s Settings) problems() uint64 {
	span := uint64(s.Max - s.Min)
	return uint64(len(s.Operations)) * span * span
}

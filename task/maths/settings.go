package maths

import (
	"errors"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Slot is where a template takes the problem.
const Slot = "{problem}"

// Settings of the task. Only TrainFile is needed.
type Settings struct {
	TrainFile       string  `yaml:"train_file" json:"train_file"`               // .json or .jsonl, also with .gz; see ReadFile
	HeldOutFile     string  `yaml:"held_out_file" json:"held_out_file"`         // of the same form; empty: a share of train_file
	HeldOutFraction float64 `yaml:"held_out_fraction" json:"held_out_fraction"` // of train_file, in (0, 0.5]; 0: 0.1; not with held_out_file
	HeldOut         int     `yaml:"held_out" json:"held_out"`                   // held-out problems to evaluate on; 0: all
	Template        string  `yaml:"template" json:"template"`                   // the prompt, with {problem}; empty: DefaultTemplate
}

// DefaultTemplate is the prompt of a model that has not been taught a chat format.
const DefaultTemplate = "Problem: " + Slot + "\nReason step by step, and put the final answer in \\boxed{}.\nSolution:\n"

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	if s.HeldOutFile == "" && s.HeldOutFraction == 0 {
		s.HeldOutFraction = 0.1
	}
	if s.Template == "" {
		s.Template = DefaultTemplate
	}
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError. It does not look into the
// files.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, want string) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: want})
	}
	if s.TrainFile == "" {
		bad("train_file", s.TrainFile, "the path of a .json or .jsonl file of problems with answers")
	}
	switch {
	case s.HeldOutFile != "" && s.HeldOutFraction != 0:
		bad("held_out_fraction", s.HeldOutFraction, "held_out_file or held_out_fraction, not both: remove one")
	case s.HeldOutFile == "" && !(s.HeldOutFraction > 0 && s.HeldOutFraction <= 0.5):
		bad("held_out_fraction", s.HeldOutFraction, "0 < held_out_fraction <= 0.5")
	}
	if s.HeldOutFile != "" && s.HeldOutFile == s.TrainFile {
		bad("held_out_file", s.HeldOutFile, "another file than train_file: leave it out and set held_out_fraction to split one file")
	}
	if s.HeldOut < 0 {
		bad("held_out", s.HeldOut, "0 (all) or more")
	}
	if strings.Count(s.Template, Slot) != 1 {
		bad("template", s.Template, Slot+" exactly once")
	}
	return errors.Join(errs...)
}

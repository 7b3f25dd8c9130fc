package task

import (
	"errors"
	"fmt"
	"strings"
)

// Files is the settings of a task whose problems stand in files.
type Files struct {
	TrainFile       string  `yaml:"train_file" json:"train_file"`
	HeldOutFile     string  `yaml:"held_out_file" json:"held_out_file"`         // of the same form; empty: a share of train_file
	HeldOutFraction float64 `yaml:"held_out_fraction" json:"held_out_fraction"` // of train_file, in (0, 0.5]; 0: 0.1; not with held_out_file
	HeldOut         int     `yaml:"held_out" json:"held_out"`                   // held-out problems to evaluate on; 0: all
	Template        string  `yaml:"template" json:"template"`                   // the prompt, with a slot for the problem; empty: the task's own
}

// Resolve fills in the defaults, the task's own template among them.
func (f *Files) Resolve(template string) {
	if f.HeldOutFile == "" && f.HeldOutFraction == 0 {
		f.HeldOutFraction = 0.1
	}
	if f.Template == "" {
		f.Template = template
	}
}

// Validate reports everything that is wrong with resolved settings, each problem a *SettingError. It does not look into the files.
// The form is what TrainFile is to be a file of, the slot what the template is to hold.
func (f Files) Validate(form, slot string) error {
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	if f.TrainFile == "" {
		bad("train_file", f.TrainFile, "the path of a file of %s", form)
	}
	switch {
	case f.HeldOutFile != "" && f.HeldOutFraction != 0:
		bad("held_out_fraction", f.HeldOutFraction, "held_out_file or held_out_fraction, not both: remove one")
	case f.HeldOutFile == "" && !(f.HeldOutFraction > 0 && f.HeldOutFraction <= 0.5):
		bad("held_out_fraction", f.HeldOutFraction, "0 < held_out_fraction <= 0.5")
	}
	if f.HeldOutFile != "" && f.HeldOutFile == f.TrainFile {
		bad("held_out_file", f.HeldOutFile, "another file than train_file: leave it out and set held_out_fraction to split one file")
	}
	if f.HeldOut < 0 {
		bad("held_out", f.HeldOut, "0 (all) or more")
	}
	if strings.Count(f.Template, slot) != 1 {
		bad("template", f.Template, "%s exactly once", slot)
	}
	return errors.Join(errs...)
}

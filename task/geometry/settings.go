package geometry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Formats of a question.
const (
	Terse = "terse" // "a?"
	Words = "words" // "area?"
)

// Bounds of the settings.
const (
	minImage, maxImage = 16, 256
	minLabels          = 32 // pixels of an image with room for numbers
	minCell            = 2  // pixels of a cell
	maxMax             = 12
)

// Settings of the task; the zero value asks all questions that need no reading of numbers, about figures of up to 6 cells.
type Settings struct {
	Questions []string `yaml:"questions" json:"questions"`   // of length, area, perimeter, angle, triangle, third, hypotenuse; none: the first four
	ImageSize int      `yaml:"image_size" json:"image_size"` // pixels of a side, 16 to 256; 0: 32
	Max       int      `yaml:"max" json:"max"`               // cells of a side, 2 to 12; 0: 6
	HeldOut   int      `yaml:"held_out" json:"held_out"`     // figures kept for evaluation, each with one question; 0: 100; at most half of all
	Format    string   `yaml:"format" json:"format"`         // terse or words; empty: terse
}

// Resolve fills in the defaults and puts the questions into their canonical order.
func (s *Settings) Resolve() {
	if len(s.Questions) == 0 {
		s.Questions = names()[:4]
	}
	s.Questions = slices.Clone(s.Questions)
	slices.SortStableFunc(s.Questions, func(a, b string) int {
		return slices.Index(names(), a) - slices.Index(names(), b)
	})
	if s.ImageSize == 0 {
		s.ImageSize = 32
	}
	if s.Max == 0 {
		s.Max = 6
	}
	if s.HeldOut == 0 {
		s.HeldOut = 100
	}
	if s.Format == "" {
		s.Format = Terse
	}
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	known := strings.Join(names(), ", ")
	labels := false
	for i, name := range s.Questions {
		if !slices.Contains(names(), name) {
			bad("questions", name, "one of %s", known)
		} else if slices.Contains(s.Questions[:i], name) {
			bad("questions", name, "each of %s at most once", known)
		}
		labels = labels || name == Third || name == Hypotenuse
	}
	if s.Max < 2 || s.Max > maxMax {
		bad("max", s.Max, "2 <= max <= %d cells", maxMax)
	}
	switch {
	case s.ImageSize < minImage || s.ImageSize > maxImage:
		bad("image_size", s.ImageSize, "%d <= image_size <= %d pixels", minImage, maxImage)
	case s.ImageSize < minCell*(s.Max+1)+1:
		bad("image_size", s.ImageSize, "at least %d pixels for %d cells: enlarge it, or lower max", minCell*(s.Max+1)+1, s.Max)
	case labels && s.ImageSize < minLabels:
		bad("image_size", s.ImageSize, "at least %d pixels for the numbers of %s and %s: enlarge it, or leave them out", minLabels, Third, Hypotenuse)
	}
	if s.Format != Terse && s.Format != Words {
		bad("format", s.Format, "%s or %s", Terse, Words)
	}
	switch {
	case s.HeldOut < 0:
		bad("held_out", s.HeldOut, "0 (default: 100) or more")
	case len(errs) == 0:
		// Questions take turns, so the shape with the fewest figures sets the bound.
		if most := s.mostHeldOut(); s.HeldOut > most {
			bad("held_out", s.HeldOut, "at most %d, so that half of the figures of every question remain to train on: "+
				"hold out fewer, or raise max", most)
		}
	}
	return errors.Join(errs...)
}

// mostHeldOut returns how many figures can be held out; the settings are resolved and valid but for HeldOut.
func (s Settings) mostHeldOut() int {
	asking := map[shape]int{}
	for _, name := range s.Questions {
		asking[of(name).shape]++
	}
	most := -1
	for shape, times := range asking {
		bound := len(figures(shape, s.Max)) / 2 / times * len(s.Questions)
		if most < 0 || bound < most {
			most = bound
		}
	}
	return most
}

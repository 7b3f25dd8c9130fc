package words

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/task"
)

// Where a template takes the opening, and the words with commas between them.
const (
	OpeningSlot = "{opening}"
	WordsSlot   = "{words}"
)

// Settings of the task; the zero value asks for the same three words after any of the built-in openings.
type Settings struct {
	Words     []string `yaml:"words" json:"words"`           // that pay; none: FixedWords, or CommonWords with per_prompt
	PerPrompt int      `yaml:"per_prompt" json:"per_prompt"` // words drawn for every prompt; 0: all words on all prompts
	Openings  []string `yaml:"openings" json:"openings"`     // none: the built-in ones
	HeldOut   int      `yaml:"held_out" json:"held_out"`     // openings kept for evaluation, fewer than all; 0: a quarter
	Template  string   `yaml:"template" json:"template"`     // the prompt, with {opening} and perhaps {words}; empty: {opening}
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	if len(s.Words) == 0 {
		s.Words = FixedWords()
		if s.PerPrompt > 0 {
			s.Words = CommonWords()
		}
	}
	if len(s.Openings) == 0 {
		s.Openings = Openings()
	}
	if s.HeldOut == 0 {
		s.HeldOut = max(1, len(s.Openings)/4)
	}
	if s.Template == "" {
		s.Template = OpeningSlot
	}
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	s.validateLists(bad)
	if s.PerPrompt < 0 || s.PerPrompt > len(s.Words) {
		bad("per_prompt", s.PerPrompt, "0 (all) to %d, the number of words", len(s.Words))
	}
	if s.HeldOut < 1 || s.HeldOut >= len(s.Openings) {
		bad("held_out", s.HeldOut, "1 <= held_out < %d, the number of openings", len(s.Openings))
	}
	switch {
	case strings.Count(s.Template, OpeningSlot) != 1:
		bad("template", s.Template, "%s exactly once", OpeningSlot)
	case s.PerPrompt > 0 && s.PerPrompt < len(s.Words) && !strings.Contains(s.Template, WordsSlot):
		bad("template", s.Template, "%s where per_prompt draws words (%d of %d): the model cannot guess them; "+
			"or leave per_prompt out", WordsSlot, s.PerPrompt, len(s.Words))
	}
	return errors.Join(errs...)
}

// validateLists checks the words and the openings one by one.
func (s Settings) validateLists(bad func(key string, value any, format string, args ...any)) {
	seen := map[string]bool{}
	for _, w := range s.Words {
		if w == "" || strings.IndexFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) >= 0 {
			bad("words", w, "a single word of letters")
		} else if seen[strings.ToLower(w)] {
			bad("words", w, "each word once")
		}
		seen[strings.ToLower(w)] = true
	}
	clear(seen)
	for _, o := range s.Openings {
		if strings.TrimSpace(o) == "" {
			bad("openings", o, "the beginning of a story")
		} else if seen[o] {
			bad("openings", o, "each opening once")
		}
		seen[o] = true
	}
}

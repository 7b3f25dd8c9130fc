package search

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Formats of a turn; see [Protocol].
const (
	Terse = "terse" // "?query", "=answer"
	Words = "words" // <search>query</search>, <answer>answer</answer>
)

// Slot is where a template takes the question.
const Slot = "{question}"

// WordsTemplate is the prompt that explains the tags to a pretrained model.
const WordsTemplate = "Answer the question. Think first. To look something up write <search>a few words</search>; " +
	"what is found stands between <information> and </information>. You may search several times. " +
	"When you know the answer, write it alone between tags, as in <answer>Paris</answer>.\nQuestion: " + Slot + "\n"

// Settings of the task; the zero value asks about made-up facts in the terse format.
type Settings struct {
	Corpus        string  `yaml:"corpus" json:"corpus"`                 // a file or folder of .txt and SQuAD .json; empty: made-up facts
	Questions     string  `yaml:"questions" json:"questions"`           // JSON lines with question and answers, besides those of the corpus
	Format        string  `yaml:"format" json:"format"`                 // terse or words; empty: words with a corpus, else terse
	Template      string  `yaml:"template" json:"template"`             // the prompt, with {question}; empty: the question alone, or WordsTemplate
	MaxSearches   int     `yaml:"max_searches" json:"max_searches"`     // of an episode, which has one turn more; 0: 2; at most 16
	Passages      int     `yaml:"passages" json:"passages"`             // shown for a query; 0: 3; at most 20
	PassageLength int     `yaml:"passage_length" json:"passage_length"` // characters at which paragraphs are cut; 0: 600; 20 to 10,000
	QueryLength   int     `yaml:"query_length" json:"query_length"`     // characters of a query that count; 0: 100; 8 to 1,000
	HeldOut       int     `yaml:"held_out" json:"held_out"`             // questions kept for evaluation; 0: 100; at most half of all
	Penalty       float64 `yaml:"penalty" json:"penalty"`               // taken off for a text that is no turn; 0: 0.1; -1: none; at most 1
}

// none is the penalty that takes nothing off.
const none = -1

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	if s.Format == "" {
		s.Format = Terse
		if s.Corpus != "" {
			s.Format = Words
		}
	}
	if s.Template == "" {
		s.Template = Slot
		if s.Format == Words {
			s.Template = WordsTemplate
		}
	}
	for setting, value := range map[*int]int{
		&s.MaxSearches: 2, &s.Passages: 3, &s.PassageLength: 600, &s.QueryLength: 100, &s.HeldOut: 100,
	} {
		if *setting == 0 {
			*setting = value
		}
	}
	if s.Penalty == 0 {
		s.Penalty = 0.1
	}
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError. It does not look into
// the files.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := func(key string, value any, format string, args ...any) {
		errs = append(errs, &task.SettingError{Key: key, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	if s.Questions != "" && s.Corpus == "" {
		bad("questions", s.Questions, "a corpus that answers them: set corpus, or leave questions out for made-up facts")
	}
	if s.Format != Terse && s.Format != Words {
		bad("format", s.Format, "%s or %s", Terse, Words)
	}
	if strings.Count(s.Template, Slot) != 1 {
		bad("template", s.Template, "%s exactly once", Slot)
	}
	within := func(key string, value, least, most int) {
		if value < least || value > most {
			bad(key, value, "%d to %d", least, most)
		}
	}
	within("max_searches", s.MaxSearches, 1, 16)
	within("passages", s.Passages, 1, 20)
	within("passage_length", s.PassageLength, 20, 10_000)
	within("query_length", s.QueryLength, 8, 1_000)
	if s.HeldOut < 0 {
		bad("held_out", s.HeldOut, "0 (default: 100) or more")
	}
	if s.Penalty != none && !(s.Penalty >= 0 && s.Penalty <= 1) {
		bad("penalty", s.Penalty, "0 (default: 0.1) to 1, or %d for none", none)
	}
	return errors.Join(errs...)
}

// penalty returns the reward of a text that is no turn.
func (s Settings) penalty() float32 {
	if s.Penalty == none {
		return 0
	}
	return float32(-s.Penalty)
}

package words

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/task"
)

// Verifier rewards continuations without knowing the openings. It is safe for concurrent use.
type Verifier struct{}

// Verify rewards the share of the words of p.Answer that the response contains; it is correct with
// all of them. Extracted is the words found, in the order of the answer. Without words nothing is right.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	wanted := wordsOf(p.Answer)
	if len(wanted) == 0 {
		return task.Verdict{}
	}
	said := map[string]bool{}
	for _, w := range wordsOf(response) {
		said[w] = true
	}
	var contained []string
	for _, w := range wanted {
		if said[w] || said[w+"s"] || said[w+"es"] {
			contained = append(contained, w)
		}
	}
	return task.Verdict{
		Reward:    float32(len(contained)) / float32(len(wanted)),
		Correct:   len(contained) == len(wanted),
		Extracted: strings.Join(contained, " "),
	}
}

// CheckAnswer reports an answer without words.
func (Verifier) CheckAnswer(answer string) error {
	if len(wordsOf(answer)) == 0 {
		return fmt.Errorf("%.40q has no words: give those that the response must contain, with spaces between them", answer)
	}
	return nil
}

// wordsOf returns the distinct words of a text in lower case, in order. An apostrophe ends a word:
// the possessive 's is a word of its own.
func wordsOf(text string) []string {
	all := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	})
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(w string) bool {
		again := seen[w]
		seen[w] = true
		return again
	})
}

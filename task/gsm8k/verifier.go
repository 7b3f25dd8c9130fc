package gsm8k

import (
	"fmt"
	"math/big"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/task"
)

// Verifier rewards answers without knowing the questions. It is safe for concurrent use.
type Verifier struct{}

// Verify rewards 1 when the answer found in the response equals that of the prompt exactly, as
// rational numbers, and 0 otherwise; a prompt without a readable answer is never answered right.
// Extracted is the canonical form of what was found: an integer or a decimal where that is exact,
// else a fraction in lowest terms.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	got, ok := extract(response)
	if !ok {
		return task.Verdict{}
	}
	verdict := task.Verdict{Extracted: canonical(got)}
	if want, ok := reference(p.Answer); ok && want.Cmp(got) == 0 {
		verdict.Reward, verdict.Correct = 1, true
	}
	return verdict
}

// CheckAnswer reports why a reference answer cannot be verified against.
func (Verifier) CheckAnswer(answer string) error {
	if _, ok := reference(answer); !ok {
		return fmt.Errorf("%.40q is not one number: give the number alone or a solution that ends in #### and the number", answer)
	}
	return nil
}

// reading is what was found where an answer may stand.
type reading int

const (
	nothing    reading = iota // no number: look elsewhere
	unreadable                // numbers, but not one answer: looking elsewhere would be guessing
	found
)

// extract returns the answer that a response gives: the last "#### n", else the last "\boxed{n}",
// else the last number.
func extract(response string) (*big.Rat, bool) {
	v, what := marked(response)
	if what == nothing {
		v, what = boxed(response)
	}
	if what == nothing {
		v, what = lastNumber(response)
	}
	return v, what == found
}

// reference reads the answer of a dataset: a number alone, "#### n" or "\boxed{n}".
func reference(answer string) (*big.Rat, bool) {
	v, what := marked(answer)
	if what == nothing {
		v, what = boxed(answer)
	}
	if what == nothing {
		v, what = alone(answer, false)
	}
	return v, what == found
}

const hashes = "####"

// marked reads the last "#### n". A heading of that level ("#### Step 1", "#### 2. Add") is no answer.
func marked(text string) (*big.Rat, reading) {
	for {
		at := strings.LastIndex(text, hashes)
		if at < 0 {
			return nil, nothing
		}
		line := text[at+len(hashes):]
		if end := strings.IndexAny(line, "\r\n"); end >= 0 {
			line = line[:end]
		}
		if v, what := alone(line, true); what != nothing {
			return v, what
		}
		text = strings.TrimRight(text[:at], "#")
	}
}

// maxBox bounds the bytes in a box: no number needs more, and nested boxes are read in linear time.
const maxBox = 400

// boxed reads the last "\boxed{n}".
func boxed(text string) (*big.Rat, reading) {
	const box = `\boxed{`
	for {
		at := strings.LastIndex(text, box)
		if at < 0 {
			return nil, nothing
		}
		content, closed := braced(text[at+len(box):])
		if !closed { // cut off or endless: its number would be a guess
			return nil, unreadable
		}
		if v, what := alone(content, false); what != nothing {
			return v, what
		}
		text = text[:at]
	}
}

// braced returns the text up to the brace that closes the one before it.
func braced(text string) (content string, closed bool) {
	depth := 1
	for i := 0; i < min(len(text), maxBox); i++ {
		switch text[i] {
		case '\\': // an escaped brace is no brace
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], true
			}
		}
	}
	return "", false
}

// lastNumber reads the last number of a text. What looks like more than a number (a date, a range,
// an expression) is unreadable rather than passed over.
func lastNumber(text string) (*big.Rat, reading) {
	for text != "" {
		at := strings.LastIndexAny(text, "\r\n") + 1
		var last *token
		scan(plain(text[at:]), false, func(t token) { last = &t })
		if last != nil {
			return last.read()
		}
		text = text[:max(0, at-1)]
	}
	return nil, nothing
}

// read returns the value of a token.
func (t token) read() (*big.Rat, reading) {
	if t.unclear {
		return nil, unreadable
	}
	v, ok := t.value()
	if !ok {
		return nil, unreadable
	}
	return v, found
}

// alone reads a text that is all answer: one number, after an equation if there is one ("x = 7").
// A strict text is one that begins with its number, as after ####.
func alone(text string, strict bool) (*big.Rat, reading) {
	s := strings.TrimSpace(plain(text))
	var first, previous, last *token
	scan(s, true, func(t token) {
		previous, last = last, &t
		if first == nil {
			first = &t
		}
	})
	if last == nil || strict && heading(s, *first) {
		return nil, nothing
	}
	equals := strings.LastIndexByte(s[:last.begin], '=')
	if previous != nil && previous.end > equals || equals >= 0 && several(s[:equals]) {
		return nil, unreadable
	}
	return last.read()
}

// heading reports whether a line after #### with the first number t is a heading: it begins with
// words ("Step 1"), other than a variable ("x = 1"), or with the number of a list ("1. Add").
func heading(line string, t token) bool {
	if before := line[:t.begin]; strings.IndexFunc(before, unicode.IsLetter) >= 0 {
		variable := strings.Trim(before, " ($*{")
		return len(variable) < 2 || strings.TrimSpace(variable[1:]) != "="
	}
	after := strings.TrimLeft(line[t.end:], ".:)")
	words := strings.TrimLeft(after, " *")
	return len(after) < len(line)-t.end && len(words) < len(after) && strings.IndexFunc(words, unicode.IsLetter) == 0
}

// several reports whether the left side of an equation holds more than one statement.
func several(s string) bool {
	for i, r := range s {
		if r == ';' || r == ',' && !(i+1 < len(s) && isDigit(rune(s[i+1]))) {
			return true
		}
	}
	return strings.Contains(s, " and ") || strings.Contains(s, " or ")
}

package maths

import (
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/task/maths/answer"
)

// maxBoxes bounds how many boxes are joined into one answer.
const maxBoxes = 50

// box is a \boxed in a text.
type box struct {
	start, end int // of the text that it takes
	content    string
	closed     bool
}

// boxed returns the content of the last box, joined with those before it if only "and", "or" and commas stand between them.
// A box that is not closed is an answer cut off: it counts as found, and empty.
func boxed(text string) (content string, found bool) {
	last, ok := lastBox(text)
	if !ok {
		return "", false
	}
	if !last.closed {
		return "", true
	}
	content = last.content
	for range maxBoxes {
		previous, ok := lastBox(text[:last.start])
		if !ok || !previous.closed {
			break
		}
		joint, joined := joins(text[previous.end:last.start])
		if !joined {
			break
		}
		content = previous.content + joint + content
		last = previous
	}
	return content, true
}

// lastBox finds the last \boxed or \fbox of a text that stands in no other.
func lastBox(text string) (box, bool) {
	b := box{start: -1}
	size := 0
	for _, name := range []string{`\boxed`, `\fbox`} {
		if at := strings.LastIndex(text, name); at > b.start {
			b.start, size = at, len(name)
		}
	}
	if b.start < 0 {
		return box{}, false
	}
	rest := text[b.start+size:]
	gap := len(rest) - len(strings.TrimLeft(rest, " "))
	if gap > 0 && !strings.HasPrefix(rest[gap:], "{") { // \boxed 5
		word := rest[gap:]
		if end := strings.IndexAny(word, " $\r\n"); end >= 0 {
			word = word[:end]
		}
		b.content, b.closed = strings.TrimRight(word, ".,"), true
		b.end = b.start + size + gap + len(word)
		return b, true
	}
	b.content, b.closed = answer.Braced(rest[gap:])
	b.end = b.start + size + gap + len(b.content) + len("{}")
	b.content = strings.TrimSpace(b.content)
	return b, true
}

// joins reports whether a text between two answers makes them one, and with what between them: a comma, "and" or "or", after which
// the variable may be named again (x = 2 or x = 3).
func joins(gap string) (string, bool) {
	if before, sign := strings.CutSuffix(strings.TrimRight(gap, "$ "), "="); sign {
		gap = strings.TrimRightFunc(strings.TrimRight(before, " "), unicode.IsLetter)
	}
	words := strings.FieldsFunc(gap, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`$,{}()\;`, r) })
	switch {
	case strings.Contains(gap, "\n"):
		return "", false
	case len(words) == 0 && strings.Contains(gap, ","), len(words) == 1 && words[0] == "and":
		return ", ", true
	case len(words) == 1 && words[0] == "or":
		return ` \text{ or } `, true
	}
	return "", false
}

package hf

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// gpt2Pattern divides text for byte-level models.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// spaces are the characters with the Unicode property White_Space, as a part of a character class.
const spaces = `\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`

// trailing ends the patterns of GPT-2 and its descendants: white space up to the last character
// before a word, which takes that one along. Package regexp has no look-ahead, so it is matched as
// `(\s+)` and given back what it may not have.
const trailing = `\s+(?!\S)|\s+`

// matcher finds the matches of a tokenizer's pattern.
type matcher struct {
	re    *regexp.Regexp
	group int // number of the group that stands for trailing; 0: none
}

// part is a stretch of text inside or outside the matches.
type part struct {
	text  string
	match bool
}

// newMatcher translates a pattern of the library's engine to package regexp's: \s and \S are
// Unicode's there and ASCII's here.
func newMatcher(pattern string) (*matcher, error) {
	m := &matcher{}
	translated := pattern
	if head, ok := strings.CutSuffix(pattern, trailing); ok && !strings.Contains(head, "(?!") {
		translated = head + `(?P<trailing>\s+)`
	}
	re, err := regexp.Compile(unicodeSpaces(translated))
	if err != nil {
		return nil, fmt.Errorf("pattern %q is not supported: %w", pattern, err)
	}
	m.re = re
	if i := re.SubexpIndex("trailing"); i > 0 {
		m.group = i
	}
	return m, nil
}

// unicodeSpaces writes out \s and \S, in character classes too (\S in a class is left to fail the
// tests that compare with the library; none of the known patterns has it).
func unicodeSpaces(pattern string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			switch {
			case pattern[i] == 's' && inClass:
				b.WriteString(spaces)
			case pattern[i] == 's':
				b.WriteString("[" + spaces + "]")
			case pattern[i] == 'S' && !inClass:
				b.WriteString("[^" + spaces + "]")
			default:
				b.WriteString(pattern[i-1 : i+1])
			}
			continue
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// divide returns text as stretches inside and outside the matches, in order.
func (m *matcher) divide(text string) []part {
	var parts []part
	from := 0
	for at := 0; at < len(text); {
		loc := m.re.FindStringSubmatchIndex(text[at:])
		if loc == nil {
			break
		}
		start, stop := at+loc[0], at+loc[1]
		if m.group > 0 && loc[2*m.group] >= 0 && stop < len(text) {
			// The character after the match is no space: give the last space back, if another is left.
			if _, size := utf8.DecodeLastRuneInString(text[start:stop]); stop-size > start {
				stop -= size
			}
		}
		if stop == start { // an empty match divides nothing
			_, size := utf8.DecodeRuneInString(text[stop:])
			at = stop + size
			continue
		}
		if from < start {
			parts = append(parts, part{text: text[from:start]})
		}
		parts = append(parts, part{text: text[start:stop], match: true})
		from, at = stop, stop
	}
	if from < len(text) {
		parts = append(parts, part{text: text[from:]})
	}
	return parts
}

package hf

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer divides words further; first says that the first word begins the text.
type preTokenizer func(words []string, first bool) []string

// each makes a preTokenizer of a function that divides one word.
func each(divide func(word string, first bool) []string) preTokenizer {
	return func(words []string, first bool) []string {
		var out []string
		for i, w := range words {
			for _, part := range divide(w, first && i == 0) {
				if part != "" {
					out = append(out, part)
				}
			}
		}
		return out
	}
}

func (j *stageJSON) preTokenizer() (preTokenizer, error) {
	if j == nil {
		return func(words []string, _ bool) []string { return words }, nil
	}
	switch j.Type {
	case "Sequence":
		var steps []preTokenizer
		for i := range j.PreTokenizers {
			p, err := j.PreTokenizers[i].preTokenizer()
			if err != nil {
				return nil, err
			}
			steps = append(steps, p)
		}
		return func(words []string, first bool) []string {
			for _, p := range steps {
				words = p(words, first)
			}
			return words
		}, nil
	case "Split":
		return j.splitter()
	case "Digits":
		return each(func(w string, _ bool) []string { return splitDigits(w, j.IndividualDigits) }), nil
	case "ByteLevel":
		return j.byteLevel()
	case "Metaspace":
		return j.metaspace()
	}
	return nil, fmt.Errorf("pre_tokenizer type is %q: want Sequence, Split, Digits, ByteLevel or Metaspace", j.Type)
}

// splitter divides at a pattern; the matches stay as words of their own (Isolated) or go (Removed).
func (j *stageJSON) splitter() (preTokenizer, error) {
	if j.Behavior != "Isolated" && j.Behavior != "Removed" {
		return nil, fmt.Errorf("pre_tokenizer Split has behavior %q: want Isolated or Removed", j.Behavior)
	}
	pattern := j.Pattern.Regex
	if pattern == "" {
		pattern = regexp.QuoteMeta(j.Pattern.String)
	}
	m, err := newMatcher(pattern)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer Split: %w", err)
	}
	removed := j.Behavior == "Removed"
	return each(func(w string, _ bool) []string {
		var out []string
		for _, p := range m.divide(w) {
			if !removed || p.match == j.Invert {
				out = append(out, p.text)
			}
		}
		return out
	}), nil
}

// byteLevel divides with GPT-2's pattern and writes every byte as a printable character.
func (j *stageJSON) byteLevel() (preTokenizer, error) {
	m, err := newMatcher(gpt2Pattern)
	if err != nil {
		return nil, err
	}
	prefix := j.AddPrefixSpace != nil && *j.AddPrefixSpace
	divide := j.UseRegex == nil || *j.UseRegex
	return each(func(w string, _ bool) []string {
		if prefix && !strings.HasPrefix(w, " ") {
			w = " " + w
		}
		if !divide {
			return []string{writeBytesAsRunes(w)}
		}
		var out []string
		for _, p := range m.divide(w) {
			out = append(out, writeBytesAsRunes(p.text))
		}
		return out
	}), nil
}

// metaspace writes spaces as the replacement, puts one in front, and divides before each.
func (j *stageJSON) metaspace() (preTokenizer, error) {
	mark, scheme, err := j.metaspaceOptions()
	if err != nil {
		return nil, err
	}
	divide := j.Split == nil || *j.Split
	return each(func(w string, first bool) []string {
		w = strings.ReplaceAll(w, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(w, mark) {
			w = mark + w
		}
		if !divide {
			return []string{w}
		}
		parts := strings.Split(w, mark)
		for i := range parts[1:] {
			parts[i+1] = mark + parts[i+1]
		}
		return parts
	}), nil
}

// metaspaceOptions returns the replacement and the prepend scheme; add_prefix_space is the scheme's
// older form.
func (j *stageJSON) metaspaceOptions() (mark, scheme string, err error) {
	scheme = j.PrependScheme
	if scheme == "" {
		scheme = "always"
		if j.AddPrefixSpace != nil && !*j.AddPrefixSpace {
			scheme = "never"
		}
	}
	switch scheme {
	case "always", "first", "never":
	default:
		return "", "", fmt.Errorf("prepend_scheme of Metaspace is %q: want always, first or never", scheme)
	}
	if utf8.RuneCountInString(j.Replacement) != 1 {
		return "", "", fmt.Errorf("replacement of Metaspace is %q: want one character", j.Replacement)
	}
	return j.Replacement, scheme, nil
}

// splitDigits sets digits apart from the rest, each alone or runs of them.
func splitDigits(w string, individual bool) []string {
	var out []string
	from, wasDigit := 0, false
	for i, r := range w {
		digit := unicode.IsNumber(r)
		if i > from && (digit != wasDigit || digit && individual) {
			out = append(out, w[from:i])
			from = i
		}
		wasDigit = digit
	}
	return append(out, w[from:])
}

package search

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
)

// protocol is how turns are written, and what the environment says between them.
type protocol struct{ format string }

// kind of a turn.
type kind int

const (
	invalid kind = iota
	query
	answer
)

// parse reads a turn: its kind, and the query or answer without surrounding space, never empty.
//
// Terse: the first line begins with "?" for a query or "=" for an answer, after spaces at most. task.Words: the first
// complete <search>…</search> or <answer>…</answer> counts, and nothing around it.
func (p protocol) parse(text string) (kind, string) {
	k, body := p.split(text)
	if body = strings.TrimSpace(body); body == "" {
		return invalid, ""
	}
	return k, body
}

func (p protocol) split(text string) (kind, string) {
	if task.InWords(p.format) {
		searched, searchAt := between(text, "<search>", "</search>")
		answered, answerAt := between(text, "<answer>", "</answer>")
		switch {
		case searchAt >= 0 && (answerAt < 0 || searchAt < answerAt):
			return query, searched
		case answerAt >= 0:
			return answer, answered
		}
		return invalid, ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if text, ok := strings.CutPrefix(line, "?"); ok {
		return query, text
	}
	if text, ok := strings.CutPrefix(line, "="); ok {
		return answer, text
	}
	return invalid, ""
}

// between returns the text between the first opening tag and the first closing one after it, and the position of the
// former, -1 if there are none.
func between(text, opening, closing string) (string, int) {
	at := strings.Index(text, opening)
	if at < 0 {
		return "", -1
	}
	body, _, closed := strings.Cut(text[at+len(opening):], closing)
	if !closed {
		return "", -1
	}
	return body, at
}

// write returns a turn: the inverse of parse.
func (p protocol) write(k kind, body string) string {
	switch {
	case task.InWords(p.format) && k == query:
		return "<search>" + body + "</search>"
	case task.InWords(p.format):
		return task.TagAnswer(body)
	case k == query:
		return "?" + body
	}
	return "=" + body
}

// results is the reply to a query.
func (p protocol) results(passages []string) string {
	if task.InWords(p.format) {
		var text strings.Builder
		text.WriteString("\n<information>\n")
		for i, passage := range passages {
			fmt.Fprintf(&text, "(%d) %s\n", i+1, passage)
		}
		if len(passages) == 0 {
			text.WriteString("Nothing was found.\n")
		}
		text.WriteString("</information>\n")
		return text.String()
	}
	if len(passages) == 0 {
		passages = []string{"-"}
	}
	return "\n" + strings.Join(passages, "\n") + "\n"
}

// refusal is the reply to an invalid turn; exhausted: it is a query after the last one allowed.
func (p protocol) refusal(exhausted bool) string {
	switch {
	case task.InWords(p.format) && exhausted:
		return "\nThere are no searches left. Write the answer as <answer>...</answer>.\n"
	case task.InWords(p.format):
		return "\nThat was neither a search nor an answer. Write <search>...</search> or <answer>...</answer>.\n"
	case exhausted:
		return "\n=\n" // the only turn left
	}
	return "\n!\n"
}

// texts returns texts that together have every character which the protocol adds.
func (p protocol) texts() []string {
	passages := slices.Repeat([]string{""}, 10) // their numbers have every digit
	return []string{p.write(query, ""), p.write(answer, ""), p.results(nil), p.results(passages), p.refusal(false),
		p.refusal(true)}
}

// punctuation is what SQuAD's evaluation leaves out: Python's string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// normalize brings an answer into the form that SQuAD's evaluation compares (Rajpurkar et al. 2016): in lower case,
// without ASCII punctuation, then without the words a, an and the, and with single spaces between the other words.
func normalize(text string) string {
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune(punctuation, r) {
			return -1
		}
		return r
	}, strings.ToLower(text))
	return strings.Join(strings.FieldsFunc(withoutArticles(plain), space), " ")
}

// withoutArticles replaces every run of letters and digits that is an article by a space.
func withoutArticles(s string) string {
	var out strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return !inWord(r) })
		if end < 0 {
			end = len(s)
		}
		switch word := s[:end]; word {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(word)
		}
		s = s[end:]
		if next := strings.IndexFunc(s, inWord); next > 0 {
			end = next
		} else {
			end = len(s)
		}
		out.WriteString(s[:end])
		s = s[end:]
	}
	return out.String()
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// space reports what Python's split separates at: what Go calls space, and the separators of ASCII.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// matches reports whether an answer equals one of the right ones after normalization. If normalization leaves nothing
// of either ("A" and "the"), they are compared without it, except case and surrounding space. Otherwise any article
// would be the answer to a question about a vitamin.
func matches(given string, right []string) bool {
	normal := normalize(given)
	return slices.ContainsFunc(right, func(r string) bool {
		if normal == "" {
			return strings.EqualFold(strings.TrimSpace(given), strings.TrimSpace(r))
		}
		return normal == normalize(r)
	})
}

// contains reports whether a passage has one of the answers as whole words after normalization.
func contains(passage string, answers []string) bool {
	text := " " + normalize(passage) + " "
	return slices.ContainsFunc(answers, func(a string) bool {
		normal := normalize(a)
		return normal != "" && strings.Contains(text, " "+normal+" ")
	})
}

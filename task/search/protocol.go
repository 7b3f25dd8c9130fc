package search

import (
	"fmt"
	"slices"
	"strings"
)

// Protocol is how turns are written and what the environment says between them.
type Protocol struct {
	format string
}

// Kind is what a turn does.
type Kind int

// The kinds of turns.
const (
	Nothing Kind = iota // neither a query nor an answer
	Query
	Answer
)

// NewProtocol returns the protocol of a format, Terse or Words.
func NewProtocol(format string) Protocol { return Protocol{format} }

// Parse reads a turn and returns what it does and the query or answer, without surrounding space and never empty.
//
// Terse: the text, or its first line where it has several, begins with "?" for a query or "=" for an answer, after spaces at most.
//
// Words: the first complete <search>…</search> or <answer>…</answer> counts, and nothing around it.
func (p Protocol) Parse(text string) (Kind, string) {
	kind, body := p.parse(text)
	if body = strings.TrimSpace(body); body == "" {
		return Nothing, ""
	}
	return kind, body
}

func (p Protocol) parse(text string) (Kind, string) {
	if p.format == Words {
		return parseTags(text)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if query, ok := strings.CutPrefix(line, "?"); ok {
		return Query, query
	}
	if answer, ok := strings.CutPrefix(line, "="); ok {
		return Answer, answer
	}
	return Nothing, ""
}

// parseTags returns what stands in the first pair of tags.
func parseTags(text string) (Kind, string) {
	query, queryAt := between(text, "<search>", "</search>")
	answer, answerAt := between(text, "<answer>", "</answer>")
	switch {
	case queryAt >= 0 && (answerAt < 0 || queryAt < answerAt):
		return Query, query
	case answerAt >= 0:
		return Answer, answer
	}
	return Nothing, ""
}

// between returns what stands between the first opening tag and the first closing one after it, and where the former
// stands; -1: there are none.
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

// Write returns the turn that does something: the inverse of Parse.
func (p Protocol) Write(kind Kind, body string) string {
	switch {
	case p.format == Words && kind == Query:
		return "<search>" + body + "</search>"
	case p.format == Words:
		return "<answer>" + body + "</answer>"
	case kind == Query:
		return "?" + body
	}
	return "=" + body
}

// Found says what a query found.
func (p Protocol) Found(passages []string) string {
	if p.format == Words {
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

// Refused answers a text that is no turn; exhausted: it is a query after the last that was allowed.
func (p Protocol) Refused(exhausted bool) string {
	switch {
	case p.format == Words && exhausted:
		return "\nThere are no searches left. Write the answer as <answer>...</answer>.\n"
	case p.format == Words:
		return "\nThat was neither a search nor an answer. Write <search>...</search> or <answer>...</answer>.\n"
	case exhausted:
		return "\n=\n" // what remains to be written
	}
	return "\n!\n"
}

// texts returns texts that between them have every character which the protocol adds.
func (p Protocol) texts() []string {
	passages := slices.Repeat([]string{""}, 10) // their numbers have every digit
	return []string{p.Write(Query, ""), p.Write(Answer, ""), p.Found(nil), p.Found(passages), p.Refused(false), p.Refused(true)}
}

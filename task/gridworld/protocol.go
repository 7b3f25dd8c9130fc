package gridworld

import (
	"fmt"
	"strings"
	"unicode"
)

// Formats of a Protocol.
const (
	Terse = "terse" // the initials of the actions and nothing else: RRD
	Words = "words" // their names in a tag, around which the model may think: <answer>Right, Right, Down</answer>
)

// Tags of an answer in words.
const (
	openTag  = "<answer>"
	closeTag = "</answer>"
)

// Protocol is how actions are written in the text of a turn.
type Protocol struct {
	Format  string   // Terse or Words
	Names   []string // of the actions, in their order; no two begin with one letter, which is an ASCII capital
	PerTurn int      // actions that a turn may hold, >= 1
}

// Parse reads the actions of a turn, 1 to PerTurn of them. Terse texts are initials and nothing else. In words the last closed
// <answer> counts, which holds names in any case between commas or white space. It reports false for anything else.
func (p Protocol) Parse(text string) ([]int, bool) {
	var fields []string
	if p.Format == Words {
		end := strings.LastIndex(text, closeTag)
		if end < 0 {
			return nil, false
		}
		start := strings.LastIndex(text[:end], openTag)
		if start < 0 {
			return nil, false
		}
		fields = strings.FieldsFunc(text[start+len(openTag):end], func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	} else if len(text) <= p.PerTurn {
		fields = strings.Split(text, "")
	}
	if len(fields) < 1 || len(fields) > p.PerTurn {
		return nil, false
	}
	actions := make([]int, len(fields))
	for i, field := range fields {
		if actions[i] = p.action(field); actions[i] < 0 {
			return nil, false
		}
	}
	return actions, true
}

// action returns the action that is written so, -1 for none.
func (p Protocol) action(text string) int {
	for a, name := range p.Names {
		if p.Format == Terse && text == name[:1] || p.Format == Words && strings.EqualFold(text, name) {
			return a
		}
	}
	return -1
}

// Write writes actions as Parse reads them.
func (p Protocol) Write(actions ...int) string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = p.Names[a]
		if p.Format == Terse {
			names[i] = names[i][:1]
		}
	}
	if p.Format == Terse {
		return strings.Join(names, "")
	}
	return openTag + strings.Join(names, ", ") + closeTag
}

// Actions returns the text of each action alone, in their order.
func (p Protocol) Actions() []string {
	texts := make([]string, len(p.Names))
	for a := range texts {
		texts[a] = p.Write(a)
	}
	return texts
}

// Request is the sentence that asks for an answer in words.
func (p Protocol) Request() string {
	if p.PerTurn == 1 {
		return fmt.Sprintf("Answer with one of %s, in this form: %s", strings.Join(p.Names, ", "), p.Write(0))
	}
	return fmt.Sprintf("Answer with 1 to %d of %s, with commas between them, in this form: %s",
		p.PerTurn, strings.Join(p.Names, ", "), p.Write(0, 1))
}

package answer

import (
	"strings"
)

// Answer is an answer as it was written and, where it can be read, what it says.
type Answer struct {
	written []token
	said    *node // nil: it could not be read
	problem error // why not
}

// Parse reads an answer, such as the content of a \boxed. What cannot be read can still be compared by its writing.
func Parse(text string) Answer {
	if len(text) > 2*maxText {
		return Answer{problem: errLong}
	}
	text = plain(text)
	list, err := tokens(text)
	if err != nil {
		return Answer{written: []token{{kind: symbol, text: text}}, problem: err}
	}
	for len(list) == 1 && list[0].kind == prose && beginsNumber(list[0].text) {
		again, err := tokens(plain(list[0].text))
		if err != nil || len(again) == 0 {
			break
		}
		list = again
	}
	if len(list) > 1 && list[0].kind == prose && announces(list[0].text) {
		list = list[1:]
	}
	a := Answer{written: list}
	a.said, a.problem = parse(append([]token(nil), list...))
	return a
}

// beginsNumber reports whether words begin as a number does: \text{12 cm}.
func beginsNumber(text string) bool {
	text = strings.TrimLeft(text, "-$ ")
	return isDigit(text, 0) || strings.HasPrefix(text, ".") && isDigit(text, 1)
}

// announces reports whether words say that the answer follows: \text{Answer: }5.
func announces(text string) bool {
	return strings.HasSuffix(text, ":") || strings.HasSuffix(text, " is") || strings.HasSuffix(text, "=")
}

// Err returns why the answer could not be read; nil if it could.
func (a Answer) Err() error { return a.problem }

// Words reports whether the answer is words rather than a formula.
func (a Answer) Words() bool { return a.said != nil && a.said.op == opText }

// Empty reports whether nothing at all is written.
func (a Answer) Empty() bool { return len(a.written) == 0 }

// Equal reports whether an answer says what the reference says. Answers that were not both read are equal if they are written
// alike but for spacing and the look.
func Equal(reference, given Answer) bool {
	if reference.Empty() || given.Empty() {
		return false
	}
	if reference.String() == given.String() {
		return true
	}
	return reference.said != nil && given.said != nil && same(reference.said, given.said)
}

// String writes the answer in the one way in which writings are compared.
func (a Answer) String() string {
	parts := make([]string, len(a.written))
	for i, t := range a.written {
		switch t.kind {
		case command:
			parts[i] = `\\` + t.text
		case prose:
			parts[i] = `\\text{` + caption(t.text) + "}"
		case number:
			parts[i] = strings.NewReplacer("{,}", "", thinSpace, "", " ", "", ",", "").Replace(t.text)
		default:
			parts[i] = t.text
		}
	}
	return strings.Join(parts, " ")
}

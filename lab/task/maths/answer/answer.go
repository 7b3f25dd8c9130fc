// Package answer reads the answers of mathematical problems, written in LaTeX or plain letters, and compares them.
//
// [Parse] turns a text into an [Answer], a tree of expressions with lists, sets, tuples, intervals, matrices,
// equations, inequalities, units and words. [Equal] compares two answers: rational numbers exactly, and other
// expressions by their values to 1e-13 (1e-9 if a decimal stands for a number with no end), with variables at a dozen
// points. Expressions whose values cannot be distinguished reliably (e^{100} and e^{100}+1) are equal only if they are
// written alike.
//
// Different answers must never count as equal. So an ambiguous text is not read at all and equals only its own writing.
// Sizes are bounded (text, digits, depth, bits), so no answer costs much time or memory: 10^{10^{10}} is not computed.
package answer

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// Answer is an answer as written and, if it can be read, what it means.
type Answer struct {
	written []token
	meaning *node // nil: it could not be read
	problem error // why not
}

// Parse reads an answer, such as the content of a \boxed. A text that cannot be read can still be compared by its
// writing.
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
	a.meaning, a.problem = parse(slices.Clone(list))
	return a
}

// beginsNumber reports whether words begin like a number: \text{12 cm}.
func beginsNumber(text string) bool {
	text = strings.TrimLeft(text, "-$ ")
	return isDigit(text, 0) || strings.HasPrefix(text, ".") && isDigit(text, 1)
}

// announces reports whether words announce the answer: \text{Answer: }5.
func announces(text string) bool {
	return strings.HasSuffix(text, ":") || strings.HasSuffix(text, " is") || strings.HasSuffix(text, "=")
}

// Err returns why the answer could not be read; nil if it could.
func (a Answer) Err() error { return a.problem }

// Words reports whether the answer is words rather than a formula.
func (a Answer) Words() bool { return a.meaning != nil && a.meaning.op == opText }

// Empty reports whether nothing at all is written.
func (a Answer) Empty() bool { return len(a.written) == 0 }

// Equal reports whether an answer means the same as the reference. If one of them could not be read, they must be
// written alike, except for spacing and typography.
func Equal(reference, given Answer) bool {
	if reference.Empty() || given.Empty() {
		return false
	}
	if reference.String() == given.String() {
		return true
	}
	return reference.meaning != nil && given.meaning != nil && same(reference.meaning, given.meaning)
}

// String writes the answer in a normal form, in which writings are compared.
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

// words reads an answer that is nothing but words: a choice, a name, "two lines", or a list of such between commas.
func words(list []token) (*node, bool) {
	if list[0].kind != prose && list[0].kind != word {
		return nil, false
	}
	parts := make([]string, len(list))
	for i, t := range list {
		lower := strings.ToLower(strings.Trim(t.text, ", "))
		if t.kind == symbol && t.text != "-" || t.kind == command || i > 0 && (lower == "and" || lower == "or") {
			return nil, false
		}
		parts[i] = t.text
	}
	text := caption(strings.Join(parts, " "))
	if text == "" {
		return nil, false
	}
	if !strings.Contains(text, ",") {
		return &node{op: opText, name: text}, true
	}
	all := &node{op: opList}
	for part := range strings.SplitSeq(text, ",") {
		all.args = append(all.args, &node{op: opText, name: caption(part)})
	}
	return all, true
}

// caption returns words without the brackets, quotes and punctuation around them.
func caption(text string) string {
	return strings.Join(strings.Fields(strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`()[]."':,;*`, r)
	})), " ")
}

// sameText compares words with words, with a letter, or with a number spelled out.
func sameText(a, b *node) bool {
	one, other := spelling(a), spelling(b)
	return one != "" && strings.EqualFold(one, other)
}

// spelling returns the words of a text, or of a name or a small number.
func spelling(n *node) string {
	switch n.op {
	case opText, opName, opConstant:
		return n.name
	case opProduct:
		return n.letters()
	case opNumber:
		for i, w := range strings.Fields("zero one two three four five six seven eight nine ten eleven twelve") {
			if !n.point && n.value.Cmp(big.NewRat(int64(i), 1)) == 0 {
				return w
			}
		}
	}
	return ""
}

package answer

import (
	"math/big"
	"strings"
	"unicode"
)

// words returns the answer that is words alone: a choice, a name, "two lines", or a list of such between commas.
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

// caption returns words without the brackets, quotes and points around them.
func caption(text string) string {
	return strings.Join(strings.Fields(strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`()[]."':,;*`, r)
	})), " ")
}

// sameText compares words with words, with a letter or with a number spelled out.
func sameText(a, b *node) bool {
	one, other := spelling(a), spelling(b)
	return one != "" && strings.EqualFold(one, other)
}

// spelling returns the words of a text, or what a name or a small number is in words.
func spelling(n *node) string {
	switch n.op {
	case opText:
		return n.name
	case opName:
		return n.name
	case opConstant:
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

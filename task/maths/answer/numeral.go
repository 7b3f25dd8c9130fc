package answer

import "strings"

// numeral reads a number written in another base: 1011_2, 152A_{11}, \text{A5}_{11}. In base ten it is the number itself.
func (p *parser) numeral() (*node, bool) {
	written, n := "", 0
	for t := p.ahead(n); t.kind == number || t.kind == letter || t.kind == prose; t = p.ahead(n) {
		if n > 0 && t.spaced || t.point || strings.ContainsAny(t.text, ".,{ ") {
			return nil, false
		}
		written += t.text
		n++
	}
	if n == 0 || p.ahead(n).text != "_" || !strings.ContainsAny(written[:1], "0123456789ABCDEF") {
		return nil, false
	}
	back := p.at
	p.at += n
	sub, err := p.subscript()
	if base := strings.TrimPrefix(sub, "base"); err != nil || base == "" || len(base) > 2 || digits(base) != base {
		p.at = back
		return nil, false
	}
	if sub == "10" {
		return &node{op: opNumber, value: decimal(digits(written), "", "")}, digits(written) == written
	}
	return make1(opBase, strings.ToUpper(written)+"_"+sub), true
}

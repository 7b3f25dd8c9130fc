package answer

import (
	"strings"
)

// factor reads what a product is made of: a primary with its powers and marks.
func (p *parser) factor() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if p.peek().kind == number && p.mixed() {
		return p.line()
	}
	n, err := p.primary()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.symbol("^"):
			p.at++
			if n, err = p.raised(n); err != nil {
				return nil, err
			}
		case p.symbol("!") && p.ahead(1).text != "=":
			p.at++
			if n = call("!", n); p.symbol("!") { // 5!! is no factorial of a factorial
				return nil, errAmbiguous
			}
		case p.command("circ"):
			p.at++
			n = make1(opDegree, "", n)
		case p.symbol("'") && n.op == opName:
			p.at++
			n = &node{op: opName, name: n.name + "'"}
		default:
			return n, nil
		}
	}
}

// line reads the fraction of a mixed number in one line.
func (p *parser) line() (*node, error) {
	top, bottom := p.peek(), p.ahead(2)
	p.at += 3
	return make1(opQuotient, "", &node{op: opNumber, value: top.value}, &node{op: opNumber, value: bottom.value}), nil
}

// raised reads an exponent.
func (p *parser) raised(n *node) (*node, error) {
	if p.command("circ") {
		p.at++
		return make1(opDegree, "", n), nil
	}
	if p.symbol("{") && p.ahead(1).kind == command && p.ahead(1).text == "circ" && p.ahead(2).text == "}" {
		p.at += 3
		return make1(opDegree, "", n), nil
	}
	if p.command("top", "dagger", "prime") || p.symbol("*") {
		name := p.peek().text
		p.at++
		return call("^"+name, n), nil
	}
	if p.symbol("'") {
		return nil, p.unexpected()
	}
	exponent, err := p.exponent()
	if err != nil {
		return nil, err
	}
	if p.symbol("^") {
		return nil, errAmbiguous
	}
	return make1(opPower, "", n, exponent), nil
}

// exponent reads a group, or one signed number or name.
func (p *parser) exponent() (*node, error) {
	if p.symbol("-") {
		p.at++
		n, err := p.exponent()
		if err != nil {
			return nil, err
		}
		return make1(opMinus, "", n), nil
	}
	switch t := p.peek(); {
	case t.kind == number:
		p.at++
		return &node{op: opNumber, value: t.value, point: t.point}, nil
	case t.kind == letter:
		p.at++
		return name(t.text), nil
	case t.kind == command && t.text == "frac", t.kind == command && t.text == "pi", t.kind == command && isGreek(t.text):
		return p.primary()
	case p.symbol("{("):
		return p.group()
	}
	return nil, p.unexpected()
}

// name returns the node of a letter: a constant or a variable.
func name(text string) *node {
	switch text {
	case "e", "i":
		return make1(opConstant, text)
	}
	return make1(opName, text)
}

// group reads an expression between braces or parentheses.
func (p *parser) group() (*node, error) {
	closing := map[string]string{"{": "}", "(": ")"}[p.peek().text]
	p.at++
	bars := p.bars
	p.bars = 0
	n, err := p.sum()
	p.bars = bars
	if err != nil {
		return nil, err
	}
	if err := p.expect(closing); err != nil {
		return nil, err
	}
	return n, nil
}

// argument reads what a command applies to: a group, or the next character alone, as TeX does (\frac12).
func (p *parser) argument() (*node, error) {
	t := p.peek()
	switch {
	case p.symbol("{"):
		return p.group()
	case t.kind == number && digits(t.text) == t.text:
		if len(t.text) == 1 {
			p.at++
		} else {
			rest := t
			rest.text = t.text[1:]
			rest.value = decimal(rest.text, "", "")
			p.tokens[p.at] = rest
		}
		return &node{op: opNumber, value: decimal(t.text[:1], "", "")}, nil
	case t.kind == letter:
		p.at++
		return name(t.text), nil
	case t.kind == command && (t.text == "pi" || t.text == "sqrt" || t.text == "frac" || isGreek(t.text)):
		return p.primary()
	}
	return nil, p.unexpected()
}

// subscript takes what stands after an underscore, as text; empty if there is none.
func (p *parser) subscript() (string, error) {
	if !p.symbol("_") {
		return "", nil
	}
	p.at++
	if !p.symbol("{") {
		t := p.peek()
		if t.kind == end || t.kind == symbol {
			return "", p.unexpected()
		}
		p.at++
		return t.text, nil
	}
	p.at++
	var b strings.Builder
	for !p.symbol("}") {
		if t := p.peek(); t.kind == end || t.kind == symbol && t.text == "{" {
			return "", p.unexpected()
		}
		b.WriteString(p.peek().text)
		p.at++
	}
	p.at++
	return b.String(), nil
}

package answer

import (
	"math/big"
	"strings"
)

// sum reads terms between plus and minus, and the unit after them.
func (p *parser) sum() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	n, err := p.signed()
	if err != nil {
		return nil, err
	}
	terms := []*node{n}
	for p.symbol("+-") || p.command("pm", "mp") {
		next, err := p.signed()
		if err != nil {
			return nil, err
		}
		terms = append(terms, next)
	}
	if len(terms) > 1 {
		n = &node{op: opSum, args: terms}
	}
	return p.unit(n)
}

// signed reads a product with the signs before it.
func (p *parser) signed() (*node, error) {
	var wrap func(*node) *node
	switch {
	case p.symbol("+"):
		wrap = func(n *node) *node { return n }
	case p.symbol("-"):
		wrap = func(n *node) *node { return newNode(opMinus, "", n) }
	case p.command("pm"):
		wrap = func(n *node) *node { return newNode(opBoth, "", n) }
	case p.command("mp"):
		wrap = func(n *node) *node { return newNode(opBoth, "-", n) }
	}
	if wrap == nil {
		return p.product()
	}
	p.at++
	if p.symbol("+") || p.command("pm", "mp") {
		return nil, p.unexpected()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	n, err := p.signed()
	p.depth--
	if err != nil {
		return nil, err
	}
	return wrap(n), nil
}

// product reads factors, with operators between them or side by side, and a percent sign after them, which belongs to all of
// 33\frac{1}{3}\%.
func (p *parser) product() (*node, error) {
	n, err := p.factor()
	if err != nil {
		return nil, err
	}
	factors := []*node{n}
	slash := false // the last factor was divided by, with a slash
	for {
		switch {
		case p.symbol("*") || p.command("cdot", "times"):
			p.at++
			next, err := p.operand()
			if err != nil {
				return nil, err
			}
			factors, slash = append(factors, next), false
		case p.symbol("/") || p.command("div"):
			p.at++
			next, err := p.operand()
			if err != nil {
				return nil, err
			}
			factors, slash = []*node{{op: opQuotient, args: []*node{product(factors), next}}}, true
		case p.beside():
			if slash && !p.peek().spaced { // 1/2x
				return nil, errAmbiguous
			}
			if factors, err = p.adjoin(factors); err != nil {
				return nil, err
			}
			slash = false
		default:
			return p.percent(product(factors)), nil
		}
	}
}

func (p *parser) percent(n *node) *node {
	if !p.symbol("%") {
		return n
	}
	p.at++
	return newNode(opPercent, "", n)
}

// operand reads a factor after an operator, where a minus is possible.
func (p *parser) operand() (*node, error) {
	if p.symbol("-") {
		p.at++
		n, err := p.factor()
		if err != nil {
			return nil, err
		}
		return newNode(opMinus, "", n), nil
	}
	return p.factor()
}

func product(factors []*node) *node {
	if len(factors) == 1 {
		return factors[0]
	}
	return &node{op: opProduct, args: factors}
}

// beside reports whether the next token begins a factor without an operator.
func (p *parser) beside() bool {
	switch t := p.peek(); t.kind {
	case letter:
		return true
	case number:
		return p.mixed()
	case word:
		return p.multiplied(t)
	case command:
		switch t.text {
		case "pi", "infty", "frac", "sqrt", "surd", "binom", "lfloor", "lceil", "infinity", "overline":
			return true
		}
		return isFunction(t.text) || isMany(t.text) || isGreek(t.text)
	case symbol:
		return t.text == "(" || t.text == "{" || t.text == "[" || t.text == "|" && p.bars == 0
	}
	return false
}

// mixed reports whether the fraction of a mixed number in one line is next: the 1/2 of 3 1/2.
func (p *parser) mixed() bool {
	if p.at == 0 {
		return false
	}
	before, top, slash, bottom := p.tokens[p.at-1], p.peek(), p.ahead(1), p.ahead(2)
	return before.kind == number && whole(before) && whole(top) && top.spaced && slash.text == "/" && whole(bottom) &&
		top.value.Cmp(bottom.value) < 0
}

// whole reports whether a token is an integer written with digits alone.
func whole(t token) bool {
	return t.kind == number && !t.point && digits(t.text) == t.text
}

// adjoin multiplies by the factor beside the others, or makes a mixed number of an integer and a fraction.
func (p *parser) adjoin(factors []*node) ([]*node, error) {
	bare := p.tokens[p.at-1].kind == number && p.peek().text != "("
	next, err := p.factor()
	switch {
	case err != nil:
		return nil, err
	case bare && next.op == opDegree && plainFraction(next.args[0]): // 22\frac12^\circ
		sum, err := mixed(factors, next.args[0])
		return []*node{newNode(opDegree, "", product(sum))}, err
	case bare && plainFraction(next):
		return mixed(factors, next)
	}
	return append(factors, next), nil
}

// mixed returns the mixed number of an integer and the fraction after it.
func mixed(factors []*node, next *node) ([]*node, error) {
	last := factors[len(factors)-1]
	if last.op != opNumber {
		return nil, errAmbiguous
	}
	if len(factors) > 1 || !last.value.IsInt() || last.point {
		return nil, errAmbiguous
	}
	top, bottom := next.args[0].value, next.args[1].value
	if bottom.Sign() <= 0 || top.Sign() <= 0 || top.Cmp(bottom) >= 0 { // 2\frac{4}{3}: a product or a slip
		return nil, errAmbiguous
	}
	sum := new(big.Rat).Add(last.value, new(big.Rat).Quo(top, bottom))
	return []*node{{op: opNumber, value: sum}}, nil
}

// plainFraction reports whether a node is a fraction of two integers.
func plainFraction(n *node) bool {
	return n.op == opQuotient && n.args[0].op == opNumber && n.args[1].op == opNumber &&
		n.args[0].value.IsInt() && n.args[1].value.IsInt()
}

// factor reads a primary with its powers and marks.
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
			n = newNode(opDegree, "", n)
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
	return newNode(opQuotient, "", &node{op: opNumber, value: top.value}, &node{op: opNumber, value: bottom.value}), nil
}

// raised reads the exponent of n.
func (p *parser) raised(n *node) (*node, error) {
	if p.command("circ") {
		p.at++
		return newNode(opDegree, "", n), nil
	}
	if p.symbol("{") && p.ahead(1).kind == command && p.ahead(1).text == "circ" && p.ahead(2).text == "}" {
		p.at += 3
		return newNode(opDegree, "", n), nil
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
	return newNode(opPower, "", n, exponent), nil
}

// exponent reads a group, or one signed number or name.
func (p *parser) exponent() (*node, error) {
	if p.symbol("-") {
		p.at++
		n, err := p.exponent()
		if err != nil {
			return nil, err
		}
		return newNode(opMinus, "", n), nil
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
		return newNode(opConstant, text)
	}
	return newNode(opName, text)
}

// group reads an expression in braces or parentheses.
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

// argument reads the argument of a command: a group, or only the next character, as in TeX (\frac12).
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

// subscript consumes the text after an underscore, empty if there is none.
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

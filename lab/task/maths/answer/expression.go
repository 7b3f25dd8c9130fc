package answer

import (
	"math/big"
	"strings"
)

// sum reads terms between plus and minus, and the unit after them.
func (p *parser) sum() *node {
	p.deeper()
	defer func() { p.depth-- }()
	n := p.signed()
	terms := []*node{n}
	for p.symbol("+-") || p.command("pm", "mp") {
		terms = append(terms, p.signed())
	}
	if len(terms) > 1 {
		n = &node{op: opSum, args: terms}
	}
	return p.unit(n)
}

// signed reads a product with the signs before it.
func (p *parser) signed() *node {
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
		panic(p.unexpected())
	}
	p.deeper()
	n := p.signed()
	p.depth--
	return wrap(n)
}

// product reads factors, with operators between them or side by side, and a percent sign after them, which belongs to
// all of 33\frac{1}{3}\%.
func (p *parser) product() *node {
	n := p.factor()
	factors := []*node{n}
	slash := false // the last factor was divided by, with a slash
	for {
		switch {
		case p.symbol("*") || p.command("cdot", "times"):
			p.at++
			next := p.operand()
			factors, slash = append(factors, next), false
		case p.symbol("/") || p.command("div"):
			p.at++
			next := p.operand()
			factors, slash = []*node{{op: opQuotient, args: []*node{product(factors), next}}}, true
		case p.beside():
			if slash && !p.peek().spaced { // 1/2x
				panic(errAmbiguous)
			}
			factors = p.adjoin(factors)
			slash = false
		default:
			return p.percent(product(factors))
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
func (p *parser) operand() *node {
	if p.symbol("-") {
		p.at++
		n := p.factor()
		return newNode(opMinus, "", n)
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
		case "pi", "infty", "frac", "sqrt", "surd", "binom", "lfloor", "lceil", "infinity", "overline",
			"begin", "sum", "angle":
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
func (p *parser) adjoin(factors []*node) []*node {
	bare := p.tokens[p.at-1].kind == number && p.peek().text != "("
	next := p.factor()
	switch {
	case bare && next.op == opDegree && plainFraction(next.args[0]): // 22\frac12^\circ
		return []*node{newNode(opDegree, "", product(mixed(factors, next.args[0])))}
	case bare && plainFraction(next):
		return mixed(factors, next)
	}
	return append(factors, next)
}

// mixed returns the mixed number of an integer and the fraction after it.
func mixed(factors []*node, next *node) []*node {
	last := factors[len(factors)-1]
	if last.op != opNumber {
		panic(errAmbiguous)
	}
	if len(factors) > 1 || !last.value.IsInt() || last.point {
		panic(errAmbiguous)
	}
	top, bottom := next.args[0].value, next.args[1].value
	if bottom.Sign() <= 0 || top.Sign() <= 0 || top.Cmp(bottom) >= 0 { // 2\frac{4}{3}: a product or a slip
		panic(errAmbiguous)
	}
	sum := new(big.Rat).Add(last.value, new(big.Rat).Quo(top, bottom))
	return []*node{{op: opNumber, value: sum}}
}

// plainFraction reports whether a node is a fraction of two integers.
func plainFraction(n *node) bool {
	return n.op == opQuotient && n.args[0].op == opNumber && n.args[1].op == opNumber &&
		n.args[0].value.IsInt() && n.args[1].value.IsInt()
}

// factor reads a primary with its powers and marks.
func (p *parser) factor() *node {
	p.deeper()
	defer func() { p.depth-- }()
	if p.peek().kind == number && p.mixed() {
		return p.line()
	}
	n := p.primary()
	for {
		switch {
		case p.symbol("^"):
			p.at++
			n = p.raised(n)
		case p.symbol("!") && p.ahead(1).text != "=":
			p.at++
			if n = call("!", n); p.symbol("!") { // 5!! is not the factorial of a factorial
				panic(errAmbiguous)
			}
		case p.command("circ"):
			p.at++
			n = newNode(opDegree, "", n)
		case p.symbol("'") && n.op == opName:
			p.at++
			n = &node{op: opName, name: n.name + "'"}
		default:
			return n
		}
	}
}

// line reads the fraction of a mixed number in one line.
func (p *parser) line() *node {
	top, bottom := p.peek(), p.ahead(2)
	p.at += 3
	return newNode(opQuotient, "", &node{op: opNumber, value: top.value}, &node{op: opNumber, value: bottom.value})
}

// raised reads the exponent of n.
func (p *parser) raised(n *node) *node {
	if p.command("circ") {
		p.at++
		return newNode(opDegree, "", n)
	}
	if p.symbol("{") && p.ahead(1).kind == command && p.ahead(1).text == "circ" && p.ahead(2).text == "}" {
		p.at += 3
		return newNode(opDegree, "", n)
	}
	if p.command("top", "dagger", "prime") || p.symbol("*") {
		name := p.peek().text
		p.at++
		return call("^"+name, n)
	}
	if p.symbol("'") {
		panic(p.unexpected())
	}
	exponent := p.exponent()
	if p.symbol("^") {
		panic(errAmbiguous)
	}
	return newNode(opPower, "", n, exponent)
}

// exponent reads a group, or one signed number or name.
func (p *parser) exponent() *node {
	if p.symbol("-") {
		p.at++
		n := p.exponent()
		return newNode(opMinus, "", n)
	}
	switch t := p.peek(); {
	case t.kind == number:
		p.at++
		return &node{op: opNumber, value: t.value, point: t.point}
	case t.kind == letter:
		p.at++
		return name(t.text)
	case t.kind == command && t.text == "frac", t.kind == command && t.text == "pi", t.kind == command &&
		isGreek(t.text):
		return p.primary()
	case p.symbol("{("):
		return p.group()
	}
	panic(p.unexpected())
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
func (p *parser) group() *node {
	closing := map[string]string{"{": "}", "(": ")"}[p.peek().text]
	p.at++
	bars := p.bars
	p.bars = 0
	n := p.sum()
	p.bars = bars
	p.expect(closing)
	return n
}

// argument reads the argument of a command: a group, or only the next character, as in TeX (\frac12).
func (p *parser) argument() *node {
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
		return &node{op: opNumber, value: decimal(t.text[:1], "", "")}
	case t.kind == letter:
		p.at++
		return name(t.text)
	case t.kind == command && (t.text == "pi" || t.text == "sqrt" || t.text == "frac" || isGreek(t.text)):
		return p.primary()
	}
	panic(p.unexpected())
}

// subscript consumes the text after an underscore, empty if there is none.
func (p *parser) subscript() string {
	if !p.symbol("_") {
		return ""
	}
	p.at++
	if !p.symbol("{") {
		t := p.peek()
		if t.kind == end || t.kind == symbol {
			panic(p.unexpected())
		}
		p.at++
		return t.text
	}
	p.at++
	var b strings.Builder
	for !p.symbol("}") {
		if t := p.peek(); t.kind == end || t.kind == symbol && t.text == "{" {
			panic(p.unexpected())
		}
		b.WriteString(p.peek().text)
		p.at++
	}
	p.at++
	return b.String()
}

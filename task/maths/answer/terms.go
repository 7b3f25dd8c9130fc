package answer

import (
	"errors"
	"math/big"
)

var errAmbiguous = errors.New("can be read in several ways")

// sum reads terms between plus and minus.
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
		wrap = func(n *node) *node { return make1(opMinus, "", n) }
	case p.command("pm"):
		wrap = func(n *node) *node { return make1(opBoth, "", n) }
	case p.command("mp"):
		wrap = func(n *node) *node { return make1(opBoth, "-", n) }
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

// product reads factors, with signs between them or side by side.
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

// percent takes a percent sign, which belongs to all of 33\frac{1}{3}\%.
func (p *parser) percent(n *node) *node {
	if !p.symbol("%") {
		return n
	}
	p.at++
	return make1(opPercent, "", n)
}

// operand reads a factor after a sign of multiplication, where a minus may stand.
func (p *parser) operand() (*node, error) {
	if p.symbol("-") {
		p.at++
		n, err := p.factor()
		if err != nil {
			return nil, err
		}
		return make1(opMinus, "", n), nil
	}
	return p.factor()
}

func product(factors []*node) *node {
	if len(factors) == 1 {
		return factors[0]
	}
	return &node{op: opProduct, args: factors}
}

// beside reports whether the next token begins a factor without a sign of multiplication.
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

// mixed reports whether what comes is the fraction of a mixed number in one line, the 1/2 of 3 1/2.
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

// adjoin multiplies by the factor that stands beside the others, or makes a mixed number of an integer and a fraction.
func (p *parser) adjoin(factors []*node) ([]*node, error) {
	bare := p.tokens[p.at-1].kind == number && p.peek().text != "("
	next, err := p.factor()
	switch {
	case err != nil:
		return nil, err
	case bare && next.op == opDegree && plainFraction(next.args[0]): // 22\frac12^\circ
		sum, err := mixed(factors, next.args[0])
		return []*node{make1(opDegree, "", product(sum))}, err
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

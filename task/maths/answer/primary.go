package answer

import (
	"math/big"
	"strings"
	"unicode"
)

// primary reads a number, a name, a function with its argument, or a text in brackets.
func (p *parser) primary() (*node, error) {
	t := p.peek()
	switch t.kind {
	case number:
		if n, ok := p.numeral(); ok {
			return n, nil
		}
		p.at++
		return &node{op: opNumber, value: t.value, point: t.point, name: t.text}, nil
	case letter:
		p.at++
		return p.named(t.text)
	case word:
		if !p.multiplied(t) {
			return nil, p.unexpected()
		}
		p.at++
		return spelled(t.text), nil
	case command:
		return p.commanded(t)
	case prose:
		if n, ok := p.numeral(); ok {
			return n, nil
		}
	case symbol:
		return p.bracketed()
	}
	return nil, p.unexpected()
}

// spelled returns the product of the letters of a word.
func spelled(text string) *node {
	var factors []*node
	for _, r := range text {
		factors = append(factors, name(string(r)))
	}
	return product(factors)
}

// multiplied reports whether a word is a product of its letters, as in 6xyz, rather than a unit or a word.
func (p *parser) multiplied(t token) bool {
	if isMeasure(t.text) || knownWord(t.text) || strings.EqualFold(t.text, "and") {
		return false
	}
	return !t.spaced && p.at > 0 || len(t.text) < 4 || !strings.ContainsAny(t.text, "aeiou")
}

// numeral reads a number in another base: 1011_2, 152A_{11}, \text{A5}_{11}. In base ten it is the number itself.
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
	return newNode(opBase, strings.ToUpper(written)+"_"+sub), true
}

// named reads what a letter begins: a variable with its subscript, or the application of a function.
func (p *parser) named(text string) (*node, error) {
	sub, err := p.subscript()
	if err != nil {
		return nil, err
	}
	if sub != "" {
		text += "_" + sub
	}
	for p.symbol("'") {
		p.at++
		text += "'"
	}
	if p.symbol("(") && isApplied(text) {
		return p.applied(text)
	}
	if sub == "" {
		return name(text), nil
	}
	return newNode(opName, text), nil
}

// isApplied reports whether a name before a parenthesis is a function rather than a factor.
func isApplied(name string) bool {
	return strings.ContainsAny(name[:1], "fgh") || strings.HasPrefix(name, `\`) || unicode.IsUpper(rune(name[0])) || strings.Contains(name, "'")
}

// applied reads the arguments in the parentheses after a function's name.
func (p *parser) applied(text string) (*node, error) {
	inner, err := p.bracketed()
	if err != nil {
		return nil, err
	}
	if inner.op == opTuple {
		return call(text, inner.args...), nil
	}
	return call(text, inner), nil
}

// commanded reads what a command begins.
func (p *parser) commanded(t token) (*node, error) {
	switch t.text {
	case "lbrace", "langle", "lfloor", "lceil":
		return p.bracketed()
	}
	p.at++
	switch t.text {
	case "pi":
		return newNode(opConstant, "pi"), nil
	case "infty", "infinity":
		return newNode(opConstant, "inf"), nil
	case "emptyset":
		return &node{op: opSet}, nil
	case "frac", "binom":
		return p.two(t.text)
	case "sqrt", "surd":
		return p.root(t.text)
	case "mathbb", "mathcal", "mathfrak", "overline", "hat", "vec", "tilde", "bar":
		return p.styled(t.text)
	case "boxed", "fbox", "mathbf", "mathit", "mathsf":
		return p.boxed()
	case "usd":
		inner, err := p.factor()
		return newNode(opUnit, "dollar", inner), err
	case "begin":
		return p.matrix()
	}
	switch {
	case isFunction(t.text):
		return p.function(t.text)
	case isMany(t.text) && (p.symbol("(") || p.command("lbrace")):
		return p.applied(t.text)
	case isGreek(t.text) || t.text == "angle" || t.text == "triangle":
		return p.named(`\` + t.text)
	}
	p.at--
	return nil, p.unexpected()
}

// styled reads a name with a style or an accent, and the bars of an absolute value.
func (p *parser) styled(text string) (*node, error) {
	if text == "bar" && !p.symbol("{") {
		return p.absolute("bar")
	}
	inner, err := p.argument()
	switch {
	case err != nil:
		return nil, err
	case !strings.HasPrefix(text, "math"):
		return call(text, inner), nil
	case inner.op != opName:
		return nil, errAmbiguous
	}
	return p.named(`\` + text + inner.name)
}

// boxed reads a group that only marks its content.
func (p *parser) boxed() (*node, error) {
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	inner, err := p.list()
	if err != nil {
		return nil, err
	}
	return inner, p.expect("}")
}

// two reads the two arguments of \frac and \binom.
func (p *parser) two(text string) (*node, error) {
	top, err := p.argument()
	if err != nil {
		return nil, err
	}
	bottom, err := p.argument()
	if err != nil {
		return nil, err
	}
	if text == "binom" {
		return call("binom", top, bottom), nil
	}
	return newNode(opQuotient, "", top, bottom), nil
}

// root reads the argument of \sqrt and of the sign √, which applies to the whole number after it.
func (p *parser) root(text string) (*node, error) {
	degree := integer(2)
	if p.symbol("[") {
		p.at++
		var err error
		if degree, err = p.sum(); err != nil {
			return nil, err
		}
		if err := p.expect("]"); err != nil {
			return nil, err
		}
	}
	var inner *node
	var err error
	switch t := p.peek(); {
	case p.symbol("("):
		inner, err = p.group()
	case t.kind == number && text == "surd":
		inner, err = p.primary()
	case t.kind == number && len(t.text) > 1: // \sqrt23
		return nil, errAmbiguous
	default:
		inner, err = p.argument()
	}
	return newNode(opPower, "", inner, newNode(opQuotient, "", integer(1), degree)), err
}

// bracketed reads the content of brackets of any kind.
func (p *parser) bracketed() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	t := p.peek()
	switch t.text {
	case "{":
		return p.group()
	case "|":
		p.at++
		return p.absolute("|")
	case "(", "[", "lbrace", "langle", "lfloor", "lceil":
	default:
		return nil, p.unexpected()
	}
	p.at++
	bars := p.bars
	p.bars = 0
	defer func() { p.bars = bars }()
	if t.text == "lbrace" && p.command("rbrace") {
		p.at++
		return &node{op: opSet}, nil
	}
	inner, err := p.list()
	if err != nil {
		return nil, err
	}
	closing := p.peek().text
	p.at++
	return enclosed(t.text, closing, inner)
}

// enclosed returns the node for the content of two brackets.
func enclosed(opening, closing string, inner *node) (*node, error) {
	items := []*node{inner}
	if inner.op == opList {
		items = inner.args
	}
	switch opening + closing {
	case "lbracerbrace":
		return &node{op: opSet, args: items}, nil
	case "lfloorrfloor":
		return call("floor", items...), nil
	case "lceilrceil":
		return call("ceil", items...), nil
	case "langlerangle", "()":
		if inner.op != opList && opening == "(" {
			return inner, nil
		}
		return &node{op: opTuple, name: "()", args: items}, nil
	case "[]":
		if inner.op != opList {
			return inner, nil
		}
		return &node{op: opTuple, name: "[]", args: items}, nil
	case "(]", "[)":
		if len(items) == 2 {
			return &node{op: opTuple, name: opening + closing, args: items}, nil
		}
	}
	return nil, errAmbiguous
}

// absolute reads up to the bar that closes an absolute value.
func (p *parser) absolute(bar string) (*node, error) {
	p.bars++
	inner, err := p.sum()
	p.bars--
	if err != nil {
		return nil, err
	}
	if p.peek().text != bar {
		return nil, p.unexpected()
	}
	p.at++
	return call("abs", inner), nil
}

// matrix reads the rows of \begin{pmatrix}.
func (p *parser) matrix() (*node, error) {
	name := p.ahead(1).text
	if p.peek().text != "{" || p.ahead(2).text != "}" || name != "pmatrix" && name != "bmatrix" && name != "matrix" {
		return nil, p.unexpected()
	}
	p.at += 3
	m, row := &node{op: opMatrix}, &node{op: opList}
	for {
		if p.command("newline") { // after the last row too
			p.at++
			if len(row.args) > 0 {
				m.args, row = append(m.args, row), &node{op: opList}
			}
			continue
		}
		if p.command("end") && p.ahead(2).text == name {
			p.at += 4
			if len(row.args) > 0 {
				m.args = append(m.args, row)
			}
			return m, nil
		}
		if len(row.args) > 0 {
			if err := p.expect("&"); err != nil {
				return nil, err
			}
		}
		entry, err := p.sum()
		if err != nil {
			return nil, err
		}
		row.args = append(row.args, entry)
	}
}

// function reads \sin x and the like. Without parentheses the argument is the product that follows, up to the next function.
func (p *parser) function(text string) (*node, error) {
	f := call(text)
	var exponent *node
	if sub, err := p.subscript(); err != nil {
		return nil, err
	} else if sub != "" {
		if f, err = logarithm(text, sub); err != nil {
			return nil, err
		}
	}
	if p.symbol("^") {
		p.at++
		var err error
		if exponent, err = p.exponent(); err != nil {
			return nil, err
		}
		if exponent.op == opMinus {
			if f, exponent, err = inverse(text, exponent), nil, nil; f == nil {
				return nil, errAmbiguous
			}
		}
	}
	argument, err := p.operandOf()
	if err != nil {
		return nil, err
	}
	f.args = append([]*node{argument}, f.args...)
	if exponent != nil {
		return newNode(opPower, "", f, exponent), nil
	}
	return f, nil
}

// inverse returns the function that \sin^{-1} and the like mean, nil for others.
func inverse(text string, exponent *node) *node {
	v, ok := exact(exponent)
	if !ok || v.Cmp(big.NewRat(-1, 1)) != 0 || text != "sin" && text != "cos" && text != "tan" {
		return nil
	}
	return call("arc" + text)
}

// logarithm returns the logarithm to the base in its subscript.
func logarithm(text, sub string) (*node, error) {
	if text != "log" {
		return nil, errAmbiguous
	}
	if digits(sub) == sub && len(sub) < 10 {
		return call("log", &node{op: opNumber, value: decimal(sub, "", "")}), nil
	}
	if len(sub) == 1 {
		return call("log", name(sub)), nil
	}
	return nil, errAmbiguous
}

// operandOf reads the argument of a function.
func (p *parser) operandOf() (*node, error) {
	if p.symbol("({") || p.symbol("[") {
		n, err := p.bracketedOrGroup()
		if err == nil && p.symbol("^!") { // \sin(x)^2
			return nil, errAmbiguous
		}
		return n, err
	}
	if p.symbol("-") {
		return nil, errAmbiguous
	}
	first, err := p.factor()
	if err != nil {
		return nil, err
	}
	factors := []*node{first}
	for p.beside() && !p.symbol("([") && !(p.peek().kind == command && isFunction(p.peek().text)) {
		if factors, err = p.adjoin(factors); err != nil {
			return nil, err
		}
	}
	if p.symbol("/") { // \sin x/2
		return nil, errAmbiguous
	}
	return product(factors), nil
}

func (p *parser) bracketedOrGroup() (*node, error) {
	if p.symbol("{") {
		return p.group()
	}
	return p.bracketed()
}

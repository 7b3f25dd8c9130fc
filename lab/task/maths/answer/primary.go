package answer

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// primary reads a number, a name, a function with its argument, or a text in brackets.
func (p *parser) primary() *node {
	t := p.peek()
	switch t.kind {
	case number:
		if n, ok := p.numeral(); ok {
			return n
		}
		p.at++
		return &node{op: opNumber, value: t.value, point: t.point, name: t.text}
	case letter:
		p.at++
		return p.named(t.text)
	case word:
		if !p.multiplied(t) {
			panic(p.unexpected())
		}
		p.at++
		return spelled(t.text)
	case command:
		return p.commanded(t)
	case prose:
		if n, ok := p.numeral(); ok {
			return n
		}
	case symbol:
		return p.bracketed()
	}
	panic(p.unexpected())
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
	sub := p.subscript()
	if base := strings.TrimPrefix(sub, "base"); base == "" || len(base) > 2 || digits(base) != base {
		p.at = back
		return nil, false
	}
	if sub == "10" {
		return &node{op: opNumber, value: decimal(digits(written), "", "")}, digits(written) == written
	}
	return newNode(opBase, strings.ToUpper(written)+"_"+sub), true
}

// named reads what a letter begins: a variable with its subscript, or the application of a function.
func (p *parser) named(text string) *node {
	sub := p.subscript()
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
		return name(text)
	}
	return newNode(opName, text)
}

// isApplied reports whether a name before a parenthesis is a function rather than a factor.
func isApplied(name string) bool {
	return strings.ContainsAny(name[:1], "fgh") || strings.HasPrefix(name, `\`) || unicode.IsUpper(rune(name[0])) ||
		strings.Contains(name, "'")
}

// applied reads the arguments in the parentheses after a function's name.
func (p *parser) applied(text string) *node {
	inner := p.bracketed()
	if inner.op == opTuple {
		return call(text, inner.args...)
	}
	return call(text, inner)
}

// commanded reads what a command begins.
func (p *parser) commanded(t token) *node {
	switch t.text {
	case "lbrace", "langle", "lfloor", "lceil":
		return p.bracketed()
	}
	p.at++
	switch t.text {
	case "pi":
		return newNode(opConstant, "pi")
	case "infty", "infinity":
		return newNode(opConstant, "inf")
	case "emptyset":
		return &node{op: opSet}
	case "frac", "binom":
		return p.two(t.text)
	case "sqrt", "surd":
		return p.root(t.text)
	case "mathbb", "mathcal", "mathfrak", "overline", "hat", "vec", "tilde", "bar":
		return p.styled(t.text)
	case "boxed", "fbox", "mathbf", "mathit", "mathsf":
		return p.boxed()
	case "usd":
		return newNode(opUnit, "dollar", p.factor())
	case "begin":
		return p.matrix()
	case "sum":
		return p.summation()
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
	panic(p.unexpected())
}

// styled reads a name with a style or an accent, and the bars of an absolute value.
func (p *parser) styled(text string) *node {
	if text == "bar" && !p.symbol("{") {
		return p.absolute("bar")
	}
	inner := p.argument()
	switch {
	case !strings.HasPrefix(text, "math"):
		return call(text, inner)
	case inner.op != opName:
		panic(errAmbiguous)
	}
	return p.named(`\` + text + inner.name)
}

// boxed reads a group that only marks its content.
func (p *parser) boxed() *node {
	p.expect("{")
	inner := p.list()
	p.expect("}")
	return inner
}

// two reads the two arguments of \frac and \binom.
func (p *parser) two(text string) *node {
	top := p.argument()
	bottom := p.argument()
	if text == "binom" {
		return call("binom", top, bottom)
	}
	return newNode(opQuotient, "", top, bottom)
}

// root reads the argument of \sqrt and of the sign √, which applies to the whole number after it.
func (p *parser) root(text string) *node {
	degree := integer(2)
	if p.symbol("[") {
		p.at++
		degree = p.sum()
		p.expect("]")
	}
	var inner *node
	switch t := p.peek(); {
	case p.symbol("("):
		inner = p.group()
	case t.kind == number && text == "surd":
		inner = p.primary()
	case t.kind == number && len(t.text) > 1: // \sqrt23
		panic(errAmbiguous)
	default:
		inner = p.argument()
	}
	return newNode(opPower, "", inner, newNode(opQuotient, "", integer(1), degree))
}

// bracketed reads the content of brackets of any kind.
func (p *parser) bracketed() *node {
	p.deeper()
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
		panic(p.unexpected())
	}
	p.at++
	bars := p.bars
	p.bars = 0
	defer func() { p.bars = bars }()
	if t.text == "lbrace" && p.command("rbrace") {
		p.at++
		return &node{op: opSet}
	}
	if t.text == "lbrace" {
		if n := p.builder(); n != nil {
			return n
		}
	}
	inner := p.list()
	closing := p.peek().text
	p.at++
	return enclosed(t.text, closing, inner)
}

// enclosed returns the node for the content of two brackets.
func enclosed(opening, closing string, inner *node) *node {
	items := []*node{inner}
	if inner.op == opList {
		items = inner.args
	}
	switch opening + closing {
	case "lbracerbrace":
		return &node{op: opSet, args: items}
	case "lfloorrfloor":
		return call("floor", items...)
	case "lceilrceil":
		return call("ceil", items...)
	case "langlerangle", "()":
		if inner.op != opList && opening == "(" {
			return inner
		}
		return &node{op: opTuple, name: "()", args: items}
	case "[]":
		if inner.op != opList {
			return inner
		}
		return &node{op: opTuple, name: "[]", args: items}
	case "(]", "[)":
		if len(items) == 2 {
			return &node{op: opTuple, name: opening + closing, args: items}
		}
	}
	panic(errAmbiguous)
}

// absolute reads up to the bar that closes an absolute value.
func (p *parser) absolute(bar string) *node {
	p.bars++
	inner := p.sum()
	p.bars--
	if p.peek().text != bar {
		panic(p.unexpected())
	}
	p.at++
	return call("abs", inner)
}

// matrix reads the rows of \begin{pmatrix}.
func (p *parser) matrix() *node {
	name := p.ahead(1).text
	if p.peek().text != "{" || p.ahead(2).text != "}" || !slices.Contains([]string{"pmatrix", "bmatrix",
		"matrix", "array"}, name) {
		panic(p.unexpected())
	}
	if p.at += 3; name == "array" {
		p.columns()
	}
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
			return m
		}
		if len(row.args) > 0 {
			p.expect("&")
		}
		entry := p.sum()
		row.args = append(row.args, entry)
	}
}

// columns skips the format of an array, such as {rcl}.
func (p *parser) columns() {
	p.expect("{")
	for !p.symbol("}") {
		if t := p.peek(); t.kind != letter && t.kind != word { // a bar parts an augmented matrix
			panic(p.unexpected())
		}
		p.at++
	}
	p.at++
}

// function reads \sin x and the like. Without parentheses the argument is the product that follows, up to the next
// function.
func (p *parser) function(text string) *node {
	f := call(text)
	var exponent *node
	if sub := p.subscript(); sub != "" {
		f = logarithm(text, sub)
	}
	if p.symbol("^") {
		p.at++
		exponent = p.exponent()
		if exponent.op == opMinus {
			if f, exponent = inverse(text, exponent), nil; f == nil {
				panic(errAmbiguous)
			}
		}
	}
	argument := p.operandOf()
	f.args = append([]*node{argument}, f.args...)
	if exponent != nil {
		return newNode(opPower, "", f, exponent)
	}
	return f
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
func logarithm(text, sub string) *node {
	if text != "log" {
		panic(errAmbiguous)
	}
	if digits(sub) == sub && len(sub) < 10 {
		return call("log", &node{op: opNumber, value: decimal(sub, "", "")})
	}
	if len(sub) == 1 {
		return call("log", name(sub))
	}
	panic(errAmbiguous)
}

// operandOf reads the argument of a function.
func (p *parser) operandOf() *node {
	if p.symbol("({") || p.symbol("[") {
		n := p.bracketedOrGroup()
		if p.symbol("^!") { // \sin(x)^2
			panic(errAmbiguous)
		}
		return n
	}
	if p.symbol("-") {
		panic(errAmbiguous)
	}
	first := p.factor()
	factors := []*node{first}
	for p.beside() && !p.symbol("([") && !(p.peek().kind == command && isFunction(p.peek().text)) {
		factors = p.adjoin(factors)
	}
	if p.symbol("/") { // \sin x/2
		panic(errAmbiguous)
	}
	return product(factors)
}

func (p *parser) bracketedOrGroup() *node {
	if p.symbol("{") {
		return p.group()
	}
	return p.bracketed()
}

package answer

import (
	"strings"
	"unicode"
)

// primary reads the smallest whole: a number, a name, a function with its argument, something in brackets.
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

// named reads what a letter begins: a variable with its subscript, or a function applied.
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
	return make1(opName, text), nil
}

// isApplied reports whether a name before a parenthesis is a function's rather than a factor.
func isApplied(name string) bool {
	return strings.ContainsAny(name[:1], "fgh") || strings.HasPrefix(name, `\`) || unicode.IsUpper(rune(name[0])) || strings.Contains(name, "'")
}

// applied reads the arguments between the parentheses that follow a function's name.
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
		return make1(opConstant, "pi"), nil
	case "infty", "infinity":
		return make1(opConstant, "inf"), nil
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
		return make1(opUnit, "dollar", inner), err
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

// styled reads what a style or an accent makes another name of, and the bars of an absolute value.
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
	return make1(opQuotient, "", top, bottom), nil
}

// root reads the argument of \sqrt and of the sign √, which takes the number that follows it whole.
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
	return make1(opPower, "", inner, make1(opQuotient, "", integer(1), degree)), err
}

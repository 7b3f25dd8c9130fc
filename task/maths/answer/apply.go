package answer

import "math/big"

// function reads \sin x and its like. Without parentheses the argument is the product that follows, up to the next function.
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
		return make1(opPower, "", f, exponent), nil
	}
	return f, nil
}

// inverse returns the function that \sin^{-1} and its like stand for, nil for others.
func inverse(text string, exponent *node) *node {
	v, ok := exact(exponent)
	if !ok || v.Cmp(big.NewRat(-1, 1)) != 0 || text != "sin" && text != "cos" && text != "tan" {
		return nil
	}
	return call("arc" + text)
}

// logarithm returns the logarithm to a base that is written below it.
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

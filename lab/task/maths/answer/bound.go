package answer

import (
	"math/big"
	"strings"
)

// Limits for what is written with a bound variable.
const (
	maxTerms   = 2000 // of all sums of an answer
	maxBuilt   = 50   // integers of a set-builder
	maxSumBits = 4096 // of a term
)

// builder reads what follows the brace of \{x \in \mathbb{R} : 0 < x \le 1\}; nil if it is no set-builder. A set of
// integers is written out.
func (p *parser) builder() *node {
	variable, at, domain := p.peek(), 1, ""
	if in := p.ahead(1); in.kind == command && in.text == "in" && p.ahead(2).text == "mathbb" {
		if domain, at = p.ahead(3).text, 4; domain == "{" {
			domain, at = p.ahead(4).text, 6
		}
	}
	bar := p.ahead(at)
	if variable.kind != letter || bar.kind != command && bar.kind != symbol ||
		!strings.Contains(": | bar colon", bar.text) {
		return nil
	}
	p.at += at + 1
	condition := p.list()
	if !p.command("rbrace") {
		panic(p.unexpected())
	}
	p.at++
	n := newNode(opRegion, "where", newNode(opName, variable.text), condition)
	r, ok := regionOf(n)
	switch {
	case !ok:
	case domain == "R", domain == "" && !strings.Contains("nkmpq", variable.text): // which may be integers
		return n
	case domain == "Z", domain == "N" && len(r.pieces) > 0 && r.pieces[0].from >= 1: // 0 may be natural
		return integers(r)
	}
	panic(errAmbiguous)
}

// integers returns the set of the integers in a region.
func integers(r region) *node {
	set := &node{op: opSet}
	for _, p := range r.pieces {
		low, ok := exact(p.low)
		high, okay := exact(p.high)
		if !ok || !okay {
			panic(errAmbiguous)
		}
		one := big.NewInt(1)
		next := floor(low)
		if low.Cmp(new(big.Rat).SetInt(next)) > 0 || p.openLow {
			next.Add(next, one)
		}
		for ; ; next.Add(next, one) {
			v := new(big.Rat).SetInt(next)
			if v.Cmp(high) > 0 || p.openHigh && v.Cmp(high) == 0 {
				break
			}
			if len(set.args) == maxBuilt {
				panic(errAmbiguous)
			}
			set.args = append(set.args, &node{op: opNumber, value: v})
		}
	}
	return set
}

// summation reads what follows \sum and returns its value: a finite sum or a geometric series of rational numbers. A
// sum without brackets that goes on with a plus or minus has an ambiguous end.
func (p *parser) summation() *node {
	p.expect("_")
	p.expect("{")
	index := p.peek()
	if index.kind != letter {
		panic(p.unexpected())
	}
	p.at++
	p.expect("=")
	low := p.sum()
	p.expect("}")
	p.expect("^")
	var high *node
	if p.command("infty") {
		p.at++
		high = infinity()
	} else {
		high = p.exponent()
	}
	body := p.product()
	if p.symbol("+-") || p.command("pm", "mp") {
		panic(errAmbiguous)
	}
	from, ok := exact(low)
	if !ok || !from.IsInt() {
		panic(errAmbiguous)
	}
	if infinite(high) > 0 {
		return geometric(body, index.text, from)
	}
	to, ok := exact(high)
	if !ok || !to.IsInt() || to.Cmp(from) < 0 {
		panic(errAmbiguous)
	}
	total := new(big.Rat)
	for k := from; k.Cmp(to) <= 0; k = new(big.Rat).Add(k, big.NewRat(1, 1)) {
		if p.terms++; p.terms > maxTerms {
			panic(errAmbiguous)
		}
		total.Add(total, term(body, index.text, k))
	}
	return &node{op: opNumber, value: total}
}

// term returns the body of a sum at an index.
func term(body *node, index string, k *big.Rat) *big.Rat {
	v, ok := exact(at(body, index, k))
	if !ok || bits(v) > maxSumBits {
		panic(errAmbiguous)
	}
	return v
}

// at replaces a name, which may be i, by a number.
func at(n *node, name string, value *big.Rat) *node {
	if (n.op == opName || n.op == opConstant) && n.name == name {
		return &node{op: opNumber, value: value}
	}
	m := *n
	m.args = make([]*node, len(n.args))
	for i, a := range n.args {
		m.args[i] = at(a, name, value)
	}
	return &m
}

// geometric returns the sum of a geometric series from an index to infinity.
func geometric(body *node, index string, from *big.Rat) *node {
	ratio, ok := quotient(body, index)
	first := term(body, index, from)
	one := big.NewRat(1, 1)
	if !ok || new(big.Rat).Abs(ratio).Cmp(one) >= 0 {
		panic(errAmbiguous)
	}
	return &node{op: opNumber, value: new(big.Rat).Quo(first, one.Sub(one, ratio))}
}

// quotient returns the constant by which an expression grows when its index grows by one, if the way it is written
// shows that there is one.
func quotient(n *node, index string) (*big.Rat, bool) {
	if !mentions(n, index) {
		return big.NewRat(1, 1), true
	}
	switch n.op {
	case opMinus:
		return quotient(n.args[0], index)
	case opProduct, opQuotient:
		parts := &node{op: n.op}
		for _, a := range n.args {
			v, ok := quotient(a, index)
			if !ok {
				return nil, false
			}
			parts.args = append(parts.args, &node{op: opNumber, value: v})
		}
		return exact(parts)
	case opPower:
		base, exponent := n.args[0], n.args[1]
		if mentions(base, index) {
			v, ok := quotient(base, index)
			if !ok || mentions(exponent, index) {
				return nil, false
			}
			return exact(newNode(opPower, "", &node{op: opNumber, value: v}, exponent))
		}
		slope, ok := slopeOf(exponent, index)
		if !ok || !slope.IsInt() {
			return nil, false
		}
		return exact(newNode(opPower, "", base, &node{op: opNumber, value: slope}))
	}
	return nil, false
}

// slopeOf returns the slope of a linear expression.
func slopeOf(n *node, index string) (*big.Rat, bool) {
	if !mentions(n, index) {
		return new(big.Rat), true
	}
	switch n.op {
	case opName, opConstant:
		return big.NewRat(1, 1), true
	case opMinus:
		v, ok := slopeOf(n.args[0], index)
		if !ok {
			return nil, false
		}
		return new(big.Rat).Neg(v), true
	case opSum:
		total := new(big.Rat)
		for _, a := range n.args {
			v, ok := slopeOf(a, index)
			if !ok {
				return nil, false
			}
			total.Add(total, v)
		}
		return total, true
	case opProduct:
		parts, found := &node{op: opProduct}, false
		for _, a := range n.args {
			if mentions(a, index) {
				v, ok := slopeOf(a, index)
				if !ok || found {
					return nil, false
				}
				a, found = &node{op: opNumber, value: v}, true
			}
			parts.args = append(parts.args, a)
		}
		return exact(parts)
	}
	return nil, false
}

func mentions(n *node, name string) bool {
	return n.any(func(m *node) bool { return (m.op == opName || m.op == opConstant) && m.name == name })
}

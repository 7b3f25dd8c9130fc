package countdown

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// The limits of an expression that is parsed: bytes, and parentheses within one another.
const (
	mostBytes = 400
	mostDepth = 50
)

// Expression is a parsed expression.
type Expression struct {
	Numbers []int    // as they stand in it, from left to right
	Value   *big.Rat // nil: it divides by zero
}

// Parse reads an expression: decimal numbers of at most nine digits without a leading zero, + - * / of the usual
// precedence, from left to right, and parentheses, with spaces anywhere between them. × and ÷ and the minus sign of
// typography are read as * and / and -. There are no signs: -3+5 is none.
func Parse(text string) (Expression, error) {
	if len(text) > mostBytes {
		return Expression{}, fmt.Errorf("longer than %d bytes", mostBytes)
	}
	p := parser{rest: strings.NewReplacer("×", "*", "÷", "/", "−", "-").Replace(text)}
	value, err := p.sum(0)
	if err != nil {
		return Expression{}, err
	}
	if p.next(); p.rest != "" {
		return Expression{}, fmt.Errorf("%.20q: want the end or an operation", p.rest)
	}
	return Expression{Numbers: p.numbers, Value: value}, nil
}

// parser descends through an expression. Values are nil after a division by zero.
type parser struct {
	rest    string
	numbers []int
}

// next returns the next byte that is no space, 0 at the end, and leaves it there.
func (p *parser) next() byte {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *parser) sum(depth int) (*big.Rat, error) {
	return p.chain("+-", func() (*big.Rat, error) {
		return p.chain("*/", func() (*big.Rat, error) { return p.factor(depth) })
	})
}

// chain reads parts with operations between them, from left to right.
func (p *parser) chain(operations string, part func() (*big.Rat, error)) (*big.Rat, error) {
	value, err := part()
	for err == nil {
		op := p.next()
		if strings.IndexByte(operations, op) < 0 {
			break
		}
		p.rest = p.rest[1:]
		var right *big.Rat
		if right, err = part(); err == nil {
			value = apply(op, value, right)
		}
	}
	return value, err
}

// apply computes in place; nil, a division by zero, stays nil.
func apply(op byte, a, b *big.Rat) *big.Rat {
	switch {
	case a == nil || b == nil || op == '/' && b.Sign() == 0:
		return nil
	case op == '+':
		return a.Add(a, b)
	case op == '-':
		return a.Sub(a, b)
	case op == '*':
		return a.Mul(a, b)
	}
	return a.Quo(a, b)
}

func (p *parser) factor(depth int) (*big.Rat, error) {
	switch c := p.next(); {
	case c == '(' && depth == mostDepth:
		return nil, fmt.Errorf("more than %d parentheses within one another", mostDepth)
	case c == '(':
		p.rest = p.rest[1:]
		value, err := p.sum(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.next() != ')' {
			return nil, fmt.Errorf("%.20q: want )", p.rest)
		}
		p.rest = p.rest[1:]
		return value, nil
	case c >= '0' && c <= '9':
		return p.number()
	case p.rest == "":
		return nil, errors.New("the end: want a number")
	}
	return nil, fmt.Errorf("%.20q: want a number or (", p.rest)
}

func (p *parser) number() (*big.Rat, error) {
	digits := p.rest
	for i := range len(p.rest) {
		if c := p.rest[i]; c < '0' || c > '9' {
			digits = p.rest[:i]
			break
		}
	}
	if len(digits) > 9 || len(digits) > 1 && digits[0] == '0' {
		return nil, fmt.Errorf("%.20q: want at most nine digits, without a leading zero", digits)
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	p.rest = p.rest[len(digits):]
	p.numbers = append(p.numbers, n)
	return big.NewRat(int64(n), 1), nil
}

package countdown

import (
	"strconv"
)

// fraction is an exact number in lowest terms with a positive denominator. With at most six numbers of at most 500 the
// parts of every sum, product or quotient stay below 500^6 × 2^5 < 2^59, so no operation overflows.
type fraction struct {
	num, den int64
}

func whole(n int) fraction { return fraction{int64(n), 1} }

// combine applies an operation. It reports false for a division by zero.
func combine(op byte, a, b fraction) (fraction, bool) {
	switch op {
	case '+':
		return lowest(a.num*b.den+b.num*a.den, a.den*b.den), true
	case '-':
		return lowest(a.num*b.den-b.num*a.den, a.den*b.den), true
	case '*':
		return lowest(a.num*b.num, a.den*b.den), true
	}
	if b.num == 0 {
		return fraction{}, false
	}
	return lowest(a.num*b.den, a.den*b.num), true
}

// lowest reduces a fraction to lowest terms; den is not 0.
func lowest(num, den int64) fraction {
	a, b := num, den
	for b != 0 {
		a, b = b, a%b
	}
	if (a < 0) != (den < 0) {
		a = -a
	}
	return fraction{num / a, den / a}
}

// part is a number, or an expression of several.
type part struct {
	value fraction
	text  string
	op    byte // the last operation of the expression; 0: a number
}

// join writes the expression of two parts with as few parentheses as possible.
func join(op byte, a, b part, value fraction) part {
	left, right := a.text, b.text
	strong := op == '*' || op == '/'
	if strong && (a.op == '+' || a.op == '-') {
		left = "(" + left + ")"
	}
	weak := b.op == '+' || b.op == '-'
	if weak && op != '+' || op == '/' && b.op != 0 {
		right = "(" + right + ")"
	}
	return part{value, left + string(op) + right, op}
}

// solve searches for an expression with the target's value, of the given operations ("+-*/"), that uses each number
// exactly once, or at most once unless all. It does not try more than six numbers, or numbers outside 0 to 500. Six
// numbers without a solution take seconds, four a millisecond.
func solve(numbers []int, target int, operations string, all bool) (string, bool) {
	if len(numbers) > maxNumbers {
		return "", false
	}
	parts := make([]part, len(numbers))
	for i, n := range numbers {
		if n < 0 || n > maxNumber {
			return "", false
		}
		parts[i] = part{value: whole(n), text: strconv.Itoa(n)}
	}
	s := solver{target: whole(target), operations: operations, all: all}
	return s.search(parts)
}

// solver looks for the target.
type solver struct {
	target     fraction
	operations string
	all        bool
}

// search replaces two of the parts by the result of an operation, in every way, until one part is the target.
func (s solver) search(parts []part) (string, bool) {
	if len(parts) == 1 || !s.all {
		for _, p := range parts {
			if p.value == s.target {
				return p.text, true
			}
		}
	}
	for i := range parts {
		for j := range parts {
			if i == j {
				continue
			}
			rest := make([]part, 0, len(parts)-1)
			for k, p := range parts {
				if k != i && k != j {
					rest = append(rest, p)
				}
			}
			for _, op := range []byte(s.operations) {
				if i > j && (op == '+' || op == '*') {
					continue // the same as with i and j exchanged
				}
				value, ok := combine(op, parts[i].value, parts[j].value)
				if !ok {
					continue
				}
				if text, found := s.search(append(rest, join(op, parts[i], parts[j], value))); found {
					return text, true
				}
			}
		}
	}
	return "", false
}

package countdown

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
)

// Verifier rewards expressions. The zero value wants each number exactly once and gives 0.1 for a wrong value.
type Verifier struct {
	Use          string  // All or Any; empty: All
	FormatReward float64 // as in Settings
}

// Verify rewards 1 for an expression that has the target's value and uses the numbers as required. An expression that
// uses them so but has another value, or divides by zero, gets the format reward, as in TinyZero (Pan et al. 2025).
// Anything else gets nothing, and nothing is extracted from it.
//
// The expression is the text between the last <answer> and </answer>, or the whole response if there are none.
func (v Verifier) Verify(p task.Prompt, response string) task.Verdict {
	given, err := readProblem(p.Answer)
	if err != nil {
		return task.Verdict{}
	}
	if answer, ok := task.TaggedAnswer(response); ok {
		response = answer
	}
	text := strings.TrimSpace(response)
	e, err := parse(text)
	if err != nil || !v.allows(e.numbers, given.numbers) {
		return task.Verdict{}
	}
	if e.value == nil || e.value.Cmp(given.target) != 0 {
		reward := cmp.Or(v.FormatReward, 0.1)
		if reward == noFormatReward {
			reward = 0
		}
		return task.Verdict{Reward: float32(reward), Extracted: text}
	}
	return task.Verdict{Reward: 1, Correct: true, Extracted: text}
}

// CheckAnswer returns nil if the answer is a problem: an expression or "numbers=target".
func (v Verifier) CheckAnswer(answer string) error {
	_, err := readProblem(answer)
	return err
}

// allows reports whether the used numbers are the given ones, or some of them if that is enough.
func (v Verifier) allows(used, given []int) bool {
	left := slices.Clone(given)
	for _, n := range used {
		at := slices.Index(left, n)
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return v.Use == Any || len(left) == 0
}

// problem is what an answer asks for.
type problem struct {
	numbers []int
	target  *big.Rat
}

// readProblem reads an answer: the problem that an expression solves, or "3 5 5 7=24".
func readProblem(answer string) (problem, error) {
	left, right, explicit := strings.Cut(answer, "=")
	if !explicit {
		e, err := parse(answer)
		switch {
		case err != nil:
			return problem{}, fmt.Errorf("%.60q is neither an expression nor \"3 5 5 7=24\": %w", answer, err)
		case e.value == nil:
			return problem{}, fmt.Errorf("%.60q divides by zero: want an expression that has a value", answer)
		}
		return problem{e.numbers, e.value}, nil
	}
	var p problem
	for _, field := range strings.Fields(left) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || n > 999_999_999 {
			return problem{}, fmt.Errorf("%.60q: %.20q is not a number of at most nine digits", answer, field)
		}
		p.numbers = append(p.numbers, n)
	}
	target, err := strconv.Atoi(strings.TrimSpace(right))
	if err != nil {
		return problem{}, fmt.Errorf("%.60q: %.20q is not a number: want \"3 5 5 7=24\"", answer, right)
	}
	if len(p.numbers) == 0 {
		return problem{}, errors.New("no numbers: want an expression or \"3 5 5 7=24\"")
	}
	p.target = big.NewRat(int64(target), 1)
	return p, nil
}

// Limits of a parsed expression: bytes, and nested parentheses.
const (
	maxBytes = 400
	maxDepth = 50
)

// expression is a parsed expression.
type expression struct {
	numbers []int    // in the order in which they are written
	value   *big.Rat // nil: it divides by zero
}

// parse reads an expression: decimal numbers of at most nine digits without a leading zero, + - * / with the usual
// precedence and from left to right, and parentheses, with spaces anywhere between them. ×, ÷ and the typographic minus
// sign are read as *, / and -. There are no signs: -3+5 is not an expression.
func parse(text string) (expression, error) {
	if len(text) > maxBytes {
		return expression{}, fmt.Errorf("longer than %d bytes", maxBytes)
	}
	p := parser{rest: strings.NewReplacer("×", "*", "÷", "/", "−", "-").Replace(text)}
	value, err := p.sum(0)
	if err != nil {
		return expression{}, err
	}
	if p.next(); p.rest != "" {
		return expression{}, fmt.Errorf("%.20q: want the end or an operation", p.rest)
	}
	return expression{p.numbers, value}, nil
}

// parser is a recursive-descent parser. Values are nil after a division by zero.
type parser struct {
	rest    string
	numbers []int
}

// next skips spaces and returns the next byte without consuming it, 0 at the end.
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

// apply computes in place. A division by zero gives nil, which stays nil.
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
	case c == '(' && depth == maxDepth:
		return nil, fmt.Errorf("more than %d parentheses within one another", maxDepth)
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

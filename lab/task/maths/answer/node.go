package answer

import (
	"math/big"
	"slices"
	"strings"
)

// op is the kind of a node.
type op string

// The kinds of nodes. Arguments are in node.args, names in node.name.
const (
	opNumber   op = "number"   // value
	opName     op = "name"     // a variable
	opConstant op = "constant" // pi, e, i or infinity
	opSum      op = "+"
	opProduct  op = "*"
	opQuotient op = "/"
	opPower    op = "^"
	opMinus    op = "-"
	opBoth     op = "±" // + or -; name "-" for ∓
	opCall     op = "call"
	opPercent  op = "%"
	opDegree   op = "°"
	opUnit     op = "unit"   // one argument and the unit's name
	opBase     op = "base"   // a numeral as written, with its base in the name
	opTuple    op = "tuple"  // name: the brackets, such as "(]"
	opSet      op = "set"    // {a, b}
	opList     op = "list"   // a, b
	opEither   op = "either" // a or b
	opMatrix   op = "matrix" // rows, each an opList
	opRegion   op = "region" // name: cup, setminus or cap, of two sets; where: a variable and its condition
	opRatio    op = ":"
	opRelation op = "relation" // name: = < <= > >= != ~ in
	opText     op = "text"
)

// node is an expression, or an answer made of expressions.
type node struct {
	op    op
	args  []*node
	name  string
	value *big.Rat
	point bool // a number with a decimal point
}

func integer(n int64) *node { return &node{op: opNumber, value: new(big.Rat).SetInt64(n)} }

// newNode makes a node with a name and arguments.
func newNode(o op, name string, args ...*node) *node { return &node{op: o, name: name, args: args} }

// call makes the application of a function.
func call(name string, args ...*node) *node { return newNode(opCall, name, args...) }

// any reports whether a condition holds for a node or anything in it.
func (n *node) any(is func(*node) bool) bool {
	if is(n) {
		return true
	}
	for _, a := range n.args {
		if a.any(is) {
			return true
		}
	}
	return false
}

// variables returns the names of the variables in an expression.
func (n *node) variables(seen map[string]bool) map[string]bool {
	if seen == nil {
		seen = map[string]bool{}
	}
	if n.op == opName {
		seen[n.name] = true
	}
	for _, a := range n.args {
		a.variables(seen)
	}
	return seen
}

// constant reports whether an expression has neither variables nor unknown functions.
func (n *node) constant() bool {
	return !n.any(func(m *node) bool { return m.op == opName || m.op == opCall && opaque(m.name) })
}

// letters returns the letters of a name such as AB or \theta, empty for anything else.
func (n *node) letters() string {
	switch {
	case n.op == opName:
		return n.name
	case n.op == opProduct:
		var b strings.Builder
		for _, a := range n.args {
			part := a.letters()
			if part == "" {
				return ""
			}
			b.WriteString(part)
		}
		return b.String()
	case n.op == opText:
		return strings.ToLower(n.name)
	}
	return ""
}

// with replaces every ± by + or by -.
func (n *node) with(minus bool) *node {
	if n.op == opBoth {
		inner := n.args[0].with(minus)
		if minus == (n.name == "") {
			return newNode(opMinus, "", inner)
		}
		return inner
	}
	if len(n.args) == 0 {
		return n
	}
	m := *n
	m.args = make([]*node, len(n.args))
	for i, a := range n.args {
		m.args[i] = a.with(minus)
	}
	return &m
}

// signs counts the ± in a node.
func (n *node) signs() int {
	count := 0
	n.any(func(m *node) bool {
		if m.op == opBoth && m.name == "" {
			count++
		}
		return false
	})
	return count
}

// key writes a node so that only the same tree has the same key.
func (n *node) key() string {
	parts := []string{string(n.op), n.name}
	if n.value != nil {
		parts = append(parts, n.value.RatString())
	}
	for _, a := range n.args {
		parts = append(parts, a.key())
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// relates reports whether a relation is in a node, except in the arguments of a function (P(X = 2)).
func relates(n *node) bool {
	return n.op == opRelation || n.op != opCall && slices.ContainsFunc(n.args, relates)
}

// only reports whether a node is a chain of one kind of relation.
func (n *node) only(relation string) bool {
	return n.op == opRelation && strings.Trim(strings.ReplaceAll(n.name, relation, ""), " ") == ""
}

package answer

import (
	"math/big"
	"slices"
	"strings"
)

// relate makes the node of a chain of relations: its sides, and the relations between them by name, separated by spaces.
func relate(sides []*node, relations []string) (*node, error) {
	for i, r := range relations {
		switch r {
		case "==":
			relations[i] = "="
		case "≈":
			relations[i] = "~"
		}
	}
	return &node{op: opRelation, name: strings.Join(relations, " "), args: sides}, nil
}

// only returns the relation of a chain in which it alone occurs.
func (n *node) only(relation string) bool {
	return n.op == opRelation && strings.Trim(strings.ReplaceAll(n.name, relation, ""), " ") == ""
}

// assigned reads "x = 5", "5 = x", "f(x) = x^2", "(a, b) = (2, 3)", "x \in [0, 1]" and "x = 2 + 3 = 5": what is told, and its value.
func assigned(n *node) (name string, value *node, ok bool) {
	switch {
	case n.only("in") && len(n.args) == 2:
		return title(n.args[0]), n.args[1], title(n.args[0]) != ""
	case !n.only("="):
		return "", nil, false
	}
	sides := n.args
	if name = title(sides[0]); name == "" && len(sides) == 2 && title(sides[1]) != "" {
		sides = []*node{sides[1], sides[0]}
		name = title(sides[0])
	}
	if name == "" || bothNamed(sides[0], sides[1]) || len(sides) == 2 && sides[1].any(func(m *node) bool { return m.op == opName && m.name == name }) {
		return "", nil, false
	}
	for _, s := range sides[2:] {
		if !same(sides[1], s) {
			return "", nil, false
		}
	}
	return name, sides[len(sides)-1], true
}

// bothNamed reports whether two sides are alike but names: "A = B" and "f'(x) = f(x)" relate two things and tell the value of none.
func bothNamed(a, b *node) bool {
	return a.op == b.op && (a.op == opName || a.op == opCall && opaque(a.name) && opaque(b.name))
}

// title returns what an expression names: a variable, letters such as AB, a function of variables and numbers, a point; empty for
// others.
func title(n *node) string {
	switch {
	case n.op == opCall && opaque(n.name):
		if arguments := titles(n.args); arguments != "" {
			return n.name + "(" + arguments + ")"
		}
		return ""
	case n.op == opTuple:
		return titles(n.args)
	}
	return n.letters()
}

// titles returns the titles of several expressions, numbers being their own; empty if one has none.
func titles(list []*node) string {
	names := make([]string, len(list))
	for i, n := range list {
		if names[i] = title(n); n.op == opNumber {
			names[i] = n.value.RatString()
		}
		if names[i] == "" {
			return ""
		}
	}
	return strings.Join(names, ",")
}

// computed reads a calculation, "2 + 3 = 5": its result, if it is right.
func computed(n *node) (*node, bool) {
	if !n.only("=") {
		return nil, false
	}
	for _, s := range n.args[1:] {
		if !n.args[0].constant() || !sameValue(n.args[0], s) {
			return nil, false
		}
	}
	return n.args[len(n.args)-1], true
}

// approximated reads "2\sqrt{2} ≈ 2.83": both sides, if the decimal is the other rounded.
func approximated(n *node) ([]*node, bool) {
	if !n.only("~") || len(n.args) != 2 {
		return nil, false
	}
	x, y, clear := evaluate(bare(n.args[0]), bare(n.args[1]), 0)
	if !clear || !n.args[0].constant() || !near(approximation{x.value, 0}, approximation{y.value, 0}, 0.01) {
		return nil, false
	}
	return n.args, true
}

// sameRelation compares equations and inequalities: the differences of their sides have to be proportional, by a positive
// factor for inequalities.
func sameRelation(a, b *node) bool {
	if len(a.args) != 2 || len(b.args) != 2 {
		return false
	}
	one, first := difference(a)
	other, second := difference(b)
	if first != second || first == "in" || first == "~" || ordered(one) || ordered(other) || one.constant() || other.constant() {
		return false
	}
	var factor *approximation
	return compare(one, other, func(x, y approximation) bool {
		ratio := approximation{x.value / y.value, 0}
		if !finite(ratio) || ratio.value == 0 || x.err+y.err > 1e-11 {
			return false
		}
		if factor == nil {
			factor = &ratio
		}
		if strings.Contains(first, "<") && real(ratio.value) < 0 {
			return false
		}
		return near(*factor, ratio, 1e-10)
	})
}

// difference returns left - right, and the relation turned so that it is none of > and >=.
func difference(n *node) (*node, string) {
	left, right, relation := n.args[0], n.args[1], n.name
	if strings.HasPrefix(relation, ">") {
		left, right, relation = right, left, "<"+relation[1:]
	}
	return make1(opSum, "", left, make1(opMinus, "", right)), relation
}

// sameRatio compares ratios and times part by part.
func sameRatio(a, b *node) bool {
	return slices.EqualFunc(a.args, b.args, func(x, y *node) bool {
		x, xu := split(x)
		y, yu := split(y)
		return sameUnit(xu, yu) && zeros(x) == zeros(y) && sameValue(x, y)
	})
}

// zeros counts the zeros that a number begins with: 3:05 is no 3:5.
func zeros(n *node) int {
	if n.op != opNumber || n.value.Cmp(new(big.Rat)) == 0 {
		return 0
	}
	return len(n.name) - len(strings.TrimLeft(n.name, "0"))
}

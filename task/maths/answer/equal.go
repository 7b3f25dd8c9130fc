package answer

import (
	"math/big"
	"slices"
	"unicode"
)

// same compares what a reference and an answer say. The order of its arguments matters where the reference decides.
func same(reference, given *node) bool {
	for _, n := range []*node{reference, given} {
		if n.op == opRelation {
			return sameClaim(reference, given)
		}
	}
	switch {
	case several(reference) || several(given):
		return sameMembers(reference, given)
	case isRegion(reference) || isRegion(given):
		one, ok := regionOf(reference)
		other, okay := regionOf(given)
		return ok && okay && one.same(other)
	case reference.op == opText || given.op == opText:
		return sameText(reference, given)
	case reference.op == opTuple || given.op == opTuple:
		return sameTuple(reference, given)
	case reference.op == opMatrix || given.op == opMatrix:
		return reference.op == given.op && slices.EqualFunc(reference.args, given.args, func(a, b *node) bool {
			return slices.EqualFunc(a.args, b.args, same)
		})
	case reference.op == opRatio || given.op == opRatio:
		return reference.op == given.op && sameRatio(reference, given)
	case reference.op == opBase || given.op == opBase:
		return reference.op == given.op && reference.name == given.name
	}
	return sameQuantity(reference, given)
}

// isRegion reports whether a node is a set of numbers that is no finite set and no interval alone.
func isRegion(n *node) bool {
	return n.op == opRegion || n.op == opName && n.name == `\mathbbR` || n.op == opTuple && len(n.args) == 2 &&
		(infinite(n.args[0]) < 0 || infinite(n.args[1]) > 0)
}

// sameClaim compares where one side or both are relations.
func sameClaim(reference, given *node) bool {
	if reference.op == opRelation && given.op == opRelation {
		name, value, ok := assigned(reference)
		other, another, okay := assigned(given)
		if ok && okay && name == other && same(value, another) {
			return true
		}
		if sameRelation(reference, given) {
			return true
		}
	}
	one, ok := regionOf(reference)
	other, okay := regionOf(given)
	if ok && okay {
		return one.same(other)
	}
	if reference.op == opRelation && given.op == opRelation {
		return sameResult(reference, given)
	}
	if reference.op == opText || given.op == opText { // "f(x) = c" does not choose (C)
		return false
	}
	return slices.ContainsFunc(told(reference), func(r *node) bool {
		return slices.ContainsFunc(told(given), func(g *node) bool { return same(r, g) })
	})
}

// sameResult compares two relations of which one at least is a calculation or a rounding.
func sameResult(reference, given *node) bool {
	_, _, named := assigned(reference)
	_, _, alsoNamed := assigned(given)
	if named && alsoNamed {
		return false
	}
	return slices.ContainsFunc(told(reference), func(r *node) bool {
		return slices.ContainsFunc(told(given), func(g *node) bool { return same(r, g) })
	})
}

// told returns what a relation says a value to be: that of an assignment, the result of a calculation, a number and its rounding.
// Anything else tells itself.
func told(n *node) []*node {
	if n.op != opRelation {
		return []*node{n}
	}
	if _, value, ok := assigned(n); ok {
		return []*node{value}
	}
	if value, ok := computed(n); ok {
		return []*node{value}
	}
	if sides, ok := approximated(n); ok {
		return sides
	}
	return nil
}

// several reports whether a node is a list, a set or a value with ±.
func several(n *node) bool {
	if n.op == opEither {
		_, ok := regionOf(n)
		return !ok
	}
	return n.op == opList || n.op == opSet || n.signs() > 0 && n.op != opTuple && n.op != opMatrix
}

// maxMembers bounds the lists that are compared.
const maxMembers = 100

// members returns the items of a list or a set, each ± as two.
func members(n *node) ([]*node, bool) {
	items := []*node{n}
	if n.op == opList || n.op == opSet || n.op == opEither {
		items = n.args
	}
	var all []*node
	for _, item := range items {
		switch item.signs() {
		case 0:
			all = append(all, item)
		case 1:
			all = append(all, item.with(false), item.with(true))
		default:
			return nil, false
		}
	}
	return all, len(all) <= maxMembers
}

// sameMembers compares lists and sets in any order, each member once; words, letters and lists of equations of which one side
// has no names are compared in order.
func sameMembers(reference, given *node) bool {
	left, ok := members(reference)
	right, okay := members(given)
	if !ok || !okay || len(left) != len(right) {
		return false
	}
	left, right = unnamed(left, right), unnamed(right, left)
	if slices.ContainsFunc(left, isWord) || relations(left) != relations(right) {
		return slices.EqualFunc(left, right, same)
	}
	for _, member := range left {
		at := slices.IndexFunc(right, func(g *node) bool { return same(member, g) })
		if at < 0 {
			return false
		}
		right = slices.Delete(slices.Clone(right), at, at+1)
	}
	return true
}

// isWord reports whether a member of a list is words or a capital, whose order is likely to be the answer.
func isWord(n *node) bool {
	return n.op == opText || n.op == opName && unicode.IsUpper([]rune(n.name)[0])
}

// unnamed returns the values of equations that all tell the same variable (x = 2 or x = 3), if the others are no equations.
func unnamed(list, others []*node) []*node {
	if relations(list) != len(list) || relations(others) > 0 {
		return list
	}
	values := make([]*node, len(list))
	first := ""
	for i, n := range list {
		name, value, ok := assigned(n)
		if !ok || i > 0 && name != first {
			return list
		}
		first, values[i] = name, value
	}
	return values
}

func relations(list []*node) int {
	count := 0
	for _, n := range list {
		if n.op == opRelation {
			count++
		}
	}
	return count
}

// sameTuple compares coordinates and intervals in order and with their brackets; a column is the same as its coordinates.
func sameTuple(reference, given *node) bool {
	one, ok := coordinates(reference)
	other, okay := coordinates(given)
	return ok && okay && reference.brackets() == given.brackets() && slices.EqualFunc(one, other, same)
}

func (n *node) brackets() string {
	if n.op == opMatrix {
		return "()"
	}
	return n.name
}

// coordinates returns the entries of a tuple or of a matrix of one column.
func coordinates(n *node) ([]*node, bool) {
	switch n.op {
	case opTuple:
		return n.args, true
	case opMatrix:
		var column []*node
		for _, row := range n.args {
			if len(row.args) != 1 {
				return nil, false
			}
			column = append(column, row.args[0])
		}
		return column, true
	}
	return nil, false
}

// sameQuantity compares values with their units, percents and degrees.
func sameQuantity(reference, given *node) bool {
	one, unit := split(reference)
	other, also := split(given)
	if !sameUnit(unit, also) || marked(one) && marked(other) && one.op != other.op ||
		marked(one) && also != "" || marked(other) && unit != "" { // 12% is no 12°, and neither is 12 cm
		return false
	}
	if one.op == opPercent != (other.op == opPercent) {
		return samePercent(one, other)
	}
	if one.op == opDegree != (other.op == opDegree) {
		return sameValue(one, other) || sameValue(bare(one), bare(other))
	}
	return sameValue(one, other)
}

// marked reports whether a value bears the sign of percent or of degrees.
func marked(n *node) bool { return n.op == opPercent || n.op == opDegree }

// samePercent compares a percentage with a number without the sign: 50% is 0.5, and 50 too, since whoever asks for percent
// may leave out the sign; up to one percent the number would be in doubt (0.5% is not 0.5).
func samePercent(one, other *node) bool {
	if sameValue(one, other) {
		return true
	}
	v, ok := exact(bare(one))
	return ok && v.Cmp(big.NewRat(1, 1)) > 0 && sameValue(bare(one), bare(other))
}

// bare returns a value without the mark of percent or degrees and without its unit.
func bare(n *node) *node {
	n, _ = split(n)
	if marked(n) {
		return n.args[0]
	}
	return n
}

// split parts a value from its unit, through a sign before it.
func split(n *node) (*node, string) {
	switch n.op {
	case opUnit:
		inner, unit := split(n.args[0])
		if unit != "" && n.name != unit {
			unit += " " + n.name
			return inner, unit
		}
		return inner, n.name
	case opMinus:
		inner, unit := split(n.args[0])
		if marked(inner) {
			return make1(inner.op, "", make1(opMinus, "", inner.args[0])), unit
		}
		return make1(opMinus, "", inner), unit
	case opProduct: // $5 million
		if n.args[0].op == opUnit {
			inner, unit := split(n.args[0])
			rest := append([]*node{inner}, n.args[1:]...)
			return &node{op: opProduct, args: rest}, unit
		}
	}
	return n, ""
}

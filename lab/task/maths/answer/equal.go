package answer

import (
	"math"
	"math/big"
	"math/cmplx"
	"slices"
	"strings"
	"unicode"
)

// same compares the meaning of a reference and an answer. The order of the arguments matters where the reference
// decides.
func same(reference, given *node) bool {
	reference, given = reduced(reference), reduced(given)
	if relations(given.args) == len(given.args) && given.op == opList {
		reference = separate(reference)
	}
	if relations(reference.args) == len(reference.args) && reference.op == opList {
		given = separate(given)
	}
	either := func(is func(*node) bool) bool { return is(reference) || is(given) }
	has := func(o op) bool { return reference.op == o || given.op == o }
	switch {
	case has(opRelation):
		return sameClaim(reference, given)
	case either(several):
		return sameMembers(reference, given)
	case either(isRegion):
		return sameRegion(reference, given)
	case has(opText):
		return sameText(reference, given)
	case has(opTuple):
		return sameTuple(reference, given)
	case has(opMatrix):
		return reference.op == given.op && slices.EqualFunc(reference.args, given.args, func(a, b *node) bool {
			return slices.EqualFunc(a.args, b.args, same)
		})
	case has(opRatio):
		return reference.op == given.op && sameRatio(reference, given)
	case has(opBase):
		return reference.op == given.op && reference.name == given.name
	}
	return sameQuantity(reference, given)
}

// isRegion reports whether a node is a set of numbers that is neither a finite set nor a bounded interval.
func isRegion(n *node) bool {
	return n.op == opRegion || n.op == opName && n.name == `\mathbbR` || n.op == opTuple && len(n.args) == 2 &&
		(infinite(n.args[0]) < 0 || infinite(n.args[1]) > 0)
}

// sameRegion reports whether both are regions and have the same numbers.
func sameRegion(reference, given *node) bool {
	one, ok := regionOf(reference)
	other, okay := regionOf(given)
	return ok && okay && one.same(other)
}

// sameClaim compares two relations, or a relation with a value.
func sameClaim(reference, given *node) bool {
	both := reference.op == opRelation && given.op == opRelation
	name, value, named := assigned(reference)
	other, another, alsoNamed := assigned(given)
	if both && named && alsoNamed && name == other && same(value, another) || both && sameRelation(reference, given) {
		return true
	}
	one, ok := regionOf(reference)
	if region, okay := regionOf(given); ok && okay {
		return one.same(region)
	}
	// "f(x) = c" does not choose (C)
	if both && named && alsoNamed || !both && (reference.op == opText || given.op == opText) {
		return false
	}
	return slices.ContainsFunc(claimed(reference), func(r *node) bool {
		return slices.ContainsFunc(claimed(given), func(g *node) bool { return same(r, g) })
	})
}

// claimed returns the values that a relation claims: that of an assignment, the result of a calculation, a number and
// its rounding. Anything else is its own value.
func claimed(n *node) []*node {
	if n.op != opRelation {
		return []*node{n}
	}
	if _, value, ok := assigned(n); ok {
		return []*node{value}
	}
	if value, ok := computed(n); ok {
		return []*node{value}
	}
	return approximated(n)
}

// separate writes (x, y) = (2, 1) as x = 2, y = 1.
func separate(n *node) *node {
	if !n.only("=") || len(n.args) != 2 || n.args[0].op != opTuple || n.args[1].op != opTuple ||
		len(n.args[0].args) != len(n.args[1].args) {
		return n
	}
	all := &node{op: opList}
	for i, name := range n.args[0].args {
		all.args = append(all.args, newNode(opRelation, "=", name, n.args[1].args[i]))
	}
	return all
}

// assigned reads "x = 5", "5 = x", "f(x) = x^2", "(a, b) = (2, 3)", "x \in [0, 1]", "x = 2 + 3 = 5", "|AB| = 1" and
// "x ≈ 2.5": a name and its value.
func assigned(n *node) (name string, value *node, ok bool) {
	switch {
	case n.only("in") && len(n.args) == 2:
		return title(n.args[0]), n.args[1], title(n.args[0]) != ""
	case n.only("~") && len(n.args) == 2 && n.args[1].constant():
		return title(n.args[0]), n.args[1], title(n.args[0]) != ""
	case !n.only("="):
		return "", nil, false
	}
	sides := n.args
	if name = title(sides[0]); name == "" && len(sides) == 2 && title(sides[1]) != "" {
		sides = []*node{sides[1], sides[0]}
		name = title(sides[0])
	}
	if name == "" && len(sides) == 2 && sides[1].constant() {
		name = subject(sides[0])
	}
	if name == "" || bothNamed(sides[0], sides[1]) || len(sides) == 2 &&
		sides[1].any(func(m *node) bool { return m.op == opName && m.name == name }) {
		return "", nil, false
	}
	for _, s := range sides[2:] {
		if !same(sides[1], s) {
			return "", nil, false
		}
	}
	return name, sides[len(sides)-1], true
}

// bothNamed reports whether two sides are alike except for names: "A = B" and "f'(x) = f(x)" give the value of neither.
func bothNamed(a, b *node) bool {
	return a.op == b.op && (a.op == opName || a.op == opCall && opaque(a.name) && opaque(b.name))
}

// title returns what an expression names: a variable, letters such as AB, a function of variables and numbers, or a
// point. It is empty for others.
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

// subject returns what stands for a quantity on the left of an equation: an unknown function of anything, or the
// absolute value, sine, cosine, tangent or quotient of names from geometry. "x + 2 = 5" and "|x| = 3" are equations to
// solve: they have none.
func subject(n *node) string {
	if n.op == opCall && opaque(n.name) {
		return n.key()
	}
	names := n.variables(nil)
	for name := range names {
		if !unicode.IsUpper([]rune(name)[0]) && name[0] != '\\' && name != "z" {
			return ""
		}
	}
	known := n.op == opQuotient || n.op == opCall && slices.Contains([]string{"abs", "sin", "cos", "tan"}, n.name)
	if !known || len(names) == 0 || n.any(func(m *node) bool { return m.op == opNumber }) {
		return ""
	}
	return n.key()
}

// titles returns the titles of several expressions, where a number is its own; empty if one has none.
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

// computed reads a calculation, "2 + 3 = 5", and returns its result if it is correct.
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

// approximated reads "2\sqrt{2} ≈ 2.83" and returns both sides if the decimal is the other rounded.
func approximated(n *node) []*node {
	if !n.only("~") || len(n.args) != 2 || !rounds(n.args[0], n.args[1]) {
		return nil
	}
	return n.args
}

// rounds reports whether a number as written is a constant, rounded to its last digit.
func rounds(n, written *node) bool {
	n, unit := split(n)
	written, also := split(written)
	if !n.constant() || !sameUnit(unit, also) || marked(n) != marked(written) || marked(n) && n.op != written.op {
		return false
	}
	n, written = bare(n), bare(written)
	digits := written
	if digits.op == opMinus {
		digits = digits.args[0]
	}
	if digits.op != opNumber || digits.name == "" || strings.ContainsAny(digits.name, `eE\`) {
		return false
	}
	places := 0
	if at := strings.IndexByte(digits.name, '.'); at >= 0 {
		places = len(digits.name) - at - 1
	}
	x, y, clear := evaluate(n, written, 0)
	return clear && cmplx.Abs(x.value-y.value) <= math.Pow10(-places)*0.5000001
}

// sameRelation compares equations and inequalities: the differences of their sides must be proportional, with a
// positive factor for inequalities.
func sameRelation(a, b *node) bool {
	if len(a.args) != 2 || len(b.args) != 2 {
		return false
	}
	one, first := difference(a)
	other, second := difference(b)
	if first != second || first == "in" || first == "~" || ordered(one) || ordered(other) || one.constant() ||
		other.constant() {
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

// difference returns left - right, and the relation, turned so that it is never > or >=.
func difference(n *node) (*node, string) {
	left, right, relation := n.args[0], n.args[1], n.name
	if strings.HasPrefix(relation, ">") {
		left, right, relation = right, left, "<"+relation[1:]
	}
	return newNode(opSum, "", left, newNode(opMinus, "", right)), relation
}

// sameRatio compares ratios and times part by part.
func sameRatio(a, b *node) bool {
	return slices.EqualFunc(a.args, b.args, func(x, y *node) bool {
		x, xu := split(x)
		y, yu := split(y)
		return sameUnit(xu, yu) && zeros(x) == zeros(y) && sameValue(x, y)
	})
}

// zeros counts the leading zeros of a number: 3:05 is not 3:5.
func zeros(n *node) int {
	if n.op != opNumber || n.value.Cmp(new(big.Rat)) == 0 {
		return 0
	}
	return len(n.name) - len(strings.TrimLeft(n.name, "0"))
}

// several reports whether a node is a list, a set or a value with ±.
func several(n *node) bool {
	if n.op == opEither {
		_, ok := regionOf(n)
		return !ok
	}
	return n.op == opList || n.op == opSet || n.signs() > 0 && n.op != opTuple && n.op != opMatrix
}

// maxMembers limits the lists that are compared.
const maxMembers = 100

// members returns the items of a list or a set, with each ± as two.
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

// sameMembers compares lists and sets in any order, each member once. Words, letters, and lists of equations of which
// only one has names are compared in order.
func sameMembers(reference, given *node) bool {
	left, ok := members(reference)
	right, okay := members(given)
	if !ok || !okay || len(left) != len(right) {
		return false
	}
	left, right = spread(left), spread(right)
	left, right = unnamed(left, right), unnamed(right, left)
	if slices.ContainsFunc(left, isWord) || relations(left) != relations(right) {
		return slices.EqualFunc(left, right, sameEntry)
	}
	for _, member := range left {
		at := slices.IndexFunc(right, func(g *node) bool { return sameEntry(member, g) })
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

// sameEntry compares entries of lists, sets and tuples. There {5} is not 5, as it is for a whole answer.
func sameEntry(reference, given *node) bool {
	return (reference.op == opSet) == (given.op == opSet) && same(reference, given)
}

// spread writes x = 2, 1 as x = 2, x = 1.
func spread(list []*node) []*node {
	if len(list) < 2 || relations(list) != 1 || !list[0].only("=") || len(list[0].args) != 2 ||
		list[0].args[0].op != opName {
		return list
	}
	all := []*node{list[0]}
	for _, n := range list[1:] {
		if !n.constant() {
			return list
		}
		all = append(all, newNode(opRelation, "=", list[0].args[0], n))
	}
	return all
}

// unnamed returns the values of equations for one variable (x = 2 or x = 3), if the others are not equations.
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

// sameTuple compares coordinates and intervals in order, with their brackets. A column equals its coordinates.
func sameTuple(reference, given *node) bool {
	one, ok := coordinates(reference)
	other, okay := coordinates(given)
	return ok && okay && reference.brackets() == given.brackets() && slices.EqualFunc(one, other, sameEntry)
}

func (n *node) brackets() string {
	if n.op == opMatrix {
		return "()"
	}
	return n.name
}

// coordinates returns the entries of a tuple or of a matrix with one column.
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
		marked(one) && also != "" || marked(other) && unit != "" { // 12% is neither 12° nor 12 cm
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

// marked reports whether a value has a percent or degree sign.
func marked(n *node) bool { return n.op == opPercent || n.op == opDegree }

// samePercent compares a percentage with a number without the sign. 50% is 0.5, and also 50, since the question may ask
// for percent. Up to one percent the number would be in doubt: 0.5% is not 0.5.
func samePercent(one, other *node) bool {
	if sameValue(one, other) {
		return true
	}
	v, ok := exact(bare(one))
	return ok && v.Cmp(big.NewRat(1, 1)) > 0 && sameValue(bare(one), bare(other))
}

// bare returns a value without its percent or degree sign and its unit.
func bare(n *node) *node {
	n, _ = split(n)
	if marked(n) {
		return n.args[0]
	}
	return n
}

// split separates a value from its unit.
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
			return newNode(inner.op, "", newNode(opMinus, "", inner.args[0])), unit
		}
		return newNode(opMinus, "", inner), unit
	case opProduct: // $5 million
		if n.args[0].op == opUnit {
			inner, unit := split(n.args[0])
			rest := append([]*node{inner}, n.args[1:]...)
			return &node{op: opProduct, args: rest}, unit
		}
	}
	return n, ""
}

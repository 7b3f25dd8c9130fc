package answer

import (
	"math"
	"math/cmplx"
	"unicode"
)

// Tolerances, relative to the larger of two values.
const (
	closeExact   = 1e-13 // between expressions without decimal points
	closeDecimal = 1e-9  // where a decimal stands for a number that has none
)

// points at which expressions with variables are compared, and how many of them have to have values.
const (
	points    = 12
	minPoints = 4
)

// sameValue compares two expressions: exactly as rational numbers where both are, else by their values, at several points if
// they have variables. What cannot be told apart reliably is not the same.
func sameValue(a, b *node) bool {
	if one, ok := exact(a); ok {
		if other, ok := exact(b); ok {
			return one.Cmp(other) == 0
		}
	}
	if infinite(a) != 0 || infinite(b) != 0 {
		return infinite(a) == infinite(b)
	}
	if ordered(a) || ordered(b) {
		return false // a product of matrices: only its writing decides
	}
	tolerance := closeExact
	if pointed(a) || pointed(b) {
		tolerance = closeDecimal
	} else if long(a) || long(b) {
		return false
	}
	return compare(a, b, func(x, y approximation) bool { return near(x, y, tolerance) })
}

// pointed reports whether an expression is one decimal, which may stand for a number that has no end.
func pointed(n *node) bool {
	if n.op == opMinus {
		n = n.args[0]
	}
	return n.op == opNumber && n.point
}

// long reports whether a number in an expression has more digits than its values are computed to.
func long(n *node) bool {
	const reliable = 42
	return n.any(func(m *node) bool {
		v, ok := exact(m)
		return ok && bits(v) > reliable
	})
}

// compare evaluates two expressions and reports whether a condition holds at every point, of which enough have values.
func compare(a, b *node, holds func(x, y approximation) bool) bool {
	if a.constant() && b.constant() {
		x, y, clear := evaluate(a, b, 0)
		return clear && holds(x, y)
	}
	valid := 0
	for point := range points {
		x, y, clear := evaluate(a, b, point)
		if !clear && (finite(x) || finite(y)) {
			return false
		}
		if !clear {
			continue
		}
		if !holds(x, y) {
			return false
		}
		valid++
	}
	return valid >= minPoints
}

// evaluate returns the values at a point, and whether both are there and reliable.
func evaluate(a, b *node, point int) (x, y approximation, clear bool) {
	e := evaluation{point: point}
	x, y = e.at(a), e.at(b)
	return x, y, finite(x) && finite(y) && !e.unclear
}

func finite(x approximation) bool {
	return !cmplx.IsNaN(x.value) && !cmplx.IsInf(x.value) && !math.IsNaN(x.err)
}

// near reports whether two values are the same within a relative tolerance and their errors, which have to be small.
func near(x, y approximation, tolerance float64) bool {
	scale := max(cmplx.Abs(x.value), cmplx.Abs(y.value))
	doubt := x.err + y.err
	if doubt > 1e-11*max(scale, 1e-2) {
		return false
	}
	return cmplx.Abs(x.value-y.value) <= max(tolerance*scale, doubt)
}

// infinite returns the sign of an infinity, 0 for anything else.
func infinite(n *node) int {
	switch {
	case n.op == opConstant && n.name == "inf":
		return 1
	case n.op == opMinus:
		return -infinite(n.args[0])
	}
	return 0
}

// ordered reports whether an expression multiplies several capitals, which may be matrices or sets, or transposes one.
func ordered(n *node) bool {
	return n.any(func(m *node) bool {
		if m.op == opCall && m.name != "" && m.name[0] == '^' {
			return true
		}
		if m.op != opProduct {
			return false
		}
		capitals := map[string]bool{}
		for _, a := range m.args {
			for name := range a.variables(nil) {
				if unicode.IsUpper([]rune(name)[0]) {
					capitals[name] = true
				}
			}
		}
		return len(capitals) > 1
	})
}

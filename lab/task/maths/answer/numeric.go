package answer

import (
	"hash/fnv"
	"math"
	"math/cmplx"
	"unicode"
)

// Tolerances, relative to the larger of two values.
const (
	closeExact   = 1e-13 // between expressions without decimal points
	closeDecimal = 1e-9  // if a decimal stands for a number with no end
)

// Number of points at which expressions with variables are compared, and how many of them must have values.
const (
	points    = 12
	minPoints = 4
)

// sameValue compares two expressions: exactly if both are rational, else by their values, at several points if they
// have variables. Values that cannot be distinguished reliably are not the same.
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

// pointed reports whether an expression is one decimal, which may stand for a number with no end.
func pointed(n *node) bool {
	if n.op == opMinus {
		n = n.args[0]
	}
	return n.op == opNumber && n.point
}

// long reports whether a number in an expression has more digits than floating point.
func long(n *node) bool {
	const reliable = 42
	return n.any(func(m *node) bool {
		v, ok := exact(m)
		return ok && bits(v) > reliable
	})
}

// compare evaluates two expressions and reports whether a condition holds at every point with values. There must be
// enough.
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

// evaluate returns the values at a point, and whether both exist and are reliable.
func evaluate(a, b *node, point int) (x, y approximation, clear bool) {
	e := evaluation{point: point}
	x, y = e.at(a), e.at(b)
	return x, y, finite(x) && finite(y) && !e.unclear
}

func finite(x approximation) bool {
	return !cmplx.IsNaN(x.value) && !cmplx.IsInf(x.value) && !math.IsNaN(x.err)
}

// near reports whether two values are the same within a relative tolerance and their errors, which must be small.
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

// approximation is a complex number with a bound on its absolute error.
type approximation struct {
	value complex128
	err   float64
}

// epsilon is the relative error that an operation on float64 adds, with a margin for functions.
const epsilon = 4e-16

// evaluation computes an expression at one point.
type evaluation struct {
	point   int  // determines the values of variables
	unclear bool // a term vanished next to another
}

// at computes an expression; NaN if it cannot.
func (e *evaluation) at(n *node) approximation {
	if v, ok := exact(n); ok {
		f, _ := v.Float64()
		return rounded(complex(f, 0), 0)
	}
	switch n.op {
	case opName:
		return rounded(complex(placed(n.name, e.point), 0), 0)
	case opConstant:
		return rounded(constants(n.name), 0)
	case opSum:
		return e.sum(n.args)
	case opProduct:
		result := rounded(1, 0)
		for _, a := range n.args {
			v := e.at(a)
			result = rounded(result.value*v.value, cmplx.Abs(result.value)*v.err+cmplx.Abs(v.value)*result.err)
		}
		return result
	case opMinus:
		v := e.at(n.args[0])
		return approximation{-v.value, v.err}
	case opPercent:
		return e.at(newNode(opQuotient, "", n.args[0], integer(100)))
	case opDegree:
		return e.at(newNode(opQuotient, "", newNode(opProduct, "", n.args[0], newNode(opConstant, "pi")), integer(180)))
	case opQuotient, opPower, opCall:
		return e.apply(n)
	}
	return approximation{cmplx.NaN(), 0}
}

func rounded(v complex128, err float64) approximation {
	return approximation{v, err + epsilon*cmplx.Abs(v)}
}

func constants(name string) complex128 {
	switch name {
	case "pi":
		return math.Pi
	case "e":
		return math.E
	case "i":
		return 1i
	}
	return cmplx.NaN() // infinity cannot be calculated with
}

// sum adds, and notes when a term vanishes next to another: floating point cannot distinguish e^{100} and e^{100}+1.
func (e *evaluation) sum(terms []*node) approximation {
	const vanishing = 1e-10
	total, least, largest := approximation{}, math.Inf(1), 0.0
	for _, t := range terms {
		v := e.at(t)
		total = rounded(total.value+v.value, total.err+v.err)
		if size := cmplx.Abs(v.value); size > 0 {
			least, largest = min(least, size), max(largest, size)
		}
	}
	if least < vanishing*largest {
		e.unclear = true
	}
	return total
}

// apply computes a function of one or two arguments, and its error by moving each argument by its own.
func (e *evaluation) apply(n *node) approximation {
	values := make([]approximation, len(n.args))
	exactly := make([]complex128, len(n.args))
	for i, a := range n.args {
		values[i] = e.at(a)
		exactly[i] = values[i].value
	}
	result := function(n, exactly)
	err := 0.0
	for i, v := range values {
		exactly[i] = v.value + complex(v.err, 0)
		err += cmplx.Abs(function(n, exactly) - result)
		exactly[i] = v.value
	}
	return rounded(result, err)
}

// function computes a quotient, a power or a function.
func function(n *node, x []complex128) complex128 {
	switch n.op {
	case opQuotient:
		return x[0] / x[1]
	case opPower:
		if e, ok := exact(n.args[1]); ok && imag(x[0]) == 0 && real(x[0]) < 0 && !e.IsInt() && e.Denom().Bit(0) == 1 {
			root := raise(-x[0], x[1]) // the real root of a negative number, of odd degree
			if e.Num().Bit(0) == 1 {
				return -root
			}
			return root
		}
		return raise(x[0], x[1])
	}
	return named(n.name, x)
}

func raise(base, exponent complex128) complex128 {
	if imag(exponent) == 0 && real(exponent) == math.Trunc(real(exponent)) && math.Abs(real(exponent)) < 64 {
		result := complex(1, 0)
		for range int(math.Abs(real(exponent))) {
			result *= base
		}
		if real(exponent) < 0 {
			return 1 / result
		}
		return result
	}
	if base == 0 {
		return cmplx.NaN()
	}
	return cmplx.Pow(base, exponent)
}

// opaque reports whether only the name of a function is known.
func opaque(name string) bool {
	switch name {
	case "abs", "floor", "ceil", "!", "binom", "max", "min", "gcd", "lcm":
		return false
	}
	return !isFunction(name)
}

// named computes a function of complex numbers; NaN if it has no value.
func named(name string, x []complex128) complex128 {
	if len(x) == 2 {
		switch name {
		case "log":
			return cmplx.Log(x[0]) / cmplx.Log(x[1])
		case "binom":
			return gamma(x[0]+1) / (gamma(x[1]+1) * gamma(x[0]-x[1]+1))
		}
	}
	if f := elementary(name); f != nil && len(x) == 1 {
		return f(x[0])
	}
	switch name {
	case "max", "min":
		return extreme(name, x)
	case "floor", "ceil", "gcd", "lcm": // computed exactly, or compared by their arguments
		return symbolic("\x00"+name, x)
	}
	if !opaque(name) {
		return cmplx.NaN()
	}
	return symbolic(name, x)
}

// elementary returns a function of one number, nil for other names.
func elementary(name string) func(complex128) complex128 {
	inverse := func(f func(complex128) complex128) func(complex128) complex128 {
		return func(z complex128) complex128 { return 1 / f(z) }
	}
	switch name {
	case "sin":
		return cmplx.Sin
	case "cos":
		return cmplx.Cos
	case "tan":
		return cmplx.Tan
	case "cot":
		return inverse(cmplx.Tan)
	case "sec":
		return inverse(cmplx.Cos)
	case "csc":
		return inverse(cmplx.Sin)
	case "sinh":
		return cmplx.Sinh
	case "cosh":
		return cmplx.Cosh
	case "tanh":
		return cmplx.Tanh
	case "coth":
		return inverse(cmplx.Tanh)
	case "arcsin":
		return cmplx.Asin
	case "arccos":
		return cmplx.Acos
	case "arctan":
		return cmplx.Atan
	case "ln":
		return cmplx.Log
	case "log", "lg": // to an unknown base: neither e nor 10
		return func(z complex128) complex128 { return cmplx.Log(z) * 0.61803398874989484 }
	case "exp":
		return cmplx.Exp
	case "abs":
		return func(z complex128) complex128 { return complex(cmplx.Abs(z), 0) }
	case "!":
		return func(z complex128) complex128 { return gamma(z + 1) }
	}
	return nil
}

// gamma is the gamma function on the real line.
func gamma(z complex128) complex128 {
	if imag(z) != 0 {
		return cmplx.NaN()
	}
	return complex(math.Gamma(real(z)), 0)
}

func extreme(name string, x []complex128) complex128 {
	best := math.NaN()
	for i, z := range x {
		if imag(z) != 0 {
			return cmplx.NaN()
		}
		switch {
		case i == 0:
			best = real(z)
		case name == "max":
			best = max(best, real(z))
		default:
			best = min(best, real(z))
		}
	}
	return complex(best, 0)
}

// symbolic is a smooth function of its own for each name. It represents an unknown function.
func symbolic(name string, x []complex128) complex128 {
	result := complex(placed(name, 100), 0)
	for i, z := range x {
		a, b, c := placed(name, 101+3*i), placed(name, 102+3*i), placed(name, 103+3*i)
		result += complex(a, 0)*cmplx.Sin(complex(b, 0)*z+complex(c, 0)) + complex(c*0.37, 0)*z*result
	}
	return result
}

// placed returns the value of a variable at a point: 0.4 to 2.4, and negative at about a quarter of the points.
func placed(name string, point int) float64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{byte(point)})
	x := h.Sum64()
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	value := 0.4 + 2*float64(x>>11)/(1<<53)
	if point%2 == 1 && x&1 == 0 {
		return -value
	}
	return value
}

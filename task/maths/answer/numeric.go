package answer

import (
	"hash/fnv"
	"math"
	"math/cmplx"
)

// approximation is a complex number with a bound of its absolute error.
type approximation struct {
	value complex128
	err   float64
}

// epsilon is the relative error that an operation on float64 adds, with a margin for the functions.
const epsilon = 4e-16

// evaluation computes an expression at one point.
type evaluation struct {
	point   int  // which point: the values of the variables depend on it
	unclear bool // a term was too small beside another to count
}

// at computes an expression; what it cannot compute is NaN.
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
		return e.at(make1(opQuotient, "", n.args[0], integer(100)))
	case opDegree:
		return e.at(make1(opQuotient, "", make1(opProduct, "", n.args[0], make1(opConstant, "pi")), integer(180)))
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
	return cmplx.NaN() // infinity is no number to calculate with
}

// sum adds, and notes when a term vanishes beside another: e^{100} and e^{100}+1 are not to be told apart here.
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

// apply computes a function of one or two arguments, and its error by moving them by theirs.
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

// placed returns the value of a variable at a point: between 0.4 and 2.4, and negative at every other point or so.
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

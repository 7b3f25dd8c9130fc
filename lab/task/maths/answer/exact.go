package answer

import (
	"math/big"
)

// maxBits limits the numbers that are computed exactly.
const maxBits = 1 << 17

// exact returns the rational value of an expression, if arithmetic within the limits finds one.
func exact(n *node) (*big.Rat, bool) {
	switch n.op {
	case opNumber:
		return n.value, true
	case opSum, opProduct, opQuotient:
		return fold(n)
	case opMinus:
		v, ok := exact(n.args[0])
		if !ok {
			return nil, false
		}
		return new(big.Rat).Neg(v), true
	case opPercent:
		v, ok := exact(n.args[0])
		if !ok {
			return nil, false
		}
		return new(big.Rat).Quo(v, big.NewRat(100, 1)), true
	case opPower:
		return exactPower(n)
	case opCall:
		return exactCall(n)
	}
	return nil, false
}

// fold adds, multiplies or divides the arguments.
func fold(n *node) (*big.Rat, bool) {
	first, ok := exact(n.args[0])
	if !ok {
		return nil, false
	}
	result := new(big.Rat).Set(first)
	for _, a := range n.args[1:] {
		v, ok := exact(a)
		if !ok {
			return nil, false
		}
		switch n.op {
		case opSum:
			result.Add(result, v)
		case opProduct:
			result.Mul(result, v)
		case opQuotient:
			if v.Sign() == 0 {
				return nil, false
			}
			result.Quo(result, v)
		}
		if bits(result) > maxBits {
			return nil, false
		}
	}
	return result, true
}

func bits(v *big.Rat) int { return max(v.Num().BitLen(), v.Denom().BitLen()) }

// exactPower computes integer powers, and rational roots.
func exactPower(n *node) (*big.Rat, bool) {
	base, ok := exact(n.args[0])
	exponent, okay := exact(n.args[1])
	if !ok || !okay || !exponent.Denom().IsInt64() || !exponent.Num().IsInt64() {
		return nil, false
	}
	degree, times := exponent.Denom().Int64(), exponent.Num().Int64()
	if degree > 1 {
		if base, ok = exactRoot(base, degree); !ok {
			return nil, false
		}
	}
	size := max(times, -times)
	if base.Sign() == 0 && times <= 0 || size > maxBits || size < 0 || int(size)*bits(base) > maxBits {
		return nil, false
	}
	result := new(big.Rat).SetFrac(
		new(big.Int).Exp(base.Num(), big.NewInt(size), nil),
		new(big.Int).Exp(base.Denom(), big.NewInt(size), nil))
	if times < 0 {
		result.Inv(result)
	}
	return result, true
}

// exactRoot returns the real root of a number, if it is rational.
func exactRoot(v *big.Rat, degree int64) (*big.Rat, bool) {
	if v.Sign() < 0 && degree%2 == 1 {
		root, ok := exactRoot(new(big.Rat).Neg(v), degree)
		if !ok {
			return nil, false
		}
		return root.Neg(root), true
	}
	if v.Sign() < 0 || degree > 64 || bits(v) > 4096 {
		return nil, false
	}
	top, ok := integerRoot(v.Num(), degree)
	bottom, okay := integerRoot(v.Denom(), degree)
	if !ok || !okay {
		return nil, false
	}
	return new(big.Rat).SetFrac(top, bottom), true
}

// integerRoot finds the root of an integer by bisection.
func integerRoot(v *big.Int, degree int64) (*big.Int, bool) {
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(v.BitLen()/int(degree)+1))
	for low.Cmp(high) < 0 { // the least number whose power is not below v
		middle := new(big.Int).Add(low, high)
		middle.Rsh(middle, 1)
		if new(big.Int).Exp(middle, big.NewInt(degree), nil).Cmp(v) < 0 {
			low.Add(middle, big.NewInt(1))
		} else {
			high = middle
		}
	}
	return low, new(big.Int).Exp(low, big.NewInt(degree), nil).Cmp(v) == 0
}

// exactCall computes the functions that take rational numbers to rational numbers.
func exactCall(n *node) (*big.Rat, bool) {
	values := make([]*big.Rat, len(n.args))
	for i, a := range n.args {
		v, ok := exact(a)
		if !ok {
			return nil, false
		}
		values[i] = v
	}
	switch n.name {
	case "abs":
		return new(big.Rat).Abs(values[0]), true
	case "floor":
		return new(big.Rat).SetInt(floor(values[0])), true
	case "ceil":
		up := floor(new(big.Rat).Neg(values[0]))
		return new(big.Rat).SetInt(up.Neg(up)), true
	case "max", "min":
		best := values[0]
		for _, v := range values[1:] {
			if (v.Cmp(best) > 0) == (n.name == "max") {
				best = v
			}
		}
		return best, true
	case "gcd", "lcm":
		return divisor(n.name, values)
	case "!":
		if top, ok := small(values[0]); ok {
			return new(big.Rat).SetInt(new(big.Int).MulRange(1, top)), true
		}
	case "binom":
		top, ok := small(values[0])
		bottom, okay := small(values[1])
		if ok && okay {
			return new(big.Rat).SetInt(new(big.Int).Binomial(top, bottom)), true
		}
	}
	return nil, false
}

func floor(v *big.Rat) *big.Int {
	return new(big.Int).Div(v.Num(), v.Denom()) // Euclidean: the denominator is positive
}

// small returns an integer from 0 to 1,000, whose factorial is within the limits.
func small(v *big.Rat) (int64, bool) {
	if !v.IsInt() || v.Sign() < 0 || v.Cmp(big.NewRat(1000, 1)) > 0 {
		return 0, false
	}
	return v.Num().Int64(), true
}

// divisor returns the greatest common divisor, or the least common multiple, of positive integers.
func divisor(name string, values []*big.Rat) (*big.Rat, bool) {
	result := new(big.Int)
	for i, v := range values {
		if !v.IsInt() || v.Sign() <= 0 {
			return nil, false
		}
		common := new(big.Int).GCD(nil, nil, result, v.Num())
		switch {
		case i == 0:
			result.Set(v.Num())
		case name == "gcd":
			result = common
		default:
			result.Mul(result, v.Num()).Quo(result, common)
		}
		if result.BitLen() > maxBits {
			return nil, false
		}
	}
	return new(big.Rat).SetInt(result), true
}

package answer

import (
	"math"
	"math/cmplx"
)

// opaque reports whether nothing is known of a function but its name.
func opaque(name string) bool {
	switch name {
	case "abs", "floor", "ceil", "!", "binom", "max", "min", "gcd", "lcm":
		return false
	}
	return !isFunction(name)
}

// named computes a function at complex numbers; NaN where it has no value.
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
	case "floor", "ceil", "gcd", "lcm": // exact, or by what is in them
		return symbolic("\x00"+name, x)
	}
	if !opaque(name) {
		return cmplx.NaN()
	}
	return symbolic(name, x)
}

// elementary returns a function of one number, nil for a name that has none.
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
	case "log", "lg": // to a base that is not told: neither e nor 10
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

// gamma is the factorial's function on the real line.
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

// symbolic is a smooth function of a name's own, which stands for one that nothing is known of.
func symbolic(name string, x []complex128) complex128 {
	result := complex(placed(name, 100), 0)
	for i, z := range x {
		a, b, c := placed(name, 101+3*i), placed(name, 102+3*i), placed(name, 103+3*i)
		result += complex(a, 0)*cmplx.Sin(complex(b, 0)*z+complex(c, 0)) + complex(c*0.37, 0)*z*result
	}
	return result
}

package replay

import (
	"math"
	"math/big"
	"testing"
)

// precision of the reference, in bits.
const precision = 224

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

func bigMul(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Mul(a, b) }
func bigAdd(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Add(a, b) }
func bigSub(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Sub(a, b) }
func bigQuo(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Quo(a, b) }

// bigLn2 is 2 atanh(1/3).
var bigLn2 = bigMul(bigOf(2), bigAtanh(bigQuo(bigOf(1), bigOf(3))))

// bigAtanh is x + x^3/3 + x^5/5 + …, for small x.
func bigAtanh(x *big.Float) *big.Float {
	sum, term, square := bigOf(0), new(big.Float).Copy(x), bigMul(x, x)
	for n := 1; term.Sign() != 0 && term.MantExp(nil) > x.MantExp(nil)-precision; n += 2 {
		sum = bigAdd(sum, bigQuo(term, bigOf(float64(n))))
		term = bigMul(term, square)
	}
	return sum
}

// bigLog is the natural logarithm of a positive number m 2^e: e ln 2 + 2 atanh((m-1)/(m+1)).
func bigLog(x *big.Float) *big.Float {
	m := new(big.Float).SetPrec(precision)
	e := x.MantExp(m)
	if m.Cmp(bigOf(math.Sqrt2/2)) < 0 {
		m, e = bigMul(m, bigOf(2)), e-1
	}
	at := bigAtanh(bigQuo(bigSub(m, bigOf(1)), bigAdd(m, bigOf(1))))
	return bigAdd(bigMul(bigOf(float64(e)), bigLn2), bigMul(bigOf(2), at))
}

// bigExp is 2^k (exp(r/2^16))^(2^16) with x = k ln 2 + r, the inner one by its series.
func bigExp(x *big.Float) *big.Float {
	const halvings = 16
	quotient, _ := bigQuo(x, bigLn2).Float64()
	k := math.Round(quotient)
	r := bigSub(x, bigMul(bigOf(k), bigLn2))
	r.SetMantExp(r, -halvings)
	sum, term := bigOf(1), bigOf(1)
	for n := 1; ; n++ {
		term = bigQuo(bigMul(term, r), bigOf(float64(n)))
		if term.Sign() == 0 || term.MantExp(nil) < -precision-halvings {
			break
		}
		sum = bigAdd(sum, term)
	}
	for range halvings {
		sum = bigMul(sum, sum)
	}
	return sum.SetMantExp(sum, int(k))
}

// The reference itself must be right: against known digits, against package math, and against its own inverse.
func TestTheReferenceForExponentialsIsRight(t *testing.T) {
	for want, got := range map[string]*big.Float{
		"0.693147180559945309417232121458176568075500134360255254120680009": bigLn2,
		"2.71828182845904523536028747135266249775724709369995957496696763":  bigExp(bigOf(1)),
		"2.30258509299404568401799145468436420760110148862877297603332790":  bigLog(bigOf(10)),
	} {
		// 62 digits are printed, which are 206 bits.
		if text := got.Text('g', 63)[:63]; text != want[:63] {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	for _, x := range []float64{-1e6, -700, -1, -1e-20, 0, 1e-9, 0.5, 3, 709, 1e5} {
		back := bigLog(bigExp(bigOf(x)))
		if diff, _ := bigSub(back, bigOf(x)).Float64(); math.Abs(diff) > 1e-60*max(1, math.Abs(x)) {
			t.Errorf("log exp %v is off by %v", x, diff)
		}
		if got, _ := bigExp(bigOf(x)).Float64(); math.Abs(got-math.Exp(x)) > 1e-15*math.Exp(x) {
			t.Errorf("exp %v is %v, package math says %v", x, got, math.Exp(x))
		}
	}
}

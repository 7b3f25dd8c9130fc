package answer

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// surd is a + b sqrt(d), the exact model that written expressions are compared with.
type surd struct{ a, b *big.Rat }

func (x surd) plus(y surd) surd {
	return surd{new(big.Rat).Add(x.a, y.a), new(big.Rat).Add(x.b, y.b)}
}

func (x surd) minus(y surd) surd {
	return surd{new(big.Rat).Sub(x.a, y.a), new(big.Rat).Sub(x.b, y.b)}
}

func (x surd) times(y surd, d int64) surd {
	both := new(big.Rat).Mul(x.b, y.b)
	both.Mul(both, big.NewRat(d, 1))
	cross := new(big.Rat).Mul(x.a, y.b)
	return surd{both.Add(both, new(big.Rat).Mul(x.a, y.a)), cross.Add(cross, new(big.Rat).Mul(x.b, y.a))}
}

// over divides by y, whose norm is not zero.
func (x surd) over(y surd, d int64) surd {
	norm := y.times(surd{y.a, new(big.Rat).Neg(y.b)}, d).a
	q := x.times(surd{y.a, new(big.Rat).Neg(y.b)}, d)
	return surd{q.a.Quo(q.a, norm), q.b.Quo(q.b, norm)}
}

func (x surd) equal(y surd) bool { return x.a.Cmp(y.a) == 0 && x.b.Cmp(y.b) == 0 }

// canonical writes a surd in its plainest form.
func (x surd) canonical(d int64) string {
	return fmt.Sprintf(`\frac{%s}{%s} + \frac{%s}{%s}\sqrt{%d}`, x.a.Num(), x.a.Denom(), x.b.Num(), x.b.Denom(), d)
}

// written draws an expression and returns it with its value.
func written(r *rand.Rand, d int64, depth int) (string, surd) {
	if depth == 0 {
		n := r.Int64N(9) + 1
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf(`\sqrt{%d}`, n*n*d), surd{new(big.Rat), big.NewRat(n, 1)}
		case 1:
			m := r.Int64N(8) + 2
			return fmt.Sprintf([]string{`\frac{%d}{%d}`, "(%d/%d)", `\dfrac{%d}{%d}`}[r.IntN(3)], n, m),
				surd{big.NewRat(n, m), new(big.Rat)}
		case 2:
			return fmt.Sprintf("%d.5", n), surd{big.NewRat(2*n+1, 2), new(big.Rat)}
		}
		return fmt.Sprint(n), surd{big.NewRat(n, 1), new(big.Rat)}
	}
	one, x := written(r, d, depth-1)
	other, y := written(r, d, r.IntN(depth))
	switch r.IntN(6) {
	case 0:
		return one + " - (" + other + ")", x.minus(y)
	case 1:
		return "(" + one + ")(" + other + ")", x.times(y, d)
	case 2:
		return `\left(` + one + `\right) \cdot \left(` + other + `\right)`, x.times(y, d)
	case 3:
		if y.a.Sign() != 0 || y.b.Sign() != 0 {
			return `\frac{` + one + "}{" + other + "}", x.over(y, d)
		}
	case 4:
		return "(" + one + ")^2", x.times(x, d)
	}
	return one + "+" + other, x.plus(y)
}

// Random expressions with roots against exact arithmetic in Q(sqrt d).
func TestRandomExpressionsAreEqualWhenTheirValuesAre(t *testing.T) {
	r := rollout.Stream(20, "answers", 0)
	equals, unknown := 0, 0
	rounds := tests.Count(2000, 300)
	for range rounds {
		d := []int64{2, 3, 5, 6, 7}[r.IntN(5)]
		text, value := written(r, d, 1+r.IntN(4))
		if Parse(text).Err() != nil {
			t.Fatalf("%q: %v", text, Parse(text).Err())
		}
		if equal(text, value.canonical(d)) {
			equals++
		} else {
			unknown++ // digits beyond what can be told apart
		}
		near := value
		switch r.IntN(3) {
		case 0:
			near = value.plus(surd{big.NewRat(1, 1+r.Int64N(1000)), new(big.Rat)})
		case 1:
			near = value.plus(surd{new(big.Rat), big.NewRat(1, 1+r.Int64N(1000))})
		case 2:
			near = surd{value.a, new(big.Rat).Neg(value.b)}
		}
		if !near.equal(value) && equal(text, near.canonical(d)) {
			t.Errorf("%q is not %s", text, near.canonical(d))
		}
		other, another := written(r, d, 1+r.IntN(3))
		if !another.equal(value) && equal(text, other) {
			t.Errorf("%q is not %q", text, other)
		}
	}
	if unknown > rounds/20 {
		t.Errorf("%d of %d equal expressions were recognised", equals, rounds)
	}
}

func FuzzEqual(f *testing.F) {
	for _, group := range alike() {
		for _, text := range group {
			f.Add(text, group[0])
		}
	}
	f.Add(`\frac{`, "((((((")
	f.Fuzz(func(t *testing.T, one, other string) {
		a, b := Parse(one), Parse(other)
		if !a.Empty() && !Equal(a, a) {
			t.Fatalf("%q is not itself", one)
		}
		if a.Empty() && Equal(a, b) {
			t.Fatalf("%q, which is nothing, is %q", one, other)
		}
		if Equal(a, b) != Equal(b, a) {
			t.Fatalf("%q and %q: equal one way only", one, other)
		}
		if more := Parse("(" + one + ")+1"); a.Err() == nil && more.Err() == nil && sameKind(a.meaning) &&
			Equal(a, more) {
			t.Fatalf("%q is itself and one more", one)
		}
	})
}

// sameKind reports whether a node is a number to which one can be added.
func sameKind(n *node) bool {
	_, ok := exact(n)
	return ok
}

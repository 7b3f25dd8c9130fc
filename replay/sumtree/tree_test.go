package sumtree

import (
	"fmt"
	"math"
	"testing"
	"unsafe"
)

func TestGrowthKeepsWeightsAndSums(t *testing.T) {
	for _, boundary := range []int{1, 16, 256, 4096, 65_536, 1_048_576} {
		before := max(boundary-2, 0)
		r := stream(uint64(boundary))
		tree, m := New(before), make(model, before)
		tree.Refill(func(leaf []float64) {
			for i := range leaf {
				leaf[i] = r.ExpFloat64()
				m[i] = leaf[i]
			}
		})
		for n := before + 1; n <= boundary+2; n++ {
			total := tree.Total()
			tree.Grow(n)
			m = append(m, 0)
			if tree.Total() != total {
				t.Errorf("growing to %d changed the total from %v to %v", n, total, tree.Total())
			}
			if testing.Short() && n > 1<<17 {
				continue
			}
			m.mustAgree(t, tree)
			m[n-1] = 1
			tree.Set(n-1, 1)
			if got := tree.Find(tree.Total()); got != n-1 {
				t.Errorf("%d units: the end of the total is in unit %d", n, got)
			}
		}
		m.mustAgree(t, tree)
		tree.Grow(boundary / 2)
		if tree.Len() != boundary+2 {
			t.Errorf("%d units after growing to fewer, want %d", tree.Len(), boundary+2)
		}
	}
}

func TestGrowthByManyLevelsAtOnceKeepsWeightsAndSums(t *testing.T) {
	for _, n := range []int{0, 3, 16, 100} {
		tree, m := New(n), make(model, n, 20_000)
		for i := range m {
			m[i] = float64(1 + i)
			tree.Set(i, m[i])
		}
		m = m[:20_000]
		tree.Grow(len(m))
		m.mustAgree(t, tree)
		tree.Set(17_000, 0.5)
		m[17_000] = 0.5
		m.mustAgree(t, tree)
	}
}

func TestGrowthCostsConstantTimePerUnitAndAQuarterOfRoom(t *testing.T) {
	const n = 300_000
	tree := &Tree{}
	moves, held := 0, 0
	for i := 1; i <= n; i++ {
		tree.Grow(i)
		if held != tree.Bytes() {
			held = tree.Bytes()
			moves++
		}
		if most := 8.54*1.25*float64(i) + 16*8*6; float64(held) > most {
			t.Fatalf("%d units: %d bytes, want at most %.0f", i, held, most)
		}
	}
	// A level of v values that grows by a quarter moves log(v/16)/log(5/4) times, and more while 16
	// values are more than a quarter.
	if moves > 150 {
		t.Errorf("levels moved %d times", moves)
	}
	for _, n := range []int{50_000, 1_000_000} {
		if perUnit := float64(New(n).Bytes()) / float64(n); perUnit > 8.55 {
			t.Errorf("%d units: %.3f bytes per unit", n, perUnit)
		}
	}
}

func TestNodesAreTwoCacheLines(t *testing.T) {
	tree := &Tree{}
	for n := 1; n < 40_000; n += 1 + n/50 {
		tree.Grow(n)
		for k := range tree.depth {
			if at := uintptr(unsafe.Pointer(&tree.at[k][0])); at%128 != 0 {
				t.Fatalf("%d units: level %d is at %#x", n, k, at)
			}
		}
	}
}

func TestScaleMultipliesExactly(t *testing.T) {
	r := stream(3)
	for _, k := range []int{0, 1, -1, 300, -300, 1023, 1024, -1022, -1023, -1074, -1075, -1090, 2000, -2000,
		5000, -5000} {
		tree, m := New(1000), make(model, 1000)
		for i := range m {
			// As much of the range as does not overflow.
			most := min(1023, 1000-k)
			m[i] = math.Ldexp(1+r.Float64(), max(-1100, most-r.IntN(2000)))
			if most < -1074 || i%5 == 0 {
				m[i] = 0
			}
			tree.Set(i, m[i])
			m[i] = math.Ldexp(m[i], k)
		}
		tree.Scale(k)
		m.mustAgree(t, tree)
	}
}

func TestMistakesPanic(t *testing.T) {
	full := func() *Tree {
		tree := New(20)
		tree.Set(3, 1)
		return tree
	}
	refill := func(w float64) func() {
		return func() { full().Refill(func(leaf []float64) { leaf[19] = w }) }
	}
	out, scratch := make([]int32, 4), make([]float64, 4)
	for name, mistake := range map[string]func(){
		"set past the end":           func() { full().Set(20, 1) }, // in the padding of its node
		"set before the start":       func() { full().Set(-1, 1) },
		"at past the end":            func() { full().At(20) },
		"at of an empty tree":        func() { (&Tree{}).At(0) },
		"a negative weight":          func() { full().Set(3, -1e-300) },
		"a weight of NaN":            func() { full().Set(3, math.NaN()) },
		"an infinite weight":         func() { full().Set(3, math.Inf(1)) },
		"refill with a negative":     refill(-1),
		"refill with NaN":            refill(math.NaN()),
		"refill with infinity":       refill(math.Inf(1)),
		"refill with minus infinity": refill(math.Inf(-1)),
		"scale to infinity":          func() { full().Scale(1024) },
		"find in an empty tree":      func() { (&Tree{}).Find(0) },
		"find where all weights are 0": func() {
			tree := full()
			tree.Set(3, 0)
			tree.Find(0)
		},
		"draw strata from nothing":  func() { New(5).Stratified(stream(0), out, scratch) },
		"draw freely from nothing":  func() { New(5).Independent(stream(0), out, scratch) },
		"draw with little scratch":  func() { full().Stratified(stream(0), out, scratch[:3:3]) },
		"find a negative number":    func() { full().Find(-0.1) },
		"find NaN":                  func() { full().Find(math.NaN()) },
		"find more than out holds":  func() { full().FindAll(make([]float64, 5), out[:4:4]) },
		"more units than int32 can": func() { New(int(int64(math.MaxInt32) + 1)) },
		"draw from an overflow": func() {
			tree := full()
			tree.Set(0, math.MaxFloat64)
			tree.Set(1, math.MaxFloat64)
			tree.Find(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nothing happened")
				}
			}()
			mistake()
		})
	}
}

func TestTotalRecoversFromOverflow(t *testing.T) {
	tree := New(300)
	tree.Set(7, 3)
	tree.Set(0, math.MaxFloat64)
	tree.Set(299, math.MaxFloat64)
	if !math.IsInf(tree.Total(), 1) {
		t.Fatalf("total %v", tree.Total())
	}
	tree.Scale(-1)
	if tree.Total() != math.MaxFloat64 {
		t.Errorf("total %v after scaling", tree.Total())
	}
	tree.Set(0, 0)
	tree.Set(299, 0)
	if tree.Total() != 1.5 {
		t.Errorf("total %v, want 1.5", tree.Total())
	}
}

func TestMinusZeroIsZero(t *testing.T) {
	minus := math.Copysign(0, -1)
	tree := New(40)
	tree.Set(20, 2)
	tree.Refill(func(leaf []float64) { leaf[3], leaf[4], leaf[39] = 1, minus, minus })
	tree.Set(3, minus)
	for _, i := range []int{3, 4, 39} {
		if got := math.Float64bits(tree.At(i)); got != 0 {
			t.Errorf("weight %#x of unit %d", got, i)
		}
	}
	if got := tree.Find(minus); got != 20 {
		t.Errorf("-0 is in unit %d", got)
	}
}

func ExampleTree() {
	tree := New(4)
	for i, w := range []float64{1, 0, 5, 2} {
		tree.Set(i, w)
	}
	fmt.Println("total", tree.Total())

	tree.Grow(5)
	tree.Set(4, 8)
	tree.Set(2, 0) // gone
	fmt.Println("total", tree.Total())

	drawn := make([]int32, 11) // one from each eleventh of the total
	scratch := make([]float64, len(drawn))
	tree.Stratified(stream(1), drawn, scratch)
	fmt.Println(drawn)

	// Output:
	// total 8
	// total 11
	// [0 3 3 4 4 4 4 4 4 4 4]
}

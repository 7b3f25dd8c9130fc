package sumtree

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/sampleuv"
)

const benchBatch = 64

// fenwick is a binary indexed tree: updates add differences to the sums above, which drift.
type fenwick struct {
	weights []float64
	sums    []float64 // sums[i] of the i & -i units up to and with i-1
}

func newFenwick(weights []float64) *fenwick {
	f := &fenwick{weights: weights, sums: make([]float64, len(weights)+1)}
	f.rebuild()
	return f
}

func (f *fenwick) rebuild() {
	copy(f.sums[1:], f.weights)
	for i := range f.sums {
		if above := i + i&-i; i > 0 && above < len(f.sums) {
			f.sums[above] += f.sums[i]
		}
	}
}

func (f *fenwick) set(i int, w float64) {
	d := w - f.weights[i]
	f.weights[i] = w
	for i++; i < len(f.sums); i += i & -i {
		f.sums[i] += d
	}
}

func (f *fenwick) total() float64 {
	sum := 0.0
	for i := len(f.sums) - 1; i > 0; i -= i & -i {
		sum += f.sums[i]
	}
	return sum
}

func (f *fenwick) find(u float64) int {
	at := 0
	for step := 1 << (bits.Len(uint(len(f.sums)-1)) - 1); step > 0; step /= 2 {
		if next := at + step; next < len(f.sums) && f.sums[next] <= u {
			u -= f.sums[next]
			at = next
		}
	}
	return min(at, len(f.weights)-1)
}

// A baseline that does something else would be no baseline.
func TestFenwickFindsWhatTreeDoes(t *testing.T) {
	r := stream(1)
	weights := make([]float64, 1000)
	fen, tree := newFenwick(weights), New(len(weights))
	for range 2000 {
		i, w := r.IntN(len(weights)), float64(r.IntN(5))
		fen.set(i, w)
		tree.Set(i, w)
	}
	for u := 0.5; u < tree.Total(); u++ {
		if got, want := fen.find(u), tree.Find(u); got != want {
			t.Fatalf("find %v of %v: unit %d, want %d", u, fen.total(), got, want)
		}
	}
}

// perUnit reports the time per unit, its ratio to the baseline's if there is one, and returns it.
func perUnit(b *testing.B, n int, baseline float64) float64 {
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
	b.ReportMetric(ns, "ns/unit")
	if baseline > 0 {
		b.ReportMetric(ns/baseline, "x-baseline")
	}
	return ns
}

// contender is one way to do what a benchmark measures, for n units at a time.
type contender struct {
	name string
	n    int
	do   func()
}

// race measures each contender; the first is the baseline of the others.
func race(b *testing.B, units int, contenders ...contender) {
	baseline := 0.0
	for i, c := range contenders {
		b.Run(fmt.Sprintf("N=%d/%s", units, c.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.do()
			}
			if ns := perUnit(b, c.n, baseline); i == 0 {
				baseline = ns
			}
		})
	}
}

// forests calls f for each size with the same weights in this package's tree, in gonum's and in a
// Fenwick tree.
func forests(f func(units int, tree *Tree, gonum sampleuv.Weighted, fen *fenwick)) {
	for _, units := range []int{50_000, 1_000_000, 10_000_000} {
		r := rand.NewPCG(1, 2)
		weights := make([]float64, units)
		for i := range weights {
			weights[i] = someWeight(r)
		}
		tree := New(units)
		tree.Refill(func(leaf []float64) { copy(leaf, weights) })
		f(units, tree, sampleuv.NewWeighted(weights, rand.NewPCG(3, 4)), newFenwick(weights))
	}
}

func someWeight(r *rand.PCG) float64 { return 0.01 + float64(r.Uint64()>>11)*0x1p-53 }

// BenchmarkSet updates random units, 64 at a time.
func BenchmarkSet(b *testing.B) {
	forests(func(units int, tree *Tree, gonum sampleuv.Weighted, fen *fenwick) {
		r := rand.NewPCG(5, 6)
		updates := func(set func(i int, w float64)) func() {
			return func() {
				for range benchBatch {
					i, _ := bits.Mul64(r.Uint64(), uint64(units))
					set(int(i), someWeight(r))
				}
			}
		}
		race(b, units,
			contender{"baseline=gonum", benchBatch, updates(gonum.Reweight)},
			contender{"fenwick", benchBatch, updates(fen.set)},
			contender{"tree", benchBatch, updates(tree.Set)})
	})
}

// BenchmarkDraw draws batches of 64 with replacement.
func BenchmarkDraw(b *testing.B) {
	forests(func(units int, tree *Tree, gonum sampleuv.Weighted, fen *fenwick) {
		r := rand.New(rand.NewPCG(7, 8))
		out, scratch := make([]int32, benchBatch), make([]float64, benchBatch)
		race(b, units,
			// gonum's draws take the unit away: it is put back, with the weight that the caller keeps.
			contender{"baseline=gonum", benchBatch, func() {
				for i := range out {
					unit, _ := gonum.Take()
					gonum.Reweight(unit, fen.weights[unit])
					out[i] = int32(unit)
				}
			}},
			contender{"fenwick", benchBatch, func() {
				total := fen.total()
				for i := range out {
					out[i] = int32(fen.find(r.Float64() * total))
				}
			}},
			contender{"tree,independent", benchBatch, func() { tree.Independent(r, out, scratch) }},
			contender{"tree,stratified", benchBatch, func() { tree.Stratified(r, out, scratch) }})
	})
}

// BenchmarkScale halves or doubles all weights.
func BenchmarkScale(b *testing.B) {
	forests(func(units int, tree *Tree, gonum sampleuv.Weighted, fen *fenwick) {
		k := 1
		scaled := func() []float64 {
			k = -k
			factor := math.Ldexp(1, k)
			for i := range fen.weights {
				fen.weights[i] *= factor
			}
			return fen.weights
		}
		race(b, units,
			contender{"baseline=gonum", units, func() { gonum.ReweightAll(scaled()) }},
			contender{"fenwick", units, func() { scaled(); fen.rebuild() }},
			contender{"tree", units, func() { k = -k; tree.Scale(k) }})
	})
}

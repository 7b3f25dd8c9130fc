package sumtree

import (
	"math"
	"slices"
	"testing"
)

// adversaries are weights that make rounding do its worst, as functions of the unit; n is their number.
var adversaries = map[string]func(i, n int) float64{
	"tiny beside huge": func(i, n int) float64 {
		return []float64{1, 0, 1e-17, 0, 1e17, 0, 1e-300, 0, 3}[i%9]
	},
	"one at the start": func(i, n int) float64 { return float64(max(1-i, 0)) / 3 },
	"one at the end":   func(i, n int) float64 { return float64(i/(n-1)) / 3 },
	"huge, then ulps": func(i, n int) float64 {
		return []float64{0x1p53, 1, 1, 0.75, 1.5, 0.5, 0, 0}[min(i, 5+i%3)]
	},
	"ulps, then huge":     func(i, n int) float64 { return []float64{0.3, 0, 0x1p53 + 2, 0}[i*4/n] },
	"every third, thirds": func(i, n int) float64 { return float64((i+1)%3/2) / 3 },
	"denormals":           func(i, n int) float64 { return float64(i%3%2) * math.SmallestNonzeroFloat64 },
	"denormal and normal": func(i, n int) float64 { return []float64{0x1p-1074, 0, 0x1p-1022, 0}[i%4] },
	"near overflow":       func(i, n int) float64 { return []float64{0, 0x1p970, 1, 0, 0x1p1000, 0}[i%6] },
	"a falling slope":     func(i, n int) float64 { return float64(i%2) * math.Exp(-float64(i)) },
	"a rising slope":      func(i, n int) float64 { return float64(i%2) * math.Exp(-float64(n-i)) },
}

// edges are the numbers where rounding decides: around every running sum that a descent compares with,
// and around the total.
func edges(tree *Tree) []float64 {
	var at []float64
	sum := 0.0
	for i := range tree.Len() {
		sum += tree.At(i)
		at = append(at, sum)
	}
	for k := range tree.depth {
		sum := 0.0
		for _, v := range tree.at[k] {
			sum += v
			at = append(at, sum)
		}
	}
	at = append(at, 0, tree.Total(), tree.Total()/2, 2*tree.Total())
	for _, u := range at[:len(at):len(at)] {
		at = append(at, math.Nextafter(u, math.Inf(1)), math.Max(0, math.Nextafter(u, 0)), u*(1-0x1p-52), u*(1+0x1p-51))
	}
	slices.Sort(at)
	return at
}

func TestAUnitOfWeightZeroIsNeverFound(t *testing.T) {
	for name, weight := range adversaries {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{2, 9, 16, 17, 256, 257, 1000, 5000} {
				tree := New(n)
				for i := range n {
					tree.Set(i, weight(i, n))
				}
				at := edges(tree)
				out := make([]int32, len(at))
				tree.FindAll(slices.Clone(at), out)
				for i, unit := range out {
					if !(tree.At(int(unit)) > 0) {
						t.Fatalf("%d units: find %v of %v: unit %d of weight 0", n, at[i], tree.Total(), unit)
					}
					if i > 0 && unit < out[i-1] {
						t.Fatalf("%d units: find %v: unit %d, but %v: unit %d", n, at[i-1], out[i-1], at[i], unit)
					}
				}
				r := stream(uint64(n))
				drawn, scratch := make([]int32, 300), make([]float64, 300)
				for _, draw := range []func(){
					func() { tree.Stratified(r, drawn, scratch) },
					func() { tree.Independent(r, drawn, scratch) },
				} {
					draw()
					for _, unit := range drawn {
						if !(tree.At(int(unit)) > 0) {
							t.Fatalf("%d units: drew unit %d of weight 0", n, unit)
						}
					}
				}
			}
		})
	}
}

// The intervals that Find gives to units are as long as their weights up to rounding: their ends,
// found by bisection, are the running sums.
func TestIntervalsAreAsLongAsWeights(t *testing.T) {
	for _, n := range []int{5, 16, 40, 300, 5000} {
		r := stream(uint64(n))
		tree := New(n)
		for i := range n {
			tree.Set(i, math.Exp(8*(r.Float64()-0.5))*float64(min(r.IntN(3), 1)))
		}
		tree.Set(0, 1)
		start := 0.0
		for i := range n {
			end := start + tree.At(i)
			if i%(1+n/100) == 0 {
				// The least number that finds a unit after i.
				from, to := 0.0, tree.Total()
				for range 80 {
					if middle := from + (to-from)/2; tree.Find(middle) > i {
						to = middle
					} else {
						from = middle
					}
				}
				if math.Abs(to-end) > 1e-14*tree.Total() {
					t.Errorf("%d units: the interval of unit %d ends at %v, want %v", n, i, to, end)
				}
			}
			start = end
		}
	}
}

func TestStratifiedDrawsOneUnitFromEachSegment(t *testing.T) {
	for _, n := range []int{1, 7, 64, 129, 1000} {
		const units = 300
		r := stream(uint64(n))
		tree := New(units)
		for i := range units {
			tree.Set(i, float64(r.IntN(4)*r.IntN(20)))
		}
		starts := make([]float64, units+1)
		for i := range units {
			starts[i+1] = starts[i] + tree.At(i)
		}
		drawn, scratch := make([]int32, n), make([]float64, n)
		for range 50 {
			tree.Stratified(r, drawn, scratch)
			times := make([]int, units)
			for s, unit := range drawn {
				times[unit]++
				from, to := float64(s)/float64(n)*tree.Total(), float64(s+1)/float64(n)*tree.Total()
				if starts[unit+1] < from*(1-1e-15) || starts[unit] > to {
					t.Fatalf("draw %d of %d, from [%v, %v): unit %d of [%v, %v)", s, n, from, to, unit, starts[unit],
						starts[unit+1])
				}
			}
			for i, c := range times {
				expected := float64(n) * tree.At(i) / tree.Total()
				if float64(c) > math.Ceil(expected)+1 || float64(c) < math.Floor(expected)-1 {
					t.Fatalf("unit %d of share %v came up %d times of %d", i, tree.At(i)/tree.Total(), c, n)
				}
			}
		}
	}
}

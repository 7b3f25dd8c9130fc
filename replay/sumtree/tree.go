package sumtree

import (
	"math"
	"slices"
)

// Tree holds the weights of units and, above them, their sums. The zero value is empty and ready.
type Tree struct {
	levels
	total float64
	nodes []int32 // scratch of SetEach
}

// New returns a tree of n units of weight 0.
func New(n int) *Tree {
	t := &Tree{}
	t.Grow(n)
	return t
}

// Len returns the number of units, those of weight 0 too.
func (t *Tree) Len() int { return t.n }

// Bytes returns the memory held, with the room that growth left.
func (t *Tree) Bytes() int { return t.bytes() }

// Grow makes the tree hold at least n units; new ones have weight 0. It recomputes no sum: growing one
// by one costs O(1) per unit, amortised.
func (t *Tree) Grow(n int) { t.grow(n, 0, t.total) }

// At returns the weight of unit i.
func (t *Tree) At(i int) float64 {
	t.mustHave(i)
	return t.at[0][i]
}

// Total returns the sum of all weights, in O(1).
func (t *Tree) Total() float64 { return t.total }

// Set gives unit i the weight w, in O(log N); 0 removes it from all draws.
func (t *Tree) Set(i int, w float64) {
	t.mustHave(i)
	if !validWeight(w) {
		badValue(i, "weight", w)
	}
	v := math.Abs(w) // -0 becomes 0
	if t.at[0][i] == v {
		return // sums that stay the same although a weight changes are too rare to look for
	}
	for k, j := 0, i; k < t.depth; k++ {
		level := t.at[k]
		level[j] = v
		v = nodeOf(level, j).sum()
		j /= width
	}
	t.total = v
}

// SetEach is Set of each unit, which are at most as many as the weights. Sums that units share are recomputed once,
// level by level, so that units next to one another cost little more than one of them, and the waits for memory
// overlap.
func (t *Tree) SetEach(units []int32, weights []float64) {
	t.nodes = t.nodes[:0]
	for k, i := range units {
		t.mustHave(int(i))
		if !validWeight(weights[k]) {
			badValue(int(i), "weight", weights[k])
		}
		t.at[0][i] = math.Abs(weights[k]) // -0 becomes 0
		if node := i / width; len(t.nodes) == 0 || t.nodes[len(t.nodes)-1] != node {
			t.nodes = append(t.nodes, node)
		}
	}
	slices.Sort(t.nodes)
	for k := 0; k < t.depth; k++ {
		t.nodes = slices.Compact(t.nodes)
		for j, node := range t.nodes {
			sum := nodeOf(t.at[k], int(node)*width).sum()
			if k+1 == t.depth {
				t.total = sum
				break
			}
			t.at[k+1][node] = sum
			t.nodes[j] = node / width
		}
	}
}

// Refill lets weights rewrite the weights of all units in place, then recomputes every sum, in O(N) and
// in the order of memory. The slice is not to be kept.
func (t *Tree) Refill(weights func(leaf []float64)) {
	weights(t.units())
	t.resum((*node).checkedSum)
}

// Scale multiplies every weight by 2^k. Nothing is rounded except what falls below the normal
// numbers, 2^-1022, so that probabilities stay as they are; a weight that overflows panics.
func (t *Tree) Scale(k int) {
	if k < -1074 || k > 1023 { // no float is 2^k
		t.resum(func(a *node, first int) float64 {
			for i, w := range a {
				a[i] = math.Ldexp(w, k)
			}
			return a.checkedSum(first)
		})
		return
	}
	factor := math.Ldexp(1, k)
	t.resum(func(a *node, first int) float64 {
		for i := range a {
			a[i] *= factor
		}
		return a.checkedSum(first)
	})
}

// resum recomputes every sum from the units up. bottom sums a node of units, of which the first is
// given, and may change it before: one pass over the units is then enough.
func (t *Tree) resum(bottom func(a *node, first int) float64) {
	for k := range t.depth {
		level := t.at[k]
		above := []float64{0}
		if k+1 < t.depth {
			above = t.at[k+1]
		}
		for i := 0; i < len(level); i += width {
			a := nodeOf(level, i)
			if k == 0 {
				above[i/width] = bottom(a, i)
			} else {
				above[i/width] = a.sum()
			}
		}
		t.total = above[0]
	}
}

// sum adds in the one order in which every sum is made: quarters first, then one quarter to the next.
// descend compares with the same running sums of quarters, so that it ends where the sum does.
func (a *node) sum() float64 {
	return (((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])) +
		((a[8] + a[9]) + (a[10] + a[11]))) + ((a[12] + a[13]) + (a[14] + a[15]))
}

// checkedSum is sum of units that a caller wrote; first is the number of the first of them.
func (a *node) checkedSum(first int) float64 {
	signs := uint64(0)
	for _, w := range a {
		signs |= math.Float64bits(w)
	}
	sum := a.sum()
	if signs>>63 == 0 && sum <= math.MaxFloat64 {
		return sum
	}
	// A weight is negative, -0, NaN or infinite, or the sum overflowed; only the last of them may be
	// left so.
	for i, w := range a {
		if !validWeight(w) {
			badValue(first+i, "weight", w)
		}
		a[i] = math.Abs(w)
	}
	return a.sum()
}

func validWeight(w float64) bool { return w >= 0 && w <= math.MaxFloat64 }

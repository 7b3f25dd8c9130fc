package sumtree

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

// stream is a source of random numbers for a test; seeds of different tests need not differ.
func stream(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x5eed)) }

// model is a Tree told in the plainest way: a list of weights, everything found by looking at all.
type model []float64

// find adds weights up until they pass u. It is exact where all sums are, as with small integers.
func (m model) find(u float64) int {
	last := -1
	for i, w := range m {
		if w > 0 {
			last = i
			if u < w {
				return i
			}
		}
		u -= w
	}
	return last
}

// total adds as the package promises to: sixteen at a time, quarters first, until one is left.
func (m model) total() float64 {
	values := m
	for first := true; first || len(values) > 1; first = false {
		var above model
		for len(values) > 0 {
			var a [16]float64
			values = values[copy(a[:], values):]
			var quarters [4]float64
			for q := range quarters {
				b := a[4*q:]
				quarters[q] = (b[0] + b[1]) + (b[2] + b[3])
			}
			above = append(above, ((quarters[0]+quarters[1])+quarters[2])+quarters[3])
		}
		values = above
	}
	if len(values) == 0 {
		return 0
	}
	return values[0]
}

// mustAgree fails unless the tree has the model's weights, and at every level the sums that they make.
func (m model) mustAgree(t *testing.T, tree *Tree) {
	t.Helper()
	if tree.Len() != len(m) {
		t.Fatalf("%d units, want %d", tree.Len(), len(m))
	}
	for i, w := range m {
		if got := tree.At(i); math.Float64bits(got) != math.Float64bits(w) {
			t.Fatalf("weight %v of unit %d, want %v", got, i, w)
		}
	}
	if got, want := tree.Total(), m.total(); got != want {
		t.Fatalf("total %v, want %v", got, want)
	}
	mustAddUp(t, tree)
}

// mustAddUp fails unless every value above the units is the sum of the sixteen below, values past those
// in use are 0, and each level has the nodes that the one below needs.
func mustAddUp(t *testing.T, tree *Tree) {
	t.Helper()
	values := tree.n
	for k := range tree.depth {
		level := tree.at[k]
		nodes := (values + width - 1) / width
		if len(level) != nodes*width {
			t.Fatalf("level %d: room for %d values, want %d", k, len(level), nodes*width)
		}
		for i, v := range level[values:] {
			if v != 0 {
				t.Fatalf("level %d: value %v at %d of %d", k, v, values+i, values)
			}
		}
		for g := range nodes {
			above := tree.total
			if k+1 < tree.depth {
				above = tree.at[k+1][g]
			}
			if want := model(level[g*width:][:width]).total(); above != want {
				t.Fatalf("level %d: node %d adds up to %v, but above stands %v", k, g, want, above)
			}
		}
		values = nodes
	}
	if tree.depth > 0 && values != 1 {
		t.Fatalf("%d nodes at the top", values)
	}
}

// maxUnits is where operate stops growing: four levels.
const maxUnits = 5000

// operate does a random operation on both. Weights are whole numbers below 50 times a power of two that
// Scale moves, so that all sums are exact; a third of them are 0.
func operate(t *testing.T, r *rand.Rand, tree *Tree, m *model, unit *int) {
	t.Helper()
	weight := func() float64 { return math.Ldexp(float64(r.IntN(50))*float64(min(r.IntN(3), 1)), *unit) }
	switch op := r.IntN(100); {
	case op < 10 && len(*m) > 0:
		var units []int32
		var weights []float64
		for range r.IntN(20) { // runs and repeats among them
			for i, left := r.IntN(len(*m)), r.IntN(20); left >= 0 && i < len(*m); i, left = i+1, left-1 {
				(*m)[i] = weight()
				units, weights = append(units, int32(i)), append(weights, (*m)[i])
			}
		}
		tree.SetEach(units, weights)
	case op < 50 && len(*m) > 0:
		i, w := r.IntN(len(*m)), weight()
		tree.Set(i, w)
		(*m)[i] = w
	case op < 90 && m.total() > 0:
		// Between two whole numbers: no rounding can move it into the neighbour.
		u := math.Ldexp(math.Floor(r.Float64()*math.Ldexp(m.total(), -*unit))+0.5, *unit)
		if got, want := tree.Find(u), m.find(u); got != want {
			t.Fatalf("find %v of %v: unit %d, want %d", u, m.total(), got, want)
		}
	case op < 96:
		n := min(len(*m)+r.IntN(4+len(*m)/8)-1, maxUnits)
		tree.Grow(n)
		for len(*m) < n {
			*m = append(*m, 0)
		}
	case op < 98:
		tree.Refill(func(leaf []float64) {
			if len(leaf) != len(*m) || cap(leaf) != len(leaf) {
				t.Fatalf("%d weights with room for %d, want %d", len(leaf), cap(leaf), len(*m))
			}
			for i := range leaf {
				if leaf[i] != (*m)[i] {
					t.Fatalf("refill is given weight %v of unit %d, want %v", leaf[i], i, (*m)[i])
				}
				leaf[i] = weight()
				(*m)[i] = leaf[i]
			}
		})
	default:
		k := r.IntN(201) - 100 - *unit/2
		tree.Scale(k)
		*unit += k
		for i := range *m {
			(*m)[i] = math.Ldexp((*m)[i], k)
		}
	}
}

func TestTreeAgreesWithALinearModel(t *testing.T) {
	for seed := range uint64(tests.Count(20, 5)) {
		r := stream(seed)
		tree, m, unit := &Tree{}, model{}, 0
		for range 3000 {
			operate(t, r, tree, &m, &unit)
			if t.Failed() || r.IntN(20) == 0 {
				m.mustAgree(t, tree)
			}
		}
		if len(m) < maxUnits {
			t.Errorf("seed %d: the tree grew to %d units only", seed, len(m))
		}
	}
}

func TestFindAllFindsWhatFindDoesAndDrawsAllocateNothing(t *testing.T) {
	for _, n := range []int{1, 16, 17, 5000, 70_000, 600_000} { // the last of more than cached values
		r := stream(uint64(n))
		tree, m := New(n), make(model, n)
		tree.Refill(func(leaf []float64) {
			for i := range leaf {
				leaf[i] = float64(r.IntN(4))
			}
			leaf[0] = 1
			copy(m, leaf)
		})
		starts := make([]float64, n+1)
		for i, w := range m {
			starts[i+1] = starts[i] + w
		}
		u, scratch := make([]float64, 1000), make([]float64, 1000)
		for i := range u {
			u[i] = float64(r.IntN(int(tree.Total()))) + 0.25
		}
		copy(scratch, u)
		out := make([]int32, len(u)+1)
		out[len(u)] = -7
		tree.FindAll(scratch, out)
		for i, x := range u {
			at := int(out[i])
			if x < starts[at] || x >= starts[at+1] {
				t.Fatalf("%d units: find %v: unit %d of [%v, %v)", n, x, at, starts[at], starts[at+1])
			}
			if got := tree.Find(x); got != at {
				t.Fatalf("%d units: find %v: unit %d alone, unit %d among others", n, x, got, at)
			}
		}
		if out[len(u)] != -7 {
			t.Errorf("%d units: FindAll wrote past what was asked", n)
		}
		out = out[:64]
		if allocated := testing.AllocsPerRun(100, func() {
			tree.Set(r.IntN(n), 1)
			tree.Stratified(r, out, scratch)
			tree.Independent(r, out, scratch)
			tree.Find(0.5)
		}); allocated != 0 {
			t.Errorf("%d units: %v allocations", n, allocated)
		}
	}
}

func TestSumsDoNotDrift(t *testing.T) {
	const n = 5000
	r := stream(1)
	tree, m := New(n), make(model, n)
	for range 1_000_000 {
		// Over thirty orders of magnitude: differences added up would be wrong in all digits.
		i, w := r.IntN(n), math.Exp(70*(r.Float64()-0.5))
		tree.Set(i, w)
		m[i] = w
	}
	m.mustAgree(t, tree)
	for i := range m {
		tree.Set(i, 0)
	}
	if tree.Total() != 0 {
		t.Errorf("total %v of no weight", tree.Total())
	}
	mustAddUp(t, tree)
}

package sumtree

import (
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

// The size of these tests gives them power: a shift of 1% up and down in alternate cells adds draws x
// 1e-4 to the expected chi-square, enough to be rejected for all seeds but one; that it is so is tested too.
const (
	cells      = 32
	draws      = 800_000 // adds 80 to an expectation of 31
	critical31 = 61.10   // 0.1% of chi-square with 31 degrees of freedom lie above
	batch      = 3       // small: all but one draw of a stratified batch is for nothing
)

// chiSquare is the statistic of counts against shares, which add up to 1.
func chiSquare(counts []int, shares []float64) float64 {
	n := 0
	for _, c := range counts {
		n += c
	}
	x := 0.0
	for i, c := range counts {
		expected := float64(n) * shares[i]
		x += (float64(c) - expected) * (float64(c) - expected) / expected
	}
	return x
}

// uneven returns a tree whose weights differ by up to four times, and, where a cell has several units,
// are 0 for a fifth of them; and the share of each cell. Cells are equal runs of units.
func uneven(units int) (*Tree, []float64) {
	r := stream(99)
	tree, shares := New(units), make([]float64, cells)
	for i := range units {
		w := 0.5 + 1.5*r.Float64()
		if units > cells && i%5 == 3 {
			w = 0
		}
		tree.Set(i, w)
		shares[i*cells/units] += w
	}
	for c := range shares {
		shares[c] /= tree.Total()
	}
	return tree, shares
}

// leaning returns a copy with weights of even cells 1% higher and those of odd ones 1% lower.
func leaning(tree *Tree) *Tree {
	wrong := New(tree.Len())
	for i := range tree.Len() {
		odd := i * cells / tree.Len() % 2
		wrong.Set(i, tree.At(i)*(1.01-0.02*float64(odd)))
	}
	return wrong
}

// count draws batches and counts the cells of what was drawn. Draws of one stratified batch depend on
// each other, so of each batch one is counted, chosen uniformly; independent ones count all.
func count(tree *Tree, r *rand.Rand, stratified bool) []int {
	counts := make([]int, cells)
	out, scratch := make([]int32, batch), make([]float64, batch)
	cell := func(unit int32) int { return int(unit) * cells / tree.Len() }
	for n := 0; n < draws; {
		if stratified {
			tree.Stratified(r, out, scratch)
			counts[cell(out[r.IntN(batch)])]++
			n++
			continue
		}
		tree.Independent(r, out, scratch)
		for _, unit := range out {
			counts[cell(unit)]++
			n++
		}
	}
	return counts
}

func TestUnitsAreDrawnInProportionToTheirWeights(t *testing.T) {
	seeds := tests.Rounds(20, 5, 1)
	for name, c := range map[string]struct {
		units      int
		stratified bool
	}{
		"independent, of few units": {cells, false},
		"independent":               {3000, false},
		"stratified":                {3000, true},
	} {
		t.Run(name, func(t *testing.T) {
			right, shares := uneven(c.units)
			wrong := leaning(right)
			rejected := 0
			for seed := range uint64(seeds) {
				if x := chiSquare(count(right, stream(seed), c.stratified), shares); x > critical31 {
					t.Errorf("seed %d: chi-square %.1f", seed, x)
				}
				if chiSquare(count(wrong, stream(seed+1000), c.stratified), shares) > critical31 {
					rejected++
				}
			}
			if !testing.Short() && rejected < seeds-1 {
				t.Errorf("a tree that leans by 1%% was rejected for %d of %d seeds: the test lacks power",
					rejected, seeds)
			}
		})
	}
}

func TestProbabilitiesSurviveGrowthUpdatesAndScaling(t *testing.T) {
	const units = 3000
	want, shares := uneven(units)
	tree := New(1)
	r := stream(7)
	for i := range units {
		tree.Grow(i + 1)
		tree.Set(i, 1e9*r.Float64())
		tree.Set(r.IntN(i+1), 1e9*r.Float64())
	}
	for _, i := range r.Perm(units) {
		tree.Set(i, want.At(i))
	}
	tree.Scale(-400)
	for _, stratified := range []bool{false, true} {
		if x := chiSquare(count(tree, r, stratified), shares); x > critical31 {
			t.Errorf("stratified %t: chi-square %.1f", stratified, x)
		}
	}
}

// Independent draws are independent of each other: pairs of neighbours fall on pairs of units with the
// product of their shares. Stratified ones do not, which shows that the test can fail.
func TestIndependentDrawsAreIndependent(t *testing.T) {
	const units = 5
	tree, shares := New(units), make([]float64, units*units)
	for i := range units {
		tree.Set(i, float64(1+i))
	}
	for i := range shares {
		shares[i] = tree.At(i/units) * tree.At(i%units) / (tree.Total() * tree.Total())
	}
	const critical24 = 51.18 // 0.1% of chi-square with 24 degrees of freedom lie above
	pairs := func(draw func(r *rand.Rand, out []int32, scratch []float64)) float64 {
		r := stream(5)
		out, scratch, counts := make([]int32, 2), make([]float64, 2), make([]int, units*units)
		for range draws / 4 {
			draw(r, out, scratch)
			counts[int(out[0])*units+int(out[1])]++
		}
		return chiSquare(counts, shares)
	}
	if x := pairs(tree.Independent); x > critical24 {
		t.Errorf("chi-square %.1f", x)
	}
	if x := pairs(tree.Stratified); x < critical24 {
		t.Errorf("chi-square %.1f for pairs of which the first is never after the second", x)
	}
}

package sumtree

import (
	"fmt"
	"math"
	"math/rand/v2"
)

const (
	// block is how many units are looked for together. Their nodes of one level fit the first-level
	// cache; the processor has no more cache misses under way at once than this gives it.
	block = 128
	// cached is the size in values of a level that stays in cache: there is no miss to hasten.
	cached = 1 << 15
)

// Find returns the unit in whose interval u lies, in O(log N). The intervals are as long as the weights
// and stand in order of units from 0 to Total; u is in 0 <= u < Total. Total itself, which rounding may
// make of u, finds a unit at the end. A greater u never finds a smaller unit.
func (t *Tree) Find(u float64) int {
	scratch, out := [1]float64{u}, [1]int32{}
	t.FindAll(scratch[:], out[:])
	return int(out[0])
}

// FindAll puts into out[i] what Find(u[i]) returns, for all of u together: level by level, so that the
// waits for memory overlap. It leaves nothing of use in u. out is as long as u at least.
func (t *Tree) FindAll(u []float64, out []int32) {
	t.mustDraw()
	for i, x := range u {
		if !(x >= 0) {
			panic(fmt.Sprintf("sumtree: find %v: want at least 0", x))
		}
		u[i] = math.Abs(x) // -0 becomes 0
	}
	t.find(u, out)
}

// Stratified draws len(out) units: one uniformly in each of as many equal segments of the total, in
// order of segments, which is the order of units. A unit of share p comes up n p times on average, as
// with Independent, but never more than ceil(n p)+1 times nor less than floor(n p)-1. scratch is as
// long as out at least and holds nothing of use after.
func (t *Tree) Stratified(r *rand.Rand, out []int32, scratch []float64) {
	t.mustDraw()
	u := scratch[:len(out)]
	segment := 1 / float64(len(out))
	for i := range u {
		// The share first: the total may be too small to be divided, or too large to be multiplied.
		u[i] = (float64(i) + r.Float64()) * segment * t.total
	}
	t.find(u, out)
}

// Independent draws len(out) units, each by itself and from all, in the order of drawing (not sorted).
// scratch is as for Stratified.
func (t *Tree) Independent(r *rand.Rand, out []int32, scratch []float64) {
	t.mustDraw()
	u := scratch[:len(out)]
	for i := range u {
		u[i] = r.Float64() * t.total
	}
	t.find(u, out)
}

func (t *Tree) mustDraw() {
	if !(t.total > 0 && t.total <= math.MaxFloat64) {
		panic(fmt.Sprintf("sumtree: draw from a total of %v", t.total))
	}
}

// find is FindAll for numbers that are not negative, nor -0.
func (t *Tree) find(u []float64, out []int32) {
	out = out[:len(u)]
	clear(out)
	for i := 0; i < len(u); i += block {
		end := min(i+block, len(u))
		for k := t.depth - 1; k >= 0; k-- {
			if len(t.at[k]) > cached {
				touch(t.at[k], out[i:end])
			}
			descend(t.at[k], u[i:end], out[i:end])
		}
	}
}

// touch reads both cache lines of each node. It does so little besides that the processor has all the
// misses under way at once; descend alone, ten times as long per node, leaves it with a few.
//
//go:noinline
func touch(level []float64, nodes []int32) float64 {
	sum := 0.0 // returned so that the reads are not optimised away
	for _, g := range nodes {
		a := nodeOf(level, int(g)*width)
		sum += a[0] + a[width/2]
	}
	return sum
}

// descend takes each number one level down: out[i] goes from the number of a node to that of one of its
// values, and u[i] from its place in the node to its place in that value's interval.
//
// There are no branches to mispredict. A number left of a sum makes a difference with the sign bit set;
// as unsigned integers such differences are greater than all others, and numbers that are not negative
// compare as floats do. So the sign bits count the sums that are passed, and the least of the
// differences is what remains after the last of them.
func descend(level, u []float64, out []int32) {
	out = out[:len(u)]
	for i, x := range u {
		first := int(out[i]) * width
		a := nodeOf(level, first)

		half := ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
		j, x := passed(x, (a[0]+a[1])+(a[2]+a[3]), half, half+((a[8]+a[9])+(a[10]+a[11])))
		j = j * 4 % width
		more, x := passed(x, a[j], a[j]+a[j+1], a[j]+a[j+1]+a[j+2])
		j = (j + more) % width

		if !(a[j] > 0) {
			j, x = a.lastPositive(j), math.Inf(1)
		}
		u[i] = x
		out[i] = int32(first) + int32(j)
	}
}

// passed returns how many of three sums, in ascending order, are at most x, and what is left of x after
// the greatest of these.
func passed(x, s1, s2, s3 float64) (uint, float64) {
	d1, d2, d3 := math.Float64bits(x-s1), math.Float64bits(x-s2), math.Float64bits(x-s3)
	rest := min(math.Float64bits(x), d1, d2, d3)
	return uint(3 - (d1>>63 + d2>>63 + d3>>63)), math.Float64frombits(rest)
}

// lastPositive returns the last value up to j that is above 0, where descend came to a value of 0.
//
// There is one: no node of sum 0 is entered, and a place between two of its running sums is in a value
// that raised the one to the other, so not in a 0. Only past the last running sum, where rounding may
// leave a number, can a 0 be met. j is then the last of the node, or the last of a quarter that was
// entered between two sums, which has a value above 0 for the same reason. What is left of the number
// is past the end of that value too, so that a greater number never finds a smaller unit.
func (a *node) lastPositive(j uint) uint {
	for !(a[j] > 0) {
		j--
	}
	return j
}

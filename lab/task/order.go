package task

import (
	"math/bits"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Order visits N items again and again, each once per epoch, in a new order every epoch. At is a pure function and
// takes constant time and memory: no list is shuffled, however large N is.
type Order struct {
	Seed    uint64
	Purpose string // orders of different purposes are independent
	N       int    // number of items, at least 1
}

// rounds of the Feistel network: four suffice with random round functions, six leave a margin for mix.
const rounds = 6

// At returns the item in [0, N) at position i of the endless sequence.
func (o Order) At(i uint64) int {
	n := uint64(o.N)
	r := rollout.Stream(o.Seed, o.Purpose, i/n)
	var keys [rounds]uint64
	for k := range keys {
		keys[k] = r.Uint64()
	}
	half := uint(bits.Len64(n-1)+1) / 2
	x := i % n
	// The network permutes [0, 4^half), less than four times n for n > 1: walking the cycle until it
	// is back in [0, n) makes it a permutation of [0, n).
	for {
		if x = feistel(x, half, &keys); x < n {
			return int(x)
		}
	}
}

// Pick returns the first n items of the sequence, n <= N, in ascending order.
func (o Order) Pick(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = o.At(uint64(i))
	}
	slices.Sort(items)
	return items
}

// feistel permutes the numbers of 2*half bits.
func feistel(x uint64, half uint, keys *[rounds]uint64) uint64 {
	mask := uint64(1)<<half - 1
	left, right := x>>half, x&mask
	for _, k := range keys {
		left, right = right, left^mix(right^k)&mask
	}
	return left<<half | right
}

// mix spreads every bit of x over all bits: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

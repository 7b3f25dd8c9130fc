package replay

import "github.com/reprise-rl/reprise/rollout"

// index finds the slot of an ID: a hash table chained through item.Chain. IDs that follow one another,
// as a group's do, share a cache line.
type index struct {
	store *store
	heads []int32 // a power of two of them, at least as many as there are entries
	n     int
}

// indexRun is how many IDs in sequence have neighbouring heads: 16 int32 are one cache line.
const indexRun = 16

func (x *index) bucket(id rollout.ID) int {
	run := uint64(id) / indexRun * 0x9e3779b97f4a7c15 // 2^64 / golden ratio scatters runs
	return int((run>>32)*indexRun+uint64(id)%indexRun) & (len(x.heads) - 1)
}

func (x *index) add(s int32) {
	if x.n >= len(x.heads) {
		x.grow()
	}
	it := &x.store.items[s]
	h := &x.heads[x.bucket(it.ID)]
	it.Chain, *h = *h, s
	x.n++
}

func (x *index) remove(s int32) {
	at := &x.heads[x.bucket(x.store.items[s].ID)]
	for *at != s {
		at = &x.store.items[*at].Chain
	}
	*at = x.store.items[s].Chain
	x.n--
}

// find returns the slot of an ID, none if it is not present.
func (x *index) find(id rollout.ID) int32 {
	if x.n == 0 {
		return none
	}
	s := x.heads[x.bucket(id)]
	for s != none && x.store.items[s].ID != id {
		s = x.store.items[s].Chain
	}
	return s
}

// grow doubles the heads: O(1) per entry, amortised.
func (x *index) grow() {
	old := x.heads
	x.heads = make([]int32, max(2*len(old), 4*indexRun))
	for i := range x.heads {
		x.heads[i] = none
	}
	for _, s := range old {
		for s != none {
			it := &x.store.items[s]
			next := it.Chain
			h := &x.heads[x.bucket(it.ID)]
			it.Chain, *h = *h, s
			s = next
		}
	}
}

package replay

import "github.com/reprise-rl/reprise/rollout"

// index finds the slot of an ID: a hash table chained through links.Chain. IDs that follow one another in
// a shard get heads that follow one another: a table that keeps the newest has hardly a collision, and
// insertion walks memory in order. (Scattering the IDs cost 40 ns more per insertion at a million.)
type index struct {
	store  *store
	shards uint64
	heads  []int32 // a power of two of them, at least as many as there are entries
	n      int
}

// indexRun is how many IDs in sequence have neighbouring heads: 16 int32 are one cache line.
const indexRun = 16

// bucket leaves out of account the runs of IDs that the other shards got in turn.
func (x *index) bucket(id rollout.ID) int {
	run := uint64(id) / (indexRun * x.shards)
	return int(run*indexRun+uint64(id)%indexRun) & (len(x.heads) - 1)
}

func (x *index) add(s int32) {
	if x.n >= len(x.heads) {
		x.grow()
	}
	x.link(s)
	x.n++
}

func (x *index) link(s int32) {
	h := &x.heads[x.bucket(x.store.items[s].ID)]
	x.store.links[s].Chain, *h = *h, s
}

func (x *index) remove(s int32) {
	at := &x.heads[x.bucket(x.store.items[s].ID)]
	for *at != s {
		at = &x.store.links[*at].Chain
	}
	*at = x.store.links[s].Chain
	x.n--
}

// find returns the slot of an ID, none if it is not present.
func (x *index) find(id rollout.ID) int32 {
	if x.n == 0 {
		return none
	}
	s := x.heads[x.bucket(id)]
	for s != none && x.store.items[s].ID != id {
		s = x.store.links[s].Chain
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
			next := x.store.links[s].Chain
			x.link(s)
			s = next
		}
	}
}

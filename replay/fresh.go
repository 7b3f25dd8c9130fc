package replay

import (
	"cmp"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// freshQueue holds the units that were not handed out as fresh yet, the oldest first: what [FP] calls the fresh batch.
// Fields are exported for encoding/gob.
type freshQueue struct {
	IDs  []rollout.ID // of their first rollouts, from Head on; those whose rollout has left are skipped
	Head int
	Len  int // that are there
}

// push takes in a unit that has just been added.
func (q *freshQueue) push(st *store, x *index, s int32) {
	st.items[s].set(fresh)
	if len(q.IDs) > 2*q.Len+64 {
		q.compact(st, x)
	}
	q.IDs = append(q.IDs, st.items[s].ID)
	q.Len++
}

// compact drops what has left or was handed out: O(1) per push, amortised.
func (q *freshQueue) compact(st *store, x *index) {
	waiting := slices.DeleteFunc(q.IDs[q.Head:], func(id rollout.ID) bool {
		s := x.find(id)
		return s == none || !st.items[s].is(fresh)
	})
	q.IDs, q.Head = append(q.IDs[:0], waiting...), 0
}

// pop hands out the oldest; there is one.
func (q *freshQueue) pop(st *store, x *index) int32 {
	for {
		s := x.find(q.IDs[q.Head])
		q.Head++
		if s != none && st.items[s].is(fresh) {
			q.forget(&st.items[s])
			return s
		}
	}
}

// forget takes an item out, if it is in.
func (q *freshQueue) forget(it *item) {
	if it.is(fresh) {
		it.clear(fresh)
		q.Len--
	}
	it.clear(shelved)
}

// shelve takes an item out, if it is in, until restore brings it back.
func (q *freshQueue) shelve(it *item) {
	if it.is(fresh) {
		q.forget(it)
		it.set(shelved)
	}
}

// restore brings an item back whose draw as fresh was not acknowledged, or that was shelved.
func (q *freshQueue) restore(it *item) {
	if it.is(fresh) {
		return
	}
	it.clear(shelved)
	it.set(fresh)
	if i, in := slices.BinarySearchFunc(q.IDs[q.Head:], it.ID, cmp.Compare[rollout.ID]); !in {
		q.insert(q.Head+i, it.ID)
	}
	q.Len++
}

// insert puts an ID where it belongs: as a rule near the head, where the last one handed out left room.
func (q *freshQueue) insert(at int, id rollout.ID) {
	if q.Head == 0 {
		q.IDs = slices.Insert(q.IDs, at, id)
		return
	}
	copy(q.IDs[q.Head-1:], q.IDs[q.Head:at])
	q.Head--
	q.IDs[at-1] = id
}

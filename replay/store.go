package replay

import (
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// none is no slot.
const none int32 = -1

// store holds a shard's rollouts in numbered slots, which are reused. Lists and samplers hold slots, so the garbage
// collector follows only one pointer per rollout.
type store struct {
	items    []item             // by slot
	links    []links            // by slot
	rollouts []*rollout.Rollout // by slot; nil where free
	free     []int32            // slots to use next, the last first
}

// item is what a shard knows of one rollout. It has 64 bytes, one cache line. Fields are exported for encoding/gob.
type item struct {
	ID        rollout.ID
	Group     uint64
	Bytes     int64           // of payload
	Version   rollout.Version // least of its tokens
	MeanCeil  rollout.Version // mean over its tokens, rounded up
	Greatest  rollout.Version // of its tokens
	Uses      int32           // acknowledged
	Leased    int32           // draws not settled yet
	LastUse   rollout.Version // of the table; rollout.NoVersion before the first
	Advantage float32
	Mean      float32 // of the group's rewards
	Std       float32 // population, of the group's rewards
	Flags     flags
}

// flags are yes-or-no facts of an item.
type flags uint16

const (
	correct     flags = 1 << iota // reward at or above the threshold
	reserved                      // in the part that retention positive reserves for correct rollouts
	evicted                       // with draws on lease: the slot waits for them
	fresh                         // not handed out as fresh yet
	atMax                         // still at the largest base, at which it entered
	shelved                       // not handed out as fresh yet, but exhausted by other draws on lease
	redelivered                   // of a queue: it may have been delivered before
	unselected                    // of an arrival: the table selects others of its group
	pinned                        // max_staleness does not evict it
	waits                         // for the rewards of its group: see waitingGroups
)

func (it *item) is(f flags) bool { return it.Flags&f != 0 }
func (it *item) set(f flags)     { it.Flags |= f }
func (it *item) clear(f flags)   { it.Flags &^= f }

// waitsFresh reports whether a unit, named by its first slot, was not handed out as fresh yet.
func (st *store) waitsFresh(first int32) bool { return st.items[first].is(fresh | shelved) }

// flagIf returns f where the condition holds.
func flagIf(holds bool, f flags) flags {
	if holds {
		return f
	}
	return 0
}

// links are the slots next to one in the lists that hold it. Fields are exported for encoding/gob.
type links struct {
	Of       [lists]neighbours // in the lists that hold it
	Down, Up int32             // among the rollouts of its version
	Chain    int32             // in the index
	Mate     int32             // the next rollout of its group, in a ring, where units are groups
}

// neighbours are the slots before and after one in a list. Fields are exported for encoding/gob.
type neighbours struct{ Prev, Next int32 }

// put gives a rollout a slot.
func (st *store) put(it *item, r *rollout.Rollout) int32 {
	alone := links{[lists]neighbours{{none, none}, {none, none}}, none, none, none, none}
	if n := len(st.free); n > 0 {
		s := st.free[n-1]
		st.free = st.free[:n-1]
		st.items[s], st.links[s], st.rollouts[s] = *it, alone, r
		return s
	}
	st.items = append(st.items, *it)
	st.links = append(st.links, alone)
	st.rollouts = append(st.rollouts, r)
	return int32(len(st.items) - 1)
}

// release frees a slot.
func (st *store) release(s int32) {
	st.rollouts[s] = nil
	st.free = append(st.free, s)
}

// A slot is in one list of each kind at most.
const (
	arrivalList = iota // what retention keeps, or a queue holds
	freshList          // what was not handed out as fresh
	lists
)

// list is slots in order of arrival, oldest at the head, linked through links.Of[Kind]. Fields are exported for
// encoding/gob.
type list struct {
	Kind       int
	Head, Tail int32
	Len        int
	Bytes      int64 // of payload
}

func newList(kind int) list { return list{Kind: kind, Head: none, Tail: none} }

// push appends a slot.
func (l *list) push(st *store, s int32) { l.insertAfter(st, s, l.Tail) }

// insertByID puts a slot where its age belongs, looking from the head or from the tail.
func (l *list) insertByID(st *store, s int32, fromTail bool) {
	id, before := st.items[s].ID, none
	if fromTail {
		for before = l.Tail; before != none && st.items[before].ID > id; before = st.links[before].Of[l.Kind].Prev {
		}
	} else {
		for after := l.Head; after != none && st.items[after].ID < id; after = st.links[after].Of[l.Kind].Next {
			before = after
		}
	}
	l.insertAfter(st, s, before)
}

// insertAfter links s behind before; none: at the head.
func (l *list) insertAfter(st *store, s, before int32) {
	at := &st.links[s].Of[l.Kind]
	at.Prev, at.Next = before, l.Head
	if before != none {
		at.Next = st.links[before].Of[l.Kind].Next
		st.links[before].Of[l.Kind].Next = s
	} else {
		l.Head = s
	}
	if at.Next != none {
		st.links[at.Next].Of[l.Kind].Prev = s
	} else {
		l.Tail = s
	}
	l.Len++
	l.Bytes += st.items[s].Bytes
}

// remove unlinks a slot of this list.
func (l *list) remove(st *store, s int32) {
	at := &st.links[s].Of[l.Kind]
	if at.Prev != none {
		st.links[at.Prev].Of[l.Kind].Next = at.Next
	} else {
		l.Head = at.Next
	}
	if at.Next != none {
		st.links[at.Next].Of[l.Kind].Prev = at.Prev
	} else {
		l.Tail = at.Prev
	}
	at.Prev, at.Next = none, none
	l.Len--
	l.Bytes -= st.items[s].Bytes
}

// index finds the slot of an ID: a hash table chained through links.Chain. IDs that follow one another in a shard get
// heads that follow one another: a table that keeps the newest has hardly a collision, and insertion walks memory in
// order. (Scattering the IDs cost 40 ns more per insertion at a million.)
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

// ages groups slots by the rollout's version, so that rollouts that became too old are found without visiting the
// others. Slots of a version are linked through links.Down and links.Up.
type ages struct {
	store *store
	heads map[rollout.Version]int32
}

func (a *ages) add(s int32) {
	v := a.store.items[s].Version
	if head, ok := a.heads[v]; ok {
		a.store.links[s].Down = head
		a.store.links[head].Up = s
	}
	a.heads[v] = s
}

func (a *ages) remove(s int32) {
	at := &a.store.links[s]
	v := a.store.items[s].Version
	if at.Down != none {
		a.store.links[at.Down].Up = at.Up
	}
	switch {
	case at.Up != none:
		a.store.links[at.Up].Down = at.Down
	case at.Down != none:
		a.heads[v] = at.Down
	default:
		delete(a.heads, v)
	}
}

// expire evicts all of versions in [from, before), older ones first. Evict calls remove. It looks at the versions
// between or at those present, whichever are fewer: with one call per version that is O(1) each, and each rollout is
// evicted once.
func (a *ages) expire(from, before int64, evict func(s int32)) {
	if before-from > int64(len(a.heads)) {
		for _, v := range slices.Sorted(maps.Keys(a.heads)) {
			if int64(v) >= before {
				break
			}
			a.expireVersion(v, evict)
		}
		return
	}
	for v := max(from, 0); v < before; v++ {
		a.expireVersion(rollout.Version(v), evict)
	}
}

func (a *ages) expireVersion(v rollout.Version, evict func(s int32)) {
	for s, ok := a.heads[v]; ok; s, ok = a.heads[v] {
		evict(s) // with others of its unit, of whatever version
	}
}

// units says which slots make up a unit. A group is known by its first rollout's slot: only that one is in the sampler
// and in the fresh queue.
type units bool

const groups units = true

func unitsOf(u Unit) units { return units(u == UnitGroup) }

// each visits the slots of a slot's unit.
func (u units) each(st *store, s int32, visit func(m int32)) {
	visit(s)
	if u != groups {
		return
	}
	for m := st.links[s].Mate; m != s; {
		next := st.links[m].Mate
		visit(m)
		m = next
	}
}

// first returns the slot that stands for a slot's unit.
func (u units) first(st *store, s int32) int32 {
	f := s
	u.each(st, s, func(m int32) {
		if st.items[m].ID < st.items[f].ID {
			f = m
		}
	})
	return f
}

func (u units) isFirst(st *store, s int32) bool { return u != groups || u.first(st, s) == s }

// version returns the least of a unit's versions.
func (u units) version(st *store, s int32) rollout.Version {
	if u != groups {
		return st.items[s].Version
	}
	v := rollout.Version(math.MaxInt32)
	u.each(st, s, func(m int32) { v = min(v, st.items[m].Version) })
	return v
}

package replay

import "github.com/reprise-rl/reprise/rollout"

// none is no slot.
const none int32 = -1

// store is where a shard's rollouts stand: a slot each, numbered from 0, reused. What is linked or drawn
// is slots, so that the garbage collector has only one pointer per rollout to follow.
type store struct {
	items    []item             // by slot
	links    []links            // by slot
	rollouts []*rollout.Rollout // by slot; nil where free
	free     []int32            // slots to use next, the last first
}

// item is what a shard knows of one rollout: 64 bytes, one cache line, as a draw touches few of a million.
// Fields are exported for encoding/gob.
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
type flags uint8

const (
	correct flags = 1 << iota // reward at or above the threshold
	kept                      // by retention, as correct
	gone                      // evicted with draws on lease: the slot waits for them
	fresh                     // not handed out as fresh yet
	atMax                     // entered at the largest base, and no report came since
	shelved                   // not handed out as fresh yet, but exhausted by other draws on lease
)

func (it *item) is(f flags) bool { return it.Flags&f != 0 }
func (it *item) set(f flags)     { it.Flags |= f }
func (it *item) clear(f flags)   { it.Flags &^= f }

// flagged returns f where the condition holds.
func flagged(holds bool, f flags) flags {
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

package replay

import "github.com/reprise-rl/reprise/rollout"

// none is no slot.
const none int32 = -1

// store is where a shard's rollouts stand: a slot each, numbered from 0, reused. What is linked or drawn
// is slots, so that the garbage collector has only one pointer per rollout to follow.
type store struct {
	items    []item             // by slot, without pointers
	rollouts []*rollout.Rollout // by slot; nil where free
	free     []int32            // slots to use next, the last first
}

// item is what a shard knows of one rollout. Fields are exported for encoding/gob.
type item struct {
	ID        rollout.ID
	Group     uint64
	Version   rollout.Version // least of its tokens
	MeanCeil  rollout.Version // mean over its tokens, rounded up
	Uses      int32           // acknowledged
	Leased    int32           // draws not settled yet
	LastUse   rollout.Version // of the table; rollout.NoVersion before the first
	Advantage float32
	Mean      float32 // of the group's rewards
	Std       float32 // population, of the group's rewards

	Greatest   rollout.Version // of its tokens
	Bytes      int64           // of payload
	Prev, Next int32           // in the list that holds it
	Down, Up   int32           // among the rollouts of its version
	Chain      int32           // next with the same hash of its ID
	Kept       bool            // by retention, as correct
	Correct    bool            // reward at or above the threshold
	Gone       bool            // evicted with draws on lease: the slot waits for them
}

// put gives a rollout a slot.
func (st *store) put(it item, r *rollout.Rollout) int32 {
	if n := len(st.free); n > 0 {
		s := st.free[n-1]
		st.free = st.free[:n-1]
		st.items[s], st.rollouts[s] = it, r
		return s
	}
	st.items = append(st.items, it)
	st.rollouts = append(st.rollouts, r)
	return int32(len(st.items) - 1)
}

// release frees a slot.
func (st *store) release(s int32) {
	st.rollouts[s] = nil
	st.free = append(st.free, s)
}

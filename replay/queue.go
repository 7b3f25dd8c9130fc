package replay

import "math/rand/v2"

// queue gives each rollout once, the newest or the oldest first: training without replay. A draw
// leaves the queue at once and, not acknowledged, goes back to where its age belongs.
type queue struct {
	store       *store
	waiting     list
	newestFirst bool
}

func (q *queue) add(s int32) { q.waiting.push(q.store, s) }

// remove leaves alone what was drawn: it is unlinked already.
func (q *queue) remove(s int32) {
	if !q.out(s) {
		q.waiting.remove(q.store, s)
	}
}

// out tells whether a slot is unlinked.
func (q *queue) out(s int32) bool {
	at := &q.store.links[s].Of[q.waiting.Kind]
	return at.Prev == none && at.Next == none && q.waiting.Head != s
}

func (q *queue) restore(s int32)       { q.waiting.insertByID(q.store, s, q.newestFirst) }
func (q *queue) used(int32, int32)     {}
func (q *queue) size() int             { return q.waiting.Len }
func (q *queue) begin(*rand.Rand, int) {}
func (q *queue) took(int32)            {}
func (q *queue) end()                  {}

func (q *queue) draw(*rand.Rand) (int32, float64) {
	s := q.waiting.Head
	if q.newestFirst {
		s = q.waiting.Tail
	}
	q.waiting.remove(q.store, s)
	return s, 1
}

func (q *queue) state() samplerState      { return samplerState{Queue: q.waiting} }
func (q *queue) setState(st samplerState) { q.waiting = st.Queue }

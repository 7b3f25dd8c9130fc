package service

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// place is a line of a table: the samples of a shard, by its number, or one of the two below.
type place int

const (
	insertPlace place = -1 - iota
	startPlace
)

func (p place) draws() bool { return p >= 0 }

// refusal is the error for a request that may not wait, or not any longer.
func (p place) refusal() error {
	if p.draws() {
		return rollout.ErrStarved
	}
	return rollout.ErrFull
}

// standstill is how long nothing may move before those behind the first of a line are tried.
const standstill = 100 * time.Millisecond

// lines are the requests that wait for a table, in order of arrival: insertions, starts, and the samples of each shard.
// Make them with [newLines]; their methods may be called concurrently.
//
// A change wakes the first of a line only, and whoever leaves wakes the next: a change costs O(1), or O(shards) with a
// limiter, however many wait. A newcomer tries at once where nobody waits, and goes to the end of the line elsewhere.
// So small requests cannot starve a large one, which the table serves as soon as the other side has made room for it.
//
// Order alone could stop a table. In a queue for 32 that holds 4, an insertion of 32 waits for room and a sample of 8
// for rollouts: each waits for the other, and an insertion of 4 behind the first would serve both. The limiter's rule
// that a starved sample lets one insertion pass does not help there, because it is the queue that has no room. So when
// both an insertion (or a start) and a sample were refused and nothing has moved for the time of a standstill, all who
// wait are tried, one after another in order, until one moves the table. They are tried once per standstill, in which
// nothing else could pass. No rule is needed for the limiter by itself: where it holds back the first insertion, any
// sample passes it (see [limiter]); the first sample is tried after each insertion, and if it finds too little the
// first insertion passes, whatever its size.
type lines struct {
	most int // requests that may wait

	mu            sync.Mutex // guards what follows; no other lock is taken under it
	of            map[place]*list.List
	waiting       int  // in all lines
	supply        int  // of them insertions and starts
	full, starved bool // an insertion or start, or a sample, was refused since the last change
	changes       uint64
	since         time.Time   // of the last change, or since when both sides are held if that is later
	triedAt       uint64      // the number of changes at which all who waited were tried
	timer         *time.Timer // ends the standstill; nil: not set
}

func newLines(most int) *lines {
	return &lines{most: most, of: make(map[place]*list.List), changes: 1}
}

// waiter is a request in a line.
type waiter struct {
	place  place
	holder *holder // the call that a sample is for; nil for others
	at     *list.Element
	wake   chan struct{} // try again; holds one
	tried  uint64        // changes before its last try
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it has been told
	}
}

// arrive returns an error if a newcomer must not try, because others wait ahead of it. It may try ahead of a sample
// that is for the same call, as the prefetch of its stream.
func (q *lines) arrive(p place, h *holder) (tried uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.of[p]; l != nil && (h == nil || l.Front().Value.(*waiter).holder != h) && !q.standsStill() {
		return 0, fmt.Errorf("%d requests of this kind wait ahead: retry with a longer timeout: %w", l.Len(),
			p.refusal())
	}
	return q.changes, nil
}

// join puts a request at the end of a line. Tried is the number of changes at which it was tried, 0 for never.
func (q *lines) join(p place, h *holder, tried uint64) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting >= q.most {
		return nil, fmt.Errorf("max_waiting: %d requests wait for the table: retry later, or raise max_waiting: %w",
			q.waiting, p.refusal())
	}
	w := &waiter{place: p, holder: h, wake: make(chan struct{}, 1), tried: tried}
	l := q.of[p]
	if l == nil {
		l = list.New()
		q.of[p] = l
		w.signal() // what changed since its try woke nobody
	}
	w.at = l.PushBack(w)
	if tried != q.changes {
		q.triedAt = 0
	}
	q.hold(func() { q.count(p, 1) })
	return w, nil
}

// leave takes a request out of its line, and wakes the next.
func (q *lines) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.of[w.place]
	next, first := w.at.Next(), w.at.Prev() == nil
	l.Remove(w.at)
	q.count(w.place, -1)
	if l.Len() == 0 {
		delete(q.of, w.place)
	}
	if next != nil && first {
		next.Value.(*waiter).signal()
	}
	q.wakeFrom(next)
}

func (q *lines) count(p place, n int) {
	q.waiting += n
	if !p.draws() {
		q.supply += n
	}
}

// first reports whether a request is the first of its line.
func (q *lines) first(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.at.Prev() == nil
}

// tries notes that a waiting request is about to be tried.
func (q *lines) tries(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.tried = q.changes
}

// refused notes that a request was tried in vain; w is nil for a newcomer.
func (q *lines) refused(p place, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hold(func() {
		if p.draws() {
			q.starved = true
		} else {
			q.full = true
		}
	})
	if w != nil {
		q.wakeFrom(w.at.Next())
	}
}

// roomChanged wakes the first insertion and the first start, which may succeed now.
func (q *lines) roomChanged() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.change()
	q.wakeFirst(insertPlace)
	q.wakeFirst(startPlace)
}

// rolloutsChanged wakes the first sample of some shards, of all if none is given.
func (q *lines) rolloutsChanged(shards ...place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.change()
	for _, p := range shards {
		q.wakeFirst(p)
	}
	if len(shards) > 0 {
		return
	}
	for p := range q.of {
		if p.draws() {
			q.wakeFirst(p)
		}
	}
}

// sampleStarved wakes the first insertion, which the limiter lets pass now. It is no change: a table in which samples
// starve over and over may stand still.
func (q *lines) sampleStarved() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeFirst(insertPlace)
}

// expired notes that a lease or a grant ended.
func (q *lines) expired() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.change()
}

func (q *lines) change() {
	q.full, q.starved = false, false // whoever does not wait will say so again
	q.changes++
	q.since = time.Now()
}

func (q *lines) wakeFirst(p place) {
	if l := q.of[p]; l != nil {
		l.Front().Value.(*waiter).signal()
	}
}

// bothHeld reports whether both sides were refused.
func (q *lines) bothHeld() bool {
	return (q.full || q.supply > 0) && (q.starved || q.waiting > q.supply)
}

func (q *lines) standsStill() bool { return q.bothHeld() && time.Since(q.since) >= standstill }

// hold notes that a side is held.
func (q *lines) hold(note func()) {
	before := q.bothHeld()
	if note(); !before && q.bothHeld() {
		q.since = time.Now()
	}
	q.watch()
}

// watch sets the timer if those behind the first may have to be tried.
func (q *lines) watch() {
	if q.timer == nil && q.waiting > 1 && q.triedAt != q.changes && q.bothHeld() {
		q.timer = time.AfterFunc(max(standstill-time.Since(q.since), 0), q.tryAll)
	}
}

// tryAll lets all who wait be tried, if the table stands still: in each line one wakes the next.
func (q *lines) tryAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	if !q.standsStill() {
		q.watch()
		return
	}
	q.triedAt = q.changes
	for _, l := range q.of {
		q.wakeFrom(l.Front().Next())
	}
}

// wakeFrom wakes the first of those from a request on that was not tried in this standstill.
func (q *lines) wakeFrom(e *list.Element) {
	for ; e != nil && q.triedAt == q.changes; e = e.Next() {
		if w := e.Value.(*waiter); w.tried != q.changes {
			w.signal()
			return
		}
	}
}

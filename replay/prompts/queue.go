package prompts

import "container/heap"

// queue holds entries with the first by its order on top. Every entry knows its place, so that one whose order
// changes is taken out before: a queue holds nothing stale. O(log n) each.
type queue struct {
	entries []*entry
	first   func(a, b *entry) bool
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q *queue) Len() int           { return len(q.entries) }
func (q *queue) Less(i, j int) bool { return q.first(q.entries[i], q.entries[j]) }

func (q *queue) Swap(i, j int) {
	q.entries[i], q.entries[j] = q.entries[j], q.entries[i]
	q.entries[i].place, q.entries[j].place = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(q.entries)
	q.entries = append(q.entries, e)
}

func (q *queue) Pop() any {
	last := len(q.entries) - 1
	e := q.entries[last]
	q.entries[last] = nil
	q.entries = q.entries[:last]
	return e
}

// add puts an entry in that is in no queue.
func (q *queue) add(e *entry) {
	e.queue = q
	heap.Push(q, e)
}

// top returns the first entry, nil if there is none.
func (q *queue) top() *entry {
	if len(q.entries) == 0 {
		return nil
	}
	return q.entries[0]
}

// leave takes the entry out of the queue that it is in, if any.
func (e *entry) leave() {
	if e.queue != nil {
		heap.Remove(e.queue, e.place)
		e.queue = nil
	}
}

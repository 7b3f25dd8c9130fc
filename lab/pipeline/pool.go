package pipeline

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// pool runs computations, a limited number at a time, by when they are due. It keeps no goroutine while it
// has nothing to do.
type pool struct {
	ctx    context.Context
	cancel context.CancelFunc
	limit  int
	wait   sync.WaitGroup

	mu      sync.Mutex // guards the fields below and the durations behind work.spent
	waiting heap[*work]
	running int
	number  uint64
}

// work is one computation. The machine awaits it when its event is due.
type work struct {
	due    float64 // virtual time
	number uint64  // of submission
	run    func(ctx context.Context) error
	spent  *time.Duration // wall time is added here

	done chan struct{} // closed when err is set
	err  error
}

// Compare orders works by due time.
func (w *work) Compare(o *work) int {
	return cmp.Or(cmp.Compare(w.due, o.due), cmp.Compare(w.number, o.number))
}

func newPool(ctx context.Context, limit int) *pool {
	p := &pool{limit: limit}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// submit starts a computation that is needed at a virtual time.
func (p *pool) submit(due float64, spent *time.Duration, run func(ctx context.Context) error) *work {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &work{due: due, number: p.number, run: run, spent: spent, done: make(chan struct{})}
	p.number++
	p.waiting.push(w)
	if p.running < p.limit {
		p.running++
		p.wait.Go(p.serve)
	}
	return w
}

// serve computes until nothing waits.
func (p *pool) serve() {
	for {
		p.mu.Lock()
		if p.waiting.len() == 0 || p.ctx.Err() != nil {
			p.running--
			p.mu.Unlock()
			return
		}
		w := p.waiting.pop()
		p.mu.Unlock()

		begin := time.Now()
		w.err = w.run(p.ctx)
		p.mu.Lock()
		*w.spent += time.Since(begin)
		p.mu.Unlock()
		close(w.done)
	}
}

// await waits for the work and returns its error. If the work is not done when the context ends, it returns the
// context's.
func (p *pool) await(w *work) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// close drops waiting works, cancels running ones and waits for them to end.
func (p *pool) close() {
	p.cancel()
	p.wait.Wait()
}

// heap is a binary heap with the smallest item on top, in an order without ties. Push and pop take O(log n). Unlike
// container/heap it does not box its items. The zero value is empty and ready to use.
type heap[T interface{ Compare(T) int }] struct {
	items []T
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	child := len(h.items) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if h.items[parent].Compare(item) <= 0 {
			break
		}
		h.items[child] = h.items[parent]
		child = parent
	}
	h.items[child] = item
}

// remove takes out all items that meet a condition and returns them in order.
func (h *heap[T]) remove(meets func(T) bool) (removed []T) {
	all := h.items
	h.items = nil
	for _, item := range all {
		if meets(item) {
			removed = append(removed, item)
		} else {
			h.push(item)
		}
	}
	slices.SortFunc(removed, T.Compare)
	return removed
}

// pop removes the smallest item. The heap must not be empty.
func (h *heap[T]) pop() T {
	least, last := h.items[0], len(h.items)-1
	item := h.items[last]
	var none T
	h.items[last] = none // release what it refers to
	h.items = h.items[:last]
	if last == 0 {
		return least
	}
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			break
		}
		if right := child + 1; right < last && h.items[right].Compare(h.items[child]) < 0 {
			child = right
		}
		if item.Compare(h.items[child]) <= 0 {
			break
		}
		h.items[parent] = h.items[child]
		parent = child
	}
	h.items[parent] = item
	return least
}

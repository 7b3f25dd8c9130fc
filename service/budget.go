package service

import (
	"context"
	"sync"
)

// budget is bytes that may be in use at once. Who asks for more than is free waits in order of arrival, so that large requests get their
// turn.
type budget struct {
	most int64

	mu    sync.Mutex // guards what follows
	used  int64
	queue []*claim // who waits, the first first
}

type claim struct {
	bytes   int64
	granted chan struct{} // closed once the bytes are theirs
}

func newBudget(most int64) *budget { return &budget{most: most} }

// take waits until so many bytes are free and takes them; it returns what to give back. What is more than the whole budget
// counts as all of it.
func (b *budget) take(ctx context.Context, bytes int64) (taken int64, err error) {
	bytes = min(bytes, b.most)
	b.mu.Lock()
	if len(b.queue) == 0 && b.used+bytes <= b.most {
		b.used += bytes
		b.mu.Unlock()
		return bytes, nil
	}
	c := &claim{bytes, make(chan struct{})}
	b.queue = append(b.queue, c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return bytes, nil
	case <-ctx.Done():
		b.leave(c)
		return 0, ctx.Err()
	}
}

// try takes so many bytes if then at most half of the budget is in use: for what can wait.
func (b *budget) try(bytes int64) (taken int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 || b.used+bytes > b.most/2 {
		return 0, false
	}
	b.used += bytes
	return bytes, true
}

// give returns what was taken.
func (b *budget) give(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	b.grant()
}

// leave takes a claim out of the queue; what it was granted meanwhile goes back.
func (b *budget) leave(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.queue {
		if x == c {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.grant()
			return
		}
	}
	b.used -= c.bytes
	b.grant()
}

// grant serves those in front of the queue for whom there is enough.
func (b *budget) grant() {
	for len(b.queue) > 0 && b.used+b.queue[0].bytes <= b.most {
		b.used += b.queue[0].bytes
		close(b.queue[0].granted)
		b.queue = b.queue[1:]
	}
}

// inUse returns how many bytes are taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

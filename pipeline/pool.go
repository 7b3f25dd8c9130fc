package pipeline

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// work is one computation, awaited by the machine when its event is due.
type work struct {
	due    float64 // virtual time at which the machine needs it
	number uint64  // of submission
	run    func(ctx context.Context) error
	spent  *time.Duration // wall time is added here

	done chan struct{} // closed when err is set
	err  error
}

// Compare orders works by the time they are needed at.
func (w *work) Compare(o *work) int {
	if c := cmp.Compare(w.due, o.due); c != 0 {
		return c
	}
	return cmp.Compare(w.number, o.number)
}

// pool computes works, a limited number at a time, those first that are needed first. It keeps no
// goroutine while it has nothing to do.
type pool struct {
	ctx    context.Context
	cancel context.CancelFunc
	limit  int
	wait   sync.WaitGroup

	mu      sync.Mutex // guards what follows and the durations behind work.spent
	waiting heap[*work]
	running int
	number  uint64
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

// await returns when the work is done, with its error, or when the context is.
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

// close drops what waits, cancels what runs and returns when all of it has ended.
func (p *pool) close() {
	p.cancel()
	p.wait.Wait()
}

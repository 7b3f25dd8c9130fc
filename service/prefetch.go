package service

import (
	"context"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// prefetcher draws and packs, in a goroutine of its own, the batches that a stream will ask for next.
type prefetcher struct {
	table   *table
	request drawRequest
	depth   int
	holder  *holder
	schema  *arrow.Schema

	cancel  context.CancelFunc
	ready   chan prefetched // the goroutine holds one more
	ended   chan struct{}
	changed signal // a batch will be ready soon, or state has changed

	mu    sync.Mutex
	state prefetchState
}

type prefetchState int

const (
	prefetchDraws  prefetchState = iota
	prefetchWaits                // the table holds too few rollouts, or the limiter holds it back
	prefetchFailed               // it has ended with an error
)

// prefetched is a batch drawn ahead, or the error that ended the prefetching.
type prefetched struct {
	batch  *rollout.Batch
	packed *packedBatch // nil: not packed, for lack of memory
	err    error
}

// prefetch prefetches up to depth batches.
func (t *table) prefetch(ctx context.Context, r drawRequest, depth int, h *holder, schema *arrow.Schema) *prefetcher {
	ctx, cancel := context.WithCancel(ctx)
	p := &prefetcher{
		table: t, request: r, depth: depth, holder: h, schema: schema,
		cancel: cancel, ready: make(chan prefetched, depth-1), ended: make(chan struct{}),
	}
	go p.run(ctx)
	return p
}

// serves reports whether its batches answer a request, which has neither an id nor prompts.
func (p *prefetcher) serves(r drawRequest, depth int) bool {
	of := &p.request
	return p.depth == depth && of.Size == r.Size && of.Fresh == r.Fresh && of.Shard == r.Shard
}

func (p *prefetcher) run(ctx context.Context) {
	defer close(p.ended)
	for {
		var b prefetched
		err := p.table.service.recovered("prefetch", func() error {
			b = p.draw(ctx)
			return b.err
		})
		b.err = err
		if b.err != nil {
			p.setState(prefetchFailed)
		}
		select {
		case p.ready <- b:
		case <-ctx.Done():
			p.discard(b)
			return
		}
		if b.err != nil {
			return
		}
	}
}

// draw draws one batch and packs it if there is plenty of memory.
func (p *prefetcher) draw(ctx context.Context) (b prefetched) {
	r := p.request
	r.timeout = 0
	if b.batch, b.err = p.table.draw(ctx, r, p.holder); mayPass(b.err) {
		p.setState(prefetchWaits)
		r.timeout = noTimeout
		b.batch, b.err = p.table.draw(ctx, r, p.holder)
		p.setState(prefetchDraws)
	}
	if b.err != nil {
		return b
	}
	if b.packed, b.err = p.table.tryPack(ctx, b.batch, p.schema); b.err != nil {
		p.table.returnBatch(b.batch, p.holder)
		return b
	}
	_ = p.table.commitShown(ctx, newestOf(b.batch.Draws)) // ahead of the request; sendBatch reports errors
	return b
}

func (p *prefetcher) setState(s prefetchState) {
	p.mu.Lock()
	p.state = s
	p.mu.Unlock()
	p.changed.notify()
}

func (p *prefetcher) is(s prefetchState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == s
}

// failed reports whether the prefetching has ended with an error.
func (p *prefetcher) failed() bool { return p.is(prefetchFailed) }

// discard returns a batch that will not be sent.
func (p *prefetcher) discard(b prefetched) {
	if b.packed != nil {
		b.packed.discard()
	}
	if b.err == nil {
		p.table.returnBatch(b.batch, p.holder)
	}
}

// next returns the next batch that may be sent now, after waiting at most as long as the timeout. Batches that are too
// old by now go back, and others are drawn.
func (p *prefetcher) next(ctx context.Context, timeout time.Duration, slack int) (*packedBatch, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	timedOut := timeout == 0
	for {
		changed := p.changed.watch()
		select {
		case b := <-p.ready:
			if packed, err := p.accept(ctx, b, slack); packed != nil || err != nil {
				return packed, err
			}
			continue
		default:
		}
		if timedOut && p.is(prefetchWaits) { // look at the table a last time
			r := p.request
			r.timeout = 0
			return p.table.drawAndPack(ctx, r, p.holder, p.schema)
		}
		select {
		case b := <-p.ready:
			if packed, err := p.accept(ctx, b, slack); packed != nil || err != nil {
				return packed, err
			}
		case <-changed:
		case <-timer.C:
			timedOut = true
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.table.service.closing:
			return nil, errClosing()
		}
	}
}

// accept returns a prefetched batch, packed, if it may be sent now.
func (p *prefetcher) accept(ctx context.Context, b prefetched, slack int) (*packedBatch, error) {
	if b.err != nil {
		return nil, b.err
	}
	if !p.table.renewIfCurrent(b.batch, slack, p.holder) {
		p.table.meter.redrawn.Add(1)
		p.discard(b)
		return nil, nil
	}
	if b.packed != nil {
		return b.packed, nil
	}
	packed, err := p.table.pack(ctx, b.batch, p.schema)
	if err != nil {
		p.table.returnBatch(b.batch, p.holder)
	}
	return packed, err
}

// stop ends the prefetching and returns what was drawn.
func (p *prefetcher) stop() {
	p.cancel()
	<-p.ended
	for {
		select {
		case b := <-p.ready:
			p.discard(b)
		default:
			return
		}
	}
}

// renewIfCurrent renews the lease of a prefetched batch if it may be sent: it is still on lease, at most slack versions
// older than the table, and none of its rollouts has become too stale since the draw (invariant 3).
func (t *table) renewIfCurrent(b *rollout.Batch, slack int, h *holder) bool {
	return t.unlessDropped(func() error {
		age := int64(t.version()) - int64(b.Version)
		if age < 0 || age > int64(slack) || !t.leases.has(b.ID, h) || t.tooStale(b, age) {
			return rollout.ErrNoLease
		}
		return t.rollouts.ServiceView().Renew(b.ID)
	}) == nil
}

// tooStale reports whether a rollout of a batch exceeds MaxStaleness age versions after its draw.
func (t *table) tooStale(b *rollout.Batch, age int64) bool {
	if t.MaxStaleness == 0 || age == 0 {
		return false
	}
	for i := range b.Draws {
		if int64(b.Draws[i].Staleness)+age > int64(t.MaxStaleness) {
			return true
		}
	}
	return false
}

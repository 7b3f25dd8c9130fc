package service

import (
	"context"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// lookahead draws and packs the batches that a stream will ask for next, in a goroutine of its own.
type lookahead struct {
	table  *table
	demand demand
	depth  int
	holder *holder
	schema *arrow.Schema

	cancel  context.CancelFunc
	ready   chan drawn // the goroutine holds one more
	ended   chan struct{}
	changed signal // a batch is about to be ready, or lack has changed

	mu   sync.Mutex
	lack bool // it waits: the table holds too little, or the limiter holds it back
	done bool // it has ended with an error
}

// drawn is a batch drawn ahead, or the error that ended the drawing.
type drawn struct {
	batch  *rollout.Batch
	parcel *parcel // nil: not packed, for lack of memory
	err    error
}

// lookAhead begins to draw batches like a demand's, so many ahead.
func (t *table) lookAhead(ctx context.Context, d demand, depth int, to *holder, schema *arrow.Schema) *lookahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &lookahead{
		table: t, demand: d, depth: depth, holder: to, schema: schema,
		cancel: cancel, ready: make(chan drawn, depth-1), ended: make(chan struct{}),
	}
	go a.run(ctx)
	return a
}

// serves tells whether its batches are what a demand asks for.
func (a *lookahead) serves(d demand, depth int) bool {
	return a.depth == depth && a.demand.Request == d.Request
}

func (a *lookahead) run(ctx context.Context) {
	defer close(a.ended)
	for {
		r := a.draw(ctx)
		if r.err != nil {
			a.set(false, true)
		}
		select {
		case a.ready <- r:
		case <-ctx.Done():
			a.drop(r)
			return
		}
		if r.err != nil {
			return
		}
	}
}

// draw draws one batch and packs it if there is plenty of memory.
func (a *lookahead) draw(ctx context.Context) (r drawn) {
	d := a.demand
	d.wait = patience{bounded: true}
	if r.batch, r.err = a.table.draw(ctx, d, a.holder); waitable(r.err) {
		a.set(true, false)
		d.wait = patience{}
		r.batch, r.err = a.table.draw(ctx, d, a.holder)
		a.set(false, false)
	}
	if r.err != nil {
		return r
	}
	if r.parcel, r.err = a.table.tryPack(r.batch, a.schema); r.err != nil {
		a.table.giveBack(r.batch, a.holder)
	}
	return r
}

func (a *lookahead) set(lack, done bool) {
	a.mu.Lock()
	a.lack, a.done = lack, done
	a.mu.Unlock()
	a.changed.wake()
}

func (a *lookahead) lacks() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lack
}

// over tells whether the drawing has ended with an error.
func (a *lookahead) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// drop gives back what was drawn.
func (a *lookahead) drop(r drawn) {
	if r.parcel != nil {
		r.parcel.discard()
	}
	if r.err == nil {
		a.table.giveBack(r.batch, a.holder)
	}
}

// next returns the next batch that may be handed over now, waiting as long as the demand says. What has become too old since it was
// drawn goes back, and others are drawn.
func (a *lookahead) next(ctx context.Context, d demand, slack int) (*parcel, error) {
	var over <-chan time.Time
	expired := d.wait.bounded && d.wait.limit == 0
	if d.wait.bounded && !expired {
		timer := time.NewTimer(d.wait.limit)
		defer timer.Stop()
		over = timer.C
	}
	for {
		changed := a.changed.watch()
		select {
		case r := <-a.ready:
			if p, err := a.accept(ctx, r, slack); p != nil || err != nil {
				return p, err
			}
			continue
		default:
		}
		if expired && a.lacks() { // the last word is a look at the table now
			d.wait = patience{bounded: true}
			return a.table.drawPacked(ctx, d, a.holder, a.schema)
		}
		select {
		case r := <-a.ready:
			if p, err := a.accept(ctx, r, slack); p != nil || err != nil {
				return p, err
			}
		case <-changed:
		case <-over:
			expired = true
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.table.service.closing:
			return nil, closing()
		}
	}
}

// accept returns what was drawn ahead, packed, if it may be handed over.
func (a *lookahead) accept(ctx context.Context, r drawn, slack int) (*parcel, error) {
	if r.err != nil {
		return nil, r.err
	}
	if !a.table.current(r.batch, slack, a.holder) {
		a.table.meter.redrawn.Add(1)
		a.drop(r)
		return nil, nil
	}
	if r.parcel != nil {
		return r.parcel, nil
	}
	p, err := a.table.pack(ctx, r.batch, a.schema)
	if err != nil {
		a.table.giveBack(r.batch, a.holder)
	}
	return p, err
}

// stop ends the drawing and gives back what was drawn.
func (a *lookahead) stop() {
	a.cancel()
	<-a.ended
	for {
		select {
		case r := <-a.ready:
			a.drop(r)
		default:
			return
		}
	}
}

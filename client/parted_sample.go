package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Sample is [Table.Sample]: from one of the trainer's own parts or from all, as the scope says. A repeated request id
// gets the same batch from this program.
func (w *PartedTable) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	c := w.takeCursor()
	b, err := c.next(ctx, w, wire.Single(req), false)
	if err == nil { // what cannot be acknowledged has gone back: a queue delivers it again, and names it
		err = ignoring(c.settle(ctx, wire.Acknowledge), ErrUnreachable, rollout.ErrNoLease)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	w.cursors.put(c)
	return b, nil
}

// Lease is [Table.Lease].
func (w *PartedTable) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	c := w.takeCursor()
	using := *w
	using.atDraw = false
	b, err := c.next(ctx, &using, wire.Single(req), false)
	if err != nil {
		c.end()
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.leased[b.ID]; before != nil {
		before.end()
	}
	w.leased[b.ID] = c
	return b, nil
}

func (w *PartedTable) takeCursor() *cursor {
	if c, ok := w.cursors.get(); ok {
		return c
	}
	return newCursor()
}

// Acknowledge counts the draws of leased batches as used.
func (w *PartedTable) Acknowledge(ctx context.Context, batches ...rollout.BatchID) error {
	return w.settle(ctx, wire.Acknowledge, batches)
}

// Release returns the draws of leased batches, uncounted.
func (w *PartedTable) Release(ctx context.Context, batches ...rollout.BatchID) error {
	return w.settle(ctx, wire.Release, batches)
}

func (w *PartedTable) settle(ctx context.Context, kind string, batches []rollout.BatchID) error {
	var errs []error
	for _, id := range batches {
		w.mu.Lock()
		c := w.leased[id]
		delete(w.leased, id)
		w.mu.Unlock()
		if c != nil {
			err := c.settle(ctx, kind)
			errs = append(errs, err)
			if err != nil {
				c.end()
			} else {
				w.cursors.put(c)
			}
			continue
		}
		parts, err := w.resolve(ctx)
		if err != nil {
			return err
		}
		k, of := parted.Cut(uint64(id))
		if k >= len(parts) {
			errs = append(errs, w.failed(kind, fmt.Errorf("batch %d: %w", id, rollout.ErrNoLease)))
			continue
		}
		errs = append(errs, w.each(ctx, parts[k:k+1], true, func(_ int, t *Table) error {
			return t.settle(ctx, kind, []rollout.BatchID{rollout.BatchID(of)})
		}))
	}
	return errors.Join(errs...)
}

// ofMerged is the part number in the ids of batches that several parts made.
const ofMerged = parted.MaxParts

// cursor draws batch after batch, with a stream for each part. One goroutine at a time may use it.
type cursor struct {
	lifetime
	streams map[*part]*partStream
	reuse   bool // see ReuseMemory
}

// partStream is a stream of a part, and whether a batch of it is on lease.
type partStream struct {
	stream *Stream
	leased bool
}

// draw is what a cursor is asked for.
type draw struct {
	wire.SampleRequest
	release bool          // the batch before goes back uncounted; otherwise it counts as used
	wait    time.Duration // at one part that holds too little
}

func newCursor() *cursor {
	return &cursor{lifetime: newLifetime(), streams: make(map[*part]*partStream)}
}

// end closes the streams; what is on lease goes back.
func (c *cursor) end() {
	c.lifetime.end()
	for _, held := range c.streams {
		if held.stream != nil {
			_ = held.stream.Close() // never fails
		}
	}
}

// next settles the batch before and draws another, waiting as the table says.
func (c *cursor) next(
	ctx context.Context, w *PartedTable, req wire.SampleRequest, release bool,
) (*rollout.Batch, error) {
	parts, err := w.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if len(req.Prompts) > 0 && len(parts) > 1 {
		return nil, w.failed("sample", fmt.Errorf("prompts: this table is in %d parts, which share the rollouts of a "+
			"prompt: draw by prompt from a table of one service: %w", len(parts), rollout.ErrInvalid))
	}
	o, err := w.rules(ctx)
	if err != nil {
		return nil, err
	}
	all := len(parts) > 1 && (o.Sampler.Consumes() || w.services.options.Scope == AllParts)
	d, tries := draw{SampleRequest: req, release: release}, w.services.attempts()
	for began := time.Now(); ; d.wait = max(0, min(w.left(ctx, began), startSlice)) {
		var b *rollout.Batch
		if all {
			b, err = c.fromAll(ctx, w, o, parts, d)
		} else {
			b, err = c.fromOwn(ctx, w, parts, d)
		}
		switch {
		case err == nil:
			w.saw(b.Version)
			return b, nil
		case ctx.Err() != nil:
			return nil, w.failed("sample", fmt.Errorf("%w: %w", context.Cause(ctx), err))
		case errors.Is(err, rollout.ErrStarved):
			if w.left(ctx, began) <= 0 {
				return nil, w.failed("sample", err)
			}
			if d.wait == 0 {
				c.pause(ctx, min(w.left(ctx, began), firstDown/4))
			}
		case !errors.Is(err, ErrUnreachable), !tries.again(ctx, true):
			return nil, w.failed("sample", err)
		}
	}
}

func (c *cursor) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fromOwn draws from one of the trainer's own parts, or while all of them are down from any other.
func (c *cursor) fromOwn(ctx context.Context, w *PartedTable, parts []*part, d draw) (*rollout.Batch, error) {
	own, others := w.turns(parts, d.RequestID)
	b, from, err := c.fromFirst(ctx, w, own, d)
	if errors.Is(err, ErrUnreachable) && len(others) > 0 {
		b, from, err = c.fromFirst(ctx, w, others, d)
	}
	if err != nil {
		return nil, err
	}
	if d.RequestID != "" {
		w.mu.Lock()
		w.homes.put(d.RequestID, from)
		w.mu.Unlock()
	}
	b.ID = rollout.BatchID(parted.Join(from.number, uint64(b.ID)))
	parted.JoinDraws(from.number, b.Draws)
	return b, c.settleOthers(ctx, from, d.release)
}

// turns returns the trainer's own parts and the others, those whose turn it is first. A request id begins where its
// hash says, and once it has been answered it goes nowhere else.
func (w *PartedTable) turns(parts []*part, requestID string) (own, others []*part) {
	o := w.services.options
	for i, p := range parts {
		if i%o.Trainers == o.Trainer || o.Trainers > len(parts) && i == o.Trainer%len(parts) {
			own = append(own, p)
		} else {
			others = append(others, p)
		}
	}
	first := w.nextTurn()
	if requestID != "" {
		w.mu.Lock()
		home := w.homes.byID[requestID]
		w.mu.Unlock()
		if home != nil {
			return []*part{home}, nil
		}
		h := fnv.New64a()
		h.Write([]byte(requestID))
		first = int(h.Sum64() % uint64(len(own)))
	}
	return from(own, first), from(others, first)
}

// from returns a list that begins at one of its entries and goes round.
func from(list []*part, first int) []*part {
	if len(list) == 0 {
		return nil
	}
	first %= len(list)
	return slices.Concat(list[first:], list[:first])
}

// fromFirst draws from the first of some parts that has enough. If none has, the error is that one that is up holds too
// little, or else that all are down.
func (c *cursor) fromFirst(
	ctx context.Context, w *PartedTable, parts []*part, d draw,
) (b *rollout.Batch, from *part, err error) {
	for _, p := range parts {
		b, why := c.take(ctx, w, p, d)
		switch {
		case why == nil:
			return b, p, nil
		case errors.Is(why, rollout.ErrStarved):
			err = why
		case !errors.Is(why, ErrUnreachable):
			return nil, nil, why
		case !errors.Is(err, rollout.ErrStarved):
			err = why
		}
	}
	return nil, nil, err
}

// fromAll divides a batch over the totals of the parts that are up, draws inside each at once, and merges what comes.
func (c *cursor) fromAll(
	ctx context.Context, w *PartedTable, o *replay.Options, parts []*part, d draw,
) (*rollout.Batch, error) {
	plan, number, err := w.plan(ctx, o, parts, d.SampleRequest)
	if err != nil {
		return nil, err
	}
	none := 0 // the next plan is another
	d.Prefetch, d.wait = &none, 0
	batches, errs := make([]*rollout.Batch, len(parts)), make([]error, len(parts))
	requests := plan.Requests()
	for _, p := range parts { // before the goroutines: streams is a map
		c.streamOf(p)
	}
	together(len(parts), func(i int) {
		if requests[i].Size == 0 {
			errs[i] = c.settleOne(ctx, parts[i], d.release)
			return
		}
		own := d
		own.Size, own.Fresh = requests[i].Size, requests[i].Fresh
		if own.RequestID != "" {
			own.RequestID += "/" + strconv.Itoa(i)
		}
		batches[i], errs[i] = c.take(ctx, w, parts[i], own)
	})
	if err := firstOf(errs); err != nil {
		// A plan that a part cannot fill is void, and what the others gave goes back.
		return nil, errors.Join(err, ignoring(c.settle(ctx, wire.Release), rollout.ErrNoLease, ErrUnreachable))
	}
	b, err := plan.Merge(batches)
	if err != nil {
		return nil, err
	}
	b.ID = rollout.BatchID(parted.Join(ofMerged, number))
	if d.RequestID != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.plans.put(d.RequestID, plan)
	}
	return b, nil
}

// plan divides a batch over the parts, and numbers it. A request id that has been answered keeps its plan.
func (w *PartedTable) plan(
	ctx context.Context, o *replay.Options, parts []*part, req wire.SampleRequest,
) (*parted.Plan, uint64, error) {
	w.mu.Lock()
	w.merged++
	number, plan := w.merged, w.plans.byID[req.RequestID]
	w.mu.Unlock()
	if plan != nil {
		return plan, number, nil
	}
	totals, err := w.totals(ctx, parts, req.Shard, false)
	if err != nil {
		return nil, 0, err
	}
	stream := rollout.Stream(o.Seed, "plan for trainer "+strconv.Itoa(w.services.options.Trainer), number)
	if req.RequestID != "" { // the same again, whatever this program drew before
		stream = rollout.Stream(o.Seed, "plan for request "+req.RequestID, 0)
	}
	plan, err = parted.Divide(stream, o.DrawRule(), totals, req.Size, req.Fresh)
	return plan, number, err
}

// firstOf returns the first error that ends a request, else the first.
func firstOf(errs []error) (first error) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrUnreachable) && !errors.Is(err, rollout.ErrStarved) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func ignoring(err error, these ...error) error {
	if isAny(err, these...) {
		return nil
	}
	return err
}

// totals reads the totals of all parts; those that are down have none, unless all must be up. Parts that are behind in
// version are advanced first: weights at different versions cannot be compared.
func (w *PartedTable) totals(ctx context.Context, parts []*part, shard int, all bool) ([]parted.Totals, error) {
	for range maxRereads {
		answers := make([]*wire.Totals, len(parts)) // nil: it is down
		err := w.each(ctx, parts, all, func(i int, t *Table) error {
			answer := new(wire.Totals)
			err := t.client.act(ctx, t.name, wire.ReadTotals, wire.TotalsRequest{Table: t.name, Shard: shard}, answer, 0)
			if err == nil {
				answers[i] = answer
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		newest := rollout.NoVersion
		for _, a := range answers {
			if a != nil {
				newest = max(newest, a.Version)
			}
		}
		totals := make([]parted.Totals, len(parts))
		var behind []*part
		for i, a := range answers {
			if a != nil {
				if totals[i] = a.Totals; a.Version < newest {
					behind = append(behind, parts[i])
				}
			}
		}
		if len(behind) == 0 {
			return totals, nil
		}
		err = w.each(ctx, behind, false, func(_ int, t *Table) error { return t.Advance(ctx, newest) })
		if err = ignoring(err, ErrUnreachable); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the parts' versions changed %d times while their totals were read: sample again: %w",
		maxRereads, rollout.ErrStarved)
}

// Scan passes everything the parts hold to each, part after part, as [Table.Scan] does. All services must be up.
func (w *PartedTable) Scan(ctx context.Context, rows int, each func([]rollout.Draw) error) error {
	parts, err := w.resolve(ctx)
	if err != nil {
		return err
	}
	o, err := w.rules(ctx)
	if err != nil {
		return err
	}
	totals, err := w.totals(ctx, parts, 0, true)
	if err != nil {
		return err
	}
	share := parted.Shares(o.DrawRule(), totals)
	for i, p := range parts {
		err := w.each(ctx, parts[i:i+1], true, func(_ int, t *Table) error {
			return t.Scan(ctx, rows, func(draws []rollout.Draw) error {
				for j := range draws {
					draws[j].Probability *= share[i]
				}
				return each(parted.JoinDraws(p.number, draws))
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxRereads bounds how often totals are read again because versions differed.
const maxRereads = 8

// streamOf returns the stream of a part, which may have to be opened.
func (c *cursor) streamOf(p *part) *partStream {
	if c.streams[p] == nil {
		c.streams[p] = new(partStream)
	}
	return c.streams[p]
}

// take draws from a part. The request settles the batch before of that part.
func (c *cursor) take(ctx context.Context, w *PartedTable, p *part, d draw) (b *rollout.Batch, err error) {
	err = w.on(ctx, p, func(t *Table) error {
		t = t.Waiting(d.wait)
		if w.atDraw {
			b, err = t.UsingAtDraw().Sample(ctx, rollout.Request{Size: d.Size, Fresh: d.Fresh, Shard: d.Shard,
				ID: d.RequestID})
			return err
		}
		held := c.streamOf(p)
		if s := held.stream; s == nil || s.table.client != t.client {
			now, err := t.Stream(ctx, d.SampleRequest)
			if err != nil {
				return err
			}
			if s != nil {
				_ = s.Close() // the part has moved; never fails
			}
			held.stream, held.leased = now, false
			if c.reuse {
				held.stream.ReuseMemory()
			}
		}
		s := held.stream
		s.table = t
		s.request.Size, s.request.Fresh, s.request.Shard, s.request.RequestID = d.Size, d.Fresh, d.Shard, d.RequestID
		b, err = s.next(ctx, d.release && held.leased)
		held.leased = err == nil && !b.Repeated
		return err
	})
	return b, err
}

// settleOne settles the batch before of one part.
func (c *cursor) settleOne(ctx context.Context, p *part, release bool) error {
	held := c.streams[p]
	if held == nil || !held.leased {
		return nil
	}
	kind := wire.Acknowledge
	if release {
		kind = wire.Release
	}
	s := held.stream
	held.leased = false
	err := s.table.settle(ctx, kind, []rollout.BatchID{s.leased})
	if s.leased = 0; err != nil {
		s.disconnectIfOpen()
	}
	return ignoring(err, rollout.ErrNoLease, ErrUnreachable) // it has gone back
}

// settleOthers settles the batch before of every other part than one.
func (c *cursor) settleOthers(ctx context.Context, but *part, release bool) error {
	for p := range c.streams {
		if p != but {
			if err := c.settleOne(ctx, p, release); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle acknowledges or releases what is on lease. Errors name what has gone back instead.
func (c *cursor) settle(ctx context.Context, kind string) error {
	var open []*partStream
	for _, held := range c.streams {
		if held.leased {
			open = append(open, held)
		}
	}
	errs := make([]error, len(open))
	together(len(open), func(i int) {
		s := open[i].stream
		open[i].leased = false
		errs[i] = s.table.settle(ctx, kind, []rollout.BatchID{s.leased})
		if s.leased = 0; errs[i] != nil {
			s.disconnectIfOpen()
		}
	})
	return errors.Join(errs...)
}

// PartedStream gives batch after batch of a table in parts on lease, as [Stream] does. One goroutine at a time may
// use it.
type PartedStream struct {
	table   *PartedTable
	request wire.SampleRequest
	cursors [2]*cursor // the first gave the last batch; the second reads ahead
	ahead   chan drawn // nil: nothing is under way
	reads   bool
}

type drawn struct {
	batch *rollout.Batch
	err   error
}

// Stream returns a stream of batches that req describes; its request id, if any, is that of the first batch.
func (w *PartedTable) Stream(ctx context.Context, req wire.SampleRequest) (*PartedStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Export || req.UseAtDraw {
		return nil, w.failed("stream", wire.Errorf(wire.Invalid, "export and use_at_draw: want neither on a stream"))
	}
	streaming := *w
	streaming.atDraw = false
	return &PartedStream{table: &streaming, request: req, cursors: [2]*cursor{newCursor(), newCursor()}}, nil
}

// ReadAhead is [Stream.ReadAhead]: while the caller works with a batch the next is drawn and travels.
func (s *PartedStream) ReadAhead() { s.reads = true }

// ReuseMemory is [Stream.ReuseMemory]. Call it before the first batch.
func (s *PartedStream) ReuseMemory() { s.cursors[0].reuse, s.cursors[1].reuse = true, true }

// Next acknowledges the batch before and returns another.
func (s *PartedStream) Next(ctx context.Context) (*rollout.Batch, error) {
	return s.next(ctx, false)
}

// Exchange releases the batch before, uncounted, and returns another.
func (s *PartedStream) Exchange(ctx context.Context) (*rollout.Batch, error) {
	return s.next(ctx, true)
}

func (s *PartedStream) next(ctx context.Context, release bool) (*rollout.Batch, error) {
	if !s.reads {
		return s.draw(ctx, s.cursors[0], release)
	}
	b, err := s.await(ctx)
	if b == nil && err == nil {
		b, err = s.draw(ctx, s.cursors[1], false)
	}
	if err != nil {
		return nil, err
	}
	s.cursors[0], s.cursors[1] = s.cursors[1], s.cursors[0]
	behind, ahead := s.cursors[1], make(chan drawn, 1)
	s.ahead = ahead
	request := s.request
	go func() {
		b, err := behind.next(behind.ctx, s.table, request, release) // settles the batch before this one
		ahead <- drawn{b, err}
	}()
	return b, nil
}

// await returns the batch that was read ahead, nil if there is none or it is too old by now.
func (s *PartedStream) await(ctx context.Context) (*rollout.Batch, error) {
	if s.ahead == nil {
		return nil, nil
	}
	select {
	case d := <-s.ahead:
		s.ahead = nil
		s.table.mu.Lock()
		newest := s.table.version
		s.table.mu.Unlock()
		if d.err != nil {
			return nil, nil // the request that follows tells why
		}
		if int64(d.batch.Version)+int64(s.request.PrefetchSlack) < int64(newest) {
			return s.draw(ctx, s.cursors[1], true)
		}
		return d.batch, nil
	case <-ctx.Done():
		return nil, s.table.failed("stream", context.Cause(ctx))
	}
}

func (s *PartedStream) draw(ctx context.Context, c *cursor, release bool) (*rollout.Batch, error) {
	b, err := c.next(ctx, s.table, s.request, release)
	s.request.RequestID = ""
	return b, err
}

// Acknowledge counts the last batch as used, when no other is to be asked for.
func (s *PartedStream) Acknowledge(ctx context.Context) error {
	return s.cursors[0].settle(ctx, wire.Acknowledge)
}

// Close ends the stream; a batch that was not acknowledged goes back.
func (s *PartedStream) Close() error {
	for _, c := range s.cursors {
		c.lifetime.end()
	}
	if s.ahead != nil {
		<-s.ahead
	}
	for _, c := range s.cursors {
		c.end()
	}
	return nil
}

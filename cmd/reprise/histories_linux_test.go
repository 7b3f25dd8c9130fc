package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Histories of clients of a queue in a cluster are linearizable whatever its nodes suffer: there is an order of the
// calls, each at one moment between its beginning and its end, in which one queue gives the same answers. A call that
// ends without an answer may take effect at any later time, or never. A new owner of the queue takes back what was on
// lease.

// asked is a call.
type asked struct {
	kind  callKind
	tag   string // insertion: the prompt of its rollouts
	size  int    // insertion, lease
	batch rollout.BatchID
	slow  bool // it took long enough to have been sent more than once
}

type callKind string

const (
	insertion   callKind = "insertion"
	leasing     callKind = "lease"
	acknowledge callKind = "acknowledgement"
	release     callKind = "release"
	count       callKind = "count"
)

// answered is its answer.
type answered struct {
	unclear error // the call may have been carried out, or not
	refused error // ErrStarved, ErrNoLease
	ids     []rollout.ID
	tags    []string
	batch   rollout.BatchID
	count   int
}

// item is a rollout of the model.
type item struct {
	id    rollout.ID // 0: nobody was told
	tag   string
	batch rollout.BatchID // that it is on lease with; 0: none; nobody: one that no client knows
}

const nobody = math.MaxUint64

// content is what the queue of the model holds: its rollouts in order, and the largest id that anybody was told. No
// step changes one in place.
type content struct {
	items []item
	last  rollout.ID
}

func (c content) equal(d content) bool { return c.last == d.last && slices.Equal(c.items, d.items) }

// settled returns the content without the rollouts of a batch, or, if they are kept, with them off lease. It reports
// whether there are any.
func (c content) settled(batch rollout.BatchID, keep bool) (content, bool) {
	of := func(i item) bool { return i.batch == batch }
	if !slices.ContainsFunc(c.items, of) {
		return c, false
	}
	c.items = slices.Clone(c.items)
	if !keep {
		c.items = slices.DeleteFunc(c.items, of)
	}
	for i := range c.items {
		if of(c.items[i]) {
			c.items[i].batch = 0
		}
	}
	return c, true
}

// leased returns the content with the first rollouts off lease on lease, and those. It reports whether there are
// enough.
func (c content) leased(size int, batch rollout.BatchID) (d content, taken []item, ok bool) {
	d.items, d.last = slices.Clone(c.items), c.last
	for i := range d.items {
		if d.items[i].batch == 0 && len(taken) < size {
			d.items[i].batch = batch
			taken = append(taken, d.items[i])
		}
	}
	return d, taken, len(taken) == size
}

// step returns what the queue may hold once it has answered so; nothing if it cannot answer so. Before any call a new
// owner may have taken over.
func (c content) step(in asked, out answered) (after []content) {
	fresh := content{slices.Clone(c.items), c.last}
	for i := range fresh.items {
		fresh.items[i].batch = 0
	}
	after = c.do(in, out)
	if !fresh.equal(c) {
		after = append(after, fresh.do(in, out)...)
	}
	return after
}

func (c content) do(in asked, out answered) (after []content) {
	if out.unclear != nil {
		after = append(after, c) // it was not carried out
	}
	// An answer to a call that was sent again is that to its last attempt.
	before := []content{c}
	if again, _, ok := c.leased(in.size, nobody); ok && in.kind == leasing && in.slow {
		before = append(before, again)
	}
	for _, c := range before {
		switch in.kind {
		case insertion:
			after = append(after, c.insert(in, out)...)
		case leasing:
			d, taken, enough := c.leased(in.size, max(out.batch, 1))
			switch {
			case out.unclear != nil:
				if d, _, ok := c.leased(in.size, nobody); ok {
					after = append(after, d)
				}
			case errors.Is(out.refused, rollout.ErrStarved):
				if !enough {
					after = append(after, c)
				}
			case enough:
				if d, ok := d.identify(taken, out); ok {
					after = append(after, d)
				}
			}
		case acknowledge, release:
			d, held := c.settled(in.batch, in.kind == release)
			switch {
			case errors.Is(out.refused, rollout.ErrNoLease):
				if !held {
					after = append(after, c)
				} else if in.slow {
					after = append(after, d) // by an attempt whose answer was lost
				}
			case held:
				after = append(after, d)
			}
		case count:
			if out.unclear == nil && out.count == len(c.items) {
				after = append(after, c)
			}
		}
	}
	return after
}

func (c content) insert(in asked, out answered) []content {
	d := content{slices.Clone(c.items), c.last}
	for i := range in.size {
		next := item{tag: in.tag}
		if out.unclear == nil {
			if next.id = out.ids[i]; next.id <= d.last {
				return nil // given before
			}
			d.last = next.id
		}
		d.items = append(d.items, next)
	}
	return []content{d}
}

// identify compares rollouts that were leased with what the client was given, and notes ids that nobody was told
// before.
func (c content) identify(taken []item, out answered) (content, bool) {
	if len(out.ids) != len(taken) {
		return c, false
	}
	for i, t := range taken {
		if t.tag != out.tags[i] || t.id != 0 && t.id != out.ids[i] {
			return c, false
		}
	}
	next := 0
	for i := range c.items {
		if c.items[i].batch == out.batch {
			c.items[i].id = out.ids[next]
			c.last = max(c.last, out.ids[next])
			next++
		}
	}
	return c, true
}

// A chronicle is what clients did to one queue.
type chronicle struct {
	began time.Time

	mu      sync.Mutex
	calls   []porcupine.Operation
	batches []rollout.BatchID
	next    int
	unclear int
}

// make makes a random call of a client and writes it down.
func (h *chronicle) make(ctx context.Context, number int, table *client.PartedTable, random *rand.Rand) {
	h.mu.Lock()
	in := asked{kind: insertion, size: 1 + random.IntN(2)}
	switch k := random.IntN(20); {
	case k < 8:
		h.next++
		in.tag = fmt.Sprint("p", h.next)
	case k < 13:
		in.kind = leasing
	case k < 18 && len(h.batches) > 0:
		in.kind, in.batch = acknowledge, h.batches[random.IntN(len(h.batches))]
		if k == 17 {
			in.kind = release
		}
	default:
		in.kind = count
	}
	h.mu.Unlock()

	var out answered
	began := time.Since(h.began)
	err := in.call(ctx, table, &out)
	ended := time.Since(h.began)
	in.slow = ended-began > 200*time.Millisecond
	returned := ended.Nanoseconds()
	switch {
	case errors.Is(err, rollout.ErrStarved) && in.kind == leasing,
		errors.Is(err, rollout.ErrNoLease) && (in.kind == acknowledge || in.kind == release):
		out.refused = err
	case err != nil:
		out.unclear, returned = err, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.unclear != nil {
		h.unclear++
		if in.kind == count {
			return // it changes nothing
		}
	}
	if out.batch != 0 {
		h.batches = append(h.batches, out.batch)
	}
	h.calls = append(h.calls, porcupine.Operation{ClientId: number, Input: in, Output: out, Call: began.Nanoseconds(),
		Return: returned})
}

func (in asked) call(ctx context.Context, table *client.PartedTable, out *answered) (err error) {
	switch in.kind {
	case insertion:
		g := pairOf(in.tag)
		g.Rollouts = g.Rollouts[:in.size]
		out.ids, err = table.InsertOnce(ctx, in.tag, g)
	case leasing:
		var b *rollout.Batch
		if b, err = table.Lease(ctx, rollout.Request{Size: in.size}); err == nil {
			out.batch = b.ID
			for _, d := range b.Draws {
				out.ids, out.tags = append(out.ids, d.ID), append(out.tags, d.Rollout.PromptID)
			}
		}
	case acknowledge:
		err = table.Acknowledge(ctx, in.batch)
	case release:
		err = table.Release(ctx, in.batch)
	case count:
		out.count, err = table.Len(ctx)
	}
	return err
}

// check looks for an order of the calls.
func (h *chronicle) check() porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{content{}} },
		Step: func(state, input, output any) []any {
			var after []any
			for _, c := range state.(content).step(input.(asked), output.(answered)) {
				after = append(after, c)
			}
			return after
		},
		Equal: func(a, b any) bool { return a.(content).equal(b.(content)) },
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), h.calls, 2*time.Minute)
}

func (h *chronicle) String() string {
	var text strings.Builder
	for _, c := range h.calls {
		fmt.Fprintf(&text, "%d: %9.1f ms to %9.1f ms: %+v: %+v\n", c.ClientId, float64(c.Call)/1e6, float64(c.Return)/1e6,
			c.Input, c.Output)
	}
	return text.String()
}

// owner returns the node that answers for a table, -1 if none does.
func (c *nodes) owner(ctx context.Context, table string) int {
	for i := range c.running {
		if _, err := c.ask(ctx, i, table); err == nil {
			return i
		}
	}
	return -1
}

// Each fault falls on a new queue that three clients use.
func TestHistoriesUnderFaultsAreLinearizable(t *testing.T) {
	tests.Long(t)
	if !inNamespace(t) {
		return
	}
	network := newNetwork(t, 3)
	startNodes(t, 3, network).chronicle((*faults+4)/5, faultsOf(network))
}

// chronicle makes faults, each on a new queue that three clients use, and checks the histories of the queues.
func (c *nodes) chronicle(times int, kinds []fault) {
	t := c.t
	t.Helper()
	s := c.connect()
	random := rand.New(rand.NewPCG(*faultSeed, 2))
	total, unclear, undecided := 0, 0, 0
	for k := range times {
		name := fmt.Sprintf("queue-%d", k)
		tests.Until(t, "a queue", func() bool {
			_, err := s.CreateParts(t.Context(), wire.Table{Name: name,
				Options: replay.Options{Capacity: 1 << 16, Sampler: replay.FIFO, LeaseSeconds: 3600}}, 1)
			return err == nil
		})
		h := &chronicle{began: time.Now()}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for number := range 3 {
			mine := rand.New(rand.NewPCG(*faultSeed, uint64(3+3*k+number)))
			one, err := client.DialAll(t.Context(), c.addresses, client.AllOptions{
				Options: client.Options{RetryFor: 30 * time.Second}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer func() { _ = one.Close() }()
				for ctx.Err() == nil {
					h.make(t.Context(), number, one.Table(name).Waiting(0), mine)
					time.Sleep(time.Duration(50+mine.IntN(250)) * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		f, i, d := kinds[random.IntN(len(kinds))], random.IntN(3), time.Duration(500+random.IntN(8000))*time.Millisecond
		if owner := c.owner(t.Context(), name); k%3 > 0 && owner >= 0 {
			i = owner
		}
		f.make(c, i, d)
		time.Sleep(2 * time.Second)
		stop()
		all.Wait()
		result := h.check()
		t.Logf("%3d: node %d %s for %v: %d calls, %d without an answer: %s", k+1, i, f.name, d, len(h.calls), h.unclear,
			result)
		total, unclear = total+len(h.calls), unclear+h.unclear
		switch result {
		case porcupine.Illegal:
			c.showLogs()
			t.Fatalf("no order of these calls explains the answers:\n%v", h)
		case porcupine.Unknown:
			undecided++
		}
		if err := s.Drop(t.Context(), name); err != nil {
			t.Logf("dropping %s: %v", name, err)
		}
	}
	t.Logf("%d calls, %d without an answer; %d histories undecided after two minutes", total, unclear, undecided)
}

// The checker finds what a queue must not do.
func TestDefectsAreFoundInHistories(t *testing.T) {
	insert := func(tag string, id rollout.ID) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: insertion, tag: tag, size: 1}, Output: answered{ids: []rollout.ID{id}}}
	}
	lease := func(batch rollout.BatchID, tag string, id rollout.ID) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: leasing, size: 1},
			Output: answered{batch: batch, ids: []rollout.ID{id}, tags: []string{tag}}}
	}
	settle := func(kind callKind, batch rollout.BatchID, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: kind, batch: batch}, Output: out}
	}
	starved := porcupine.Operation{Input: asked{kind: leasing, size: 1}, Output: answered{refused: rollout.ErrStarved}}
	unclear := answered{unclear: wire.ErrInterrupted}
	acknowledged := settle(acknowledge, 1, answered{})
	maybe := porcupine.Operation{Input: asked{kind: insertion, tag: "a", size: 1}, Output: unclear}
	two := porcupine.Operation{Input: asked{kind: count}, Output: answered{count: 2}}
	type calls = []porcupine.Operation
	for name, each := range map[string]struct {
		want  porcupine.CheckResult
		calls calls
	}{
		"in order":                {porcupine.Ok, calls{insert("a", 1), insert("b", 2), lease(1, "a", 1)}},
		"out of order":            {porcupine.Illegal, calls{insert("a", 1), insert("b", 2), lease(1, "b", 2)}},
		"lost":                    {porcupine.Illegal, calls{insert("a", 1), starved}},
		"again after a new owner": {porcupine.Ok, calls{insert("a", 1), lease(1, "a", 1), lease(2, "a", 1)}},
		"again after its end": {porcupine.Illegal,
			calls{insert("a", 1), lease(1, "a", 1), acknowledged, lease(2, "a", 1)}},
		"again after an unclear end": {porcupine.Ok,
			calls{insert("a", 1), lease(1, "a", 1), settle(acknowledge, 1, unclear), lease(2, "a", 1)}},
		"an id given again": {porcupine.Illegal, calls{insert("a", 1), insert("b", 1)}},
		"another's id":      {porcupine.Illegal, calls{insert("a", 1), lease(1, "a", 2)}},
		"not its lease": {porcupine.Illegal,
			calls{insert("a", 1), lease(1, "a", 1), settle(release, 2, answered{})}},
		"unclear, and there": {porcupine.Ok, calls{maybe, lease(1, "a", 7)}},
		"miscounted":         {porcupine.Illegal, calls{insert("a", 1), two}},
	} {
		for i := range each.calls {
			each.calls[i].Call, each.calls[i].Return = int64(2*i), int64(2*i+1)
		}
		if got := (&chronicle{calls: each.calls}).check(); got != each.want {
			t.Errorf("%s: %s, want %s", name, got, each.want)
		}
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Histories of concurrent clients on a queue are linearizable: there is an order of the calls, each at one moment
// between its beginning and its end, in which an ordered queue with leases gives the same answers. Porcupine looks for
// the order.

// queue is what the clients of a history do. *client.Table does it, and what a test plants a defect in.
type queue interface {
	Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error)
	Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	Acknowledge(ctx context.Context, batches ...rollout.BatchID) error
	Release(ctx context.Context, batches ...rollout.BatchID) error
	Advance(ctx context.Context, v rollout.Version) error
	Len(ctx context.Context) (int, error)
}

type kind string

const (
	create      kind = "create"
	drop        kind = "drop"
	insert      kind = "insert"
	lease       kind = "lease"
	acknowledge kind = "acknowledge"
	release     kind = "release"
	advance     kind = "advance"
	count       kind = "count"
)

// asked is a call.
type asked struct {
	kind    kind
	tags    []float32       // insert: the rewards, by which rollouts are known again
	size    int             // lease
	version rollout.Version // insert, advance
	batch   rollout.BatchID // acknowledge, release
}

// answered is its answer.
type answered struct {
	err     error // nil, or the sentinel
	ids     []rollout.ID
	tags    []float32
	version rollout.Version
	batch   rollout.BatchID
	count   int
}

// held is a rollout of the model.
type held struct {
	id    rollout.ID
	tag   float32
	batch rollout.BatchID // that it is on lease with; 0: none
}

// modelQueue is the state of the queue, which no step changes in place.
type modelQueue struct {
	exists    bool
	version   rollout.Version
	lastID    rollout.ID
	lastBatch rollout.BatchID
	held      []held // in order
}

// model returns the queue of a capacity. If calls waited, one may be refused because another waits ahead of it.
func model(capacity int, waiting bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return modelQueue{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(modelQueue).step(input.(asked), output.(answered), capacity, waiting)
		},
		Equal: func(a, b any) bool {
			x, y := a.(modelQueue), b.(modelQueue)
			return x.exists == y.exists && x.version == y.version && x.lastID == y.lastID &&
				x.lastBatch == y.lastBatch && slices.Equal(x.held, y.held)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

// step reports whether the queue may answer so, and what it holds then.
func (q modelQueue) step(in asked, out answered, capacity int, waiting bool) (bool, modelQueue) {
	switch {
	case in.kind == create:
		q.exists = true
		return out.err == nil, q
	case !q.exists:
		return errors.Is(out.err, wire.ErrNotFound), q
	case in.kind == drop:
		return out.err == nil, modelQueue{}
	}
	refused := func(with error, must bool) (bool, modelQueue) {
		return errors.Is(out.err, with) && (must || waiting), q
	}
	switch in.kind {
	case insert:
		if in.version > q.version {
			if waiting && errors.Is(out.err, rollout.ErrFull) { // behind others who wait, nobody looked at it
				return true, q
			}
			return refused(rollout.ErrAhead, true)
		}
		if full := len(q.held)+len(in.tags) > capacity; full || out.err != nil {
			return refused(rollout.ErrFull, full)
		}
		q.held = slices.Clone(q.held)
		for i, tag := range in.tags {
			q.lastID++
			q.held = append(q.held, held{id: q.lastID, tag: tag})
			if i >= len(out.ids) || out.ids[i] != q.lastID {
				return false, q
			}
		}
		return len(out.ids) == len(in.tags), q
	case lease:
		free := 0
		for _, h := range q.held {
			if h.batch == 0 {
				free++
			}
		}
		if starved := free < in.size; starved || out.err != nil {
			return refused(rollout.ErrStarved, starved)
		}
		if len(out.ids) != in.size || out.batch <= q.lastBatch || out.version != q.version {
			return false, q
		}
		q.lastBatch = out.batch
		q.held = slices.Clone(q.held)
		next := 0
		for i := range q.held {
			if h := &q.held[i]; h.batch == 0 && next < in.size {
				if out.ids[next] != h.id || out.tags[next] != h.tag {
					return false, q
				}
				h.batch = out.batch
				next++
			}
		}
		return true, q
	case acknowledge, release:
		of := func(h held) bool { return h.batch == in.batch }
		if !slices.ContainsFunc(q.held, of) {
			return refused(rollout.ErrNoLease, true)
		}
		q.held = slices.Clone(q.held)
		if in.kind == acknowledge {
			q.held = slices.DeleteFunc(q.held, of)
		}
		for i := range q.held {
			if of(q.held[i]) {
				q.held[i].batch = 0
			}
		}
		return out.err == nil, q
	case advance:
		q.version = max(q.version, in.version)
		return out.err == nil, q
	}
	return out.err == nil && out.count == len(q.held), q
}

// history is what concurrent clients do to one queue.
type history struct {
	t        *testing.T
	name     string
	capacity int
	began    time.Time

	mu      sync.Mutex // guards what follows
	calls   []porcupine.Operation
	batches []rollout.BatchID // handed out, to be settled by anyone
	tag     float32
	version rollout.Version
}

const clients, callsEach = 5, 14

// record has clients call a queue of a service at random, as the seed says, and returns what they saw. Plant puts a
// defect between them and the queue.
func record(t *testing.T, address string, seed uint64, plant func(queue, *rand.Rand) queue) *history {
	t.Helper()
	random := rollout.Stream(seed, "client/history_test", 0)
	h := &history{t: t, name: fmt.Sprint("seed-", seed), capacity: 4 + random.IntN(8), began: time.Now()}
	var all sync.WaitGroup
	for number := range clients {
		c, err := client.Dial(t.Context(), address, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		random := rollout.Stream(seed, "client/history_test", uint64(number)+1)
		table := c.Table(h.name)
		if waits(seed) {
			table = table.Waiting(time.Duration(random.IntN(3)) * 4 * time.Millisecond)
		}
		q := plant(table, random)
		if number == 0 {
			h.call(number, c, q, asked{kind: create})
		}
		all.Go(func() {
			for range callsEach {
				h.call(number, c, q, h.choose(random))
			}
		})
	}
	all.Wait()
	return h
}

// waits reports whether the calls of a seed wait.
func waits(seed uint64) bool { return seed%2 == 1 }

// choose makes up a call.
func (h *history) choose(random *rand.Rand) asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch k := random.IntN(80); {
	case k < 24:
		in := asked{kind: insert, version: h.version}
		for range 1 + random.IntN(3) {
			h.tag++
			in.tags = append(in.tags, h.tag)
		}
		return in
	case k < 48:
		return asked{kind: lease, size: 1 + random.IntN(3)}
	case k < 68 && len(h.batches) > 0:
		return asked{kind: []kind{acknowledge, acknowledge, release}[random.IntN(3)],
			batch: h.batches[random.IntN(len(h.batches))]}
	case k < 71:
		h.version++ // before the table's: insertions may be ahead
		return asked{kind: advance, version: h.version}
	case k == 71:
		return asked{kind: drop}
	case k < 77:
		return asked{kind: create}
	}
	return asked{kind: count}
}

// call makes a call and records it.
func (h *history) call(number int, c *client.Client, q queue, in asked) {
	ctx, out := h.t.Context(), answered{}
	began := time.Since(h.began)
	var err error
	switch in.kind {
	case create:
		_, err = c.Create(ctx, wire.Table{Name: h.name,
			Options: replay.Options{Sampler: "fifo", Capacity: h.capacity, LeaseSeconds: 3600}})
	case drop:
		err = c.Drop(ctx, h.name)
	case insert:
		g := long(len(in.tags), 1)
		for i, r := range g.Rollouts {
			r.Reward, r.Versions[0] = in.tags[i], in.version
		}
		out.ids, err = q.Insert(ctx, g)
	case lease:
		var b *rollout.Batch
		if b, err = q.Lease(ctx, rollout.Request{Size: in.size}); err == nil {
			out.batch, out.version = b.ID, b.Version
			for _, d := range b.Draws {
				out.ids, out.tags = append(out.ids, d.ID), append(out.tags, d.Rollout.Reward)
			}
		}
	case acknowledge:
		err = q.Acknowledge(ctx, in.batch)
	case release:
		err = q.Release(ctx, in.batch)
	case advance:
		err = q.Advance(ctx, in.version)
	case count:
		out.count, err = q.Len(ctx)
	}
	ended := time.Since(h.began)
	known := []error{nil, rollout.ErrFull, rollout.ErrStarved, rollout.ErrAhead, rollout.ErrNoLease, wire.ErrNotFound}
	i := slices.IndexFunc(known, func(k error) bool { return errors.Is(err, k) })
	if i < 0 {
		h.t.Errorf("%s: %+v: %v", h.name, in, err)
		return
	}
	out.err = known[i]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, porcupine.Operation{ClientId: number, Input: in, Output: out, Call: began.Nanoseconds(),
		Return: ended.Nanoseconds()})
	if in.kind == lease && err == nil {
		h.batches = append(h.batches, out.batch)
	}
}

// check looks for an order of the calls.
func (h *history) check(seed uint64) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model(h.capacity, waits(seed)), h.calls, time.Minute)
}

func (h *history) String() string {
	var text strings.Builder
	for _, c := range h.calls {
		fmt.Fprintf(&text, "%d: %9.3f ms to %9.3f ms: %+v: %+v\n", c.ClientId, float64(c.Call)/1e6,
			float64(c.Return)/1e6, c.Input, c.Output)
	}
	return text.String()
}

func TestAStreamGoesOnWithATableThatWasCreatedAgain(t *testing.T) {
	address, stop := serve()
	defer stop()
	c, err := client.Dial(t.Context(), address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	table := c.Table("again")
	none := 0
	stream, err := table.Stream(t.Context(), wire.SampleRequest{Size: 1, Prefetch: &none})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		definition := wire.Table{Name: "again", Options: replay.Options{Sampler: "fifo"}}
		if _, err := c.Create(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		if ids, err := table.Insert(t.Context(), long(2, 1)); err != nil || ids[0] != 1 {
			t.Fatalf("inserting: %v, %v", ids, err)
		}
		if b, err := stream.Next(t.Context()); err != nil || b.Draws[0].ID != 1 {
			t.Fatalf("the stream: %v", err)
		}
		if b, err := table.Sample(t.Context(), rollout.Request{Size: 1}); err != nil || b.Draws[0].ID != 2 {
			t.Fatalf("sampling: %v", err)
		}
		if err := c.Drop(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
	}
	_ = stream.Close()
}

func TestAttackHistoriesAreLinearizable(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 24
	}
	address, stop := serve()
	defer stop()
	kinds, undecided := make(map[string]int), 0
	for seed := range seeds {
		h := record(t, address, seed, func(q queue, _ *rand.Rand) queue { return q })
		switch h.check(seed) {
		case porcupine.Illegal:
			t.Fatalf("seed %d: no order of these calls on a queue of %d explains the answers:\n%v", seed, h.capacity, h)
		case porcupine.Unknown:
			undecided++
		}
		for _, c := range h.calls {
			kinds[fmt.Sprint(c.Input.(asked).kind, " ", c.Output.(answered).err)]++
		}
	}
	t.Logf("%d histories, %d of them undecided after a minute: %v", seeds, undecided, kinds)
	for _, k := range []string{"insert <nil>", "lease <nil>", "acknowledge <nil>", "release <nil>", "advance <nil>",
		"drop <nil>", "insert " + rollout.ErrFull.Error(), "lease " + rollout.ErrStarved.Error()} {
		if kinds[k] == 0 {
			t.Errorf("no history has %s", k)
		}
	}
}

// A defect of the kinds that matter, now and then, between the clients and the queue.
type (
	repeats struct{ planted } // acknowledged rollouts come again
	loses   struct{ planted } // released rollouts do not
	denies  struct{ planted } // an insertion that entered is said to be refused
	swaps   struct{ planted } // a batch comes in another order
)

type planted struct {
	queue
	random *rand.Rand
}

func (p planted) now() bool { return p.random.IntN(4) == 0 }

func (d repeats) Acknowledge(ctx context.Context, batches ...rollout.BatchID) error {
	if d.now() {
		return d.Release(ctx, batches...)
	}
	return d.queue.Acknowledge(ctx, batches...)
}

func (d loses) Release(ctx context.Context, batches ...rollout.BatchID) error {
	if d.now() {
		return d.Acknowledge(ctx, batches...)
	}
	return d.queue.Release(ctx, batches...)
}

func (d denies) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	ids, err := d.queue.Insert(ctx, groups...)
	if err == nil && d.now() {
		return nil, rollout.ErrFull
	}
	return ids, err
}

func (d swaps) Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	b, err := d.queue.Lease(ctx, req)
	if err == nil && d.now() {
		slices.Reverse(b.Draws)
	}
	return b, err
}

func TestAttackPlantedDefectsAreFoundInHistories(t *testing.T) {
	for name, plant := range map[string]func(planted) queue{
		"repeats": func(p planted) queue { return repeats{p} },
		"loses":   func(p planted) queue { return loses{p} },
		"denies":  func(p planted) queue { return denies{p} },
		"swaps":   func(p planted) queue { return swaps{p} },
	} {
		t.Run(name, func(t *testing.T) {
			address, stop := serve()
			defer stop()
			for seed := range uint64(200) {
				h := record(t, address, seed, func(q queue, random *rand.Rand) queue {
					return plant(planted{q, random})
				})
				if h.check(seed) == porcupine.Illegal {
					t.Logf("found with seed %d", seed)
					return
				}
			}
			t.Error("200 histories do not show it")
		})
	}
}

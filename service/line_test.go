package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// request is one that a test sent in a bubble.
type request struct {
	size  int
	done  atomic.Bool
	err   error
	batch *rollout.Batch
	by    *holder
	end   context.CancelFunc
}

// send runs a request in a goroutine and returns when nothing moves any more.
func send(t *testing.T, size int, serve func(ctx context.Context, r *request) error) *request {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &request{size: size, end: cancel, by: new(holder)}
	go func() {
		r.err = serve(ctx, r)
		r.done.Store(true)
		cancel()
	}()
	synctest.Wait()
	return r
}

func (t *table) sendInsert(tb *testing.T, n int, timeout time.Duration) *request {
	tb.Helper()
	return send(tb, n, func(ctx context.Context, _ *request) error {
		in, err := t.newInsertion(wire.InsertRequest{}, alone(n, 0), nil)
		if err == nil {
			in.timeout = timeout
			_, err = t.insert(ctx, in)
		}
		return err
	})
}

func (t *table) sendSample(tb *testing.T, n, shard int, timeout time.Duration) *request {
	tb.Helper()
	return send(tb, n, func(ctx context.Context, r *request) (err error) {
		d := drawRequest{Request: rollout.Request{Size: n, Shard: shard}, timeout: timeout}
		r.batch, err = t.draw(ctx, d, r.by)
		return err
	})
}

// settle acknowledges the batch of a request.
func (r *request) settle(tb *testing.T, t *table) {
	tb.Helper()
	if err := t.acknowledge(r.batch.ID, r.by); err != nil {
		tb.Fatal(err)
	}
	r.batch = nil
	synctest.Wait()
}

// drawAndUse draws n rollouts, which are there, and acknowledges them.
func (t *table) drawAndUse(tb *testing.T, n int) {
	tb.Helper()
	r := t.sendSample(tb, n, 0, 0)
	if r.err != nil || !r.done.Load() {
		tb.Fatalf("a sample of %d: %v", n, r.err)
	}
	r.settle(tb, t)
}

func queueOf(capacity int) wire.Table {
	return wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo", Capacity: capacity}}
}

func TestAttackSmallInsertionsDoNotOvertakeALargeOne(t *testing.T) {
	inBubble(t, queueOf(64), func(t *testing.T, table *table) {
		table.mustInsert(t, alone(64, 0)...)
		large := table.sendInsert(t, 32, noTimeout)
		var small []*request
		for range 40 {
			small = append(small, table.sendInsert(t, 1, noTimeout))
		}
		for used := range 72 {
			for i, r := range small {
				if want := used >= 33+i; r.done.Load() != want {
					t.Fatalf("after %d uses small insertion %d is in: %v", used, i, r.done.Load())
				}
			}
			if want := used >= 32; large.done.Load() != want || large.err != nil {
				t.Fatalf("after %d uses the large insertion is in: %v (%v)", used, large.done.Load(), large.err)
			}
			table.drawAndUse(t, 1)
		}
	})
}

func TestAttackSmallSamplesDoNotStarveALargeOne(t *testing.T) {
	inBubble(t, queueOf(1024), func(t *testing.T, table *table) {
		large := table.sendSample(t, 64, 0, noTimeout)
		var small []*request
		for range 40 {
			small = append(small, table.sendSample(t, 1, 0, noTimeout))
		}
		for came := range 105 {
			for i, r := range small {
				if want := came >= 65+i; r.done.Load() != want {
					t.Fatalf("after %d rollouts small sample %d is served: %v", came, i, r.done.Load())
				}
			}
			if want := came >= 64; large.done.Load() != want || large.err != nil {
				t.Fatalf("after %d rollouts the large sample is served: %v (%v)", came, large.done.Load(), large.err)
			}
			table.mustInsert(t, alone(1, 0)...)
			synctest.Wait()
		}
	})
}

func TestAttackStartsAreServedInOrder(t *testing.T) {
	w := wire.Table{Name: "a", Options: replay.Options{GroupSize: 2}, Gate: &wire.Gate{RolloutsPerUpdate: 2}}
	inBubble(t, w, func(t *testing.T, table *table) {
		var all []*request
		for range 20 {
			all = append(all, send(t, 2, func(ctx context.Context, _ *request) error {
				_, err := start(ctx, table, &wire.StartRequest{Groups: 1, TimeoutMS: 1e9})
				return err
			}))
		}
		for version := range 20 {
			for i, r := range all {
				if r.done.Load() != (i <= version) {
					t.Fatalf("at version %d start %d is granted: %v", version, i, r.done.Load())
				}
			}
			if _, err := advance(t.Context(), table, &wire.VersionRequest{Version: int32(version) + 1}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}

func TestAttackARequestWithoutTimeoutDoesNotOvertakeThoseWhoWait(t *testing.T) {
	inBubble(t, queueOf(8), func(t *testing.T, table *table) {
		first := table.sendSample(t, 4, 0, noTimeout)
		table.mustInsert(t, alone(1, 0)...)
		if r := table.sendSample(t, 1, 0, 0); !errors.Is(r.err, rollout.ErrStarved) ||
			!strings.Contains(r.err.Error(), "1 requests of this kind wait ahead") {
			t.Errorf("a sample of 1: %v", r.err)
		}
		table.mustInsert(t, alone(7, 0)...)
		synctest.Wait()
		if !first.done.Load() {
			t.Error("the first sample still waits")
		}
		waits := table.sendInsert(t, 8, noTimeout)
		first.settle(t, table)
		if r := table.sendInsert(t, 1, 0); !errors.Is(r.err, rollout.ErrFull) {
			t.Errorf("an insertion of 1: %v", r.err)
		}
		table.drawAndUse(t, 4)
		if !waits.done.Load() {
			t.Error("the first insertion still waits")
		}
	})
}

// A repeat gets its answer at once, however many wait: it takes nothing.
func TestARepeatedRequestPassesThoseWhoWait(t *testing.T) {
	inBubble(t, queueOf(4), func(t *testing.T, table *table) {
		insert := func() error {
			in, err := table.newInsertion(wire.InsertRequest{BatchID: "b"}, alone(4, 0), nil)
			if err == nil {
				_, err = table.insert(t.Context(), in)
			}
			return err
		}
		if err := insert(); err != nil {
			t.Fatal(err)
		}
		d := sized(1)
		d.ID = "r"
		if _, err := table.draw(t.Context(), d, new(holder)); err != nil {
			t.Fatal(err)
		}
		inserting, sampling := table.sendInsert(t, 2, noTimeout), table.sendSample(t, 4, 0, noTimeout)
		if err := insert(); err != nil {
			t.Error(err)
		}
		if _, err := table.draw(t.Context(), d, new(holder)); err != nil {
			t.Error(err)
		}
		if inserting.done.Load() || sampling.done.Load() {
			t.Error("the others got what was not there")
		}
		inserting.end()
		sampling.end()
	})
}

func TestSamplesOfAnotherShardDoNotWait(t *testing.T) {
	w := queueOf(64)
	w.Shards = 2
	inBubble(t, w, func(t *testing.T, table *table) {
		first := table.sendSample(t, 8, 0, noTimeout)
		other := table.sendSample(t, 1, 1, noTimeout)
		table.mustInsert(t, alone(2, 0)...) // one to each shard
		synctest.Wait()
		if first.done.Load() || !other.done.Load() {
			t.Errorf("shard 0: %v, shard 1: %v", first.done.Load(), other.done.Load())
		}
		first.end()
	})
}

// Both sides wait for each other at the head of their lines, and one behind could go on.
func TestAttackOrderDoesNotStopATable(t *testing.T) {
	long := func(n int) rollout.Group { return one(answer(n, 0, 0)) }
	bytes := queueOf(64)
	bytes.CapacityBytes = 2 * groupBytes(long(100))
	gated := wire.Table{Name: "g", Options: replay.Options{MinSize: 96}, Gate: &wire.Gate{RolloutsPerUpdate: 96}}
	ask := func(t *testing.T, table *table, size int) *request {
		return send(t, size, func(ctx context.Context, _ *request) error {
			a, err := start(ctx, table, &wire.StartRequest{Groups: 1, GroupSize: size, TimeoutMS: 1e9})
			if err == nil && a.(wire.StartAnswer).Groups != 1 {
				err = rollout.ErrFull
			}
			return err
		})
	}
	for _, c := range []struct {
		name  string
		table wire.Table
		run   func(t *testing.T, table *table) (head, behind, other *request)
	}{
		{"no room for the first insertion, too few for the first sample", queueOf(32),
			func(t *testing.T, table *table) (head, behind, other *request) {
				table.mustInsert(t, alone(4, 0)...)
				other = table.sendSample(t, 8, 0, noTimeout)
				head = table.sendInsert(t, 32, noTimeout)
				return head, table.sendInsert(t, 4, noTimeout), other
			}},
		{"no bytes for the first insertion, too few for the first sample", bytes,
			func(t *testing.T, table *table) (head, behind, other *request) {
				table.mustInsert(t, long(100))
				head = table.sendSample(t, 3, 0, noTimeout)
				behind = table.sendSample(t, 1, 0, noTimeout)
				table.mustInsert(t, long(100))
				return head, behind, table.sendInsert(t, 1, noTimeout)
			}},
		{"the gate holds the first start", gated,
			func(t *testing.T, table *table) (head, behind, other *request) {
				if r := ask(t, table, 64); r.err != nil {
					t.Fatal(r.err)
				}
				other = table.sendSample(t, 1, 0, noTimeout)
				head = ask(t, table, 64)
				return head, ask(t, table, 32), other
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.table, func(t *testing.T, table *table) {
				head, behind, other := c.run(t, table)
				if behind.done.Load() || head.done.Load() {
					t.Fatalf("before a standstill: %v (%v), %v (%v)", head.done.Load(), head.err, behind.done.Load(), behind.err)
				}
				time.Sleep(2 * standstill)
				synctest.Wait()
				if !behind.done.Load() || behind.err != nil {
					t.Errorf("the second in line waits for ever (%v)", behind.err)
				}
				head.end()
				other.end()
			})
		})
	}
}

func groupBytes(g rollout.Group) (bytes int64) {
	for _, r := range g.Rollouts {
		bytes += r.Bytes()
	}
	return bytes
}

func TestAttackWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Logger: quiet(), MaxWaiting: 3, Tables: []wire.Table{queueOf(1), {Name: "other"}}})
		if err != nil {
			t.Fatal(err)
		}
		q, err := s.table("q")
		if err != nil {
			t.Fatal(err)
		}
		q.mustInsert(t, alone(1, 0)...)
		var all []*request
		for range 3 {
			all = append(all, q.sendInsert(t, 1, noTimeout))
		}
		if r := q.sendInsert(t, 1, noTimeout); !errors.Is(r.err, rollout.ErrFull) ||
			!strings.Contains(r.err.Error(), "max_waiting: 3 requests wait") {
			t.Errorf("a fourth insertion: %v", r.err)
		}
		all[1].end()
		synctest.Wait()
		if r := q.sendInsert(t, 1, time.Second); r.done.Load() {
			t.Errorf("after one left: %v", r.err)
		}
		if _, err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What a table does in a second must not depend on how many wait. The least of several times counts: others may use
// the machine.
func TestAttackManyWaitersDoNotSlowATable(t *testing.T) {
	tests.Long(t)
	few, many := time.Hour, time.Hour
	for range 3 {
		few, many = min(few, timeQueue(t, 8, 4000)), min(many, timeQueue(t, 8000, 4000))
	}
	t.Logf("4,000 insertions and samples: %v with 8 that wait, %v with 8,000: %.1f times", few, many,
		float64(many)/float64(few))
	if many > 10*few {
		t.Errorf("8,000 that wait slow a table down from %v to %v", few, many)
	}
}

// timeQueue returns the time of n samples from a full queue into which a number of clients insert.
func timeQueue(t *testing.T, inserters, n int) time.Duration {
	t.Helper()
	s, err := New(Options{Logger: quiet(), Tables: []wire.Table{queueOf(4)}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.table("q")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range inserters {
		all.Go(func() {
			for ctx.Err() == nil {
				in, err := table.newInsertion(wire.InsertRequest{}, alone(1, 0), nil)
				if err == nil {
					_, err = table.insert(ctx, in)
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for table.meter.insertsWaiting.Load() < int64(inserters) {
		runtime.Gosched()
	}
	began := time.Now()
	for range n {
		h := new(holder)
		b, err := table.draw(ctx, sized(1), h)
		if err == nil {
			err = table.acknowledge(b.ID, h)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	cancel()
	all.Wait()
	if _, err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return took
}

// Random requests of random sizes, timeouts and cancellations on a queue, one at a time. After each step the table has
// served whom a naive reading of the rules says it must, in order, and nobody waits who could be served.
func TestAttackRandomWaitersAreServedInOrder(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rollout.Stream(seed, "service/line_test", 0)
			capacity := 4 + random.IntN(40)
			w := queueOf(capacity)
			w.LeaseSeconds = 3600
			inBubble(t, w, func(t *testing.T, table *table) {
				m := &lineModel{t: t, table: table, capacity: capacity, random: random}
				for range 400 {
					m.step()
				}
				m.finish()
			})
		})
	}
}

// lineModel drives a queue and knows who waits for it.
type lineModel struct {
	t        *testing.T
	table    *table
	capacity int
	random   *rand.Rand

	inserts, samples []*request // that wait, in order of arrival
	leased           []*request
}

// changed returns when something last moved.
func (m *lineModel) changed() time.Time {
	m.table.lines.mu.Lock()
	defer m.table.lines.mu.Unlock()
	return m.table.lines.since
}

func (m *lineModel) step() {
	changed := m.changed()
	size := 1 + m.random.IntN(m.capacity)
	if m.random.IntN(2) == 0 {
		size = 1 + m.random.IntN(3)
	}
	timeout := []time.Duration{0, time.Duration(m.random.IntN(300)) * time.Millisecond, noTimeout}[m.random.IntN(3)]
	switch k := m.random.IntN(10); {
	case k < 3:
		m.inserts = append(m.inserts, m.table.sendInsert(m.t, size, timeout))
	case k < 6:
		m.samples = append(m.samples, m.table.sendSample(m.t, size, 0, timeout))
	case k < 8 && len(m.leased) > 0:
		i := m.random.IntN(len(m.leased))
		m.leased[i].settle(m.t, m.table)
		m.leased = slices.Delete(m.leased, i, i+1)
	case k < 9 && len(m.inserts)+len(m.samples) > 0:
		waiting := append(slices.Clone(m.inserts), m.samples...)
		waiting[m.random.IntN(len(waiting))].end()
	default:
		time.Sleep(time.Duration(m.random.IntN(80)) * time.Millisecond)
	}
	m.check(changed)
}

// check checks who was served, given when something last moved before.
func (m *lineModel) check(changed time.Time) {
	time.Sleep(time.Microsecond)
	synctest.Wait()
	still := time.Since(changed) >= standstill
	m.inserts = m.served(m.inserts, rollout.ErrFull, still)
	m.samples = m.served(m.samples, rollout.ErrStarved, still)
	f := m.table.rollouts.ServiceView().Flow()
	still = time.Since(m.changed()) > standstill && len(m.inserts) > 0 && len(m.samples) > 0
	for _, line := range []struct {
		what    string
		waiting []*request
		fit     int
	}{
		{"insertion", m.inserts, m.capacity - f.Present},
		{"sample", m.samples, f.Present - int(f.Drawn-f.Acknowledged-f.Returned)},
	} {
		for i, r := range line.waiting {
			if r.size <= line.fit && (i == 0 || still) {
				m.t.Fatalf("%s %d of %d, of %d, waits while %d fit", line.what, i, len(line.waiting), r.size, line.fit)
			}
		}
	}
	if a, b := m.table.meter.insertsWaiting.Load(), m.table.meter.samplesWaiting.Load(); a != int64(len(m.inserts)) ||
		b != int64(len(m.samples)) {
		m.t.Fatalf("%d and %d wait, want %d and %d", a, b, len(m.inserts), len(m.samples))
	}
}

// served removes those that have ended, and checks that none overtook another unless the table stood still.
func (m *lineModel) served(line []*request, refusal error, still bool) (waiting []*request) {
	for _, r := range line {
		switch {
		case !r.done.Load():
			waiting = append(waiting, r)
		case r.err == nil:
			if len(waiting) > 0 && !still {
				m.t.Fatalf("a request of %d overtook one of %d", r.size, waiting[0].size)
			}
			if r.batch != nil {
				m.leased = append(m.leased, r)
			}
		case !errors.Is(r.err, refusal) && !errors.Is(r.err, context.Canceled):
			m.t.Fatal(r.err)
		}
	}
	return waiting
}

// finish lets small requests come until all who wait are served.
func (m *lineModel) finish() {
	all := append(slices.Clone(m.inserts), m.samples...)
	for round := 0; slices.ContainsFunc(all, func(r *request) bool { return !r.done.Load() }); round++ {
		if round > 200*m.capacity {
			m.t.Fatalf("%d insertions and %d samples wait for ever", len(m.inserts), len(m.samples))
		}
		changed := m.changed()
		for _, r := range m.leased {
			r.settle(m.t, m.table)
		}
		m.leased = nil
		if round/m.capacity%2 == 0 {
			m.inserts = append(m.inserts, m.table.sendInsert(m.t, 1, 3*standstill))
		} else {
			m.samples = append(m.samples, m.table.sendSample(m.t, 1, 0, 3*standstill))
		}
		m.check(changed)
		changed = m.changed()
		time.Sleep(2 * standstill)
		m.check(changed)
	}
	time.Sleep(4 * standstill)
	m.check(m.changed())
	for _, r := range m.leased {
		r.settle(m.t, m.table)
	}
	if f := m.table.rollouts.ServiceView().Flow(); f.Inserted != uint64(f.Present)+f.Acknowledged {
		m.t.Errorf("the counts do not add up: %+v", f)
	}
}

// Many at once, for the race detector: all are served or leave, and nobody stays.
func TestAttackManyAtOnceAreAllServed(t *testing.T) {
	s, err := New(Options{Logger: quiet(), Tables: []wire.Table{queueOf(48)}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.table("q")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var inserted, sampled atomic.Int64
	const each, goroutines = 60, 24
	want := int64(0)
	for g := range goroutines {
		size := 1 + g%8
		want += int64(size * each)
		all.Go(func() {
			for range each {
				table.mustInsert(t, alone(size, 0)...)
				inserted.Add(int64(size))
			}
		})
		all.Go(func() {
			for range each {
				h := new(holder)
				b, err := table.draw(t.Context(), sized(size), h)
				if err == nil {
					err = table.acknowledge(b.ID, h)
				}
				if err != nil {
					t.Error(err)
					return
				}
				sampled.Add(int64(size))
			}
		})
		all.Go(func() {
			for range each { // they leave while they wait
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				h := new(holder)
				if b, err := table.draw(ctx, sized(48), h); err == nil {
					table.returnBatch(b, h)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if inserted.Load() != want || sampled.Load() != want || len(table.lines.of) != 0 || table.lines.waiting != 0 {
		t.Errorf("%d inserted, %d sampled of %d; %d wait", inserted.Load(), sampled.Load(), want, table.lines.waiting)
	}
	if _, err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The prefetch of a stream may be woken and not have drawn yet when the stream's request looks at the table.
func TestASampleTriesAheadOfItsOwnPrefetch(t *testing.T) {
	t.Parallel()
	q, own, other := newLines(8), new(holder), new(holder)
	for _, h := range []*holder{own, other} {
		if _, err := q.join(0, h, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.arrive(0, own); err != nil {
		t.Errorf("the stream whose prefetch is first in line is refused: %v", err)
	}
	for _, h := range []*holder{other, new(holder), nil} {
		if _, err := q.arrive(0, h); !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("a call overtook another's prefetch: %v", err)
		}
	}
}

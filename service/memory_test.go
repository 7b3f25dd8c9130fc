package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// stuck is a connection that sends no more after a number of bytes.
type stuck struct {
	net.Conn
	left   atomic.Int64
	closed chan struct{}
	once   sync.Once
}

func (c *stuck) Write(b []byte) (int, error) {
	if c.left.Add(-int64(len(b))) < 0 {
		<-c.closed
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

func (c *stuck) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil { // the service closed it, which ends a write too
		c.once.Do(func() { close(c.closed) })
	}
	return n, err
}

func (c *stuck) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// dialStuck connects a client whose connection gets stuck.
func (v *served) dialStuck(after int64) flight.Client {
	v.t.Helper()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
		if err != nil {
			return nil, err
		}
		s := &stuck{Conn: c, closed: make(chan struct{})}
		s.left.Store(after)
		v.t.Cleanup(func() { _ = s.Close() }) // a client that closes waits seconds for a write that is stuck
		return s, nil
	}
	c, err := flight.NewClientWithMiddleware("passthrough:///"+v.address, nil, nil, grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<28)))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = c.Close() }) // the service may have closed it
	return c
}

// Connections that never finish a large message hold no more memory than there is for messages, and honest callers go
// on.
func TestAttackUnfinishedMessages(t *testing.T) {
	const message = 40 << 20
	attackers := tests.Count(16, 4)
	v := serve(t, Options{MemoryBytes: 512 << 20, MaxMessageBytes: 48 << 20, MaxInFlightBytes: 64 << 20,
		MaxOutgoingBytes: 64 << 20})
	v.create(wire.Table{Name: "a"})
	body := make([]byte, message)
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	var sending sync.WaitGroup
	for range attackers {
		c := v.dialStuck(message - 1<<20)
		sending.Go(func() { _, _ = c.GetFlightInfo(ctx, &flight.FlightDescriptor{Cmd: body}) })
	}
	all := v.service.connections
	for all.closed.Load() == 0 { // the memory for messages has been full
		if v.ctx.Err() != nil {
			t.Fatal("no connection was closed")
		}
		if ids := v.fill("a", alone(3, 0)...); len(ids) != 3 {
			t.Fatalf("an honest insertion got ids %v", ids)
		}
	}
	received := all.received.Load()
	// a read of each after the limit, and the message that goes on
	if most := 2*all.limit + int64(attackers+1)*socketBuffer + message; received > most {
		t.Errorf("%d bytes of unfinished messages are held, more than %d", received, most)
	}
	cancel()
	sending.Wait()
}

// The draws of batches on lease are counted; what does not fit is refused before it is drawn.
func TestAttackLeasesOfMillionsOfDraws(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 4 << 20, MaxInFlightBytes: 8 << 20,
		MaxOutgoingBytes: 8 << 20})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: replay.Uniform, Capacity: 64}})
	v.fill("a", alone(4, 0)...)
	most := int(v.service.leased.byTable.most / drawOverhead)
	first, second := v.exchanger(v.dial(), "a"), v.exchanger(v.dial(), "a")
	request := wire.SampleRequest{Size: most * 3 / 4, Prefetch: new(0), Columns: []string{"id"}, TimeoutMS: new(int64)}
	if _, err := first.sample(request); err != nil {
		t.Fatal(err)
	}
	_, err := second.sample(request)
	checkRefusal(t, err, wire.TooLarge, "size", "free for leases", "memory_bytes")
	if drawn := v.stats("a").Drawn; drawn != uint64(request.Size) {
		t.Errorf("%d were drawn, want the first batch's %d alone", drawn, request.Size)
	}
	first.cancel()
	for v.service.leased.all.used.Load() != 0 { // the batch goes back with its stream
		if v.ctx.Err() != nil {
			t.Fatal("the memory of a lease was not given back")
		}
		runtime.Gosched()
	}
	if _, err := v.exchanger(v.dial(), "a").sample(request); err != nil {
		t.Errorf("with the memory free again: %v", err)
	}
}

// Rows are counted as the rollouts that they become.
func TestAttackRowsOfOneToken(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 4 << 20})
	v.create(wire.Table{Name: "a"})
	_, err := v.insert("a", wire.InsertRequest{}, alone(2*4<<20/replay.RolloutOverhead, 0)...)
	checkRefusal(t, err, wire.TooLarge, "rows", "decoded", "fewer rows")
	if ids := v.fill("a", alone(100, 0)...); len(ids) != 100 {
		t.Errorf("a smaller insertion got %d ids", len(ids))
	}
}

// A header may claim more rows than an int64 can charge.
func TestRowsWhoseBytesOverflowAreRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	a, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int64{math.MaxInt64, math.MaxInt64 / 2, 1 << 55} {
		release, err := a.reserveMemory(v.ctx, 1024, rows)
		if checkRefusal(t, err, wire.TooLarge, "rows"); err == nil {
			release()
		}
	}
}

func TestSamplingMasksAndExpertsAreChargedAndComeBack(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	held := func() int64 { return v.service.tableMemory.held.Load() }
	before := held()
	v.fill("a", alone(1, 0)...)
	plain := held() - before

	r := answer(4, 0, 0)
	r.RoutedExperts = make([]uint16, 60*len(r.Tokens))
	for i, m := range r.Mask {
		if m == 0 {
			r.SamplingMask.Append()
		} else {
			r.SamplingMask.Append(r.Tokens[i], 1000, 2000)
		}
	}
	before = held()
	v.fill("a", rollout.Group{Rollouts: []*rollout.Rollout{r}})
	if more, want := held()-before-plain, int64(4*6+4*12+2*360); more != want {
		t.Errorf("6 lists of 12 ids and 360 experts are charged %d bytes, want %d", more, want)
	}
	all, err := v.get(wire.SampleRequest{Table: "a", Export: true})
	if err != nil || len(all.draws) != 2 {
		t.Fatalf("an export of %d rollouts, %v", len(all.draws), err)
	}
	if got := all.draws[1].Rollout; !reflect.DeepEqual(got.SamplingMask, r.SamplingMask) ||
		!slices.Equal(got.RoutedExperts, r.RoutedExperts) {
		t.Errorf("got %+v", got)
	}
}

func TestAttackTablesOfManyShards(t *testing.T) {
	v := serve(t, Options{MemoryBytes: 1 << 30})
	made := 0
	var err error
	for ; made < 20 && err == nil; made++ {
		_, err = try[wire.TableInfo](v, wire.CreateTable, wire.Table{Name: fmt.Sprint("t", made),
			Options: replay.Options{Shards: 1 << 16, Capacity: 1 << 16}})
	}
	checkRefusal(t, err, wire.TooLarge, "shards: 65536", "free for tables", "memory_bytes")
	if made > 2 {
		t.Errorf("%d tables of 65536 shards fit into 512 MiB", made-1)
	}
	if v.service.tableMemory.held.Load() > v.service.tableMemory.most {
		t.Error("the tables hold more than their part")
	}
}

// What a history may come to hold is charged as the table is created, and given back as it is dropped.
func TestAttackHistoriesThatFillTheMemory(t *testing.T) {
	v := serve(t, Options{MemoryBytes: 1 << 30})
	create := func(name string, history int) error {
		_, err := try[wire.TableInfo](v, wire.CreateTable, wire.Table{Name: name, Options: replay.Options{History: history}})
		return err
	}
	checkRefusal(t, create("a", 1<<24), wire.TooLarge, "history: 16777216", "free for tables", "lower capacity_bytes")
	checkRefusal(t, create("a", -1), wire.Invalid, "history: -1: want")
	before := v.service.tableMemory.held.Load()
	var err error
	made := 0
	for ; made < 20 && err == nil; made++ {
		err = create(fmt.Sprint("t", made), 1<<17)
	}
	checkRefusal(t, err, wire.TooLarge, "history: 131072")
	held := v.service.tableMemory.held.Load()
	if most := v.service.tableMemory.most; held > most || held < int64(made-1)*replay.LifeBytes<<17 {
		t.Errorf("%d histories of %d lives are counted as %d of %d bytes", made-1, 1<<17, held, most)
	}
	for i := range made - 1 {
		do[struct{}](v, wire.DropTable, wire.TableRequest{Table: fmt.Sprint("t", i)})
	}
	if now := v.service.tableMemory.held.Load(); now != before {
		t.Errorf("%d bytes are held once the tables are dropped, want %d", now, before)
	}
}

// A table without capacity_bytes gets a part of the memory, and all tables together keep to theirs.
func TestAttackTablesThatFillTheMemory(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 1 << 20, MaxOutgoingBytes: 8 << 20})
	most := v.service.tableMemory.most
	var err error
	tables := 0
	for ; err == nil && tables < 3*defaultTables; tables++ {
		name := fmt.Sprint("t", tables)
		info := v.create(wire.Table{Name: name, Options: replay.Options{Capacity: 1 << 20, Sampler: replay.FIFO}})
		if info.Present != 0 {
			t.Fatalf("a new table has %d rollouts", info.Present)
		}
		table, _ := v.service.table(name)
		if want := most / (defaultTables + 1); table.CapacityBytes != want {
			t.Fatalf("capacity_bytes is %d, want %d", table.CapacityBytes, want)
		}
		for err == nil {
			large := rollout.Group{Rollouts: []*rollout.Rollout{answer(40_000, 0, 1)}}
			if _, err = v.insert(name, wire.InsertRequest{TimeoutMS: new(int64)}, large); err == nil {
				continue
			}
			if strings.Contains(err.Error(), "free for tables") {
				break
			}
			err = nil // the table's own capacity
			break
		}
		if held := v.service.tableMemory.held.Load(); held > most {
			t.Fatalf("the tables hold %d bytes of %d", held, most)
		}
	}
	if !errors.Is(err, rollout.ErrFull) {
		t.Fatalf("%d tables were filled: %v", tables, err)
	}
	do[struct{}](v, wire.DropTable, wire.TableRequest{Table: "t0"})
	last := fmt.Sprint("t", tables-1)
	if _, err := v.insert(last, wire.InsertRequest{TimeoutMS: new(int64)}, alone(1, 0)...); err != nil {
		t.Errorf("after a table was dropped: %v", err)
	}
	again := v.create(wire.Table{Name: "t1", Options: replay.Options{Capacity: 1 << 20, Sampler: replay.FIFO}})
	if again.Present == 0 {
		t.Error("a definition without capacity_bytes does not match the table that it made")
	}
}

// Rollouts that left the table are charged while a lease, or a batch remembered by its request id, holds them.
func TestAttackRolloutsThatLeftAreStillHeld(t *testing.T) {
	const each = 13 * 40_000 // bytes of payload
	large := rollout.Group{Rollouts: []*rollout.Rollout{answer(40_000, 0, 1)}}
	for _, sampler := range []replay.Sampler{replay.Distinct, replay.FIFO} {
		t.Run(string(sampler), func(t *testing.T) {
			v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 1 << 20, MaxOutgoingBytes: 8 << 20})
			v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: sampler, Capacity: 1,
				CapacityBytes: 1 << 20, LeaseSeconds: 366 * 24 * 3600}})
			m := &v.service.tableMemory
			x := v.exchanger(v.client, "a")
			var leased []uint64
			for n := 0; ; n++ {
				if _, err := v.insert("a", wire.InsertRequest{TimeoutMS: new(int64)}, large); err != nil {
					checkRefusal(t, err, wire.Full, "free for tables", "memory_bytes")
					break
				}
				if n > int(m.most/each) {
					t.Fatalf("%d rollouts of %d bytes are held in %d", n, each, m.most)
				}
				b := v.mustSample(x, wire.SampleRequest{Size: 1, Prefetch: new(0), RequestID: fmt.Sprint("r", n),
					Columns: []string{"id"}, Acknowledge: []uint64{}})
				if leased = append(leased, b.Batch); sampler == replay.FIFO {
					do[any](v, wire.Acknowledge, wire.SettleRequest{Table: "a", Batches: leased})
					if leased = nil; n == 16 {
						break
					}
				}
			}
			switch held := m.held.Load(); sampler {
			case replay.FIFO: // it remembers the last batches
				if held < 8*each || held > 10*each {
					t.Errorf("%d bytes are charged for 8 batches of %d", held, each)
				}
			case replay.Distinct:
				if held > m.most+each {
					t.Errorf("%d bytes of %d are held", held, m.most)
				}
				do[any](v, wire.Release, wire.SettleRequest{Table: "a", Batches: leased})
				if _, err := v.insert("a", wire.InsertRequest{TimeoutMS: new(int64)}, large); err != nil {
					t.Errorf("with the leases settled: %v", err)
				}
			}
		})
	}
}

// Ids and grants that a table remembers are charged to it.
func TestAttackRememberedIDs(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory})
	id := func(n int) string { return fmt.Sprintf("%0*d", maxIDBytes, n) }
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: replay.FIFO, Capacity: 64},
		Gate: &wire.Gate{RolloutsPerUpdate: 1e6}})
	m, x := &v.service.tableMemory, v.exchanger(v.client, "a")
	empty := m.held.Load()
	charged := func(what string, least, most int64, do func(n int)) {
		t.Helper()
		before := m.held.Load()
		for n := range 50 {
			do(n)
		}
		if got := m.held.Load() - before; got < 50*least || got > 50*most {
			t.Errorf("%s: %d bytes are charged for 50 of at least %d each", what, got, least)
		}
	}
	charged("batch ids and request ids", 2*maxIDBytes, 4*maxIDBytes+2*(replay.RolloutOverhead+512), func(n int) {
		if _, err := v.insert("a", wire.InsertRequest{BatchID: id(n)}, alone(1, 0)...); err != nil {
			t.Fatal(err)
		}
		b := v.mustSample(x, wire.SampleRequest{Size: 1, Prefetch: new(0), RequestID: id(n), Acknowledge: []uint64{}})
		do[any](v, wire.Acknowledge, wire.SettleRequest{Table: "a", Batches: []uint64{b.Batch}})
	})
	charged("reports", maxIDBytes, maxIDBytes+reportOverhead, func(n int) {
		do[any](v, wire.ReportDraws, wire.DrawReport{Table: "a", RequestID: id(n)})
	})
	charged("grants", grantOverhead, grantOverhead, func(int) {
		do[any](v, wire.Start, wire.StartRequest{Table: "a", Groups: 1, GroupSize: 1})
	})
	do[struct{}](v, wire.DropTable, wire.TableRequest{Table: "a"})
	if held := m.held.Load(); held != 0 {
		t.Errorf("%d bytes are charged without a table, %d for an empty one", held, empty)
	}
	v.create(wire.Table{Name: "b"})
	m.held.Add(m.most) // as if others held all of it
	_, err := try[any](v, wire.Start, wire.StartRequest{Table: "b", Groups: 1, GroupSize: 1, TimeoutMS: 1})
	checkRefusal(t, err, wire.Full, "a grant", "free for tables", "memory_bytes")
}

// Prompts are charged to their table, and bounded.
func TestAttackPromptsWithoutEnd(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory})
	report := func(table string, n int) error {
		results := make([]wire.PromptResult, 100)
		for i := range results {
			results[i] = wire.PromptResult{Prompt: wire.Prompt{ID: fmt.Sprintf("%0*d", maxIDBytes, 100*n+i)},
				Correct: 1, Total: 2}
		}
		_, err := try[any](v, wire.PromptsReport, wire.PromptResults{Table: table, Results: results})
		return err
	}
	v.create(wire.Table{Name: "bounded", Prompts: &prompts.Options{Fraction: 0.5, Band: 0.5, MaxReuse: 1,
		MaxPrompts: 150}})
	for n := range 3 {
		if err := report("bounded", n); err != nil {
			t.Fatal(err)
		}
	}
	if held := v.stats("bounded").Prompts.Held; held != 150 {
		t.Errorf("%d prompts are held, want 150", held)
	}
	v.create(wire.Table{Name: "a", Prompts: new(prompts.Defaults())})
	m := &v.service.tableMemory
	for n := 0; ; n++ {
		if err := report("a", n); err != nil {
			checkRefusal(t, err, wire.Full, "100 prompts", "free for tables", "memory_bytes")
			break
		}
		if held := m.held.Load(); held > m.most || int64(n*100*maxIDBytes) > m.most {
			t.Fatalf("%d prompts are charged %d bytes of %d", n*100, held, m.most)
		}
	}
	before := m.held.Load()
	do[struct{}](v, wire.DropTable, wire.TableRequest{Table: "a"})
	if held := m.held.Load(); before < m.most*9/10 || held > m.most/10 {
		t.Errorf("%d bytes of %d are charged, %d once the table is dropped", before, m.most, held)
	}
}

// A caller who takes nothing leaves three quarters of the memory to the others, whatever number of tables it reads, and
// room on each of them.
func TestAttackACallerWhoTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100, 10)
		for i := range 24 {
			go func() {
				if release, err := p.acquire(t.Context(), account{name: "slow"}, fmt.Sprint("a", i), 10); err == nil {
					<-t.Context().Done()
					release()
				}
			}()
		}
		synctest.Wait()
		if used := p.all.used.Load(); used != 20 {
			t.Errorf("a caller holds %d of 100", used)
		}
		for _, table := range []string{"a0", "a23", "b"} { // the slow one has memory of a table, waits, or neither
			release := p.tryAcquire(account{name: "honest"}, table, 20, 0)
			if release == nil {
				t.Fatalf("another caller gets nothing for table %s", table)
			}
			if more := p.tryAcquire(account{name: "third"}, table, 10, keepHalf); more != nil {
				t.Error("work that can wait took memory of a share of which half was in use")
			}
			release()
		}
	})
}

// Without tokens the callers at one address are one account, and leave the rest to other addresses.
func TestAttackAnAddressWithoutATokenLeavesMemoryToOthers(t *testing.T) {
	p := newPool(100, 10)
	for _, of := range []struct {
		address string
		taken   bool
	}{{"10.0.0.9:1", true}, {"10.0.0.9:2", false}, {"[2001:db8::1]:1", true}, {"[2001:db8:0:0:9::1]:1", false}} {
		release := p.tryAcquire(accountOf("", of.address), of.address, 40, 0)
		if (release != nil) != of.taken {
			t.Errorf("%s got 40 of its share of 50: %v", of.address, release != nil)
		}
	}
	if accountOf("10.0.0.9", "").String() == accountOf("", "10.0.0.9:1").String() {
		t.Error("a token's name is taken for an address")
	}
}

func TestAttackMoreConnectionsThanAllowed(t *testing.T) {
	v := serve(t, Options{MaxConnections: 3})
	v.create(wire.Table{Name: "a"}) // the first connection is used
	path := strings.TrimPrefix(v.address, "unix://")
	var idle []net.Conn
	for range 8 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	other := v.dial()
	stream, err := other.ListActions(v.ctx, &flight.Empty{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Errorf("an honest caller beside %d idle connections: %v", len(idle), err)
	}
	if n := len(v.service.connections.view()); n > 3 {
		t.Errorf("%d connections are open", n)
	}
	v.fill("a", alone(1, 0)...) // the used connection was not closed
}

// A reader must take minSendBytes in each send timeout, not one byte.
func TestAttackAByteASecondIsTooSlow(t *testing.T) {
	s := &sender{service: &Service{options: Options{SendTimeout: 5 * time.Millisecond, Logger: quiet()}, log: quiet()},
		conn: &conn{Conn: nopConn{}, all: newConnections(Options{Clock: time.Now, Logger: quiet()}),
			ended: make(chan struct{})}}
	d := s.watch()
	defer d.stop()
	for {
		s.conn.sent.Add(1)
		select {
		case <-d.fired:
			return
		case <-t.Context().Done():
			t.Fatal("it was never disconnected")
		default:
			runtime.Gosched()
		}
	}
}

// A caller may leave as soon as it has its answer: the answer was written out all the same.
func TestAMessageIsWrittenOutThoughItsReaderLeavesAtOnce(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	s := &sender{service: &Service{options: Options{SendTimeout: time.Minute}}, ctx: ctx}
	err := s.writeOut(func(done func()) error {
		done()
		leave()
		return nil
	})
	if err != nil {
		t.Errorf("a message that was written out counts as one that was not: %v", err)
	}
	if err := s.writeOut(func(func()) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("one that was not: %v", err)
	}
}

type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

// A message that comes a few bytes at a time ends its connection; one whose writer waits for the service does not.
func TestAttackAMessageOfAFewBytesASecond(t *testing.T) {
	t.Parallel()
	v := serve(t, Options{SendTimeout: time.Second})
	v.create(wire.Table{Name: "a"})
	idle := v.exchanger(v.dial(), "a") // it sends nothing at all, which is allowed
	before := len(v.service.connections.view())
	c := v.dialStuck(100 << 10)
	_, _ = c.GetFlightInfo(v.ctx, &flight.FlightDescriptor{Cmd: make([]byte, 1<<20)})
	v.await("the slow connection is closed", func(TableView) bool { return v.service.connections.closed.Load() == 1 })
	if n := len(v.service.connections.view()); n < before {
		t.Errorf("%d connections are open, %d honest ones were", n, before)
	}
	v.fill("a", alone(2, 0)...)
	if _, err := idle.sample(wire.SampleRequest{Size: 1}); err != nil {
		t.Errorf("a stream that was silent for long: %v", err)
	}
	for range 100 { // what calls take is taken off to the byte, also while they go on
		if _, err := idle.sample(wire.SampleRequest{Size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	v.await("nothing is untaken", func(TableView) bool { return v.service.connections.received.Load() == 0 })
}

// Calls that wait are counted, and some are left to other callers.
func TestAttackMoreCallsThanThereIsMemoryFor(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxOutgoingBytes: 1 << 20, MaxInFlightBytes: 1 << 20})
	v.create(wire.Table{Name: "a"})
	most := int(v.service.calls.unnamed.most / callOverhead)
	waiting := make([]*exchanger, most)
	client := v.dial()
	for i := range waiting {
		waiting[i] = v.exchanger(client, "a")
		waiting[i].send(wire.SampleRequest{Size: 1})
	}
	v.await("the calls wait", func(TableView) bool {
		return v.service.calls.all.used.Load() >= int64(most)*callOverhead
	})
	stream, err := v.dial().ListActions(v.ctx, &flight.Empty{})
	if err == nil {
		_, err = stream.Recv()
	}
	checkRefusal(t, wire.FromGRPC(err), wire.Full, "calls", "in progress", "memory_bytes")
	waiting[0].cancel()
	waiting[1].cancel()
	v.await("two calls have ended", func(TableView) bool {
		return v.service.calls.all.used.Load() <= int64(most-2)*callOverhead
	})
	v.fill("a", alone(1, 0)...)
}

// Messages that wait for memory are counted, and refused beyond their part.
func TestAttackMoreMessagesThanThereIsMemoryFor(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 1 << 20, MaxInFlightBytes: 4 << 20,
		MaxOutgoingBytes: 4 << 20})
	v.create(wire.Table{Name: "a"})
	taken, err := v.service.incoming.acquire(v.ctx, v.service.accountOf(v.ctx), "a", v.service.incoming.byTable.most)
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range v.service.waiting.byTable.most / (512 << 10) {
		waiting.Go(func() {
			release, err := v.service.admit(v.ctx, "a", 512<<10, 1<<20)
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	v.await("messages wait", func(TableView) bool {
		return v.service.waiting.all.used.Load() == v.service.waiting.byTable.most
	})
	_, err = v.service.admit(v.ctx, "a", 512<<10, 1<<20)
	checkRefusal(t, err, wire.Full, "bytes are free for insertions", "send less")
	taken()
	waiting.Wait()
	if n := v.service.waiting.all.used.Load() + v.service.incoming.all.used.Load(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}

// Honest messages that together take more than there is get through one after another, and none is cut off.
func TestLargeMessagesGetThroughOneAfterAnother(t *testing.T) {
	v := serve(t, Options{MemoryBytes: 512 << 20, MaxMessageBytes: 16 << 20, MaxInFlightBytes: 32 << 20,
		MaxOutgoingBytes: 32 << 20})
	v.create(wire.Table{Name: "a"})
	var sending sync.WaitGroup
	for range 8 {
		client := v.dial()
		sending.Go(func() {
			_, err := client.GetFlightInfo(v.ctx, &flight.FlightDescriptor{Type: flight.DescriptorPATH,
				Path: []string{"a"}, Cmd: make([]byte, 15<<20)})
			if err != nil && !strings.Contains(err.Error(), "invalid") {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	all := v.service.connections
	if n := all.closed.Load(); n != 0 {
		t.Errorf("%d connections were closed", n)
	}
	v.await("nothing is untaken", func(TableView) bool { return all.received.Load() == 0 })
}

// Insertions into several tables are charged before they enter, and wait for memory that another table gives up.
func TestAttackInsertionsIntoManyTablesTakeNoMoreThanThereIs(t *testing.T) {
	v := serve(t, Options{MemoryBytes: minMemory, MaxMessageBytes: 1 << 20, MaxOutgoingBytes: 8 << 20})
	for _, name := range []string{"a", "b"} {
		v.create(wire.Table{Name: name, Options: replay.Options{Capacity: 1 << 20, CapacityBytes: 1 << 40}})
	}
	a, _ := v.service.table("a")
	b, _ := v.service.table("b")
	in := &insertion{rows: 1, bytes: v.service.tableMemory.most * 3 / 4}
	first, err := a.chargeRoom(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.chargeRoom(in); !errors.Is(err, rollout.ErrFull) {
		t.Fatalf("the second insertion beyond the memory: %v", err)
	}
	v.service.tableMemory.add(-first)

	v.create(wire.Table{Name: "large", Options: replay.Options{CapacityBytes: 1 << 40}})
	large, _ := v.service.table("large")
	for err = nil; err == nil; {
		_, err = v.insert("large", wire.InsertRequest{TimeoutMS: new(int64)}, one(answer(40_000, 0, 1)))
	}
	checkRefusal(t, err, wire.Full, "free for tables")
	inserted := make(chan error, 1)
	go func() {
		_, err := v.insert("b", wire.InsertRequest{}, one(answer(40_000, 0, 1)))
		inserted <- err
	}()
	v.await("the insertion waits", func(TableView) bool { return b.meter.insertsWaiting.Load() == 1 })
	do[struct{}](v, wire.DropTable, wire.TableRequest{Table: "large"})
	select {
	case err := <-inserted:
		if err != nil {
			t.Error(err)
		}
	case <-v.ctx.Done():
		t.Fatal("an insertion was not woken when another table was dropped")
	}

	held := v.service.tableMemory.held.Load()
	large.info() // a call that looked the table up before the drop
	if now := v.service.tableMemory.held.Load(); now != held {
		t.Errorf("a dropped table is charged %d bytes", now-held)
	}
}

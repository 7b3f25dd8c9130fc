package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/wire"
)

// FuzzClientFrames compares the counts with x/net's framer, for frames of any kind in any pieces.
func FuzzClientFrames(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, seed, cuts uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		text := bytes.NewBufferString(http2.ClientPreface)
		framer := http2.NewFramer(text, nil)
		want, wantBegun := int64(0), 0
		for range random.IntN(50) {
			payload := make([]byte, random.IntN(1<<random.IntN(15)))
			stream := 1 + 2*random.Uint32N(5)
			var err error
			switch random.IntN(5) {
			case 0:
				err = framer.WritePing(false, [8]byte{})
			case 1:
				wantBegun++
				err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: payload,
					EndHeaders: true})
			case 2:
				err = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
			default:
				err = framer.WriteData(stream, false, payload)
				want += int64(len(payload))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		counted, got, begun := clientFrames{skip: prefaceBytes}, int64(0), 0
		pieces := rand.New(rand.NewPCG(cuts, 1))
		for b := text.Bytes(); len(b) > 0; {
			n := min(1+pieces.IntN(1<<pieces.IntN(15)), len(b))
			data, calls := counted.count(b[:n])
			got, begun = got+data, begun+calls
			b = b[n:]
		}
		if got != want || begun != wantBegun {
			t.Errorf("%d bytes of data, %d calls begun: want %d and %d", got, begun, want, wantBegun)
		}
	})
}

// opened adds a connection without a client. Its checks run when the test calls them.
func (all *connections) opened(t *testing.T) *conn {
	raw, other := net.Pipe()
	c := all.add(raw)
	c.slow = time.AfterFunc(time.Hour, func() {})
	t.Cleanup(func() {
		_ = c.Close()
		_ = other.Close()
	})
	return c
}

func TestAClosedConnectionIsNotCheckedAgain(t *testing.T) {
	all := newConnections(Options{SendTimeout: time.Hour}.withDefaults())
	c := all.opened(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.checkSender() // its timer fired before Close stopped it
	if c.slow.Stop() {
		t.Error("the timer of a closed connection was set again")
	}
}

// only returns the one connection.
func (all *connections) only(t *testing.T) *conn {
	t.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	for c := range all.open {
		if len(all.open) == 1 {
			return c
		}
	}
	t.Fatalf("%d connections are open, want one", len(all.open))
	return nil
}

func TestAttackCallsToUnknownMethodsAreCountedAndNamed(t *testing.T) {
	v := serve(t, Options{})
	client, err := grpc.NewClient(v.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, method := range []string{"/arrow.flight.protocol.FlightService/DoNothing", "/grpc.health.v1.Health/Check"} {
		err := client.Invoke(v.ctx, method, &flight.Ticket{Ticket: make([]byte, 1000)}, &flight.Empty{})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), method) ||
			!strings.Contains(err.Error(), "Arrow Flight, arrow.flight.protocol.FlightService") {
			t.Errorf("%s: %v", method, err)
		}
		c := v.service.connections.only(t)
		c.mu.Lock()
		if c.begun == 0 || c.begun != c.served {
			t.Errorf("%s: %d calls began, %d were served", method, c.begun, c.served)
		}
		c.mu.Unlock()
	}
}

// gRPC answers malformed calls itself: what comes for them is forgotten, and their connection stays.
func TestAttackAMalformedCallClosesNoConnection(t *testing.T) {
	all := newConnections(Options{SendTimeout: time.Hour}.withDefaults())
	c := all.opened(t)
	for range 3 {
		c.add(1000, 1) // no call begins
		c.checkSender()
		if n := c.heldBytes(); n != 0 {
			t.Fatalf("%d bytes are held for no call", n)
		}
	}
	if c.add(1000, 0); c.heldBytes() != 0 {
		t.Error("what comes for a call that was answered counts")
	}
}

// One caller cannot keep others out by opening all connections, using each once: its idle ones make room.
func TestAttackACallerWithAllConnectionsKeepsNobodyOut(t *testing.T) {
	caller := func(ctx context.Context) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, "caller"), "")
	}
	v := serve(t, Options{MaxConnections: 4, Tables: []wire.Table{{Name: "a"}}, Caller: caller})
	as := func(caller string) context.Context { return metadata.AppendToOutgoingContext(v.ctx, "caller", caller) }
	connect := func(caller string) (flight.Client, error) {
		client := v.dial()
		stream, err := client.ListActions(as(caller), &flight.Empty{})
		for err == nil {
			_, err = stream.Recv()
		}
		if err == io.EOF {
			return client, nil
		}
		return client, err
	}
	for i := range 4 {
		client, err := connect("mallory")
		if err == nil && i == 0 { // its oldest is in use
			_, err = client.DoExchange(as("mallory"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	callers := func() string {
		var names []string
		for _, c := range v.service.connections.view() {
			names = append(names, fmt.Sprint(c.Caller, c.Streams))
		}
		return strings.Join(names, " ")
	}
	v.await("a stream is open", func(TableView) bool {
		return callers() == "mallory1 mallory0 mallory0 mallory0"
	})
	for _, want := range []string{"mallory1 mallory0 mallory0 alice0", "mallory1 mallory0 alice0 bob0",
		"mallory1 alice0 bob0 carol0"} {
		names := strings.Fields(want)
		if _, err := connect(strings.TrimSuffix(names[3], "0")); err != nil {
			t.Fatal(err)
		}
		if got := callers(); got != want {
			t.Fatalf("the connections are of %s, want %s", got, want)
		}
	}
	if _, err := connect("dave"); err == nil {
		t.Errorf("the connections are of %s: nobody had more than dave", callers())
	}
}

// A caller with a call in progress on each connection that it can get leaves some to others.
func TestAttackACallerWithACallOnEachConnectionKeepsNobodyOut(t *testing.T) {
	const most = 24
	tables := []wire.Table{{Name: "a"}}
	v := serve(t, Options{MaxConnections: most, Tables: tables, Caller: func(ctx context.Context) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, "caller"), "")
	}})
	as := func(caller string) context.Context { return metadata.AppendToOutgoingContext(v.ctx, "caller", caller) }
	mallorys := func() (n int) {
		for _, c := range v.service.connections.view() {
			if c.Caller == "mallory" {
				n++
			}
		}
		return n
	}
	open, refused := 0, error(nil)
	for range 2 * most {
		stream, err := v.dial().DoExchange(as("mallory"))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
		v.await("the call is open or refused", func(TableView) bool { return mallorys() > open || len(ended) > 0 })
		if len(ended) > 0 {
			refused = <-ended
		}
		open = mallorys()
	}
	if open != most*7/8 || wire.CodeOf(wire.FromGRPC(refused)) != wire.Full ||
		!strings.Contains(refused.Error(), `"mallory" has 21 of 24 (max_connections)`) {
		t.Errorf("mallory has calls on %d of %d connections; then %v", open, most, refused)
	}
	for _, caller := range []string{"alice", "bob", "carol"} {
		stream, err := v.dial().ListActions(as(caller), &flight.Empty{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Errorf("%s: %v", caller, err)
		}
	}
}

// Whatever accounts open, call and close, each gets a first connection while one is free, none has more than its share
// when it gets another, and the counts are right.
func TestAccountsHaveTheirShareOfConnections(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		all := newConnections(Options{MaxConnections: 1 + random.IntN(40), Logger: quiet()}.withDefaults())
		accounts := 1 + random.IntN(6)
		var list []*conn
		used := func(by account) (own, total int) {
			for c := range all.open {
				if c.account == by {
					own++
				}
				if c.account != (account{}) {
					total++
				}
			}
			return own, total
		}
		for range 400 {
			by := accountOf(fmt.Sprint("caller ", random.IntN(accounts)), "")
			switch k := random.IntN(10); {
			case k < 4:
				if all.makeRoom("10.0.0.1:1") {
					list = append(list, all.add(connFrom{address: fmt.Sprintf("10.0.0.%d:1", random.IntN(4))}))
				}
			case k < 9 && len(list) > 0:
				c := list[random.IntN(len(list))]
				before, idle := c.account, 0
				own, total := used(by)
				if c.account == (account{}) {
					total++
				}
				if c.account != by {
					own++
				}
				for other := range all.open {
					if other != c && other.account == by && other.calls == 0 {
						idle++
					}
				}
				busy := !all.open[c] || before == by || own <= 7*(all.most-total+1) || idle > 0
				if err := all.admit(c, by); (err == nil) != busy || err != nil && (own == 1 || c.account != before) {
					t.Fatalf("seed %d: connection %d of %s, %d of %d in use: %v", seed, own, by, total, all.most, err)
				}
				c.calls = random.IntN(2)
			case len(list) > 0:
				_ = list[random.IntN(len(list))].Close()
			}
			counted := 0
			for a, n := range all.used {
				own, _ := used(a)
				if counted += n; n != own || n == 0 {
					t.Fatalf("seed %d: %s counts as having %d connections, it has %d", seed, a, n, own)
				}
			}
			if _, total := used(account{}); counted != total || len(all.open) > all.most {
				t.Fatalf("seed %d: %d connections count as used, %d are; %d of %d are open", seed, counted, total,
					len(all.open), all.most)
			}
		}
	}
}

// connFrom is a connection from an address.
type connFrom struct {
	nopConn
	address string
}

func (c connFrom) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.address))
}

func TestAttackAHostWithAllConnectionsKeepsNobodyOut(t *testing.T) {
	all := newConnections(Options{MaxConnections: 4}.withDefaults())
	for i := range 4 {
		c := all.add(connFrom{address: fmt.Sprint("10.0.0.9:", i)})
		_ = all.admit(c, accountOf("", c.peer)) // there are no tokens
	}
	for _, of := range []struct {
		host string
		room bool
	}{{"10.0.0.9", false}, {"10.0.0.1", true}, {"10.0.0.1", true}, {"10.0.0.1", false}, {"10.0.0.2", true}} {
		if got := all.makeRoom(of.host + ":80"); got != of.room {
			t.Fatalf("room for %s: %v", of.host, got)
		}
		if of.room {
			c := all.add(connFrom{address: of.host + ":80"})
			_ = all.admit(c, accountOf("", c.peer))
		}
	}
}

// A connection that may go on while the memory is full loses its turn when it brings little. It is closed only if it is
// to blame, for longer than a machine may be busy, or if the memory is full twice.
func TestAttackADrippingConnectionLosesItsTurn(t *testing.T) {
	for _, of := range []struct {
		name                                  string
		seconds, calls, receiving, held, came int // held and came: MiB
		turn, closed                          bool
	}{
		{"it drips for as long as a machine may be busy", maxLate, 1, 1, 8, 0, true, false},
		{"it drips", maxLate + 1, 1, 1, 8, 0, false, true},
		{"it brings an eighth", maxLate + 1, 1, 1, 2, 2, true, false},
		{"its call waits for the table", 1, 1, 0, 8, 0, false, false},
		{"one of its calls waits for the table", 1, 2, 1, 8, 0, false, false},
		{"gRPC answered its call", 1, 0, 0, 8, 0, false, false},
		{"its call waits, and the memory is full twice", 1, 1, 0, 40, 0, false, true},
		{"it drips, and the memory is full twice", maxLate, 1, 1, 40, 0, true, false},
		{"it drips on, and the memory is full twice", maxLate + 1, 1, 1, 40, 0, false, true},
	} {
		t.Run(of.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newConnections(Options{MaxInFlightBytes: 64 << 20, MaxMessageBytes: 16 << 20,
					Logger: quiet()}.withDefaults())
				c, other := all.opened(t), all.opened(t)
				for _, waiting := range []*conn{c, other} {
					waiting.calls, waiting.receiving = of.calls, of.receiving
					waiting.add(int64(of.held)<<20, 1)
					waiting.wait(true)
					time.Sleep(time.Millisecond)
				}
				all.promote()
				if all.promoted.Load() != c {
					t.Fatal("the first was not promoted")
				}
				bytes := max(of.came<<20, minSendBytes)
				for range of.seconds {
					time.Sleep(promoteEvery)
					c.received.Add(uint64(bytes))
					c.add(int64(bytes), 0)
					all.promote()
					synctest.Wait()
				}
				if c.gone != of.closed || (all.promoted.Load() == c) != of.turn {
					t.Errorf("closed: %v, has the turn: %v", c.gone, all.promoted.Load() == c)
				}
				if !of.turn && all.promoted.Load() != other {
					t.Error("the other has no turn")
				}
				if kept := c.heldBytes() > 0; kept != (of.calls > 0 && !of.closed) {
					t.Errorf("bytes are kept: %v", kept)
				}
			})
		})
	}
}

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
		c.calledBy("") // there are no tokens
	}
	for _, of := range []struct {
		host string
		room bool
	}{{"10.0.0.9", false}, {"10.0.0.1", true}, {"10.0.0.1", true}, {"10.0.0.1", false}, {"10.0.0.2", true}} {
		if got := all.makeRoom(of.host + ":80"); got != of.room {
			t.Fatalf("room for %s: %v", of.host, got)
		}
		if of.room {
			all.add(connFrom{address: of.host + ":80"}).calledBy("")
		}
	}
}

// A connection that may go on while the memory is full loses its turn when it brings little. It is closed only if it is
// to blame, or if the memory is full twice.
func TestAttackADrippingConnectionLosesItsTurn(t *testing.T) {
	for _, of := range []struct {
		name                         string
		calls, receiving, held, came int // MiB
		turn, closed                 bool
	}{
		{"it drips", 1, 1, 8, 0, false, true},
		{"it brings an eighth", 1, 1, 8, 2, true, false},
		{"its call waits for the table", 1, 0, 8, 0, false, false},
		{"one of its calls waits for the table", 2, 1, 8, 0, false, false},
		{"gRPC answered its call", 0, 0, 8, 0, false, false},
		{"its call waits, and the memory is full twice", 1, 0, 40, 0, false, true},
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
				time.Sleep(promoteEvery)
				bytes := max(of.came<<20, minSendBytes)
				c.received.Add(uint64(bytes))
				c.add(int64(bytes), 0)
				all.promote()
				synctest.Wait()
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

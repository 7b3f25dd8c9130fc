package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// hostility is one way to make a service hold more than it has, or to keep others from it. It goes on until its context
// ends; what it returns is how the service put it off.
type hostility struct {
	name string
	do   func(*attacker, context.Context) error
}

func hostilities() []hostility {
	return []hostility{
		{"unfinished messages without a token", func(a *attacker, ctx context.Context) error {
			return a.unfinished(ctx, "")
		}},
		{"unfinished messages", func(a *attacker, ctx context.Context) error { return a.unfinished(ctx, a.token) }},
		{"2 bytes a second", (*attacker).trickle},
		{"idle connections", (*attacker).idle},
		{"wrong tokens", (*attacker).guess},
		{"a stream of million-draw batches", (*attacker).hugeBatches},
		{"prefetch of large batches", (*attacker).prefetchMuch},
		{"200 DoGets", (*attacker).getMuch},
		{"compressed zeros", (*attacker).compressedZeros},
		{"a million rows of one token", (*attacker).tinyRows},
		{"tables of 65,536 shards", (*attacker).manyShards},
		{"rollouts of a million tokens", (*attacker).longRollouts},
		{"readers of a byte a second", (*attacker).slowReaders},
		{"2,000 calls that wait", (*attacker).waiters},
	}
}

// attacking is what the process prints once SIGTERM ends it in order.
const attacking = "attacking"

// HostileSettings are the settings of the process that attacks.
type HostileSettings struct {
	Listen string `required:"" help:"Where the service listens, host:port."`
	Token  string `required:"" help:"Token that may read and write the tables a-*."`
	Kinds  []int  `arg:"" help:"Numbers of the hostilities, carried out together until SIGTERM."`
}

// Run attacks until the context ends, and prints how the service put each hostility off in the end. It does not wait
// for hostilities that go on for long after that: they end with the process.
func (s *HostileSettings) Run(ctx context.Context) error {
	fmt.Println(attacking)
	var ends counter
	var attackers sync.WaitGroup
	for _, kind := range s.Kinds {
		h := hostilities()[kind]
		attackers.Go(func() {
			if err := h.do(&attacker{s.Listen, s.Token}, ctx); err == nil {
				ends.add("no error")
			} else {
				ends.add(string(wire.CodeOf(err)))
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		attackers.Wait()
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(10 * time.Second): // at the lowest priority, encoding a million rows takes long on a busy machine
		ends.add("cut off")
	}
	fmt.Println(&ends)
	return nil
}

// attacker carries out a hostility.
type attacker struct{ listen, token string }

// pause is how long an attacker waits between two attempts: it is to take memory, not the processor that it shares with
// the service.
const pause = 500 * time.Millisecond

// repeat does something again and again with a number of clients, and returns the last error.
func (a *attacker) repeat(ctx context.Context, clients int, do func(context.Context, int) error) error {
	var last atomic.Pointer[error]
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, i); err != nil && ctx.Err() == nil {
					last.Store(&err)
				}
				wait(ctx, pause)
			}
		})
	}
	running.Wait()
	if err := last.Load(); err != nil {
		return wire.FromGRPC(*err)
	}
	return nil
}

// throttled is a connection that writes the first bytes at once and then a few a second, and reads a few a second.
type throttled struct {
	net.Conn
	free   atomic.Int64  // bytes that are written at once
	writes time.Duration // pause before each byte after those; 0: none more are written
	reads  time.Duration // pause before each byte read; 0: none
	ended  chan struct{}
	once   sync.Once
}

func (c *throttled) pause(d time.Duration) error {
	select {
	case <-c.ended:
		return net.ErrClosed
	case <-time.After(d):
		return nil
	}
}

func (c *throttled) Write(b []byte) (int, error) {
	if c.free.Add(-int64(len(b))) >= 0 {
		return c.Conn.Write(b)
	}
	if c.writes == 0 {
		<-c.ended
		return 0, net.ErrClosed
	}
	for i := range b {
		if err := c.pause(c.writes); err != nil {
			return i, err
		}
		if _, err := c.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func (c *throttled) Read(b []byte) (int, error) {
	if c.reads == 0 {
		return c.Conn.Read(b)
	}
	if err := c.pause(c.reads); err != nil {
		return 0, err
	}
	return c.Conn.Read(b[:1])
}

func (c *throttled) Close() error {
	c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

// connect connects with a token, "" for none, over a connection that is made by through; nil: an ordinary one.
func (a *attacker) connect(token string, through func(net.Conn) net.Conn) (*grpc.ClientConn, error) {
	withToken := func(ctx context.Context) context.Context {
		if token == "" {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil && through != nil {
			c = through(c)
		}
		return c, err
	}
	return grpc.NewClient("passthrough:///"+a.listen, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			return invoke(withToken(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return streamer(withToken(ctx), desc, cc, method, opts...)
		}))
}

// unfinished sends most of a message of 250 MB to a method that needs none, and stops.
func (a *attacker) unfinished(ctx context.Context, token string) error {
	const size = 250_000_000
	message := make([]byte, size)
	return a.repeat(ctx, 24, func(ctx context.Context, _ int) error {
		conn, err := a.connect(token, func(raw net.Conn) net.Conn {
			c := &throttled{Conn: raw, ended: make(chan struct{})}
			c.free.Store(size * 9 / 10)
			return c
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = send(ctx, conn, "GetFlightInfo", message)
		return err
	})
}

// trickle sends insertions at two bytes a second.
func (a *attacker) trickle(ctx context.Context) error {
	return a.repeat(ctx, 32, func(ctx context.Context, _ int) error {
		conn, err := a.connect(a.token, func(raw net.Conn) net.Conn {
			c := &throttled{Conn: raw, writes: time.Second / 2, ended: make(chan struct{})}
			c.free.Store(2000) // for the headers
			return c
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = send(ctx, conn, "DoPut", make([]byte, 1<<20))
		return err
	})
}

// idle opens connections and sends nothing.
func (a *attacker) idle(ctx context.Context) error {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for len(open) < 5000 && ctx.Err() == nil {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", a.listen)
		if err != nil {
			return err
		}
		open = append(open, c)
	}
	<-ctx.Done()
	return nil
}

// guess tries tokens.
func (a *attacker) guess(ctx context.Context) error {
	return a.repeat(ctx, 16, func(ctx context.Context, i int) error {
		conn, err := a.connect(fmt.Sprintf("guess-%d-0123456789", i), nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for range 20 {
			if _, err = send(ctx, conn, "ListFlights", nil); ctx.Err() != nil {
				break
			}
		}
		return err
	})
}

// exchange sends sampling requests on a stream and reads nothing.
func (a *attacker) exchange(ctx context.Context, conn *grpc.ClientConn, table string, requests int,
	r wire.SampleRequest,
) (flight.FlightService_DoExchangeClient, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	stream, err := flight.NewFlightServiceClient(conn).DoExchange(ctx)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		m := &flight.FlightData{AppMetadata: text}
		if i == 0 {
			m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{table}}
		}
		if err := stream.Send(m); err != nil {
			if _, lost := stream.Recv(); lost != nil {
				err = lost
			}
			return stream, err
		}
	}
	return stream, nil
}

// leaveUnread repeats calls on one connection, whose answers nobody reads for a while.
func (a *attacker) leaveUnread(
	ctx context.Context, calls int, call func(context.Context, *grpc.ClientConn) error,
) error {
	return a.repeat(ctx, 1, func(ctx context.Context, _ int) error {
		conn, err := a.connect(a.token, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var failed error
		for range calls {
			failed = errors.Join(failed, call(ctx, conn))
		}
		wait(ctx, 2*time.Second)
		return failed
	})
}

func (a *attacker) hugeBatches(ctx context.Context) error {
	r := wire.SampleRequest{Size: 1 << 20, Columns: []string{"id"}}
	return a.leaveUnread(ctx, 1, func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := a.exchange(ctx, conn, readTable, 53, r)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
}

func (a *attacker) prefetchMuch(ctx context.Context) error {
	prefetch := 8
	r := wire.SampleRequest{Size: 4096, Prefetch: &prefetch}
	return a.leaveUnread(ctx, 8, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := a.exchange(ctx, conn, readTable, 1, r)
		return err
	})
}

func (a *attacker) getMuch(ctx context.Context) error {
	ticket, err := json.Marshal(wire.SampleRequest{Table: readTable, Size: 1 << 16})
	if err != nil {
		return err
	}
	return a.leaveUnread(ctx, 1, func(ctx context.Context, conn *grpc.ClientConn) error {
		var failed error
		for range 200 {
			stream, err := flight.NewFlightServiceClient(conn).DoGet(ctx, &flight.Ticket{Ticket: ticket})
			if err != nil {
				return err
			}
			if failed == nil {
				_, failed = stream.Recv()
			}
		}
		return failed
	})
}

// insertOften repeats an insertion that is encoded once.
func (a *attacker) insertOften(ctx context.Context, clients int, groups []rollout.Group, options ...ipc.Option) error {
	rec, err := wire.Rows(groups, nil)
	if err != nil {
		return err
	}
	defer rec.Release()
	var c collector
	w := flight.NewRecordWriter(&c, append(options, ipc.WithSchema(rec.Schema()))...)
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{readTable}})
	if err := w.WriteWithAppMetadata(rec, []byte(`{"timeout_ms":100}`)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return a.repeat(ctx, clients, func(ctx context.Context, _ int) error {
		conn, err := a.connect(a.token, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		stream, err := flight.NewFlightServiceClient(conn).DoPut(ctx)
		if err != nil {
			return err
		}
		for _, m := range c.messages {
			if err := stream.Send(m); err != nil {
				break // Recv returns the reason
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		_, err = stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
}

// zeros returns rollouts of n tokens 0.
func zeros(rollouts, tokens int) []rollout.Group {
	groups := make([]rollout.Group, rollouts)
	for i := range groups {
		groups[i].Rollouts = []*rollout.Rollout{rollout.New("zeros", []int32{0}, rollout.Completion{
			Tokens: make([]int32, tokens), Logprobs: make([]float32, tokens)})}
	}
	return groups
}

// compressedZeros sends 170 MB in messages of some kilobytes.
func (a *attacker) compressedZeros(ctx context.Context) error {
	return a.insertOften(ctx, 60, zeros(10, 1<<20), ipc.WithZstd())
}

func (a *attacker) tinyRows(ctx context.Context) error {
	return a.insertOften(ctx, 12, zeros(1<<20, 1))
}

func (a *attacker) manyShards(ctx context.Context) error {
	return a.withClient(ctx, func(c *client.Client) error {
		made := 0
		var failed error
		for ; made < 20 && failed == nil; made++ {
			_, failed = c.Create(ctx, wire.Table{Name: fmt.Sprint("a-shards-", made),
				Options: replay.Options{Capacity: 1 << 16, Shards: 1 << 16}})
		}
		wait(ctx, time.Second)
		for i := range made {
			if err := c.Drop(ctx, fmt.Sprint("a-shards-", i)); err != nil && failed == nil {
				failed = err
			}
		}
		return failed
	})
}

func (a *attacker) longRollouts(ctx context.Context) error {
	return a.withClient(ctx, func(c *client.Client) error {
		_, failed := c.Create(ctx, wire.Table{Name: "a-long", Options: replay.Options{Capacity: 4096}})
		for i := 0; i < 4096 && failed == nil && ctx.Err() == nil; i++ {
			wait(ctx, pause/5)
			_, failed = c.Table("a-long").Waiting(100*time.Millisecond).Insert(ctx, zeros(1, 1<<20)...)
		}
		return errors.Join(failed, c.Drop(context.WithoutCancel(ctx), "a-long"))
	})
}

func (a *attacker) withClient(ctx context.Context, do func(*client.Client) error) error {
	return a.repeat(ctx, 1, func(ctx context.Context, _ int) error {
		c, err := client.Dial(ctx, "grpc://"+a.listen, client.Options{Token: a.token})
		if err != nil {
			return err
		}
		defer c.Close()
		return do(c)
	})
}

// slowReaders ask for large batches and read a byte a second.
func (a *attacker) slowReaders(ctx context.Context) error {
	return a.repeat(ctx, 24, func(ctx context.Context, _ int) error {
		conn, err := a.connect(a.token, func(raw net.Conn) net.Conn {
			c := &throttled{Conn: raw, reads: time.Second, ended: make(chan struct{})}
			c.free.Store(1 << 40)
			return c
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		prefetch := 8
		stream, err := a.exchange(ctx, conn, readTable, 4, wire.SampleRequest{Size: 1024, Prefetch: &prefetch})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	})
}

// waiters wait for rollouts that never come.
func (a *attacker) waiters(ctx context.Context) error {
	return a.repeat(ctx, 1, func(ctx context.Context, _ int) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var failed error
		forever := int64(time.Hour / time.Millisecond)
		for range 4 {
			conn, err := a.connect(a.token, nil)
			if err != nil {
				return err
			}
			defer conn.Close()
			for range 500 {
				request := wire.SampleRequest{Size: 1, TimeoutMS: &forever}
				if _, err := a.exchange(ctx, conn, emptyTable, 1, request); err != nil {
					failed = err
				}
			}
		}
		<-ctx.Done()
		return failed
	})
}

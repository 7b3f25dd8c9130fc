// Package client is the Go client of a replay service: it inserts rollouts into tables on another machine and samples
// batches from them.
//
// A [Client] is a connection, made by [Dial]; a [Table] is a table of the service by its name. It has the methods of an
// embedded replay.Table, so that a program trains on either. Errors wrap rollout.ErrFull,
// ErrStarved, ErrAhead, ErrInvalid and ErrNoLease as there, or wire.ErrNotFound and the like; they name the service and
// the table.
//
// # Promises
//
// Nothing is inserted twice. Nothing is lost that was acknowledged: a sampled batch is acknowledged when it has arrived
// whole, and until then its draws go back if anything ends; a queue names what it delivers again
// (rollout.Draw.Redelivered). Every insertion has a batch id and every sample a request id, and the client retries them
// under it when the connection breaks or the service restarts, for Options.RetryFor; then it returns [ErrUnreachable].
// Calls end with their context. All methods of Client and Table may be called concurrently.
//
// # Waiting
//
// A Table returns rollout.ErrFull and rollout.ErrStarved at once, for programs that have something else to do
// meanwhile. The Table that [Table.Waiting] returns has the service wait for room or rollouts first. A [Stream] is for
// trainers that take batch after batch: the service prefetches the next one, and a batch counts as used once the next
// is asked for.
//
// # Memory
//
// The rollouts of a batch share one block of memory, which lives as long as any of them is referred to. A program that
// keeps single rollouts copies them.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes = 256 << 20
	DefaultRetryFor        = time.Minute
	DefaultCallTimeout     = time.Minute
)

// Options configure a connection. The zero value has no token and connects to a service on this machine, or by TLS to
// one whose certificate the system trusts.
type Options struct {
	Token     string `yaml:"token" json:"-"`                         // bearer token; beyond this machine by TLS only
	TokenFile string `yaml:"token_file" json:"token_file,omitempty"` // holds the token instead

	// TLS: PEM files of the authorities to trust ("": the system's), and of the client's own certificate and its key,
	// for services that ask for one; and the name in the service's certificate ("": that of the address).
	CA         string `yaml:"ca" json:"ca,omitempty"`
	Cert       string `yaml:"certificate" json:"certificate,omitempty"`
	Key        string `yaml:"key" json:"key,omitempty"`
	ServerName string `yaml:"server_name" json:"server_name,omitempty"`

	// MaxMessageBytes bounds one batch as it travels; 0: 256 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes" json:"max_message_bytes,omitempty"`

	// RetryFor is how long a call is retried while the service cannot be reached or is stopping; 0: a minute, below 0:
	// as long as the call's context allows.
	RetryFor time.Duration `yaml:"retry_for" json:"retry_for,omitempty"`

	// CallTimeout is how long one answer may take, on top of what the service was asked to wait; 0: a minute. After it
	// the call is retried as if the connection had been lost.
	CallTimeout time.Duration `yaml:"call_timeout" json:"call_timeout,omitempty"`
}

func (o Options) withDefaults() Options {
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.RetryFor = cmp.Or(o.RetryFor, DefaultRetryFor)
	o.CallTimeout = cmp.Or(o.CallTimeout, DefaultCallTimeout)
	return o
}

// Validate reports every problem at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p option.Problems
	p.Check(o.Token == "" || o.TokenFile == "", "token_file", o.TokenFile, "a token or a file that holds it, not both")
	p.Check((o.Cert == "") == (o.Key == ""), "certificate", o.Cert, "a certificate and its key, both or neither")
	p.Check(o.MaxMessageBytes >= 1<<10 && o.MaxMessageBytes <= 1<<31-1, "max_message_bytes", o.MaxMessageBytes,
		"1024 to 2147483647")
	p.Check(o.CallTimeout > 0, "call_timeout", o.CallTimeout, "more than 0s")
	return p.Err()
}

// Sizes of the transport: a whole batch travels without waiting for the other side.
const (
	streamWindow = 32 << 20
	connWindow   = 64 << 20
	socketBuffer = 256 << 10
)

// keepalivePeriod is how long a connection may be silent before a ping, and how long the ping may take. It finds
// connections whose other end vanished.
const keepalivePeriod = 20 * time.Second

// dialTimeout bounds how long Dial tries to reach a service; its context and Options.RetryFor may shorten it.
const dialTimeout = 5 * time.Second

// Client is a connection to a service. Its methods may be called concurrently.
type Client struct {
	address address
	options Options
	conn    *grpc.ClientConn
	flight  flight.FlightServiceClient
	id      uint64 // random; batch and request ids begin with it
	// lookTime is how long a look at a service that was down waits for a connection.
	lookTime time.Duration
	numbers  atomic.Uint64 // of the ids given

	mu     sync.Mutex // guards what follows
	tables map[string]*shared
	calls  context.Context // ends with those in flight
	endAll context.CancelFunc
}

// Dial connects to a service at grpc://host:port, grpc+tls://host:port or grpc+unix:///path/of/socket and waits for its
// first answer. The error wraps [ErrUnreachable] if none comes within five seconds.
func Dial(ctx context.Context, address string, o Options) (*Client, error) {
	c, err := newClient(address, o)
	if err != nil {
		return nil, err
	}
	if err := c.ping(ctx); err != nil {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

// newClient returns a client that connects with its first call.
func newClient(address string, o Options) (*Client, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{address: a, options: o.withDefaults(), lookTime: time.Second, tables: make(map[string]*shared)}
	c.calls, c.endAll = context.WithCancel(context.Background())
	var random [8]byte
	rand.Read(random[:]) // never fails
	c.id = binary.LittleEndian.Uint64(random[:])
	return c, c.connect()
}

// connect makes the connection; more options are for tests.
func (c *Client) connect(more ...grpc.DialOption) error {
	transport, err := c.options.transport(c.address)
	if err != nil {
		return err
	}
	token, err := c.options.bearer(c.address)
	if err != nil {
		return err
	}
	limit := c.options.MaxMessageBytes
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithUserAgent("reprise-go"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit),
			flightdata.CallOption()),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithWriteBufferSize(socketBuffer), grpc.WithReadBufferSize(socketBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepalivePeriod, Timeout: keepalivePeriod}),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{
				BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause,
			},
		}),
	}
	if token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(token))
	}
	if c.conn, err = grpc.NewClient(c.address.target(), append(dial, more...)...); err != nil {
		return fmt.Errorf("address: %s: %w", c.address, err)
	}
	c.flight = flight.NewFlightServiceClient(c.conn)
	return nil
}

// ping waits for the service's first answer.
func (c *Client) ping(ctx context.Context) error {
	limit := dialTimeout
	if p := c.options.RetryFor; p > 0 {
		limit = min(limit, p)
	}
	err := c.retryFor(ctx, limit, 0, c.listActions)
	if err != nil {
		return fmt.Errorf("service %s: connect: %w", c.address, err)
	}
	return nil
}

// listActions calls a method that every service answers.
func (c *Client) listActions(ctx context.Context) error {
	stream, err := c.flight.ListActions(ctx, &flight.Empty{})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}

// Close ends the connection; leased batches that were not acknowledged go back.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("service %s: close: %w", c.address, err)
	}
	return nil
}

// Address returns the service's address, as [Dial] takes it.
func (c *Client) Address() string { return c.address.String() }

// nextID returns an id that no other request of any client has.
func (c *Client) nextID() string { return fmt.Sprintf("%016x-%d", c.id, c.numbers.Add(1)) }

// Table returns a table by its name, whether the service has it or not. All that it returns for one name use the same
// streams.
func (c *Client) Table(name string) *Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.tables[name]
	if s == nil {
		s = &shared{leased: make(map[rollout.BatchID]*Stream)}
		c.tables[name] = s
	}
	return &Table{client: c, name: name, shared: s}
}

// Create creates a table, unless one with the same definition exists. The error wraps wire.ErrExists if one with
// another definition does.
func (c *Client) Create(ctx context.Context, definition wire.Table) (wire.TableInfo, error) {
	var info wire.TableInfo
	err := c.act(ctx, definition.Name, wire.CreateTable, definition, &info, 0)
	return info, err
}

// Drop removes a table and everything it holds, with its journal.
func (c *Client) Drop(ctx context.Context, name string) error {
	return c.act(ctx, name, wire.DropTable, wire.TableRequest{Table: name}, nil, 0)
}

// Listed is a table in a service's list.
type Listed struct {
	Name       string     `json:"name"`
	Rows       int64      `json:"rows"`       // rollouts that it holds
	Bytes      int64      `json:"bytes"`      // of their payload
	Definition wire.Table `json:"definition"` // defaults filled in
}

// List returns the tables that the service shows to this client.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	var list []Listed
	err := c.retry(ctx, 0, func(ctx context.Context) error {
		list = nil
		stream, err := c.flight.ListFlights(ctx, &flight.Criteria{})
		if err != nil {
			return err
		}
		for {
			info, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			path := info.GetFlightDescriptor().GetPath()
			if len(path) != 1 {
				continue
			}
			t := Listed{Name: path[0], Rows: info.GetTotalRecords(), Bytes: info.GetTotalBytes()}
			if err := json.Unmarshal(info.GetAppMetadata(), &t.Definition); err != nil {
				return fmt.Errorf("the definition of table %s: %w: is the service another version?", t.Name, err)
			}
			list = append(list, t)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("service %s: list: %w", c.address, err)
	}
	return list, nil
}

// act carries out an action, which may take extra time beyond the usual. A nil answer expects none.
func (c *Client) act(ctx context.Context, table, kind string, body, answer any, extra time.Duration) error {
	text, err := json.Marshal(body)
	if err == nil {
		retried := false
		err = c.retry(ctx, extra, func(ctx context.Context) error {
			err := c.actOnce(ctx, kind, text, answer)
			removes := kind == wire.DropTable || kind == wire.DeleteCheckpoint
			if retried && removes && errors.Is(decodeError(err), wire.ErrNotFound) {
				return nil // an earlier attempt removed it
			}
			retried = true
			return err
		})
	}
	return c.actionError(table, kind, err)
}

// actWithoutRetry carries out an action that may not be repeated.
func (c *Client) actWithoutRetry(ctx context.Context, table, kind string, body, answer any) error {
	text, err := json.Marshal(body)
	if err == nil {
		c.lookAgain(ctx)
		err = c.attempt(ctx, 0, func(ctx context.Context) error { return c.actOnce(ctx, kind, text, answer) })
	}
	return c.actionError(table, kind, err)
}

func (c *Client) actionError(table, kind string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("table %s of %s: %s: %w", table, c.address, kind, err)
}

func (c *Client) actOnce(ctx context.Context, kind string, body []byte, answer any) error {
	stream, err := c.flight.DoAction(ctx, &flight.Action{Type: kind, Body: body})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		result, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && (!first || answer == nil):
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the service sent no answer where JSON was expected: is it another version?")
		case err != nil:
			return err
		case first && answer != nil:
			if err := json.Unmarshal(result.Body, answer); err != nil {
				return fmt.Errorf("reading the answer %.100q: %w", result.Body, err)
			}
		}
	}
}

// ErrUnreachable is returned when a service could not be reached, or was stopping, for Options.RetryFor.
var ErrUnreachable = errors.New("service cannot be reached")

// Pauses between attempts grow from the first to the longest.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// retry calls until it succeeds, fails for good, the context ends, or the connection was lost or the service stopping
// for Options.RetryFor. Each attempt has its own deadline: Options.CallTimeout on top of how long the service was asked
// to wait.
func (c *Client) retry(ctx context.Context, wait time.Duration, call func(context.Context) error) error {
	return c.retryFor(ctx, c.options.RetryFor, wait, call)
}

func (c *Client) retryFor(ctx context.Context, limit, wait time.Duration, call func(context.Context) error) error {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := c.attempt(ctx, wait, call)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case !isTransient(err):
			return err
		case limit >= 0 && time.Since(began) >= limit:
			return fmt.Errorf("%w: %s in %v, the last one: %s", ErrUnreachable, words.Plural(attempt+1, "attempt"),
				time.Since(began).Round(time.Millisecond), whyUnreachable(err))
		}
		pause := c.pause(attempt)
		if limit >= 0 {
			pause = min(pause, limit-time.Since(began))
		}
		if c.reconnect(ctx, pause); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// whyUnreachable is the text of a transient error, with the remedy where gRPC's words have one.
func whyUnreachable(err error) string {
	text := status.Convert(err).Message()
	switch {
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		return "an HTTP server answers there, not gRPC: want the address of the service (serve --listen), not that of its " +
			"dashboard (--http)"
	case strings.Contains(text, "connection refused"):
		return "connection refused: nothing listens there: start reprise serve, or check the address"
	case strings.Contains(text, "connect: no such file"):
		return "there is no such socket: start reprise serve, or check the address"
	}
	return text
}

// reconnect tries at once to connect again if the connection is lost, and returns when it has succeeded or the pause is
// over. gRPC by itself fails all calls without trying until its own pause, up to maxPause, has passed. While the
// connection is there the whole pause passes: the service asked for one.
func (c *Client) reconnect(ctx context.Context, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	state := c.conn.GetState()
	if state == connectivity.Ready {
		<-ctx.Done()
		return
	}
	c.conn.ResetConnectBackoff()
	c.conn.Connect() // from idle
	for state != connectivity.Ready && c.conn.WaitForStateChange(ctx, state) {
		state = c.conn.GetState()
	}
}

// lookAgain gives a call that is not retried a connection, if it is lost and can be had within lookTime. It tries every
// lookPause: gRPC does not try at once if the attempt before is just failing.
func (c *Client) lookAgain(ctx context.Context) {
	if c.conn.GetState() != connectivity.TransientFailure {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.lookTime)
	defer cancel()
	for ctx.Err() == nil && c.conn.GetState() != connectivity.Ready {
		c.reconnect(ctx, lookPause)
	}
}

const lookPause = 100 * time.Millisecond

// attempt calls once, with a deadline.
func (c *Client) attempt(ctx context.Context, wait time.Duration, call func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer context.AfterFunc(c.calls, func() { end(errSilent) })()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wait+c.options.CallTimeout)
	defer cancel()
	return decodeError(call(ctx))
}

// errSilent is the error of attempts that [Client.cut] ended.
var errSilent = errors.New("the service does not answer")

// cut ends the attempts in flight, as if the connection had been lost.
func (c *Client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endAll()
	c.calls, c.endAll = context.WithCancel(context.Background())
}

// pause returns how long to rest after an attempt: twice as long after each, less a random share, so that clients do
// not come back all at once.
func (c *Client) pause(attempt int) time.Duration {
	p := maxPause
	if attempt < 7 {
		p = min(p, firstPause<<attempt)
	}
	return p - time.Duration(rollout.Stream(c.id, "pause", uint64(attempt)).Float64()*float64(p)/2)
}

// decodeError turns a gRPC status into the error of package wire that it carries. gRPC's own error about a message
// above a limit gets the remedy.
func decodeError(err error) error {
	decoded := wire.FromGRPC(err)
	ownMessage := strings.HasPrefix(status.Convert(err).Message(), string(wire.TooLarge))
	if errors.Is(decoded, wire.ErrTooLarge) && !ownMessage {
		return fmt.Errorf("%w: move less at a time, or raise max_message_bytes on both sides", decoded)
	}
	return decoded
}

// isTransient reports whether an error says nothing about the request, only that the request or its answer got lost.
func isTransient(err error) bool {
	if isAny(err, wire.ErrClosing, wire.ErrInterrupted, errSilent, io.EOF, io.ErrUnexpectedEOF,
		context.DeadlineExceeded) {
		return true
	}
	if isRefusal(err) || isAny(err, wire.ErrDiskFull, wire.ErrElsewhere) {
		return false
	}
	switch status.Code(err) {
	// Canceled and DeadlineExceeded of the attempt or the other side
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted:
		return true
	}
	return false
}

// isRefusal reports whether an error is the service's answer that it did not carry the call out, whoever tries.
func isRefusal(err error) bool {
	return isAny(err, rollout.ErrFull, rollout.ErrStarved, rollout.ErrAhead, rollout.ErrInvalid, rollout.ErrNoLease,
		wire.ErrNotFound, wire.ErrExists, wire.ErrDenied, wire.ErrTooLarge)
}

func isAny(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	flightgen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/wire"
)

// call is one Flight call while it is served.
type call struct {
	service *Service
	conn    *conn
	tables  []string
}

// begin starts a call. The method defers [call.end].
func (s *Service) begin(ctx context.Context, method string) *call {
	c := &call{service: s, conn: connOf(ctx)}
	c.conn.beginCall(s.callerOf(ctx))
	s.counts.call(method)
	return c
}

// callerOf returns the name of a call's caller, "" if it has none.
func (s *Service) callerOf(ctx context.Context) string {
	if s.options.Caller == nil {
		return ""
	}
	return s.options.Caller(ctx)
}

// uses notes a table that the call works on, for observers.
func (c *call) uses(table string) {
	c.conn.addTable(table, 1)
	c.tables = append(c.tables, table)
}

// end counts the call's error and turns it into a gRPC status.
func (c *call) end(err *error) {
	for _, t := range c.tables {
		c.conn.addTable(t, -1)
	}
	c.conn.endCall()
	if *err == nil {
		return
	}
	st, isStatus := status.FromError(*err)
	if isStatus && st.Code() == codes.ResourceExhausted { // gRPC's own, about the size of a message
		*err = wire.Errorf(wire.TooLarge, "%s: want at most max_message_bytes, %d, in one message", st.Message(),
			c.service.options.MaxMessageBytes)
	}
	c.service.counts.failed(*err)
	if _, isStatus := status.FromError(*err); !isStatus {
		*err = wire.ToGRPC(*err)
	}
}

// callCounts counts calls by method and errors by code.
type callCounts struct {
	mu     sync.Mutex
	calls  map[string]uint64
	errors map[wire.Code]uint64
}

func (c *callCounts) call(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[string]uint64)
	}
	c.calls[method]++
}

// failed counts an error, unless it only means that the caller left.
func (c *callCounts) failed(err error) {
	if callerLeft(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[wire.Code]uint64)
	}
	c.errors[wire.CodeOf(err)]++
}

// callerLeft reports whether an error only means that the caller or its connection is gone. The service's own errors
// are not gRPC statuses at this point.
func callerLeft(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable}, status.Code(err))
}

// view returns a copy; the errors are in order of codes.
func (c *callCounts) view() (calls map[string]uint64, errors []ErrorCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls = make(map[string]uint64, len(c.calls))
	maps.Copy(calls, c.calls)
	for code, n := range c.errors {
		errors = append(errors, ErrorCount{code, n})
	}
	slices.SortFunc(errors, func(a, b ErrorCount) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return calls, errors
}

// connections lists the open connections of [Service.Listener], and bounds their number and the bytes received on them
// that are not whole messages yet. gRPC holds those bytes and cannot be asked about them: a connection counts what it
// reads, and [connections.credit] takes off the messages that have arrived whole.
type connections struct {
	now        func() time.Time
	log        *slog.Logger
	most       int   // connections
	limit      int64 // bytes received
	maxMessage int64

	freed  signal        // bytes were credited, or a connection ended
	closed atomic.Uint64 // connections closed to free memory or to make room

	mu       sync.Mutex // guards what follows
	open     map[*conn]bool
	next     uint64 // numbers unix sockets, whose peers have no address
	received int64  // over all connections
	evicted  time.Time
}

func newConnections(o Options) *connections {
	return &connections{
		now: o.Clock, log: o.Logger, most: o.MaxConnections, limit: o.MemoryBytes / receivedShare,
		maxMessage: o.MaxMessageBytes, open: make(map[*conn]bool),
	}
}

// listener accepts connections and lists them.
type listener struct {
	net.Listener
	all *connections
}

// Accept waits for the next connection. Beyond max_connections the oldest on which no call was ever made is closed; if
// there is none, the new one is.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.all.makeRoom() {
			return l.all.add(raw), nil
		}
		l.all.closed.Add(1)
		if err := raw.Close(); err != nil {
			l.all.log.Debug("closing a connection beyond max_connections", "error", err)
		}
	}
}

// makeRoom reports whether one more connection may be open, after closing an unused one if it has to.
func (all *connections) makeRoom() bool {
	all.mu.Lock()
	full := len(all.open) >= all.most
	var unused *conn
	if full {
		for c := range all.open {
			if !c.used.Load() && (unused == nil || c.since.Before(unused.since)) {
				unused = c
			}
		}
	}
	all.mu.Unlock()
	if full && unused == nil {
		return false
	}
	if full {
		unused.end("max_connections is reached, and it was never used")
	}
	return true
}

func (all *connections) add(raw net.Conn) *conn {
	c := &conn{Conn: raw, all: all, since: all.now(), tables: make(map[string]int), ended: make(chan struct{})}
	c.end = func(why string) {
		all.closed.Add(1)
		all.log.Warn("closing a connection: "+why, "peer", c.peer)
		if err := c.Close(); err != nil {
			all.log.Debug("closing a connection", "peer", c.peer, "error", err)
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.next++
	c.peer = raw.RemoteAddr().String()
	if raw.RemoteAddr().Network() == "unix" {
		c.peer = fmt.Sprintf("unix %d", all.next)
	}
	all.open[c] = true
	return c
}

// view returns the connections, the oldest first.
func (all *connections) view() []Connection {
	all.mu.Lock()
	list := make([]Connection, 0, len(all.open))
	for c := range all.open {
		list = append(list, c.view())
	}
	all.mu.Unlock()
	slices.SortFunc(list, func(a, b Connection) int { return a.Since.Compare(b.Since) })
	return list
}

// conn counts the bytes of a connection. They tell a slow reader from one that takes nothing.
type conn struct {
	net.Conn
	all            *connections
	peer           string
	since          time.Time
	received, sent atomic.Uint64
	used           atomic.Bool // a call was made on it
	ended          chan struct{}
	end            func(why string) // closes it, once

	unfinished int64     // bytes received and not credited; guarded by all.mu
	began      time.Time // when unfinished began to grow; guarded by all.mu

	mu     sync.Mutex // guards what follows
	caller string
	calls  int
	tables map[string]int // calls in flight, by table
}

// Read counts what it reads. It waits while too much was received over all connections.
func (c *conn) Read(b []byte) (int, error) {
	c.awaitMemory()
	n, err := c.Conn.Read(b)
	c.received.Add(uint64(n))
	if !c.charge(int64(n)) {
		c.end("it sends more than one message of max_message_bytes for each call")
	}
	return n, err
}

// charge counts bytes received. It reports whether the connection may have so many that are not whole messages: what
// the flow-control window of a connection lets through, and a message for each call.
func (c *conn) charge(n int64) bool {
	calls := c.callCount()
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.unfinished == 0 {
		c.began = time.Now()
	}
	c.unfinished += n
	c.all.received += n
	return c.unfinished <= connWindow+int64(calls)*c.all.maxMessage
}

// credit takes a message off that has arrived whole, with what HTTP/2 adds to it; everything if no call is left.
func (c *conn) credit(bytes int) {
	if c == nil {
		return
	}
	calls := c.callCount()
	c.all.mu.Lock()
	n := min(int64(bytes)+int64(bytes)/frameOverhead+messageOverhead, c.unfinished)
	if calls == 0 {
		n = c.unfinished
	}
	c.unfinished -= n
	c.all.received -= n
	c.began = time.Now()
	c.all.mu.Unlock()
	c.all.freed.notify()
}

// What HTTP/2 and gRPC add to a message: a ninth byte in each thousand at most, for frames, and its headers.
const (
	frameOverhead   = 1 << 9
	messageOverhead = 256
)

// evictAfter is how long a connection waits for memory before the one that has held an unfinished message for longest
// is closed.
const evictAfter = time.Second

// awaitMemory waits until what was received over all connections is within its limit.
func (c *conn) awaitMemory() {
	for {
		changed := c.all.freed.watch()
		if !c.all.full() {
			return
		}
		timer := time.NewTimer(evictAfter)
		select {
		case <-changed:
		case <-c.ended:
			timer.Stop()
			return
		case <-timer.C:
			c.all.evict()
		}
		timer.Stop()
	}
}

func (all *connections) full() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.received > all.limit
}

// evict closes the connection that has held an unfinished message for longest, at most one in evictAfter.
func (all *connections) evict() {
	all.mu.Lock()
	var oldest *conn
	if now := time.Now(); now.Sub(all.evicted) >= evictAfter/2 && all.received > all.limit {
		for c := range all.open {
			if c.unfinished > socketBuffer && (oldest == nil || c.began.Before(oldest.began)) {
				oldest = c
			}
		}
		all.evicted = now
	}
	all.mu.Unlock()
	if oldest != nil {
		oldest.end("the memory for messages is full, and its unfinished one is the oldest")
	}
}

// Write counts what it writes.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

// Close ends the connection.
func (c *conn) Close() error {
	c.all.mu.Lock()
	if c.all.open[c] {
		delete(c.all.open, c)
		close(c.ended)
	}
	c.all.received -= c.unfinished
	c.unfinished = 0
	c.all.mu.Unlock()
	c.all.freed.notify()
	return c.Conn.Close()
}

// RemoteAddr returns the peer's address, from which [connOf] finds the connection.
func (c *conn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// connAddr is a peer's address with its connection: gRPC puts it into a call's context.
type connAddr struct {
	net.Addr
	conn *conn
}

// connOf returns the connection that a call came on, nil if it did not come through [Service.Listener].
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, _ := p.Addr.(connAddr)
	return a.conn
}

// beginCall counts a call of a caller; endCall takes it back. A nil connection counts nothing.
func (c *conn) beginCall(caller string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.caller = caller
	c.used.Store(true)
}

func (c *conn) endCall() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.calls--
	left := c.calls
	c.mu.Unlock()
	if left == 0 {
		c.credit(0)
	}
}

func (c *conn) callCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// receiving is a stream that credits its connection with each message that has arrived whole.
type receiving struct {
	grpc.ServerStream
	conn *conn
}

// RecvMsg receives a message.
func (r receiving) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case interface{ WireSize() int }:
		r.conn.credit(m.WireSize())
	case proto.Message:
		r.conn.credit(proto.Size(m))
	}
	return nil
}

func creditMessages(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(server, receiving{stream, connOf(stream.Context())})
}

// flightService is Flight's service with its unary methods as streams of one message, which are the same on the wire:
// gRPC reads the message of a unary call before anything else, that of a stream after the caller was authenticated.
func flightService() *grpc.ServiceDesc {
	desc := flightgen.FlightService_ServiceDesc
	desc.Streams = slices.Clone(desc.Streams)
	for _, m := range desc.Methods {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, ServerStreams: true,
			Handler: func(server any, stream grpc.ServerStream) error {
				answer, err := m.Handler(server, stream.Context(), stream.RecvMsg, nil)
				if err != nil {
					return err
				}
				return stream.SendMsg(answer)
			},
		})
	}
	desc.Methods = nil
	return &desc
}

// addTable adds n to the calls in flight that use a table.
func (c *conn) addTable(table string, n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables[table] += n; c.tables[table] == 0 {
		delete(c.tables, table)
	}
}

func (c *conn) view() Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Connection{
		Peer: c.peer, Caller: c.caller, Since: c.since, Streams: c.calls, Tables: slices.Sorted(maps.Keys(c.tables)),
		ReceivedBytes: c.received.Load(), SentBytes: c.sent.Load(),
	}
}

// Bounds of a request.
const (
	maxRequestBytes  = 64 << 20 // a million priorities fit
	maxRequestValues = 4 << 20  // counted by commas: lists of {} take many times the memory of their text
)

// A request of largeRequest bytes or more waits for memory. While a list is decoded each value takes about valueBytes.
const (
	largeRequest = 1 << 20
	valueBytes   = 200
)

// admitJSON waits until a request may be decoded in memory.
func (s *Service) admitJSON(ctx context.Context, text []byte) (leave func(), err error) {
	if len(text) < largeRequest {
		return func() {}, nil
	}
	return s.incoming.acquire(ctx, s.callerOf(ctx), "", int64(len(text))+valueBytes*int64(bytes.Count(text, []byte{','})))
}

// maxIDBytes bounds the ids that clients choose: tables remember many of them.
const maxIDBytes = 1024

// checkID refuses an id that is too long to remember.
func checkID(key, id string) error {
	if len(id) > maxIDBytes {
		return wire.Errorf(wire.Invalid, "%s: %q… has %d bytes: want at most %d", key, id[:32], len(id), maxIDBytes)
	}
	return nil
}

// decodeJSON decodes a request; place is where it came, for errors. An empty text is an empty request. Unknown fields
// and anything after the object are refused.
func decodeJSON[T any](place string, text []byte, into *T) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if len(text) > maxRequestBytes {
		return wire.Errorf(wire.TooLarge, "%s: %d bytes: want at most %d", place, len(text), maxRequestBytes)
	}
	if n := bytes.Count(text, []byte{','}); n > maxRequestValues {
		return wire.Errorf(wire.TooLarge, "%s: about %d values: want at most %d; send them in several requests", place,
			n, maxRequestValues)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return jsonError(place, err, reflect.TypeFor[T]())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return wire.Errorf(wire.Invalid, "%s: more than one JSON value: want one object", place)
	}
	return nil
}

func jsonError(place string, err error, of reflect.Type) error {
	var mistyped *json.UnmarshalTypeError
	var broken *json.SyntaxError
	switch {
	case errors.As(err, &mistyped) && mistyped.Field != "":
		return wire.Errorf(wire.Invalid, "%s: %s: %s: want %s", place, mistyped.Field, mistyped.Value,
			kindName(mistyped.Type))
	case errors.As(err, &mistyped):
		return wire.Errorf(wire.Invalid, "%s: %s: want an object with the fields %s", place, mistyped.Value,
			fieldNames(of))
	case errors.As(err, &broken):
		return wire.Errorf(wire.Invalid, "%s: no JSON at byte %d (%s): want an object with the fields %s", place,
			broken.Offset, err, fieldNames(of))
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return wire.Errorf(wire.Invalid, "%s: %s: unknown field: want fields among %s", place, name, fieldNames(of))
	}
	return wire.Errorf(wire.Invalid, "%s: %s: want an object with the fields %s", place, err, fieldNames(of))
}

// kindName returns a type in words.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		return "a whole number, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// fieldNames lists the JSON fields of a struct.
func fieldNames(t reflect.Type) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// encodeJSON encodes an answer.
func encodeJSON(answer any) ([]byte, error) {
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "encoding the answer: %s", err)
	}
	return text, nil
}

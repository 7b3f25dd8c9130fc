package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flightgen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/rollout"
)

// connections lists the open connections of [Service.Listener], and bounds their number and the bytes that came on them
// and that no call has taken: messages that are not whole yet, and whole ones that wait. gRPC holds those bytes and
// does not say how many: a connection counts what it reads, and takes off the messages that calls receive.
type connections struct {
	now         func() time.Time
	log         *slog.Logger
	most        int   // connections
	limit       int64 // bytes received
	maxMessage  int64
	sendTimeout time.Duration

	received atomic.Int64  // over all connections
	holding  atomic.Int64  // connections on which something of it came
	freed    signal        // bytes were taken, or a connection ended
	closed   atomic.Uint64 // connections closed to free memory or to make room
	warned   atomic.Int64  // when a warning of that was logged last, unix seconds

	promoted atomic.Pointer[conn] // goes on whatever the limit; nil: none was chosen

	mu       sync.Mutex // guards what follows; taken before that of a connection
	open     map[*conn]bool
	used     map[account]int // connections on which a call was made, by who made the last
	next     uint64          // numbers unix sockets, whose peers have no address
	chosen   time.Time       // when promoted was
	cameThen uint64          // bytes received on it by then
	lateFor  int             // seconds of its turn in which its message was late
}

func newConnections(o Options) *connections {
	return &connections{
		now: o.Clock, log: o.Logger, most: o.MaxConnections, limit: o.MaxInFlightBytes / 4,
		maxMessage: o.MaxMessageBytes, sendTimeout: o.SendTimeout, open: make(map[*conn]bool),
		used: make(map[account]int),
	}
}

// listener accepts connections and lists them.
type listener struct {
	net.Listener
	all *connections
}

// Accept waits for the next connection. Beyond max_connections it closes one on which no call was ever made, the oldest
// of the address with the most of them, or else an idle one of whoever has the most; if there is none, the new one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.all.makeRoom(raw.RemoteAddr().String()) {
			return l.all.add(raw), nil
		}
		l.all.closed.Add(1)
		if err := raw.Close(); err != nil {
			l.all.log.Debug("closing a connection beyond max_connections", "error", err)
		}
	}
}

// makeRoom reports whether one more connection, from a peer, may be open, after closing one if it has to. An idle
// connection has no calls, and so no leases; one is closed only if its account has more than the peer's would.
func (all *connections) makeRoom(peer string) bool {
	all.mu.Lock()
	if len(all.open) < all.most {
		all.mu.Unlock()
		return true
	}
	number := make(map[string]int) // of connections never used, by network
	for c := range all.open {
		if c.account == (account{}) {
			number[c.network]++
		}
	}
	var unused, idle *conn
	var from time.Time
	most := all.used[accountOf("", peer)] + 1
	for c := range all.open {
		if c.account == (account{}) {
			n := number[c.network]
			if unused == nil || n > number[unused.network] ||
				n == number[unused.network] && c.since.Before(unused.since) {
				unused = c
			}
			continue
		}
		c.mu.Lock()
		n := all.used[c.account]
		if c.calls == 0 && (n > most || idle != nil && n == most && c.from.Before(from)) {
			idle, from, most = c, c.from, n
		}
		c.mu.Unlock()
	}
	all.mu.Unlock()
	switch {
	case unused != nil:
		unused.end("max_connections is reached, and it was never used")
	case idle != nil:
		idle.end("max_connections is reached, it is idle, and nobody has more")
	}
	return unused != nil || idle != nil
}

// othersShare says how many connections an account may have: this many times what it leaves free, and one more such
// part. So one account leaves an eighth of max_connections to others, and two leave a fifteenth, whatever they do.
const othersShare = 7

// admit lets an account make a call on a connection, nil for one that is not listed. With more connections than its
// share the account loses one that is idle for longest; if all are in use, the call is refused.
func (all *connections) admit(c *conn, by account) error {
	if c == nil {
		return nil
	}
	all.mu.Lock()
	if !all.open[c] || c.account == by {
		all.mu.Unlock()
		return nil
	}
	all.use(c, -1)
	before := c.account
	c.account = by
	all.use(c, 1)
	total := 0
	for _, n := range all.used {
		total += n
	}
	n := all.used[by]
	if n <= othersShare*(all.most-total+1) {
		all.mu.Unlock()
		return nil
	}
	var idle *conn
	var from time.Time
	for other := range all.open {
		if other == c || other.account != by {
			continue
		}
		other.mu.Lock()
		if other.calls == 0 && (idle == nil || other.from.Before(from)) {
			idle, from = other, other.from
		}
		other.mu.Unlock()
	}
	if idle == nil {
		all.use(c, -1)
		c.account = before
		all.use(c, 1)
	}
	all.mu.Unlock()
	if idle == nil {
		return fmt.Errorf("connections: %s has %d of %d (max_connections) with calls in progress, and others have a "+
			"share of the rest: end some calls, make more of them on one connection, or raise max_connections: %w", by,
			n-1, all.most, rollout.ErrFull)
	}
	idle.end("its caller has its share of max_connections, and it is idle")
	return nil
}

// use adds n to the connections of the account that uses one. The mutex is held.
func (all *connections) use(c *conn, n int) {
	if c.account == (account{}) {
		return
	}
	if all.used[c.account] += n; all.used[c.account] == 0 {
		delete(all.used, c.account)
	}
}

func (all *connections) add(raw net.Conn) *conn {
	c := &conn{Conn: raw, all: all, since: all.now(), tables: make(map[string]int), ended: make(chan struct{})}
	c.end = func(why string) {
		n := all.closed.Add(1)
		level := slog.LevelDebug
		if now, last := all.now().Unix(), all.warned.Load(); now-last >= 60 && all.warned.CompareAndSwap(last, now) {
			level = slog.LevelWarn // once a minute, or an attack fills the log
		}
		all.log.Log(context.Background(), level, "closing a connection: "+why, "peer", c.peer, "closed so far", n)
		if err := c.Close(); err != nil {
			all.log.Debug("closing a connection", "peer", c.peer, "error", err)
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.next++
	c.peer = raw.RemoteAddr().String()
	c.network = hosts.Network(c.peer)
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
	peer, network  string
	since          time.Time
	received, sent atomic.Uint64
	ended          chan struct{}
	end            func(why string) // closes it
	account        account          // that made the last call; zero: none was made. Guarded by the mutex of all

	mu     sync.Mutex     // guards what follows
	calls  int            // in progress
	gone   bool           // it was closed
	begun  int            // calls that the client began
	served int            // calls that reached the service: fewer, if gRPC answered some itself
	tables map[string]int // calls in progress, by table

	untaken   int64     // bytes that no call has taken
	from      time.Time // when the first of them came, some were last taken, or its turn ended
	waits     bool      // for memory, to read on
	receiving int       // calls that wait for a message
	cut       bool      // a call failed, perhaps in the middle of a message, while others were in progress

	slow   *time.Timer // runs checkSender; nil before the handshake
	stuck  bool        // at the last check: all calls waited for messages, one of which had come in part
	before uint64      // bytes received then
}

// Read counts what it reads.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(uint64(n))
	return n, err
}

// handshake makes the connections of gRPC, after their handshakes, count what was not taken.
type handshake struct {
	credentials.TransportCredentials
}

// ServerHandshake does the handshake. A connection that did not come through [Service.Listener] counts nothing.
func (h handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := h.TransportCredentials.ServerHandshake(raw)
	if of, ok := raw.(*conn); ok && err == nil {
		of.mu.Lock()
		of.slow = time.AfterFunc(of.all.sendTimeout, of.checkSender)
		of.mu.Unlock()
		c = &countedConn{Conn: c, of: of, frames: clientFrames{skip: prefaceBytes}}
	}
	return c, info, err
}

// Clone returns a copy.
func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone()}
}

// countedConn is a connection as gRPC sees it, without TLS.
type countedConn struct {
	net.Conn
	of     *conn
	frames clientFrames
}

// clientFrames counts the frames of HTTP/2 that matter here in the bytes of a client, in whatever pieces they come (RFC
// 9113, section 4.1): the payload of DATA, all that gRPC keeps until a call takes it, and HEADERS, each of which begins
// a call.
type clientFrames struct {
	skip   int // bytes before the next header: the preface, a frame's payload
	header [9]byte
	have   int // bytes of header
}

const (
	prefaceBytes = 24
	dataFrame    = 0
	headersFrame = 1
	prefixBytes  = 5 // before a gRPC message, in its frames
)

// count returns the bytes of DATA and the number of HEADERS of the frames whose own headers end in b.
func (f *clientFrames) count(b []byte) (data int64, begun int) {
	for {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		n = copy(f.header[f.have:], b)
		f.have += n
		if f.have < len(f.header) {
			return data, begun
		}
		b = b[n:]
		f.have = 0
		f.skip = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		switch f.header[3] {
		case dataFrame:
			data += int64(f.skip)
		case headersFrame:
			begun++
		}
	}
}

// Read waits while too much has come over all connections.
func (c *countedConn) Read(b []byte) (int, error) {
	c.of.awaitMemory()
	n, err := c.Conn.Read(b)
	if data, begun := c.frames.count(b[:n]); !c.of.add(data, begun) {
		c.of.end("it sends more than a message of max_message_bytes for each call")
	}
	return n, err
}

// add counts bytes that came. It reports whether the connection may have them: what its flow-control window lets
// through, and a message for each call. What comes for calls that have all ended is not kept by gRPC.
func (c *conn) add(bytes int64, begun int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun += begun
	if c.gone || c.begun <= c.served && c.calls == 0 {
		return true
	}
	if c.untaken == 0 {
		c.from = c.all.now()
	}
	c.change(bytes)
	return c.untaken <= connWindow+int64(c.calls)*c.all.maxMessage
}

// take takes bytes off, all if no call is left. The mutex is held.
func (c *conn) take(bytes int64) {
	bytes = min(bytes, c.untaken)
	if c.calls == 0 {
		bytes, c.cut = c.untaken, false
	}
	c.change(-bytes)
	c.from = c.all.now()
	c.all.promoted.CompareAndSwap(c, nil)
	c.all.freed.notify()
}

// change changes what was not taken. The mutex is held.
func (c *conn) change(bytes int64) {
	before := c.untaken
	c.untaken += bytes
	c.all.received.Add(bytes)
	switch {
	case before == 0 && c.untaken > 0:
		c.all.holding.Add(1)
	case before > 0 && c.untaken == 0:
		c.all.holding.Add(-1)
	}
}

// promoteEvery is how often the connection is chosen that may go on while others wait for memory. Its message may be
// late for maxLate of these intervals: the client's machine, or this one, may be busy.
const (
	promoteEvery = time.Second
	maxLate      = 3
)

// awaitMemory waits while what came over all connections is above its limit, and what came over this one above an equal
// share. One connection always goes on, so that one message after another gets through: it may take what is received
// above the limit, and above twice the limit it is closed.
func (c *conn) awaitMemory() {
	var choose <-chan time.Time
	for {
		changed := c.all.freed.watch()
		if c.all.received.Load() <= c.all.limit || c.heldBytes() < c.all.share() || c.all.promoted.Load() == c {
			return
		}
		if choose == nil {
			ticker := time.NewTicker(promoteEvery)
			defer ticker.Stop()
			choose = ticker.C
			c.wait(true)
			defer c.wait(false)
		}
		if c.all.promoted.Load() == nil {
			c.all.promote()
			continue
		}
		select {
		case <-changed:
		case <-c.ended:
			return
		case <-choose:
			c.all.promote()
		}
	}
}

func (c *conn) wait(waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = waits
}

func (c *conn) heldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untaken
}

// share returns an equal part of the limit for all connections on which something has come.
func (all *connections) share() int64 { return all.limit / max(all.holding.Load(), 1) }

// promote chooses, of the connections that wait, the one whose message has been on the way for longest. It stays chosen
// until its message is taken or [conn.endTurn] ends its turn.
func (all *connections) promote() {
	all.mu.Lock()
	defer all.freed.notify()
	defer all.mu.Unlock()
	if before := all.promoted.Load(); before != nil {
		if all.now().Sub(all.chosen) < promoteEvery {
			return
		}
		came := before.received.Load()
		if !before.endTurn(came - all.cameThen) {
			all.chosen, all.cameThen = all.now(), came
			return
		}
	}
	var oldest *conn
	var from time.Time
	for c := range all.open {
		c.mu.Lock()
		if c.waits && (oldest == nil || c.from.Before(from)) {
			oldest, from = c, c.from
		}
		c.mu.Unlock()
	}
	if oldest != nil {
		all.chosen, all.cameThen, all.lateFor = all.now(), oldest.received.Load(), 0
		all.promoted.Store(oldest)
	}
}

// endTurn ends the turn of a promoted connection, unless the bytes that came since it was last asked are an eighth of
// what it holds, at least minSendBytes: so 256 MiB come within about a minute. A connection whose message is late keeps
// its turn, and so the memory of the others as it is, maxLate times, and is closed the next time. One that is not to
// blame is closed if those that only lost their turn filled the memory twice. The mutex of all is held.
func (c *conn) endTurn(came uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if came >= max(minSendBytes, uint64(c.untaken)/8) {
		return false
	}
	late := c.calls > 0 && c.late()
	if late && c.all.lateFor < maxLate {
		c.all.lateFor++
		return false
	}
	if late || c.calls > 0 && c.all.received.Load() > 2*c.all.limit {
		go c.end("the memory for messages is full, and its message does not come") // it takes the mutex
	}
	c.take(0)
	return true
}

// late reports whether only the client keeps a message from being taken: all calls wait for messages, and one came in
// part. The mutex is held.
func (c *conn) late() bool { return c.untaken > 0 && c.receiving == c.calls && !c.cut }

// checkSender closes the connection if all its calls wait for messages, one of them has come in part, and less than
// minSendBytes came in a send timeout. It runs once in each.
func (c *conn) checkSender() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone { // the timer fired while it was being closed
		return
	}
	if c.calls == 0 && c.untaken > 0 { // gRPC answered malformed calls itself, and keeps nothing of them
		c.take(0)
		c.served = c.begun
	}
	came := c.received.Load()
	stuck := c.late()
	if stuck && c.stuck && came-c.before < minSendBytes {
		go c.end("it sends a message at less than 64 KiB in a send_timeout") // it takes the mutex
		return
	}
	c.stuck, c.before = stuck, came
	c.slow.Reset(c.all.sendTimeout)
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
		c.all.use(c, -1)
		close(c.ended)
	}
	c.all.mu.Unlock()
	c.mu.Lock()
	if c.slow != nil {
		c.slow.Stop()
	}
	c.gone = true
	c.change(-c.untaken)
	c.all.promoted.CompareAndSwap(c, nil)
	c.mu.Unlock()
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

// countCall counts a call and the messages that it takes. The calls of a connection that did not come through
// [Service.Listener] are not counted.
func (s *Service) countCall(
	server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	c := connOf(stream.Context())
	if c == nil {
		return next(server, stream)
	}
	c.mu.Lock()
	c.calls++
	c.served++
	c.mu.Unlock()
	err := next(server, takingStream{stream, c})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.cut = c.cut || err != nil
	c.take(0)
	return err
}

// takingStream is a stream whose messages count as taken once they are received.
type takingStream struct {
	grpc.ServerStream
	conn *conn
}

// RecvMsg receives a message.
func (t takingStream) RecvMsg(m any) error {
	c := t.conn
	c.mu.Lock()
	c.receiving++
	c.mu.Unlock()
	err := t.ServerStream.RecvMsg(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiving--
	if err != nil {
		return err
	}
	bytes := prefixBytes
	switch m := m.(type) {
	case interface{ WireSize() int }:
		bytes += m.WireSize()
	case proto.Message:
		bytes += proto.Size(m)
	}
	c.take(int64(bytes))
	return nil
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

// unknownMethod answers calls of methods that Flight does not have. Without it gRPC answers them before the
// interceptors, which count calls.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "%s: unknown method: want one of Arrow Flight, %s", method,
		flightgen.FlightService_ServiceDesc.ServiceName)
}

// addTable adds n to the calls in progress that use a table.
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

// view is called with the mutex of all held.
func (c *conn) view() Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Connection{
		Peer: c.peer, Caller: c.account.name, Since: c.since, Streams: c.calls, Tables: slices.Sorted(maps.Keys(c.tables)),
		ReceivedBytes: c.received.Load(), SentBytes: c.sent.Load(),
	}
}

package service

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// connections is who is connected, through [Service.Listener].
type connections struct {
	now func() time.Time

	mu   sync.Mutex // guards what follows
	open map[*conn]bool
	next uint64 // numbers unix sockets, whose peers have no address
}

func newConnections(now func() time.Time) *connections {
	return &connections{now: now, open: make(map[*conn]bool)}
}

// listener gives connections that are watched.
type listener struct {
	net.Listener
	all *connections
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.all.add(raw), nil
}

func (all *connections) add(raw net.Conn) *conn {
	c := &conn{Conn: raw, all: all, since: all.now(), tables: make(map[string]int)}
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

// list returns the connections, the oldest first.
func (all *connections) list() []Connection {
	all.mu.Lock()
	list := make([]Connection, 0, len(all.open))
	for c := range all.open {
		list = append(list, c.view())
	}
	all.mu.Unlock()
	slices.SortFunc(list, func(a, b Connection) int { return a.Since.Compare(b.Since) })
	return list
}

// conn counts what passes, so that a reader that takes nothing is told from a slow one, and can be closed.
type conn struct {
	net.Conn
	all            *connections
	peer           string
	since          time.Time
	received, sent atomic.Uint64

	mu     sync.Mutex // guards what follows
	caller string
	calls  int
	tables map[string]int // calls under way, by table
}

// Read counts what it reads.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(uint64(n))
	return n, err
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
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// RemoteAddr is the peer's address, which leads back to the connection.
func (c *conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c} }

// address is an address of a connection of ours: what a call's context knows of it.
type address struct {
	net.Addr
	conn *conn
}

// connOf returns the connection that a call came on, nil if it did not come through [Service.Listener].
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, ok := p.Addr.(address)
	if !ok {
		return nil
	}
	return a.conn
}

// begin counts a call by a caller; end takes it back. A nil connection counts nothing.
func (c *conn) begin(caller string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.caller = caller
}

func (c *conn) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
}

// about notes which table a call under way is about, by 1, and that it is not any more, by -1.
func (c *conn) about(table string, by int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables[table] += by; c.tables[table] == 0 {
		delete(c.tables, table)
	}
}

func (c *conn) view() Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Connection{
		Peer: c.peer, Caller: c.caller, Since: c.since, Streams: c.calls,
		ReceivedBytes: c.received.Load(), SentBytes: c.sent.Load(),
	}
	for t := range c.tables {
		v.Tables = append(v.Tables, t)
	}
	slices.Sort(v.Tables)
	return v
}

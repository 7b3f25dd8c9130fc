package service

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/wire"
)

// call is one method being served.
type call struct {
	service *Service
	conn    *conn
	tables  []string
}

// begin starts a call; end, deferred, turns its error into what grpc sends, and counts it.
func (s *Service) begin(ctx context.Context, method string) *call {
	c := &call{service: s, conn: connOf(ctx)}
	caller := ""
	if s.options.Caller != nil {
		caller = s.options.Caller(ctx)
	}
	c.conn.begin(caller)
	s.tally.call(method)
	return c
}

// about notes a table that the call is about.
func (c *call) about(table string) {
	c.conn.about(table, 1)
	c.tables = append(c.tables, table)
}

func (c *call) end(err *error) {
	for _, t := range c.tables {
		c.conn.about(t, -1)
	}
	c.conn.end()
	if *err != nil {
		*err = c.service.clear(*err)
		c.service.tally.failed(*err)
		*err = sent(*err)
	}
}

// clear gives an error of grpc about the size of a message a code of ours.
func (s *Service) clear(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.ResourceExhausted {
		return wire.Errorf(wire.TooLarge, "%s: want at most max_message_bytes, %d, in one message", st.Message(), s.options.MaxMessageBytes)
	}
	return err
}

// sent is an error as grpc sends it. What grpc itself said stays as it is.
func sent(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return wire.ToGRPC(err)
}

// tally counts calls by method and errors by code.
type tally struct {
	mu     sync.Mutex
	calls  map[string]uint64
	errors map[wire.Code]uint64
}

func (t *tally) call(method string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = make(map[string]uint64)
	}
	t.calls[method]++
}

// failed counts an error; callers that left are none.
func (t *tally) failed(err error) {
	if isGone(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.errors == nil {
		t.errors = make(map[wire.Code]uint64)
	}
	t.errors[wire.CodeOf(err)]++
}

func (t *tally) view() (calls map[string]uint64, errors []ErrorCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls = make(map[string]uint64, len(t.calls))
	for m, n := range t.calls {
		calls[m] = n
	}
	for c, n := range t.errors {
		errors = append(errors, ErrorCount{c, n})
	}
	slices.SortFunc(errors, func(a, b ErrorCount) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return calls, errors
}

// work is the operations under way: what a stop waits for. A stream that waits for its caller is none.
type work struct {
	mu      sync.Mutex
	stopped bool
	n       int
	done    chan struct{} // closed when stopped and none is left
}

// begin starts an operation, unless the service is stopping.
func (w *work) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return closing()
	}
	w.n++
	return nil
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.stopped && w.n == 0 {
		close(w.done)
	}
}

// stop lets no operation begin any more; the channel is closed once none is left. It returns how many there are.
func (w *work) stop() (left int, done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.done = make(chan struct{})
	if w.n == 0 {
		close(w.done)
	}
	return w.n, w.done
}

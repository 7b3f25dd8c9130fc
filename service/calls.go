package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/rollout/option"
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

// account is who shares memory and connections with others: callers of one name, or those without one at an address
// (package hosts has which are one).
type account struct{ name, network string }

func accountOf(caller, peer string) account {
	if caller != "" {
		return account{name: caller}
	}
	return account{network: hosts.Network(peer)}
}

// accountOf returns the account of a call's caller.
func (s *Service) accountOf(ctx context.Context) account {
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	return accountOf(s.callerOf(ctx), address)
}

func (a account) String() string {
	if a.name != "" {
		return strconv.Quote(a.name)
	}
	return a.network
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

// Bounds of a request.
const (
	maxRequestBytes  = 64 << 20 // a million priorities fit
	maxRequestValues = 4 << 20  // counted by commas: lists of {} take many times the memory of their text

	maxStreamRequestBytes = 1 << 20 // a ticket or app_metadata: 50,000 batches to settle fit
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
	size := int64(len(text))
	return s.admit(ctx, "", size, size+valueBytes*int64(bytes.Count(text, []byte{','})))
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
		return jsonError(place, text, err, into)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return wire.Errorf(wire.Invalid, "%s: more than one JSON value: want one object", place)
	}
	return nil
}

// jsonError describes what a request that was not decoded has wrong, all of it.
func jsonError[T any](place string, text []byte, err error, into *T) error {
	fields := fieldNames(reflect.TypeFor[T]())
	var broken *json.SyntaxError
	if errors.As(err, &broken) {
		return wire.Errorf(wire.Invalid, "%s: no JSON at byte %d (%s): want an object with the fields %s", place,
			broken.Offset, err, fields)
	}
	var p option.Problems
	if p.Add(settings.Reader{}.JSON(text, into)); p.Err() != nil && errors.As(p.Err(), new(*option.Error)) {
		return wire.Errorf(wire.Invalid, "%s: %s", place, p.Line())
	}
	return wire.Errorf(wire.Invalid, "%s: %s: want an object with the fields %s", place, err, fields)
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

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout"
)

// Bounds of answers, in bytes.
const (
	maxAnswer = 256 << 20 // any
	maxOther  = 16 << 20  // without completions
	maxError  = 64 << 10  // with an error's status
	maxToken  = 4 << 10   // a token, of the prompt too, in the most verbose form
	maxMasked = 256 << 10 // with the ids that it could have been drawn from
)

// Bounds of an answer's values.
const (
	tokenValues = 32        // for each token, in the most verbose form
	otherValues = 128 << 10 // beside tokens
	idBytes     = 16        // bytes for each value of an answer with lists of ids, at least
)

// generation is the body of a request for completions.
type generation interface {
	// tokens is how many tokens the answer may have, those of the prompt included, and whether each has a sampling mask.
	tokens() (n int, masked bool)
}

// bounded reads an answer, no further than its request can need. The decoder holds one string at a time, in a buffer of
// up to four times its length: a quarter of maxBytes may come without a quote that ends one. A value of two bytes can
// take 160 while its list grows: they are counted by commas.
type bounded struct {
	io.Reader
	maxBytes, maxValues int64
	bytes, values       int64
	unquoted            int64 // bytes since the last quote
	escaped             bool  // the last byte was a backslash, so that a quote ends nothing
	err                 error // why it ended early
}

// errTooLong is the error of an answer that is larger than its request can need.
var errTooLong = errors.New("ask for fewer or shorter completions")

// newBounded returns the reader of the answer to a request.
func newBounded(answer io.Reader, request any) *bounded {
	g, ok := request.(generation)
	if !ok {
		return &bounded{Reader: answer, maxBytes: maxOther, maxValues: maxOther / idBytes}
	}
	n, masked := g.tokens()
	token := int64(maxToken)
	if masked {
		token = maxMasked
	}
	most := min(maxOther+min(int64(n), maxAnswer/token)*token, maxAnswer)
	values := otherValues + tokenValues*int64(n)
	if masked {
		values = most / idBytes
	}
	return &bounded{Reader: answer, maxBytes: most, maxValues: min(values, most)}
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if p = p[:n]; n > 0 {
		b.bytes += int64(n)
		b.values += int64(bytes.Count(p, []byte(",")))
		i := bytes.LastIndexByte(p, '"')
		for i > 0 && p[i-1] == '\\' || i == 0 && b.escaped {
			i = bytes.LastIndexByte(p[:i], '"')
		}
		if b.escaped = p[n-1] == '\\'; i >= 0 {
			b.unquoted = 0
		}
		b.unquoted += int64(n - 1 - i)
	}
	if b.bytes > b.maxBytes || b.values > b.maxValues || b.unquoted > b.maxBytes/4 {
		n, err = 0, fmt.Errorf("the answer has more than %d bytes, %d of them in one string, or %d values: %w",
			b.maxBytes, b.maxBytes/4, b.maxValues, errTooLong)
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// server is what all dialects share: calls with JSON over HTTP.
type server struct {
	options Options
	client  *http.Client
	observe func(method, path string, body, result any) // called with each call, by tests; nil: not
}

func newServer(o Options) *server {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1024 // requests in flight; each has a connection
	transport.Proxy = nil
	return &server{options: o, client: &http.Client{Transport: transport,
		// Prompts and the token go to the address that was given, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (s *server) String() string { return string(s.options.Dialect) + "+" + s.options.Address }

func (s *server) vocabulary() int { return s.options.Vocabulary }

// post sends a body as JSON, unless it is nil, and decodes the answer into result, unless that is nil.
func (s *server) post(ctx context.Context, path string, body, result any) error {
	return s.call(ctx, http.MethodPost, path, body, result)
}

func (s *server) get(ctx context.Context, path string, result any) error {
	return s.call(ctx, http.MethodGet, path, nil, result)
}

func (s *server) call(ctx context.Context, method, path string, body, result any) error {
	if s.observe != nil {
		s.observe(method, path, body, result)
	}
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s%s: %w", s, path, err)
		}
	}
	request, err := s.request(ctx, method, path, sent)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s%s: %w: %w", s, path, errLost, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return s.refused(path, answer)
	}
	in := newBounded(answer.Body, body)
	if result == nil {
		_, err = io.Copy(io.Discard, in)
	} else { // value by value, so that the text itself is never in memory
		err = jsonv2.UnmarshalRead(in, result, json.DefaultOptionsV1())
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(in.err, errTooLong):
		return fmt.Errorf("%s%s: %w", s, path, in.err)
	case in.err != nil: // it ended in the middle
		return fmt.Errorf("%s%s: %w: reading the answer: %w", s, path, errLost, in.err)
	case err != nil:
		return fmt.Errorf("%s%s: the answer is not what %s gives: %w: is another server there?", s, path,
			s.options.Dialect, err)
	}
	return nil
}

// request returns a request with a body of JSON.
func (s *server) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.options.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", s, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if s.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.options.Token)
	}
	return request, nil
}

// errLost is the error of a server that cannot be reached, or whose answer ended in the middle: it may have ended.
var errLost = fmt.Errorf("%w: no connection", ErrUnavailable)

// Refused reports whether an error is a server's refusal of the request itself, which would be refused again.
func Refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status/100 == 4 && status.status != http.StatusTooManyRequests
}

// statusError is an answer with an error's status.
type statusError struct {
	status int
	said   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, http.StatusText(e.status), e.said)
}

// Is reports that a call may be repeated when the server was busy, paused or starting.
func (e *statusError) Is(target error) bool {
	return target == ErrUnavailable && (e.status == http.StatusServiceUnavailable ||
		e.status == http.StatusTooManyRequests || e.status == http.StatusBadGateway ||
		e.status == http.StatusGatewayTimeout)
}

// refused returns the error of an answer. Servers put its text in several places.
func (s *server) refused(path string, answer *http.Response) error {
	if to := answer.Header.Get("Location"); to != "" && answer.StatusCode/100 == 3 {
		return fmt.Errorf("%s%s: %w", s, path, &statusError{answer.StatusCode,
			fmt.Sprintf("it redirects to %.200q, which is not followed: give that address", to)})
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxError)) // what came of it says more than that it broke off
	said := strings.TrimSpace(string(text))
	var inside struct {
		Error   json.RawMessage
		Message string
		Detail  json.RawMessage
	}
	if json.Unmarshal(text, &inside) == nil {
		var nested struct{ Message string }
		switch {
		case json.Unmarshal(inside.Error, &nested) == nil && nested.Message != "":
			said = nested.Message
		case len(inside.Error) > 0:
			said = string(inside.Error)
		case inside.Message != "":
			said = inside.Message
		case len(inside.Detail) > 0:
			said = string(inside.Detail)
		}
	}
	const most = 500
	if len(said) > most {
		said = said[:most] + "…"
	}
	return fmt.Errorf("%s%s: %w", s, path, &statusError{answer.StatusCode, words.Printable(said)})
}

// lacks reports whether a server does not have what was asked for.
func lacks(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.status == http.StatusNotFound ||
		status.status == http.StatusMethodNotAllowed || status.status == http.StatusNotImplemented)
}

// ownVersion is the version of a server that does not know it: that of the latest Load. Requests and loads exclude one
// another, so that a request has one version.
type ownVersion struct {
	reload  func(context.Context, Weights) error
	initial rollout.Version
	mu      sync.RWMutex
	now     rollout.Version
	loads   int
}

func newOwnVersion(o Options) *ownVersion {
	return &ownVersion{reload: o.Reload, initial: o.Initial, now: o.Initial}
}

// each generates the completions of a request while the version stays what it is.
func (v *ownVersion) each(
	ctx context.Context, r Request, one func(context.Context, Request) (Completion, error),
) ([]Completion, error) {
	v.mu.RLock()
	loads := v.loads
	list, err := each(ctx, r, one)
	for i := range list {
		list[i].Versions = slices.Repeat([]rollout.Version{v.now}, len(list[i].Tokens))
	}
	v.mu.RUnlock()
	if errors.Is(err, errLost) {
		v.mu.Lock()
		if v.loads == loads { // it may come back with the weights that it started with
			v.now = v.initial
		}
		v.mu.Unlock()
	}
	return list, err
}

// each generates the completions of a request at the same time, each by a request of its own with a seed of its own.
func each(
	ctx context.Context, r Request, one func(context.Context, Request) (Completion, error),
) ([]Completion, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	list := make([]Completion, r.N)
	all, ctx := errgroup.WithContext(ctx)
	for i := range list {
		single := r
		single.N = 1
		if r.Seed != 0 {
			single.Seed += int64(i)
		}
		all.Go(func() (err error) {
			list[i], err = one(ctx, single)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return list, nil
}

func (v *ownVersion) version() rollout.Version {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.now
}

func (v *ownVersion) load(ctx context.Context, w Weights) error {
	if v.reload == nil {
		return errors.New("this server cannot load weights over HTTP: want a command that does (--reload)")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.reload(ctx, w); err != nil {
		return err
	}
	v.now = w.Version
	v.loads++
	return nil
}

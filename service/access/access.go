// Package access decides who may do what with the tables of a service, and where a service may listen.
//
// A [Policy] is made from a file of tokens. A caller shows one as "authorization: Bearer TOKEN", or as the password of
// HTTP's basic authentication. Each token has a name, and globs of the tables that it may read and write:
//
//	tokens:
//	  - name: trainer
//	    token_sha256: <64 digits>              # printf %s "$TOKEN" | sha256sum
//	    read: ["*"]
//	    write: ["math-*"]
//	  - name: generators
//	    token_file: /run/secrets/generators   # relative paths begin at this file's folder
//	    write: ["math-*"]
//	  - name: dashboard
//	    certificate: grafana                   # the common name of a client certificate stands for the token
//	    read: ["*"]
//
// To read is to sample, list, export and see statistics; to write is to insert, advance, rewind, update priorities,
// create, drop, save and restore tables, and to start groups. Neither implies the other. An entry with a certificate
// and a token needs both.
//
// [Policy.Stream] authenticates Flight calls, [Policy.HTTP] pages. [Policy.Authorize] checks the rights
// of the authenticated caller by the tokens of that moment: a token that was taken out of the file ends with the next
// request on the streams opened with it. [Certificates] holds the service's TLS certificate. Both notice within a
// second that their files have changed, and keep what they had if the new files are invalid.
//
// [Listen] is the only way to a socket: beyond loopback it needs TLS and tokens (invariant 10). [ListenUnix] makes unix
// sockets that only their owner can open.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/wire"
)

// Options configure a policy.
type Options struct {
	Tokens string           // path of the tokens file; "": everybody may do everything
	Clock  func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: nothing is logged
}

// Policy authenticates callers and authorizes what they do. It is safe for concurrent use; a nil policy allows
// everything.
type Policy struct {
	tokens   *reloaded[grants] // nil: none are needed
	failures *failures
}

// NewPolicy reads the tokens file.
func NewPolicy(o Options) (*Policy, error) {
	if o.Tokens == "" {
		return &Policy{}, nil
	}
	r := &reloaded[grants]{name: "tokens", now: o.Clock, log: o.Logger}
	r.load = func(read func(string) ([]byte, error)) (*grants, error) { return readTokens(o.Tokens, read) }
	if err := r.start(); err != nil {
		return nil, err
	}
	for _, w := range r.value.Load().warnings {
		r.log.Warn(w)
	}
	return &Policy{tokens: r, failures: &failures{now: r.now, log: r.log}}, nil
}

// NeedsTokens reports whether callers must show a token.
func (p *Policy) NeedsTokens() bool { return p != nil && p.tokens != nil }

// Reload reads the tokens file now; on an error the tokens stay what they were.
func (p *Policy) Reload() error {
	if !p.NeedsTokens() {
		return nil
	}
	return p.tokens.reload()
}

// Tokens returns the number of tokens.
func (p *Policy) Tokens() int {
	if !p.NeedsTokens() {
		return 0
	}
	return len(p.tokens.get().entries)
}

// Caller is whoever made a call.
type Caller struct {
	Name string // of the token; "" if the policy needs none

	shown identity
}

// identity is what a caller shows.
type identity struct {
	token       digest // of the token
	hasToken    bool
	certificate string // common name of the verified client certificate, if there is one
}

type callerKey struct{}

// From returns the caller of a context, false if none was authenticated.
func From(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Authorize returns an error with code wire.Unauthenticated or wire.Denied unless the caller of a context may read a
// table, write to it, or give rewards in it.
func (p *Policy) Authorize(ctx context.Context, table string, right wire.Right) error {
	if !p.NeedsTokens() {
		return nil
	}
	c, ok := From(ctx)
	if !ok {
		return wire.Errorf(wire.Unauthenticated, "the call carries no caller: the policy's interceptors must run first")
	}
	entry, err := p.tokens.get().find(c.shown)
	if err != nil {
		return err
	}
	globs := map[wire.Right][]string{wire.ToRead: entry.Read, wire.ToWrite: entry.Write,
		wire.ToLabel: slices.Concat(entry.Label, entry.Write)}[right]
	if matches(globs, table) {
		return nil
	}
	return wire.Errorf(wire.Denied,
		"table %q: token %q may not %s it: its %s globs are %q, add one that matches to the tokens file",
		table, entry.Name, right, right, globs)
}

// ReadsEverything reports whether the caller of a context may read every table, by the glob "*". It may see the names
// of all tables and callers.
func (p *Policy) ReadsEverything(ctx context.Context) bool {
	if !p.NeedsTokens() {
		return true
	}
	c, ok := From(ctx)
	if !ok {
		return false
	}
	entry, err := p.tokens.get().find(c.shown)
	return err == nil && slices.Contains(entry.Read, "*")
}

// handshake is the Flight method by which clients such as pyarrow's authenticate_basic_token trade a password for a
// token.
const handshake = "/arrow.flight.protocol.FlightService/Handshake"

// Stream authenticates streams when they begin; the service has no other calls. It answers a Handshake itself, with the
// token that came as the password.
func (p *Policy) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, token, err := p.authenticateCall(stream.Context())
		if err != nil {
			return wire.ToGRPC(err)
		}
		if info.FullMethod == handshake && token != "" {
			return stream.SetHeader(metadata.Pairs("authorization", "Bearer "+token))
		}
		return next(server, &authenticatedStream{stream, ctx})
	}
}

// authenticatedStream is a stream whose context holds its caller.
type authenticatedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *authenticatedStream) Context() context.Context { return s.ctx }

// authenticateCall authenticates the caller of a gRPC call. It also returns the token.
func (p *Policy) authenticateCall(ctx context.Context) (context.Context, string, error) {
	certificate, address := "", ""
	if from, ok := peer.FromContext(ctx); ok {
		address = from.Addr.String()
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			certificate = info.State.VerifiedChains[0][0].Subject.CommonName
		}
	}
	return p.authenticate(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"), certificate, address)
}

// HTTP passes authenticated requests on to a handler and answers the others with 401, which asks for a name and a
// password. The password is the token; the name is ignored.
func (p *Policy) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := p.Authenticate(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="reprise: the password is a token", charset="UTF-8"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Authenticate returns a context that holds the caller of a request. An error comes late if several wrong tokens came
// from the same address.
func (p *Policy) Authenticate(r *http.Request) (context.Context, error) {
	certificate := ""
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		certificate = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	ctx, _, err := p.authenticate(r.Context(), r.Header.Values("Authorization"), certificate, r.RemoteAddr)
	return ctx, err
}

// authenticate returns a context that holds the caller, and the token, given the authorization headers, the common name
// of a verified certificate and the peer's address. A wrong token is counted and slowed; a request without one, with
// which browsers begin, is not.
func (p *Policy) authenticate(
	ctx context.Context, headers []string, certificate, address string,
) (context.Context, string, error) {
	caller := Caller{Name: certificate, shown: identity{certificate: certificate}}
	token, err := tokenOf(headers)
	if p.NeedsTokens() {
		if err == nil {
			caller.Name, err = p.identify(&caller.shown, token)
		}
		if err != nil && caller.shown.hasToken {
			err = p.failures.slow(ctx, hosts.Network(address), err)
		}
		if err != nil {
			return nil, "", err
		}
	}
	return context.WithValue(ctx, callerKey{}, caller), token, nil
}

// identify adds a token to what a caller shows, and returns the name of the entry that it matches.
func (p *Policy) identify(shown *identity, token string) (string, error) {
	if token != "" {
		shown.token, shown.hasToken = sha256.Sum256([]byte(token)), true
	}
	entry, err := p.tokens.get().find(*shown)
	if err != nil {
		return "", err
	}
	return entry.Name, nil
}

// tokenOf returns the token of an authorization header: what follows Bearer, or the password of Basic; "" without a
// header.
func tokenOf(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	if len(headers) > 1 {
		return "", wire.Errorf(wire.Unauthenticated, "authorization: %d headers: want one", len(headers))
	}
	scheme, value, _ := strings.Cut(strings.TrimSpace(headers[0]), " ")
	value = strings.TrimSpace(value)
	switch {
	case strings.EqualFold(scheme, "bearer") && value != "":
		return value, nil
	case strings.EqualFold(scheme, "basic"):
		pair, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			pair, err = base64.RawStdEncoding.DecodeString(value)
		}
		if _, password, ok := strings.Cut(string(pair), ":"); err == nil && ok && password != "" {
			return password, nil
		}
		return "", wire.Errorf(wire.Unauthenticated, "authorization: Basic: want base64 of USER:TOKEN")
	}
	return "", wire.Errorf(wire.Unauthenticated,
		"authorization: want \"Bearer TOKEN\", or Basic with the token as the password")
}

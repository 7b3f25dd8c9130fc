package access

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/reprise-rl/reprise/wire"
)

// handshake is the Flight method by which clients trade a password for a token: ours is both.
const handshake = "/arrow.flight.protocol.FlightService/Handshake"

// Unary authenticates calls with one request and one answer.
func (p *Policy) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, _, err := p.admit(ctx)
		if err != nil {
			return nil, wire.ToGRPC(err)
		}
		return next(ctx, request)
	}
}

// Stream authenticates streams when they begin. A Handshake is answered here: with the token that came as a password, for
// clients such as pyarrow's authenticate_basic_token.
func (p *Policy) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, token, err := p.admit(stream.Context())
		if err != nil {
			return wire.ToGRPC(err)
		}
		if info.FullMethod == handshake && token != "" {
			return stream.SetHeader(metadata.Pairs("authorization", "Bearer "+token))
		}
		return next(server, &admitted{stream, ctx})
	}
}

// admitted is a stream whose context knows its caller.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *admitted) Context() context.Context { return a.ctx }

// admit finds out who calls. It returns the token that was shown too.
func (p *Policy) admit(ctx context.Context) (context.Context, string, error) {
	lines := metadata.ValueFromIncomingContext(ctx, "authorization")
	certificate := ""
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			certificate = info.State.VerifiedChains[0][0].Subject.CommonName
		}
	}
	return p.recognise(ctx, lines, certificate)
}

// recognise returns a context that knows its caller, given the lines of the header authorization and the common name of a
// verified certificate.
func (p *Policy) recognise(ctx context.Context, lines []string, certificate string) (context.Context, string, error) {
	shown := identity{certificate: certificate}
	token, err := tokenOf(lines)
	if !p.Asks() {
		return with(ctx, Caller{Name: certificate, shown: shown}), token, nil
	}
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		shown.token, shown.hasToken = sha256.Sum256([]byte(token)), true
	}
	entry, err := p.tokens.get().find(shown)
	if err != nil {
		return nil, "", err
	}
	return with(ctx, Caller{Name: entry.Name, shown: shown}), token, nil
}

// tokenOf returns the token of a header authorization: what follows Bearer, or the password of Basic; empty without a header.
func tokenOf(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		return "", wire.Errorf(wire.Unauthenticated, "authorization: %d headers: want one", len(lines))
	}
	scheme, value, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
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
	return "", wire.Errorf(wire.Unauthenticated, "authorization: want \"Bearer TOKEN\", or Basic with the token as its password")
}

package access

import (
	"context"

	"github.com/reprise-rl/reprise/wire"
)

// Caller is whoever made a call.
type Caller struct {
	Name string // of the token; empty where the policy asks for none

	shown identity
}

// identity is what a caller has shown of itself.
type identity struct {
	token       digest // of the token
	hasToken    bool
	certificate string // common name of the verified client certificate, if there was one
}

type callerKey struct{}

// From returns who makes the call of a context, false if none was authenticated.
func From(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

func with(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Authorize tells whether the caller of a context may write to a table, or read from it. The error has the code
// unauthenticated or denied. A policy without tokens, and a nil one, allow everything.
func (p *Policy) Authorize(ctx context.Context, table string, write bool) error {
	if p == nil || p.tokens == nil {
		return nil
	}
	c, ok := From(ctx)
	if !ok {
		return wire.Errorf(wire.Unauthenticated, "the call carries no caller: the policy's interceptors have to see it first")
	}
	entry, err := p.tokens.get().find(c.shown)
	if err != nil {
		return err
	}
	right, globs := "read", entry.Read
	if write {
		right, globs = "write", entry.Write
	}
	if matches(globs, table) {
		return nil
	}
	return wire.Errorf(wire.Denied, "table %q: token %q may not %s it: its %s globs are %q, add one that matches to the tokens file", table, entry.Name, right, right, globs)
}

// MayRead is Authorize for those who only want to know.
func (p *Policy) MayRead(ctx context.Context, table string) bool {
	return p.Authorize(ctx, table, false) == nil
}

package access

import (
	"log/slog"
	"time"
)

// Options say where a policy comes from.
type Options struct {
	Tokens string           // path of the tokens file; empty: everything is allowed to everyone
	Clock  func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: nothing is logged
}

// Policy tells who calls, and what they may do. It is safe for concurrent use; a nil policy allows everything.
type Policy struct {
	tokens *reloaded[grants] // nil: none are asked for
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
	return &Policy{tokens: r}, nil
}

// Asks reports whether callers must show a token.
func (p *Policy) Asks() bool { return p != nil && p.tokens != nil }

// Reload reads the tokens file now; on an error the tokens stay what they were.
func (p *Policy) Reload() error {
	if !p.Asks() {
		return nil
	}
	return p.tokens.reload()
}

// Tokens returns how many tokens the policy knows.
func (p *Policy) Tokens() int {
	if !p.Asks() {
		return 0
	}
	return len(p.tokens.get().entries)
}

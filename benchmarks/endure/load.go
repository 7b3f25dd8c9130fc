package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// place is one table of the load, with everybody's notes on it.
type place struct {
	wire.Table
	ledger
	load *load
}

// load is what producers and trainers have in common.
type load struct {
	address  string // of the proxy
	seed     uint64
	pace     time.Duration // longest pause between two calls of one client
	longest  int           // tokens of a rollout
	verdict  *Verdict
	inserts  latency
	samples  latency
	sessions tally
	answers  tally // errors that are part of the game, by code
}

// errAgain ends a session: the next begins with a new connection.
var errAgain = errors.New("session is over")

// sessions has somebody work in sessions, each with a connection of its own, until the context ends.
func (l *load) run(ctx context.Context, who string, work func(context.Context, *client.Client) error) {
	for ctx.Err() == nil {
		err := l.session(ctx, work)
		l.sessions.add(who)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errAgain) {
			l.complain(who, err)
		}
	}
}

func (l *load) session(ctx context.Context, work func(context.Context, *client.Client) error) error {
	c, err := client.Dial(ctx, l.address, client.Options{Patience: -1, CallTimeout: 20 * time.Second})
	if errors.Is(err, client.ErrUnreachable) {
		l.answers.add("unreachable")
		return errAgain
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c)
}

// complain tells errors that are part of the game from those that must not be.
func (l *load) complain(who string, err error) {
	for code, is := range map[string]error{
		"full": rollout.ErrFull, "starved": rollout.ErrStarved, "ahead": rollout.ErrAhead, "no lease": rollout.ErrNoLease,
	} {
		if errors.Is(err, is) {
			l.answers.add(code)
			return
		}
	}
	l.answers.add("unexpected")
	l.verdict.violate("%s got an error that nobody should: %v", who, err)
}

// pause waits a moment.
func (l *load) pause(ctx context.Context, random *rand.Rand) {
	if l.pace > 0 {
		wait(ctx, time.Duration(random.Int64N(int64(l.pace))))
	}
}

// wait waits, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// inspect checks what a batch brought.
func (p *place) inspect(b *rollout.Batch) {
	p.received(len(b.Draws))
	p.heard(int32(b.Version))
	for _, d := range b.Draws {
		if _, err := check(d.Rollout, p.load.longest); err != nil {
			p.load.verdict.violate("table %s: %v", p.Name, err)
		}
		if err := p.lawful(d, b.Version); err != nil {
			p.load.verdict.violate("table %s: draw of %d: %v", p.Name, d.ID, err)
		}
	}
}

// lawful tells whether a draw respects the table's bounds (invariants 1, 3 and 4).
func (p *place) lawful(d rollout.Draw, v rollout.Version) error {
	switch {
	case d.Staleness < 0 || p.MaxStaleness > 0 && int(d.Staleness) > p.MaxStaleness:
		return fmt.Errorf("staleness is %d of at most %d", d.Staleness, p.MaxStaleness)
	case d.Rollout.Version() > v:
		return fmt.Errorf("version %d is ahead of the table's %d", d.Rollout.Version(), v)
	case d.Uses < 0 || p.MaxUses > 0 && int(d.Uses) >= p.MaxUses:
		return fmt.Errorf("it had %d uses of at most %d", d.Uses, p.MaxUses)
	case !(d.Probability > 0 && d.Probability <= 1) || !(d.Weight >= 0):
		return fmt.Errorf("probability is %v, weight %v", d.Probability, d.Weight)
	}
	return nil
}

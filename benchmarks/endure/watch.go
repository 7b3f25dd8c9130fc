package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/wire"
)

// stall is how long a table may stand still, in inserted and drawn rollouts, while everybody works on it.
const stall = 60 * time.Second

// progress is how far a table had come, and when.
type progress struct {
	inserted, drawn uint64
	moved           time.Time // last time that both had grown
}

// watch measures the service until the context ends, prints lines, and looks at the books, which balance at all times.
func (k *soaker) watch(ctx context.Context) error {
	began := time.Now()
	far := make([]progress, len(k.places))
	for i := range far {
		far[i].moved = began
	}
	often := time.NewTicker(max(min(k.For/120, k.Every), 100*time.Millisecond))
	defer often.Stop()
	printed := began
	for {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-k.server.ended:
			k.verdict.violate("the service ended by itself (%v): %s", k.server.err, k.server.said())
			return errJudged
		case <-often.C:
		}
		r, err := k.server.read(ctx)
		if err == nil {
			r.after = time.Since(began)
			k.readings = append(k.readings, r)
			err = k.look(ctx, far)
		}
		if err != nil && ctx.Err() == nil && k.server.alive() {
			k.verdict.violate("after %s: %v", time.Since(began).Round(time.Second), err)
		}
		if time.Since(printed) >= k.Every {
			printed = time.Now()
			k.line(r)
		}
	}
}

// look asks every table for its books.
func (k *soaker) look(ctx context.Context, far []progress) error {
	for i, p := range k.places {
		s, err := k.direct.Table(p.Name).Statistics(ctx)
		if err != nil {
			return fmt.Errorf("statistics: %w", err)
		}
		if err := balance(s); err != nil {
			k.verdict.violate("table %s: the books do not balance: %v", p.Name, err)
		}
		if s.Present > p.Capacity {
			k.verdict.violate("table %s holds %d rollouts of at most %d", p.Name, s.Present, p.Capacity)
		}
		far[i].step(p, s, k.verdict)
	}
	return nil
}

// step notes how far a table has come; standing still for too long is a violation.
func (f *progress) step(p *place, s *wire.TableStatistics, v *Verdict) {
	now := time.Now()
	if s.Inserted > f.inserted && s.Drawn > f.drawn {
		f.inserted, f.drawn, f.moved = s.Inserted, s.Drawn, now
	}
	if now.Sub(f.moved) > stall {
		v.violate("table %s stood still for %s: inserted %d (before: %d), drawn %d (before: %d), present %d", p.Name, stall, s.Inserted, f.inserted, s.Drawn, f.drawn, s.Present)
		f.moved = now
	}
}

// line prints where everything stands.
func (k *soaker) line(r reading) {
	var rows, drawn uint64
	for _, p := range k.places {
		_, in, _, out := p.totals()
		rows, drawn = rows+in, drawn+out
	}
	fmt.Fprintf(k.out, "%6s  inserted %d, received %d; memory %s (live heap %s), %.0f goroutines, files %s; %d connections cut; insert %s; sample %s\n",
		r.after.Round(time.Second), rows, drawn, mega(r.anonymous), mega(r.live), r.goroutines, mega(r.files), k.proxy.cut.Load(), &k.load.inserts, &k.load.samples)
}

// calm waits until the service has no goroutine that it has not when nobody calls, and returns the last reading: the fewest
// goroutines of a second, again and again.
func (k *soaker) calm(ctx context.Context) (reading, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		fewest, err := k.server.read(ctx)
		for range 10 {
			wait(ctx, 100*time.Millisecond)
			var r reading
			if r, err = k.server.read(ctx); err == nil && r.goroutines < fewest.goroutines {
				fewest = r
			}
		}
		if err != nil {
			return fewest, err
		}
		if k.idle.goroutines == 0 || fewest.goroutines <= k.idle.goroutines || time.Now().After(deadline) {
			return fewest, nil
		}
	}
}

package journal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/service/journal/segments"
)

// Scrub reads the log while the journal works, at a number of bytes per second on average, and checks every message and
// whether they fit together. [Journal.Stats] has what it found, and when it ended. The error is of a scrub that did not
// end: of the context, or of a log that cannot be read. A log that others hold is theirs to check.
func (j *Journal) Scrub(ctx context.Context, bytesPerSecond int64) error {
	if j.files == nil {
		return nil
	}
	found, err := j.scrub(ctx, bytesPerSecond)
	if err != nil {
		return fmt.Errorf("scrubbing the journal %s: %w", j.options.Path, err)
	}
	j.counters.verified(found)
	if len(found) > 0 {
		j.options.Logger.Error("the journal is damaged: a restart would refuse it; save the table in a checkpoint and "+
			"restore that, which writes the journal anew", "path", j.options.Path, "damages", len(found), "first",
			found[0].String())
	}
	return nil
}

func (j *Journal) scrub(ctx context.Context, bytesPerSecond int64) (found []Damage, err error) {
	var f *fold
	add := func(d segments.Damage) error {
		if len(found) < maxDamages {
			found = append(found, f.locate(d))
		}
		f.gap()
		return nil
	}
	begin := func() {
		f = newFold(false)
		f.damaged = func(position uint64, err error) { _ = add(segments.Damage{Position: position, What: err.Error()}) }
	}
	s := j.files.NewScrub(begin, func(list []Message) error { return f.add(list) }, add)
	for last := false; !last; {
		if j.isClosing() {
			_, _ = s.End() // it was only read
			return nil, ErrClosed
		}
		began := time.Now()
		read, end, err := s.Next()
		if err != nil {
			return nil, err
		}
		last = end
		j.counters.damaged(found)
		pause := time.Duration(float64(read)/float64(bytesPerSecond)*float64(time.Second)) - time.Since(began)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			_, _ = s.End() // it was only read
			return nil, ctx.Err()
		}
	}
	front, err := s.End()
	found = slices.DeleteFunc(found, func(d Damage) bool { return d.Position != 0 && d.Position < front })
	if problems := f.finish(); len(found) == 0 {
		for _, what := range problems {
			_ = add(segments.Damage{What: what})
		}
	}
	return found, err
}

// damaged sets the damage that is known: of the last scrub, and of the one under way.
func (c *counters) damaged(found []Damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(found) > 0 {
		c.stats.Damage = slices.Clone(found)
	}
}

// verified sets the damage of a log that was read through.
func (c *counters) verified(found []Damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Damage, c.stats.Verified = found, time.Now()
}

package journal

import (
	"context"
	"fmt"
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
	if found = j.report(found, true); len(found) > 0 {
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
		f, found = newFold(false), nil // what was found is trimmed
		f.damaged = func(position uint64, err error) { _ = add(segments.Damage{Position: position, What: err.Error()}) }
	}
	s := j.files.NewScrub(begin, func(list []Message) error { return f.add(list) }, add)
	for last := false; !last; {
		if j.isClosing() {
			_ = s.End() // it was only read
			return nil, ErrClosed
		}
		began := time.Now()
		read, end, err := s.Next()
		if err != nil {
			return nil, err
		}
		last = end
		j.report(found, false)
		pause := time.Duration(float64(read)/float64(bytesPerSecond)*float64(time.Second)) - time.Since(began)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			_ = s.End() // it was only read
			return nil, ctx.Err()
		}
	}
	err = s.End()
	if problems := f.finish(); len(found) == 0 { // otherwise they are of what was found
		for _, what := range problems {
			_ = add(segments.Damage{What: what})
		}
	}
	return found, err
}

// report sets the damage that a scrub has found, when it has ended or found some, and returns what of it still counts.
// A rewrite removes what the scrub has read before it says that nothing is damaged, and report looks at both under one
// lock: otherwise damage that is gone could come back.
func (j *Journal) report(found []Damage, ended bool) []Damage {
	c := &j.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	found = j.inLog(found)
	if ended || len(found) > 0 {
		c.stats.Damage = found
	}
	if ended {
		c.stats.Verified = time.Now()
	}
	return found
}

// inLog returns the damage of what was not trimmed.
func (j *Journal) inLog(found []Damage) (list []Damage) {
	front := j.files.Front()
	for _, d := range found {
		if d.Position == 0 || d.Position >= front {
			list = append(list, d)
		}
	}
	return list
}

// verified says that the log has no damage.
func (c *counters) verified() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Damage, c.stats.Verified = nil, time.Now()
}

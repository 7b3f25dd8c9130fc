package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Scrub reads the log while the journal works, at a number of bytes per second on average, and checks every message and
// whether they fit together. [Journal.Stats] has what it found, and when it ended. The error is of a scrub that did not
// end: of the context, or of a log that cannot be read. A log that others hold is theirs to check.
func (j *Journal) Scrub(ctx context.Context, bytesPerSecond int64) error {
	if j.files == nil {
		return nil
	}
	s := newScrub(j)
	for more := true; more; {
		began := time.Now()
		read, last, err := s.segment()
		if err != nil {
			return fmt.Errorf("scrubbing the journal %s: %w", j.options.Path, err)
		}
		j.counters.damaged(s.found)
		more = !last
		pause := time.Duration(float64(read)/float64(bytesPerSecond)*float64(time.Second)) - time.Since(began)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.finish()
	j.counters.verified(s.found)
	if len(s.found) > 0 {
		j.options.Logger.Error("the journal is damaged: a restart would refuse it; save the table in a checkpoint and "+
			"restore that, which writes the journal anew", "path", j.options.Path, "damages", len(s.found), "first",
			s.found[0].String())
	}
	return nil
}

// scrub is a scrub under way.
type scrub struct {
	*walk
	journal *Journal
	fold    *fold
	after   uint64 // number of the last segment that was read
	count   int    // of segments
	memory  []byte
	found   []Damage
}

func newScrub(j *Journal) *scrub {
	s := &scrub{journal: j}
	_, front := j.files.view()
	s.begin(front)
	return s
}

// begin begins at a front. All that the log has by now was written: what is missing is damage.
func (s *scrub) begin(front uint64) {
	s.fold = newFold(false)
	s.fold.damaged = func(position uint64, err error) { s.add(Damage{Position: position, What: err.Error()}) }
	s.walk = newWalk(front, math.MaxUint64, s.fold.add, func(d Damage) error {
		s.add(d)
		s.fold.gap()
		return nil
	})
}

func (s *scrub) add(d Damage) {
	if len(s.found) < maxDamages {
		s.found = append(s.found, s.fold.locate(d))
	}
}

// segment reads the next segment as far as it is written, and reports whether it is the last.
func (s *scrub) segment() (read int64, last bool, err error) {
	j := s.journal
	j.mu.Lock()
	closing := j.closing
	j.mu.Unlock()
	segments, front := j.files.view()
	i := slices.IndexFunc(segments, func(g segment) bool { return g.number > s.after })
	if closing || i < 0 {
		return 0, true, ErrClosed
	}
	if front > s.end.next && i == 0 { // what comes next has been trimmed: from here on the log is whole by itself
		s.begin(front)
	}
	g := segments[i]
	c, err := j.files.read(g.number, g.bytes, s.memory)
	switch {
	case errors.Is(err, os.ErrNotExist) && !j.files.has(g.number): // trimmed just now
		return 0, false, nil
	case errors.Is(err, os.ErrNotExist):
		s.unread(c, 0, "it is gone")
		err = nil
	case err == nil:
		s.memory = c.content
		err = s.walk.segment(s.count, c)
		if short := g.bytes - int64(len(c.content)); short > 0 {
			s.unread(c, int64(len(c.content)), fmt.Sprintf("%d bytes are gone", short))
		}
	}
	s.after, s.count = g.number, s.count+1
	return int64(len(c.content)), i == len(segments)-1, err
}

// finish checks what was read, and forgets damage of what the log has been trimmed of meanwhile.
func (s *scrub) finish() {
	if s.hole != nil {
		_ = s.gap(nil) // damaged gives no error
	}
	_, front := s.journal.files.view()
	s.found = slices.DeleteFunc(s.found, func(d Damage) bool { return d.Position != 0 && d.Position < front })
	if problems := s.fold.finish(); len(s.found) == 0 {
		for _, what := range problems {
			s.add(Damage{What: what})
		}
	}
}

// view returns the segments as they are now, and the front.
func (l *segmentLog) view() ([]segment, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.segments), l.front
}

func (l *segmentLog) has(number uint64) bool {
	segments, _ := l.view()
	return slices.ContainsFunc(segments, func(s segment) bool { return s.number == number })
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

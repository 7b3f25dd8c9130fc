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
		read, last, err := s.next()
		if err != nil {
			s.close()
			return fmt.Errorf("scrubbing the journal %s: %w", j.options.Path, err)
		}
		j.counters.damaged(s.found)
		more = !last
		pause := time.Duration(float64(read)/float64(bytesPerSecond)*float64(time.Second)) - time.Since(began)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			s.close()
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
	after   uint64         // number of the last segment that was read
	count   int            // of those
	reader  *segmentReader // of the segment that is read now; nil: none is
	number  uint64         // of that
	size    int64          // that it had
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
	s.fold, s.count = newFold(false), 0
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

// next reads the next block, as far as the log is written, and reports whether it is the last.
func (s *scrub) next() (read int, last bool, err error) {
	j := s.journal
	if j.isClosing() {
		return 0, true, ErrClosed
	}
	segments, front := j.files.view()
	i := slices.IndexFunc(segments, func(g segment) bool { return g.number > s.after })
	if s.reader == nil {
		if i < 0 {
			return 0, true, nil
		}
		if front > s.end.next && i == 0 { // what comes next has been trimmed: from here on the log is whole by itself
			s.begin(front)
		}
		if err := s.open(segments[i]); err != nil || s.reader == nil {
			return 0, i == len(segments)-1, err
		}
	}
	b := s.reader.next(s.memory)
	b.segment = s.count
	if s.memory, err = b.memory, b.err; err == nil {
		err = s.walk.block(b)
	}
	if b.last {
		if s.size > b.size {
			s.unread(b, b.size, fmt.Sprintf("%d bytes are gone", s.size-b.size))
		}
		s.after, s.count, s.reader = s.number, s.count+1, nil
		last = s.number == segments[len(segments)-1].number
	}
	return len(b.memory), last, err
}

// open opens a segment, unless it was trimmed just now.
func (s *scrub) open(g segment) (err error) {
	s.reader, err = s.journal.files.reader(g.number, g.bytes)
	s.number, s.size = g.number, g.bytes
	if errors.Is(err, os.ErrNotExist) {
		if s.journal.files.has(g.number) {
			s.unread(&block{name: s.journal.files.name(g.number)}, 0, "it is gone")
			s.after = g.number
		}
		return nil
	}
	return err
}

func (s *scrub) close() {
	if s.reader != nil {
		_ = s.reader.file.Close() // it was only read
	}
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

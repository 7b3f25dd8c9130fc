package segments

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// Scrub reads a log through while it is appended to and trimmed.
type Scrub struct {
	*walk
	log    *Log
	begin  func()
	after  uint64  // number of the last segment that was read
	count  int     // of those
	reader *reader // of the segment that is read now; nil: none is
	now    segment // that
	memory []byte
}

// NewScrub begins a scrub. It calls begin before the first message that it yields, and again when what comes next was
// trimmed meanwhile: the scrub then goes on at the new front, from where the log is whole by itself. It calls damaged
// for whatever is missing.
func (l *Log) NewScrub(begin func(), yield func([]Message) error, damaged func(Damage) error) *Scrub {
	_, front := l.view()
	begin()
	// All that the log has by now was written: what is missing is damage.
	return &Scrub{walk: newWalk(front, math.MaxUint64, yield, damaged), log: l, begin: begin}
}

// Next reads on as far as the log is written, some megabytes. It reports how many bytes, and whether this was the end.
func (s *Scrub) Next() (read int, last bool, err error) {
	segments, front := s.log.view()
	newest := segments[len(segments)-1].number
	if s.reader != nil {
		// It may have grown, and have all of its messages once there is a newer one.
		if i := slices.IndexFunc(segments, s.isNow); i >= 0 {
			s.now = segments[i]
			if err = s.reader.resize(s.now.bytes); err != nil {
				return 0, false, err
			}
		}
	} else {
		i := slices.IndexFunc(segments, func(g segment) bool { return g.number > s.after })
		if i < 0 {
			return 0, true, nil
		}
		if i == 0 && front > s.end.next {
			s.walk, s.count = newWalk(front, math.MaxUint64, s.yield, s.damaged), 0
			s.begin()
		}
		s.now = segments[i]
		s.reader, err = s.log.begin(s.now, s.now.bytes)
		if errors.Is(err, os.ErrNotExist) { // unless it was trimmed just now
			if !s.trimmed() {
				s.unread(&block{name: s.log.name(s.now)}, 0, false, "it is gone")
				s.after = s.now.number
			}
			return 0, s.after == newest, nil
		}
		if err != nil {
			return 0, false, err
		}
	}
	b := s.reader.next(s.memory)
	b.segment, s.memory = s.count, b.memory
	trimmed := s.trimmed() // its file may be another segment's by now
	if trimmed && !b.last {
		b.err = errors.Join(b.err, s.reader.file.Close())
	}
	if b.last || trimmed {
		s.after, s.count, s.reader = s.now.number, s.count+1, nil
	}
	if b.err != nil {
		return 0, false, b.err
	}
	if trimmed {
		return len(b.memory), false, nil
	}
	err = s.block(b)
	if b.last && s.now.bytes > b.size {
		s.unread(b, b.size, false, fmt.Sprintf("%d bytes are gone", s.now.bytes-b.size))
	}
	return len(b.memory), b.last && s.after == newest, err
}

func (s *Scrub) isNow(g segment) bool { return g.number == s.now.number }

// trimmed reports whether the segment that is read now is not of the log any more.
func (s *Scrub) trimmed() bool {
	segments, _ := s.log.view()
	return !slices.ContainsFunc(segments, s.isNow)
}

// End ends the scrub, before its end or after it.
func (s *Scrub) End() error {
	if s.reader != nil {
		return s.reader.file.Close()
	}
	if s.hole != nil {
		return s.gap(nil)
	}
	return nil
}

// Front returns the position before which nothing is needed.
func (l *Log) Front() uint64 {
	_, front := l.view()
	return front
}

// view returns the segments as they are now, and the front.
func (l *Log) view() ([]segment, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.segments), l.front
}

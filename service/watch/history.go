package watch

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/service"
)

// The history of a table is at full resolution for lineSpan, and by minutes before, for a day. All tables share a
// number of points, about 170 bytes each: where there are many tables, the history of each is shorter.
const (
	daySpan   = 24 * time.Hour
	coarse    = time.Minute
	maxRecent = 60_000 // points of all tables within lineSpan
	maxCoarse = 20_000 // points of all tables before
)

// point is the counters of a table at one moment.
type point struct {
	at                  time.Time
	inserted, sampled   uint64 // rollouts
	tokensIn, tokensOut uint64
	bytesIn, bytesOut   uint64 // payload in, packed batches out
	present             uint64 // rollouts in the table
	version             uint64
	starts              uint64 // allowed by the gate
	timedOut            uint64 // samples
	full                uint64 // insertions that timed out

	insertsWait, samplesWait, startsWait bool

	// how long callers had waited in all, for an insertion, a sample and a start
	insertsWaited, samplesWaited, startsWaited time.Duration

	// for how long callers have waited while nothing of that kind was done, up to this moment
	// or, of starts, while trainers draw nothing and publish nothing either
	blocked, starved, held time.Duration
}

// next returns the point of a table after another one of it, if there is one.
func next(last *point, at time.Time, v *service.TableView) point {
	c := &v.Counters
	p := point{
		at: at, inserted: c.InsertedRows, sampled: c.SampledRows,
		tokensIn: c.InsertedTokens, tokensOut: c.SampledTokens, bytesIn: c.InsertedBytes, bytesOut: c.SampledBytes,
		present: uint64(v.Stats.Present), version: uint64(max(0, v.Stats.Version)), timedOut: c.Starved, full: c.Full,
		insertsWait: v.InsertsWaiting > 0, samplesWait: v.SamplesWaiting > 0, startsWait: v.StartsWaiting > 0,
	}
	if v.Gate != nil {
		p.starts = uint64(max(0, v.Gate.Started))
	}
	if last == nil {
		return p
	}
	took := at.Sub(last.at)
	add := func(before time.Duration, waits bool) time.Duration {
		if waits {
			return before + took
		}
		return before
	}
	p.insertsWaited = add(last.insertsWaited, p.insertsWait)
	p.samplesWaited = add(last.samplesWaited, p.samplesWait)
	p.startsWaited = add(last.startsWaited, p.startsWait)
	stalls := func(before time.Duration, waits, did bool) time.Duration {
		if !waits || did {
			return 0
		}
		return before + took
	}
	// a caller whose wait timed out comes again
	p.blocked = stalls(last.blocked, p.insertsWait || p.full > last.full, p.inserted != last.inserted)
	p.starved = stalls(last.starved, p.samplesWait || p.timedOut > last.timedOut, p.sampled != last.sampled)
	p.held = stalls(last.held, p.startsWait,
		p.starts != last.starts || p.version != last.version || p.sampled != last.sampled)
	return p
}

// history holds the points of every table. It is safe for concurrent use.
type history struct {
	limit int // points of a table within lineSpan

	mu     sync.Mutex
	tables map[string]*series
}

// series is the points of one table, oldest first.
type series struct {
	created time.Time // of the table; a new table of the same name starts a new series
	before  []point   // by minutes
	points  []point
}

// record adds an observation and drops the tables that are gone.
func (h *history) record(o *service.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tables := make(map[string]*series, len(o.Tables))
	few := max(1, len(o.Tables))
	limit, before := min(h.limit, maxRecent/few), min(int(daySpan/coarse), maxCoarse/few)
	for i := range o.Tables {
		v := &o.Tables[i]
		s := h.tables[v.Name]
		if s == nil || !s.created.Equal(v.Created) {
			s = &series{created: v.Created}
		}
		if last := s.last(); last == nil || last.at.Before(o.At) {
			s.points = append(s.points, next(last, o.At, v))
			s.thin(limit, before)
		}
		tables[v.Name] = s
	}
	h.tables = tables
}

// last returns the latest point, nil if there is none.
func (s *series) last() *point {
	if n := len(s.points); n > 0 {
		return &s.points[n-1]
	}
	return nil
}

// thin keeps at most so many points, and so many by minutes before. The counters only grow, so that rates between the
// points that stay are exact.
func (s *series) thin(limit, before int) {
	for len(s.points) > max(limit, 1) {
		oldest := s.points[0]
		s.points = append(s.points[:0], s.points[1:]...)
		if n := len(s.before); n == 0 || oldest.at.Sub(s.before[n-1].at) >= coarse {
			s.before = append(s.before, oldest)
		}
	}
	now := s.points[len(s.points)-1].at
	drop := max(0, len(s.before)-before)
	for drop < len(s.before) && now.Sub(s.before[drop].at) > daySpan {
		drop++
	}
	if drop > 0 {
		s.before = append(s.before[:0], s.before[drop:]...)
	}
}

// past is what is known of a table: its points of lineSpan, the last of which is now, and by minutes before.
type past struct {
	points []point
	before []point
}

// of returns a copy of what is known of a table, with the point of the current observation at the end.
func (h *history) of(at time.Time, v *service.TableView) (p past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var last *point
	if s := h.tables[v.Name]; s != nil && s.created.Equal(v.Created) {
		p = past{slices.Clone(s.points), slices.Clone(s.before)}
		last = s.last()
	}
	if last == nil || last.at.Before(at) {
		p.points = append(p.points, next(last, at, v))
	}
	return p
}

// now is the latest point.
func (p past) now() point { return p.points[len(p.points)-1] }

// over returns the points of the last window, at least a hundredth and a half of it apart, and the one before them.
func (p past) over(window time.Duration) (list []point) {
	all := slices.Concat(p.before, p.points)
	now := p.now().at
	for i, at := range all {
		later := i+1 < len(all) && now.Sub(all[i+1].at) >= window
		if n := len(list); !later && (n == 0 || at.at.Sub(list[n-1].at) >= window/150 || i == len(all)-1) {
			list = append(list, at)
		}
	}
	return list
}

// since returns for how long a condition has held of every two points after one another, up to now, as far as is known.
func (p past) since(holds func(before, after point) bool) time.Duration {
	all := slices.Concat(p.before, p.points)
	i := len(all) - 1
	for i > 0 && holds(all[i-1], all[i]) {
		i--
	}
	return p.now().at.Sub(all[i].at)
}

// rate is an increase per second at a moment.
type rate struct {
	at    time.Time
	value float64
}

// rates returns the increases per second between points.
func rates(points []point, of func(point) uint64) []rate {
	var list []rate
	for i := 1; i < len(points); i++ {
		took := points[i].at.Sub(points[i-1].at).Seconds()
		before, after := of(points[i-1]), of(points[i])
		if took > 0 && after >= before {
			list = append(list, rate{points[i].at, float64(after-before) / took})
		}
	}
	return list
}

// current returns the increase per second over the last window, 0 if there is only one point.
func current(points []point, window time.Duration, of func(point) uint64) float64 {
	if len(points) < 2 {
		return 0
	}
	last := points[len(points)-1]
	first := points[len(points)-2]
	for i := len(points) - 2; i >= 0 && last.at.Sub(points[i].at) <= window; i-- {
		first = points[i]
	}
	took := last.at.Sub(first.at).Seconds()
	if took <= 0 || of(last) < of(first) {
		return 0
	}
	return float64(of(last)-of(first)) / took
}

// latest returns the points of the last window.
func latest(points []point, window time.Duration) []point {
	if len(points) == 0 {
		return nil
	}
	last := points[len(points)-1].at
	for len(points) > 1 && last.Sub(points[0].at) > window {
		points = points[1:]
	}
	return points
}

// mostly reports whether a condition holds at more than half of the points.
func mostly(points []point, holds func(point) bool) bool {
	n := 0
	for _, p := range points {
		if holds(p) {
			n++
		}
	}
	return 2*n > len(points)
}

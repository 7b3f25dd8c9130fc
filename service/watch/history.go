package watch

import (
	"sync"
	"time"

	"github.com/reprise-rl/reprise/service"
)

// point is the counters of a table at one moment.
type point struct {
	at                  time.Time
	inserted, sampled   uint64 // rollouts
	tokensIn, tokensOut uint64
	bytesIn, bytesOut   uint64 // payload in, packed batches out

	insertsWait, samplesWait, startsWait bool
}

func pointOf(at time.Time, v *service.TableView) point {
	c := &v.Counters
	return point{
		at: at, inserted: c.InsertedRows, sampled: c.SampledRows,
		tokensIn: c.InsertedTokens, tokensOut: c.SampledTokens, bytesIn: c.InsertedBytes, bytesOut: c.SampledBytes,
		insertsWait: v.InsertsWaiting > 0, samplesWait: v.SamplesWaiting > 0, startsWait: v.StartsWaiting > 0,
	}
}

// history holds the latest points of every table. It is safe for concurrent use.
type history struct {
	limit int // points of a table

	mu     sync.Mutex
	tables map[string]*series
}

// series is the points of one table, oldest first.
type series struct {
	created time.Time // of the table; a new table of the same name starts a new series
	points  []point
}

// record adds an observation and drops the tables that are gone.
func (h *history) record(o *service.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tables := make(map[string]*series, len(o.Tables))
	for i := range o.Tables {
		v := &o.Tables[i]
		s := h.tables[v.Name]
		if s == nil || !s.created.Equal(v.Created) {
			s = &series{created: v.Created}
		}
		if n := len(s.points); n == 0 || s.points[n-1].at.Before(o.At) {
			if n == h.limit {
				s.points = append(s.points[:0], s.points[1:]...)
			}
			s.points = append(s.points, pointOf(o.At, v))
		}
		tables[v.Name] = s
	}
	h.tables = tables
}

// of returns a copy of a table's points, with the point of the current observation at the end.
func (h *history) of(at time.Time, v *service.TableView) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	var points []point
	if s := h.tables[v.Name]; s != nil && s.created.Equal(v.Created) {
		points = append(points, s.points...)
	}
	if n := len(points); n == 0 || points[n-1].at.Before(at) {
		points = append(points, pointOf(at, v))
	}
	return points
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

package cluster

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leaseTime is how long a node may answer for its tables after a renewal.
	leaseTime = 3 * time.Second
	// evictTime is how long a node must be seen not to renew before another evicts it.
	evictTime = leaseTime + time.Second
	// pingTime is how long a node that cannot change the state is thought to be up after a ping of it.
	pingTime = 2 * time.Second
)

// lease says until when this node may answer for its tables. It may be used concurrently.
type lease struct {
	began time.Time
	until atomic.Int64 // in nanoseconds since began
	date  atomic.Int64 // and by the calendar, as the other clock stands still while a virtual machine is suspended
}

// reading is what the clocks of this machine show.
type reading struct {
	since int64 // nanoseconds since a lease began; nobody sets this clock
	date  int64 // nanoseconds since 1970, by a clock that may be set
}

func (l *lease) read(t time.Time) reading { return reading{int64(t.Sub(l.began)), t.UnixNano()} }

// extend renews the lease as of when the renewal was begun.
func (l *lease) extend(started time.Time) { l.extendFrom(l.read(started)) }

func (l *lease) extendFrom(started reading) {
	l.date.Store(started.date + int64(leaseTime))
	l.until.Store(started.since + int64(leaseTime))
}

// end ends the lease at once.
func (l *lease) end() { l.until.Store(0) }

// valid reports whether the lease runs. A date that is set forward ends it, until it is renewed; one that is set back
// makes it no longer, but hides a suspension of the machine until then.
func (l *lease) valid() bool { return l.holds(l.read(time.Now())) }

func (l *lease) holds(now reading) bool {
	return now.since < l.until.Load() && now.date < l.date.Load()
}

// peers is what this node knows of the leases of the others.
type peers struct {
	mu    sync.Mutex
	pings map[string]time.Time // the last of each node

	seen map[string]sighting // only for the goroutine that beats
}

// sighting is when a node's lease was first seen as it is.
type sighting struct {
	member member
	since  time.Time
}

func newPeers() *peers {
	return &peers{pings: make(map[string]time.Time), seen: make(map[string]sighting)}
}

// notePing notes that a node has said that it is up.
func (p *peers) notePing(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pings[name] = time.Now()
}

// expired returns the nodes other than self that have not renewed their lease for evictTime. Those that ping are
// given that time again after a pause in which nobody could renew, because the stream of the state had no leader: looked
// is when the state was read before.
func (p *peers) expired(s *state, self string, looked time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	paused := now.Sub(looked) > leaseTime
	for name, m := range s.Nodes {
		seen, known := p.seen[name]
		if !known || seen.member != m || paused && now.Sub(p.pings[name]) < pingTime {
			seen = sighting{m, now}
			p.seen[name] = seen
		}
		if name != self && now.Sub(seen.since) > evictTime {
			names = append(names, name)
		}
	}
	maps.DeleteFunc(p.seen, func(name string, _ sighting) bool { _, up := s.Nodes[name]; return !up })
	return names
}

// forget starts the time of every other node anew.
func (p *peers) forget() { p.seen = make(map[string]sighting) }

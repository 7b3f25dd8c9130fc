package cluster

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A node answers for its tables no longer than its lease, however its date is set. While its machine is suspended only
// the date goes on, and ends the lease too.
func TestALeaseIsNoLongerWhenTheDateIsSet(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 5))
	l := &lease{}
	var now reading
	var renewed int64    // when, by the clock that nobody sets
	var passed int64     // since then, with suspensions
	var set bool         // the date, since then
	var byDate, kept int // how often the date ended it; how often it ran on although the date was set
	now.date = time.Now().UnixNano()
	l.extendFrom(now)
	for step := range 100_000 {
		switch d := random.Int64N(int64(leaseTime / 2)); random.IntN(8) {
		case 0:
			jump := int64(time.Hour)
			if random.IntN(2) == 0 {
				jump = -jump
			}
			now.date += jump
			set = true
		case 1: // suspended
			now.date += d
			passed += d
		case 2, 3:
			l.extendFrom(now)
			renewed, passed, set = now.since, 0, false
		default:
			now.since += d
			now.date += d
			passed += d
		}
		holds := l.holds(now)
		switch {
		case holds && now.since-renewed >= int64(leaseTime):
			t.Fatalf("seed %d, step %d: the lease runs %v after its renewal", seed, step, time.Duration(now.since-renewed))
		case !set && holds != (passed < int64(leaseTime)):
			t.Fatalf("seed %d, step %d: the date was not set, %v have passed, and the lease runs: %v", seed, step,
				time.Duration(passed), holds)
		}
		if !holds && now.since-renewed < int64(leaseTime) {
			byDate++
		}
		if holds && set {
			kept++
		}
	}
	if byDate == 0 || kept == 0 {
		t.Errorf("the date ended the lease %d times, and was set while it ran on %d times: want some of each", byDate, kept)
	}
}

// Nodes are evicted by a clock that nobody sets.
func TestSightingsGoByNoDate(t *testing.T) {
	p, s := newPeers(), state{Nodes: map[string]member{"n1": {}}}
	p.expired(&s, "n0", time.Now())
	p.notePing("n1")
	for what, at := range map[string]time.Time{"a sighting": p.seen["n1"].since, "a ping": p.pings["n1"]} {
		if at == at.Round(0) { // which strips the reading of that clock
			t.Errorf("%s has a date only", what)
		}
	}
}

package access

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// How answers to wrong tokens are slowed. Whoever shows a right one never waits, also from the same address.
const (
	freeFailures = 10 // of an address, answered at once
	firstDelay   = 100 * time.Millisecond
	maxDelay     = 5 * time.Second  // of an answer: it doubles up to here
	forgetAfter  = 10 * time.Minute // without a failure an address begins anew
	logInterval  = time.Minute      // between two lines in the log about one address
)

// The bounds of memory: answers beyond maxWaiting of an address are not held back, and addresses beyond maxPeers are
// counted as one.
const (
	maxWaiting = 8
	maxPeers   = 256
	otherPeers = "other addresses"
)

// failures counts wrong tokens by the address that they came from, slows their answers and logs them. It is safe for
// concurrent use.
type failures struct {
	now func() time.Time
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	peers map[string]*failing
}

// failing is an address that showed wrong tokens.
type failing struct {
	count    int // since the address last had none for forgetAfter
	last     time.Time
	unlogged int
	logged   time.Time // zero: never
	waiting  int       // answers that are held back now
}

// slow counts a wrong token from a peer and returns its error, after a while if the address has shown several, or when
// the context ends.
func (f *failures) slow(ctx context.Context, peer string, wrong error) error {
	p, delay, count := f.add(peer)
	if delay == 0 {
		return wrong
	}
	wrong = fmt.Errorf("%w; %d wrong ones came from %s, and answers to them take up to %v: check the token before "+
		"trying again", wrong, count, peer, maxDelay)
	if p == nil {
		return wrong
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.waiting--
	return wrong
}

// add counts a wrong token. It returns how long its answer must wait and how many came from the address; p, nil if the
// answer need not wait, must be told when it has.
func (f *failures) add(peer string) (p *failing, delay time.Duration, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	peer, p = f.find(peer, now)
	if now.Sub(p.last) > forgetAfter {
		p.count = 0
	}
	p.count++
	p.unlogged++
	p.last = now
	if p.logged.IsZero() || now.Sub(p.logged) >= logInterval {
		f.report(peer, p)
		p.logged = now
	}
	if p.count <= freeFailures {
		return nil, 0, p.count
	}
	delay = min(firstDelay<<min(p.count-freeFailures-1, 10), maxDelay)
	if p.waiting == maxWaiting {
		return nil, delay, p.count
	}
	p.waiting++
	return p, delay, p.count
}

// find returns the record of an address, a new one if it has none. A full table makes room by the address that failed
// longest ago, unless its line in the log is not due yet: then the new one is counted with others.
func (f *failures) find(peer string, now time.Time) (string, *failing) {
	if p := f.peers[peer]; p != nil {
		return peer, p
	}
	if len(f.peers) >= maxPeers {
		oldest := ""
		for name, p := range f.peers {
			if p.waiting == 0 && name != otherPeers && (oldest == "" || p.last.Before(f.peers[oldest].last)) {
				oldest = name
			}
		}
		if p := f.peers[oldest]; p == nil || now.Sub(p.logged) < logInterval {
			peer = otherPeers
			if p := f.peers[peer]; p != nil {
				return peer, p
			}
		} else {
			f.report(oldest, p)
			delete(f.peers, oldest)
		}
	}
	if f.peers == nil {
		f.peers = make(map[string]*failing)
	}
	p := &failing{last: now}
	f.peers[peer] = p
	return peer, p
}

// report logs the wrong tokens of an address that no line told of yet.
func (f *failures) report(peer string, p *failing) {
	if p.unlogged > 0 {
		f.log.Warn("wrong tokens were refused", "from", peer, "count", p.unlogged, "total", p.count)
		p.unlogged = 0
	}
}

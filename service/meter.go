package service

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// meter is what a table's requests have come to in this process.
type meter struct {
	inserts, insertedRows, insertedTokens, insertedBytes, repeated, refused, refusedRows atomic.Uint64
	samples, sampledRows, sampledTokens, sampledBytes, redrawn, lapsed                   atomic.Uint64
	received, starved, full                                                              atomic.Uint64

	insertsWaiting, samplesWaiting, startsWaiting atomic.Int64

	insertTimes, sampleTimes latencies
	recent                   recents
}

func (m *meter) counters() Counters {
	return Counters{
		InsertRequests: m.inserts.Load(), InsertedRows: m.insertedRows.Load(), InsertedTokens: m.insertedTokens.Load(), InsertedBytes: m.insertedBytes.Load(),
		RepeatedInserts: m.repeated.Load(), RefusedInserts: m.refused.Load(), RefusedRows: m.refusedRows.Load(),
		Samples: m.samples.Load(), SampledRows: m.sampledRows.Load(), SampledTokens: m.sampledTokens.Load(), SampledBytes: m.sampledBytes.Load(),
		Redrawn: m.redrawn.Load(), Lapsed: m.lapsed.Load(), ReceivedBytes: m.received.Load(), Starved: m.starved.Load(), Full: m.full.Load(),
	}
}

// latencyClasses is the number of bounds of a Latency: powers of two from 16 microseconds to 134 seconds.
const (
	latencyClasses = 24
	firstLatency   = 16 * time.Microsecond
)

// latencies counts durations. The zero value is ready.
type latencies struct {
	counts [latencyClasses + 1]atomic.Uint64
	nanos  atomic.Int64
}

func (l *latencies) add(d time.Duration) {
	class := 0
	for bound := firstLatency; class < latencyClasses && d > bound; class++ {
		bound *= 2
	}
	l.counts[class].Add(1)
	l.nanos.Add(int64(d))
}

func (l *latencies) view() Latency {
	v := Latency{Seconds: time.Duration(l.nanos.Load()).Seconds()}
	for i := range l.counts {
		n := l.counts[i].Load()
		v.Counts = append(v.Counts, n)
		v.Count += n
		if i < latencyClasses {
			v.Bounds = append(v.Bounds, (firstLatency << i).Seconds())
		}
	}
	return v
}

// Of the latest rollouts with text so many are shown, with so many bytes of their text.
const (
	recentsKept  = 16
	recentsEach  = 2 // of one insertion, so that its siblings do not crowd out all others
	recentsBytes = 2000
)

// recents is the latest rollouts that came with text.
type recents struct {
	mu   sync.Mutex
	ring [recentsKept]Recent
	n    int // ever added
}

func (r *recents) add(id rollout.ID, x *rollout.Rollout, now time.Time) {
	e := Recent{
		ID: id, PromptID: clipped(x.PromptID), Text: clipped(x.Text), Cut: len(x.Text) > recentsBytes,
		Reward: x.Reward, Version: x.Version(), Tokens: len(x.Tokens), Truncated: x.Truncated, At: now,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%recentsKept] = e
	r.n++
}

// clipped is the beginning of a text, whole runes, in memory of its own.
func clipped(text string) string {
	if len(text) <= recentsBytes {
		return string([]byte(text))
	}
	end := recentsBytes
	for end > recentsBytes-4 && text[end]&0xC0 == 0x80 {
		end--
	}
	return string([]byte(text[:end]))
}

// list returns them, the newest first.
func (r *recents) list() []Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Recent
	for i := r.n - 1; i >= max(r.n-recentsKept, 0); i-- {
		list = append(list, r.ring[i%recentsKept])
	}
	return list
}

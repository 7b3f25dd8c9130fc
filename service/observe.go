package service

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// Observation is the state of a service at one moment, for metrics and dashboards. It is a copy.
type Observation struct {
	At          time.Time
	Started     time.Time
	Stopping    bool
	Err         error // a journal that failed, a full disk, or a lapsed lease; nil: the service is healthy
	Tables      []TableView
	Connections []Connection
	Cluster     *wire.ClusterView // nil: none

	MemoryBytes int64             // Options.MemoryBytes
	Memory      []MemoryPart      // its parts for clients
	DiskFull    error             // nil: the disk has space
	DiskFree    int64             // bytes of the data folder's disk; -1: unknown or no folder
	SlowReaders uint64            // connections closed because their reader took nothing
	Panics      uint64            // calls that a fault in the service ended; the log has the stacks
	Cut         uint64            // connections closed because there were too many, or for what they sent
	Errors      []ErrorCount      // calls and requests that failed, in order of codes
	Calls       map[string]uint64 // calls begun, by method: DoPut, DoGet, DoExchange, DoAction, …
}

// MemoryPart is a part of the memory that clients can make the service hold.
type MemoryPart struct {
	Name       string // insertions, received, waiting, outgoing, leases, calls, tables
	Used, Most int64  // bytes
	Refused    uint64 // requests that did not fit; those that waited are not counted
}

// ErrorCount is how often an error with a code was answered.
type ErrorCount struct {
	Code  wire.Code
	Count uint64
}

// TableView is the state of one table.
type TableView struct {
	Name       string
	Definition wire.Table // defaults filled in
	Created    time.Time  // or recovered, in this process
	Stats      rollout.Stats
	OnLease    uint64            // draws handed out and not settled
	AgeDecay   float64           // tau in versions, +Inf for none; 0 unless the sampler is prioritized
	ByAge      []replay.AgeShare // nil unless the sampler is prioritized
	ESSByAge   []replay.AgeESS   // as reported by trainers; nil if none did
	NeverUsed  float64           // share of the rollouts present without a use, in [0, 1]

	Counters       Counters
	InsertLatency  Latency // from a record batch's arrival to its answer, with waiting
	SampleLatency  Latency // from a request until its batch is written, with waiting
	InsertsWaiting int     // for room or the limiter, now
	SamplesWaiting int     // for rollouts or the limiter, now
	StartsWaiting  int     // for the gate, now

	Limiter *wire.LimiterState // nil: none
	Gate    *wire.GateState    // nil: none
	Prompts *prompts.Stats
	Journal *JournalState // nil: not durable
	Recent  []Recent      // the latest rollouts with text, the newest first, at most 16
}

// Counters count since the process started.
type Counters struct {
	InsertRequests  uint64 // record batches answered with ids
	InsertedRows    uint64 // rollouts in them, without repeats
	InsertedTokens  uint64 // tokens in them
	InsertedBytes   uint64 // their payload, as capacities count it
	RepeatedInserts uint64 // record batches with a batch_id inserted before
	RefusedInserts  uint64 // record batches refused for good
	RefusedRows     uint64 // rows of them
	Samples         uint64 // batches sent
	SampledRows     uint64
	SampledTokens   uint64
	SampledBytes    uint64 // packed
	Redrawn         uint64 // prefetched batches that were too old or gone when asked for
	Lapsed          uint64 // batches whose lease had expired when their stream acknowledged them
	ReceivedBytes   uint64 // of the messages of insertions
	Starved         uint64 // samples that timed out: too few rollouts, or the limiter
	Full            uint64 // insertions that timed out: no room, or the limiter
}

// JournalState is the state of a table's journal.
type JournalState struct {
	Path  string
	Sync  journal.Sync
	Stats journal.Stats
	Err   error // why it failed; nil: it works
}

// Recent is a rollout as text.
type Recent struct {
	ID        rollout.ID
	PromptID  string
	Text      string // the first 2,000 bytes
	Cut       bool   // there is more of it
	Reward    float32
	Version   rollout.Version // the least of its tokens'
	Tokens    int
	Truncated bool
	At        time.Time
}

// Connection is an open connection.
type Connection struct {
	Peer          string // address; "unix" and a number for unix sockets
	Caller        string // name of the token or certificate; "" if there is none or no call was made
	Since         time.Time
	ReceivedBytes uint64
	SentBytes     uint64
	Streams       int      // calls in flight
	Tables        []string // that calls in flight use, sorted
}

// Latency is a histogram of durations.
type Latency struct {
	Count   uint64
	Seconds float64   // sum
	Bounds  []float64 // upper bounds of the buckets in seconds, ascending
	Counts  []uint64  // by bucket, not cumulative; one more than Bounds, for what took longer
}

// Observe returns the state of the service. In prioritized tables it looks at every rollout.
func (s *Service) Observe() Observation {
	o := Observation{
		At: s.options.Clock(), Started: s.started, Stopping: s.stopping(), Connections: s.connections.view(),
		MemoryBytes: s.options.MemoryBytes, Memory: s.memory(), SlowReaders: s.slowReaders.Load(),
		Cut: s.connections.closed.Load(), Panics: s.panics.Load(),
	}
	o.Calls, o.Errors = s.counts.view()
	o.DiskFree = -1
	if s.space != nil {
		o.DiskFull, o.DiskFree = s.space.check(), disk.Free(s.options.Data)
	}
	for _, t := range s.list() {
		v := t.view()
		o.Tables = append(o.Tables, v)
		if v.Journal != nil && v.Journal.Err != nil && o.Err == nil && !o.Stopping {
			o.Err = fmt.Errorf("table %q: journal: %w", t.Name, v.Journal.Err)
		}
	}
	if s.options.Cluster != nil {
		view := s.options.Cluster.View()
		o.Cluster = &view
	}
	o.Err = cmp.Or(o.Err, o.DiskFull, s.checkLease())
	return o
}

func (t *table) view() TableView {
	now := t.now()
	stats, _ := t.rollouts.Stats(context.Background()) // fails with its context only
	inspect := t.rollouts.Inspect()
	v := TableView{
		Name: t.Name, Definition: t.Table, Created: t.created, Stats: stats,
		ByAge: inspect.ByAge(), ESSByAge: inspect.ESSByAge(), NeverUsed: inspect.NeverUsedShare(),
		Counters: t.meter.counters(), InsertLatency: t.meter.insertTimes.view(),
		SampleLatency:  t.meter.sampleTimes.view(),
		InsertsWaiting: int(t.meter.insertsWaiting.Load()), SamplesWaiting: int(t.meter.samplesWaiting.Load()),
		StartsWaiting: int(t.meter.startsWaiting.Load()),
		Recent:        t.meter.recent.list(),
	}
	v.OnLease = v.Stats.Drawn - v.Stats.Acknowledged - v.Stats.Returned
	if t.Sampler == replay.Prioritized {
		v.AgeDecay = inspect.AgeDecay()
	}
	if t.limiter != nil {
		state := t.limiter.State(t.rollouts.ServiceView().Flow())
		v.Limiter = &state
	}
	if t.Gate != nil {
		state := t.gate.Load().State(now, v.Stats.Version)
		v.Gate = &state
	}
	if t.prompts != nil {
		state := t.prompts.Stats()
		v.Prompts = &state
	}
	if t.journal != nil {
		stats := t.journal.Stats()
		v.Journal = &JournalState{Path: stats.Path, Sync: stats.Sync, Stats: stats, Err: stats.Err}
	}
	return v
}

// meter counts a table's requests. The zero value is ready.
type meter struct {
	inserts, insertedRows, insertedTokens, insertedBytes, repeated, refused, refusedRows atomic.Uint64
	samples, sampledRows, sampledTokens, sampledBytes, redrawn, lapsed                   atomic.Uint64
	receivedBytes, starved, full                                                         atomic.Uint64

	insertsWaiting, samplesWaiting, startsWaiting atomic.Int64

	insertTimes, sampleTimes latencies
	recent                   recents
}

func (m *meter) counters() Counters {
	return Counters{
		InsertRequests: m.inserts.Load(), InsertedRows: m.insertedRows.Load(), InsertedTokens: m.insertedTokens.Load(),
		InsertedBytes:   m.insertedBytes.Load(),
		RepeatedInserts: m.repeated.Load(), RefusedInserts: m.refused.Load(), RefusedRows: m.refusedRows.Load(),
		Samples: m.samples.Load(), SampledRows: m.sampledRows.Load(), SampledTokens: m.sampledTokens.Load(),
		SampledBytes: m.sampledBytes.Load(),
		Redrawn:      m.redrawn.Load(), Lapsed: m.lapsed.Load(), ReceivedBytes: m.receivedBytes.Load(),
		Starved: m.starved.Load(), Full: m.full.Load(),
	}
}

// The bounds of a Latency are powers of two from 16 microseconds to 134 seconds.
const (
	latencyBounds = 24
	firstLatency  = 16 * time.Microsecond
)

// latencies counts durations. The zero value is ready.
type latencies struct {
	counts [latencyBounds + 1]atomic.Uint64
	nanos  atomic.Int64
}

func (l *latencies) add(d time.Duration) {
	bucket := 0
	for bound := firstLatency; bucket < latencyBounds && d > bound; bucket++ {
		bound *= 2
	}
	l.counts[bucket].Add(1)
	l.nanos.Add(int64(d))
}

func (l *latencies) view() Latency {
	v := Latency{Seconds: time.Duration(l.nanos.Load()).Seconds()}
	for i := range l.counts {
		n := l.counts[i].Load()
		v.Counts = append(v.Counts, n)
		v.Count += n
		if i < latencyBounds {
			v.Bounds = append(v.Bounds, (firstLatency << i).Seconds())
		}
	}
	return v
}

// How many recent rollouts are shown.
const (
	maxRecent          = 16
	recentPerInsertion = 2    // so that one group does not crowd out the others
	recentBytes        = 2000 // of each text
)

// recents holds the latest rollouts with text. The zero value is ready.
type recents struct {
	mu   sync.Mutex
	ring [maxRecent]Recent
	n    int // ever added
}

func (r *recents) add(id rollout.ID, x *rollout.Rollout, now time.Time) {
	e := Recent{
		ID: id, PromptID: clipped(x.PromptID), Text: clipped(x.Text), Cut: len(x.Text) > recentBytes,
		Reward: x.Reward, Version: x.Version(), Tokens: len(x.Tokens), Truncated: x.Truncated, At: now,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%maxRecent] = e
	r.n++
}

// clipped copies the beginning of a text, in whole runes.
func clipped(text string) string {
	if len(text) <= recentBytes {
		return string([]byte(text))
	}
	end := recentBytes
	for end > recentBytes-4 && text[end]&0xC0 == 0x80 {
		end--
	}
	return string([]byte(text[:end]))
}

// list returns them in order, the newest first.
func (r *recents) list() []Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Recent
	for i := r.n - 1; i >= max(r.n-maxRecent, 0); i-- {
		list = append(list, r.ring[i%maxRecent])
	}
	return list
}

package service

import (
	"time"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Observation is everything that there is to see of a service at one moment, for metrics and dashboards. It is a copy.
type Observation struct {
	At          time.Time
	Started     time.Time
	Stopping    bool
	Err         error // the first reason why the service is not healthy: a journal that failed; nil: none
	Tables      []TableView
	Connections []Connection

	InFlightBytes    int64 // of insertions being handled now
	MaxInFlightBytes int64
	OutgoingBytes    int64 // of batches packed and not written out yet
	MaxOutgoingBytes int64
	SlowReaders      uint64            // connections closed because their reader took nothing
	Errors           []ErrorCount      // calls and requests that ended in an error, by code, in order of codes
	Calls            map[string]uint64 // calls begun, by method: DoPut, DoGet, DoExchange, DoAction, …
}

// ErrorCount is how often an error was answered.
type ErrorCount struct {
	Code  wire.Code
	Count uint64
}

// TableView is one table.
type TableView struct {
	Name       string
	Definition wire.Table // defaults filled in
	Created    time.Time  // in this process: made or recovered
	Stats      rollout.Stats
	OnLease    uint64            // draws handed out and not settled
	AgeDecay   float64           // tau in versions, +Inf for none; 0 with samplers that do not weigh
	ByAge      []replay.AgeShare // of a prioritized sampler; else nil
	ESSByAge   []replay.AgeESS   // as trainers reported it; nil if none did
	NeverUsed  float64           // share of the rollouts present that have no use, in [0, 1]

	Counters       Counters
	InsertLatency  Latency // from a record batch's arrival to its answer, waiting included
	SampleLatency  Latency // from a request to its batch on the way out, waiting included
	InsertsWaiting int     // for room or the limiter, now
	SamplesWaiting int     // for rollouts or the limiter, now
	StartsWaiting  int     // for the gate, now

	Limiter *LimiterState // nil: none
	Gate    *GateState    // nil: none
	Prompts *prompts.Stats
	Journal *JournalState // nil: not durable
	Recent  []Recent      // the latest rollouts that came with text, the newest first, at most 16
}

// Counters only grow while the process lives; they begin at 0 with it.
type Counters struct {
	InsertRequests  uint64 // record batches answered with ids
	InsertedRows    uint64 // rollouts in them, repeats left out
	InsertedTokens  uint64 // tokens in them
	InsertedBytes   uint64 // payload of them, as capacities count it
	RepeatedInserts uint64 // record batches whose batch_id had been inserted before
	RefusedInserts  uint64 // record batches refused for good
	RefusedRows     uint64 // rows of them
	Samples         uint64 // batches on their way out
	SampledRows     uint64
	SampledTokens   uint64
	SampledBytes    uint64 // packed
	Redrawn         uint64 // prefetched batches that were too old or gone at hand-over
	Lapsed          uint64 // batches whose lease was over when their stream acknowledged them
	ReceivedBytes   uint64 // of messages of insertions, as they came
	Starved         uint64 // samples that timed out for lack of rollouts, or held back by the limiter
	Full            uint64 // insertions that timed out for lack of room, or held back by the limiter
}

// LimiterState is where a limiter stands.
type LimiterState = wire.LimiterState

// GateState is where a gate stands, in rollouts.
type GateState = wire.GateState

// JournalState is a table's journal.
type JournalState struct {
	Path  string
	Sync  journal.Sync
	Stats journal.Stats
	Err   error // why it stopped accepting anything; nil: it works
}

// Recent is a rollout as text.
type Recent struct {
	ID        rollout.ID
	PromptID  string
	Text      string // the first 2,000 bytes
	Cut       bool   // there is more of it
	Reward    float32
	Version   rollout.Version // least of its tokens'
	Tokens    int
	Truncated bool
	At        time.Time
}

// Connection is somebody who is connected.
type Connection struct {
	Peer          string // address; "unix" and a number for unix sockets
	Caller        string // name of the token or certificate; "" if there is none or nobody called yet
	Since         time.Time
	ReceivedBytes uint64
	SentBytes     uint64
	Streams       int      // calls under way
	Tables        []string // that calls under way are about, sorted
}

// Latency is how long something took, counted in classes.
type Latency struct {
	Count   uint64
	Seconds float64   // in all
	Bounds  []float64 // seconds, ascending; upper ends of the classes
	Counts  []uint64  // by class, not cumulative; one more than Bounds, the last for what took longer
}

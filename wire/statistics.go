package wire

import "github.com/reprise-rl/reprise/rollout"

// TableStatistics is the answer of [Statistics]: what rollout.Stats counts, under its names in small letters, and what the service
// knows beside it. Histograms are lists of [value, count], in ascending order of values.
type TableStatistics struct {
	TableInfo

	Inserted       uint64                   `json:"inserted"` // rollouts; with unit step, steps, as all of these counts
	InsertedGroups uint64                   `json:"inserted_groups"`
	Evicted        map[rollout.Cause]uint64 `json:"evicted"`         // by cause: capacity, staleness, uses, consumed, rewind, damage
	Refused        uint64                   `json:"refused"`         // rollouts of insertions that the table refused for good
	Drawn          uint64                   `json:"drawn"`           // handed out
	Acknowledged   uint64                   `json:"acknowledged"`    // draws that became uses
	Returned       uint64                   `json:"returned"`        // draws that went back
	OnLease        uint64                   `json:"on_lease"`        // drawn - acknowledged - returned
	UpdatesIgnored uint64                   `json:"updates_ignored"` // addressed to evicted rollouts
	NeverUsed      uint64                   `json:"never_used"`      // evicted without a use

	Staleness      rollout.Histogram `json:"staleness"`        // at use, in versions
	MeanStaleness  rollout.Histogram `json:"mean_staleness"`   // at use, mean over tokens, rounded down
	UsesAtEviction rollout.Histogram `json:"uses_at_eviction"` //
	UsesPresent    rollout.Histogram `json:"uses_present"`     // of the rollouts in the table
	SinceLastUse   rollout.Histogram `json:"since_last_use"`   // versions since the use before

	NeverUsedShare float64    `json:"never_used_share"`     // of the rollouts present, in [0, 1]
	AgeDecay       Versions   `json:"age_decay,omitempty"`  // tau, of a prioritized sampler
	Ages           []AgeShare `json:"ages,omitempty"`       // of a prioritized sampler, by ascending age
	ESSByAge       []AgeESS   `json:"ess_by_age,omitempty"` // as trainers reported it, by ascending age

	Limiter *LimiterState      `json:"limiter,omitempty"`
	Gate    *GateState         `json:"gate,omitempty"`
	Prompts *PromptsState      `json:"prompts,omitempty"`
	Journal *JournalStatistics `json:"journal,omitempty"`
	Waiting Waiting            `json:"waiting"`
}

// Stats returns what rollout.Stats holds of it.
func (s *TableStatistics) Stats() rollout.Stats {
	return rollout.Stats{
		Version: rollout.Version(s.Version), Present: s.Present, PresentBytes: s.Bytes,
		Inserted: s.Inserted, InsertedGroups: s.InsertedGroups, Evicted: s.Evicted, Refused: s.Refused,
		Drawn: s.Drawn, Acknowledged: s.Acknowledged, Returned: s.Returned, UpdatesIgnored: s.UpdatesIgnored, NeverUsed: s.NeverUsed,
		Staleness: s.Staleness, MeanStaleness: s.MeanStaleness, UsesAtEviction: s.UsesAtEviction, UsesPresent: s.UsesPresent, SinceLastUse: s.SinceLastUse,
	}
}

// AgeShare is replay.AgeShare: the units of one age.
type AgeShare struct {
	Age         int     `json:"age"`         // versions
	Units       int     `json:"units"`       // that can be drawn
	Base        float64 `json:"base"`        // mean of their bases
	Probability float64 `json:"probability"` // with which a draw falls on one of them
}

// AgeESS is replay.AgeESS: the effective sample size of tokens of a range of ages.
type AgeESS struct {
	First  int     `json:"first"` // versions
	Last   int     `json:"last"`
	ESS    float64 `json:"ess"`    // ESS/n, in (0, 1]
	Tokens float64 `json:"tokens"` // behind it
}

// LimiterState is where a [Limiter] stands: insertions wait rather than lift the balance above Max, samples rather than press it below Min.
type LimiterState struct {
	SamplesPerInsert float64 `json:"samples_per_insert"`
	Min              float64 `json:"min"`
	Max              float64 `json:"max"`
	Balance          float64 `json:"balance"` // d = inserted x samples_per_insert - drawn
	Inserted         uint64  `json:"inserted"`
	Drawn            uint64  `json:"drawn"`        // less those that went back
	HeldInserts      uint64  `json:"held_inserts"` // times that the limiter held an insertion back, since the service started
	HeldSamples      uint64  `json:"held_samples"`
	InsertsHeld      bool    `json:"inserts_held"` // an insertion of one rollout would be held back now
	SamplesHeld      bool    `json:"samples_held"` // a sample of one rollout would be
}

// GateState is where a [Gate] stands, in rollouts.
type GateState struct {
	RolloutsPerUpdate float64 `json:"rollouts_per_update"`
	MaxStaleness      int     `json:"max_staleness"`
	Allowed           int64   `json:"allowed"`     // that may have been started by now
	Started           int64   `json:"started"`     // inserted or granted
	Outstanding       int64   `json:"outstanding"` // granted, and neither inserted nor given back
	Grants            int     `json:"grants"`      // that are outstanding
	Granted           uint64  `json:"granted"`     // since the service started
	Abandoned         uint64  `json:"abandoned"`   // given back, since the service started
	Expired           uint64  `json:"expired"`     // since the service started
}

// PromptsState is prompts.Stats.
type PromptsState struct {
	Held         int               `json:"held"`
	Eligible     int               `json:"eligible"`
	Spent        int               `json:"spent"`
	Reported     uint64            `json:"reported"`
	ZeroVariance uint64            `json:"zero_variance"`
	Replayed     uint64            `json:"replayed"`
	Reuses       rollout.Histogram `json:"reuses"`
	PassRates    rollout.Histogram `json:"pass_rates"` // hundredths
}

// JournalStatistics is what a journal says of itself.
type JournalStatistics struct {
	Sync    string  `json:"sync"` // always, interval or off
	Commits uint64  `json:"commits"`
	Bytes   int64   `json:"bytes"` // of the file
	Seconds float64 `json:"commit_seconds"`
	Error   string  `json:"error,omitempty"` // why it takes nothing more
}

// Waiting is how many requests wait now.
type Waiting struct {
	Inserts int `json:"inserts"` // for room, or for the limiter
	Samples int `json:"samples"` // for rollouts, or for the limiter
	Starts  int `json:"starts"`  // for the gate
}

package wire

import (
	"strconv"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// This file is the JSON of requests and answers: tickets, bodies of actions, and the app_metadata of Flight messages.

// InsertRequest may come with each record batch of a DoPut as app_metadata. The descriptor's path names the table. One
// record batch is one insertion: all of its groups enter, or none.
type InsertRequest struct {
	BatchID   string `json:"batch_id,omitempty"`   // a repeated insertion adds nothing and gets the first ids
	GroupSize int    `json:"group_size,omitempty"` // refuse groups of any other size
	Grant     uint64 `json:"grant,omitempty"`      // of [Start], under which the groups were started
	// wait for room and for the limiter; absent: until the call's deadline
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`
}

// InsertAnswer is the app_metadata of a PutResult. It is sent once the journal's promise holds.
type InsertAnswer struct {
	BatchID string   `json:"batch_id,omitempty"`
	IDs     []uint64 `json:"ids"`     // of the rows in order; with unit step of their turns
	Version int32    `json:"version"` // of the table
	Present int      `json:"present"` // rollouts in the table
	// rollouts older than max_staleness allows: they left at once, with unit step perhaps in part, with unit group with
	// their group
	TooOld int    `json:"too_old,omitempty"`
	Note   string `json:"note,omitempty"` // what to do about them
}

// SampleRequest asks for a batch. It is the ticket of a DoGet, or the app_metadata of a message on a DoExchange stream,
// whose descriptor's path names the table.
//
// The service acknowledges the batch of a DoGet once it has written it out, which is before the reader has it. If the
// reader crashes in between, its draws count as used, and a queue has lost the rollouts. A reader that must not lose
// any samples on a stream: a batch stays on lease there until the reader's next request acknowledges it. The clients in
// Go and Python do so.
type SampleRequest struct {
	Table string `json:"table,omitempty"` // DoGet only
	Size  int    `json:"size"`            // rollouts; 0 with prompts
	Fresh int    `json:"fresh,omitempty"` // of them, never handed out as fresh before
	Shard int    `json:"shard,omitempty"`

	// Instead of a size, up to PerPrompt rollouts of each of Prompts, none of which is named twice; see rollout.Request.
	// The answer has what there is: it waits for no insertion. It is never prefetched.
	Prompts   []string `json:"prompts,omitempty"`
	PerPrompt int      `json:"per_prompt,omitempty"`
	Where     string   `json:"where,omitempty"` // a condition, such as reward >= 1 && age < 8
	Order     string   `json:"order,omitempty"` // a number, the greatest first; none: at random

	// a repeated request gets the same batch; no_lease if that was acknowledged and its rollouts have left the queue
	RequestID string `json:"request_id,omitempty"`

	// TimeoutMS is how long to wait while the table holds too little or the limiter holds samples back. 0 does not
	// wait; absent waits until the call's deadline.
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`

	// of the sampling schema; none: all. A stream uses those of its first request.
	Columns []string `json:"columns,omitempty"`

	// UseAtDraw counts the draws as used at once, as replay.Table.Sample does. Otherwise the batch is leased until the
	// stream's next request, or until the DoGet has been written out.
	UseAtDraw bool `json:"use_at_draw,omitempty"`

	// Export (DoGet only) streams the whole table, or the rollouts that meet Where, by ascending id, Size rows (0: 256)
	// to a record batch. Nothing is drawn.
	Export bool `json:"export,omitempty"`

	// Streams only.
	Prefetch *int `json:"prefetch,omitempty"` // batches drawn and encoded ahead; absent: 1
	// versions that a prefetched batch may lag behind the table
	PrefetchSlack int `json:"prefetch_slack,omitempty"`
	// batches of this stream; with neither list: all sent so far
	Acknowledge []uint64 `json:"acknowledge,omitzero"`
	Release     []uint64 `json:"release,omitzero"` // batches of this stream to return unused
}

// Draw returns what the request asks a table for.
func (r *SampleRequest) Draw() rollout.Request {
	return rollout.Request{Size: r.Size, Fresh: r.Fresh, Shard: r.Shard, ID: r.RequestID, Prompts: r.Prompts,
		PerPrompt: r.PerPrompt, Where: r.Where, Order: r.Order}
}

// Single returns the request of one draw, after which none is prefetched.
func Single(draw rollout.Request) SampleRequest {
	none := 0
	return SampleRequest{Size: draw.Size, Fresh: draw.Fresh, Shard: draw.Shard, RequestID: draw.ID,
		Prompts: draw.Prompts, PerPrompt: draw.PerPrompt, Where: draw.Where, Order: draw.Order, Prefetch: &none}
}

// OnlySettles reports whether the request asks for nothing but the end of leases.
func (r *SampleRequest) OnlySettles() bool {
	return r.Size == 0 && len(r.Prompts) == 0 && (r.Acknowledge != nil || r.Release != nil)
}

// BatchInfo is the app_metadata of each batch. A message with Error has no batch; the stream goes on after it.
type BatchInfo struct {
	Batch   uint64 `json:"batch,omitempty"` // its id
	Version int32  `json:"version"`         // of the table at the draw
	Shard   int    `json:"shard,omitempty"`
	Rows    int    `json:"rows"` // rollouts
	// of a draw by prompt, how many of the rows each prompt got, in the order of both
	PromptCounts []int `json:"prompt_counts,omitempty"`
	// of a table with sources, how many of the rows each gave, in the order of both, behind the fresh draws that the
	// request asked for; the rest are the sampler's
	SourceCounts []int `json:"source_counts,omitempty"`
	// logarithm of what the importance weights were divided by; see rollout.Batch
	LogWeightScale float64 `json:"log_weight_scale,omitempty"`
	// Repeated: the batch was acknowledged before, and this answers a repeated request id: nothing is on lease
	Repeated bool    `json:"repeated,omitempty"`
	Present  int     `json:"present"`         // rollouts in the table after the draw
	Error    *Status `json:"error,omitempty"` // starved, after a request's timeout
}

// The actions of DoAction. Bodies and results are JSON of the types in the comments.
const (
	// Table -> TableInfo; does nothing if the table exists with the same definition
	CreateTable      = "create_table"
	DropTable        = "drop_table"        // TableRequest -> nothing
	Advance          = "advance"           // VersionRequest -> TableInfo
	Rewind           = "rewind"            // VersionRequest -> TableInfo
	UpdatePriorities = "update_priorities" // PriorityUpdate -> TableInfo
	ReportDraws      = "report"            // DrawReport -> TableInfo
	Reward           = "reward"            // RewardRequest -> RewardAnswer; what somebody says that rollouts are worth
	Acknowledge      = "acknowledge"       // SettleRequest -> TableInfo
	Release          = "release"           // SettleRequest -> TableInfo
	Statistics       = "stats"             // TableRequest -> TableStatistics
	Info             = "info"              // TableRequest -> TableInfo
	Checkpoint       = "checkpoint"        // CheckpointRequest -> CheckpointAnswer; saves the whole table under a name
	Restore          = "restore"           // CheckpointRequest -> TableInfo
	ListCheckpoints  = "list_checkpoints"  // TableRequest -> CheckpointList; also of a table that was dropped
	DeleteCheckpoint = "delete_checkpoint" // CheckpointRequest -> nothing; also of a table that was dropped
	Scrub            = "scrub"             // TableRequest -> ScrubAnswer; reads all of its journal and checks it
	Start            = "start"             // StartRequest -> StartAnswer; how many groups may be started now
	Abandon          = "abandon"           // AbandonRequest -> TableInfo; groups that will not come
	PromptsNext      = "prompts_next"      // PromptsRequest -> PromptsAnswer
	PromptsReport    = "prompts_report"    // PromptResults -> TableInfo
	ReadTotals       = "totals"            // TotalsRequest -> Totals; what draws over many services are divided by
	Rollouts         = "rollouts"          // RolloutsRequest -> browse.Page; those that meet a query, a page at a time
	ShowRollout      = "rollout"           // RolloutRequest -> browse.Rollout; all that is known of one
	Locate           = "locate"            // TableRequest -> Location; also of a table that another service has
)

// TableRequest names a table.
type TableRequest struct {
	Table string `json:"table"`
}

// TotalsRequest asks for the totals of a shard.
type TotalsRequest struct {
	Table string `json:"table"`
	Shard int    `json:"shard"`
}

// RolloutsRequest looks for rollouts.
type RolloutsRequest struct {
	Table string `json:"table"`
	replay.Query
}

// RolloutRequest names a rollout.
type RolloutRequest struct {
	Table string `json:"table"`
	ID    uint64 `json:"id"`
}

// Totals is what a shard adds to a draw that is divided over many services.
type Totals struct {
	Table string `json:"table"`
	parted.Totals
}

// Location is where a table is: one entry, or one for each of its parts in order; in a cluster none if no node has it.
type Location struct {
	Parts   []Part `json:"parts"`
	Cluster bool   `json:"cluster,omitempty"` // whether the service is in a cluster
}

// Part is a table of one service, which may be a part of a larger one.
type Part struct {
	Part    int    `json:"part"`
	Table   string `json:"table"`   // its name there
	Address string `json:"address"` // of its service; "" for the one that answers, or while nobody owns the table
}

// ClusterView is what a node knows of its cluster, as of its last beat.
type ClusterView struct {
	Node   string        // this one
	Nodes  []NodeView    // that are up, in order of names
	Tables []PlacedTable // in order of names
	Risks  []string      // failures that may take more than the cluster promises to survive, and disks that are full; nil: none
}

// NodeView is a node of a cluster.
type NodeView struct {
	Name, Address, Domain string
	Tables                int // that it owns
}

// PlacedTable is a table of a cluster.
type PlacedTable struct {
	Name   string
	Owner  string // a node; "" while no node is up
	Counts Counts // as the owner told
}

// Counts is what a node of a cluster tells the others of a table that it owns.
type Counts struct {
	Version  int32  `json:"version"`
	Present  int    `json:"present"`  // rollouts
	Bytes    int64  `json:"bytes"`    // of payload
	Inserted uint64 `json:"inserted"` // rollouts
	LogBytes int64  `json:"log_bytes"`
}

// TableInfo is the answer to most actions.
type TableInfo struct {
	Table      string `json:"table"`
	Version    int32  `json:"version"`
	Present    int    `json:"present"`
	Bytes      int64  `json:"bytes"`                // of payload
	Definition *Table `json:"definition,omitempty"` // of create_table and info, defaults filled in
	Note       string `json:"note,omitempty"`       // of an advance that changed nothing: what to do about it
}

// VersionRequest sets the table's version.
type VersionRequest struct {
	Table   string `json:"table"`
	Version int32  `json:"version"`
}

// PriorityUpdate gives rollouts new priorities, and then advances the table if there is a version: a trainer ends its
// step in one call. Both lists have one length.
type PriorityUpdate struct {
	Table      string    `json:"table"`
	IDs        []uint64  `json:"ids"`
	Priorities []float64 `json:"priorities"` // finite, >= 0
	Version    *int32    `json:"version,omitempty"`
}

// DrawReport carries rollout.Feedback: a trainer's measurements of its draws. Then it advances the table if there is a
// version. A request id that repeats one of the last 1,000 since the service started is counted once.
type DrawReport struct {
	Table     string      `json:"table"`
	RequestID string      `json:"request_id,omitempty"`
	Draws     []DrawFacts `json:"draws"`
	Version   *int32      `json:"version,omitempty"`
}

// DrawFacts is the measurements of one draw. Absent fields were not measured.
type DrawFacts struct {
	ID           uint64   `json:"id"`
	Staleness    int32    `json:"staleness"`
	Advantage    *float64 `json:"advantage,omitempty"`
	TDError      *float64 `json:"td_error,omitempty"`
	GradNorm     *float64 `json:"grad_norm,omitempty"`
	Tokens       float64  `json:"tokens,omitempty"`
	RatioSum     float64  `json:"ratio_sum,omitempty"`
	RatioSquares float64  `json:"ratio_squares,omitempty"`
}

// RewardRequest is rollout.Rewards. A request id that repeats one of the latest, of 16,384 rewards in all, changes
// nothing and gets the same answer. Where callers have tokens, a table remembers the token's name before By.
type RewardRequest struct {
	Table string `json:"table"`
	rollout.Rewards
}

// RewardAnswer is the answer to [Reward].
type RewardAnswer struct {
	TableInfo
	rollout.Rewarded
}

// Right is what a caller may do with a table.
type Right string

// The rights.
const (
	ToRead  Right = "read"
	ToWrite Right = "write"
	ToLabel Right = "label" // to give rewards; who may write may do that too
)

// SettleRequest acknowledges or releases leased batches, all or none.
type SettleRequest struct {
	Table   string   `json:"table"`
	Batches []uint64 `json:"batches"`
}

// CheckpointRequest names a checkpoint. Saving replaces a checkpoint of that name. See [CheckName].
type CheckpointRequest struct {
	Table string `json:"table"`
	Name  string `json:"name"`
}

// CheckpointAnswer describes a saved checkpoint.
type CheckpointAnswer struct {
	TableInfo
	Name      string `json:"name"`
	FileBytes int64  `json:"file_bytes"`
}

// CheckpointList is the checkpoints of a table, in order of names.
type CheckpointList struct {
	Checkpoints []SavedCheckpoint `json:"checkpoints"`
}

// SavedCheckpoint is one checkpoint on disk.
type SavedCheckpoint struct {
	Name      string    `json:"name"`
	FileBytes int64     `json:"file_bytes"`
	Saved     time.Time `json:"saved"`
}

// ScrubAnswer is what was found in the copies of a table's journal: one, or those of a cluster's nodes.
type ScrubAnswer struct {
	Table  string         `json:"table"`
	Copies []ScrubbedCopy `json:"copies"`
}

// ScrubbedCopy is what was found in one copy.
type ScrubbedCopy struct {
	Node   string   `json:"node,omitempty"`   // of a cluster
	Damage []string `json:"damage,omitempty"` // at most 1,000 places, and what is wrong there
	Doubt  string   `json:"doubt,omitempty"`  // how it differs from another, where nobody knows which is right
	Unread string   `json:"unread,omitempty"` // why it could not be read
}

// StartRequest asks how many groups may be started now.
type StartRequest struct {
	Table     string `json:"table"`
	Groups    int    `json:"groups"`               // wanted
	GroupSize int    `json:"group_size,omitempty"` // rollouts in each; 0: the table's
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // wait for the first
}

// StartAnswer grants groups, or none after the timeout. The caller inserts them under the grant's number, or abandons
// them.
type StartAnswer struct {
	Grant          uint64  `json:"grant,omitempty"`
	Groups         int     `json:"groups"`
	Version        int32   `json:"version"`
	ExpiresSeconds float64 `json:"expires_seconds,omitempty"`
}

// AbandonRequest returns granted groups.
type AbandonRequest struct {
	Table  string `json:"table"`
	Grant  uint64 `json:"grant"`
	Groups int    `json:"groups"`
}

// PromptsRequest asks which prompts of a batch to replay.
type PromptsRequest struct {
	Table string `json:"table"`
	Batch int    `json:"batch"` // prompts in the batch
}

// Prompt is prompts.Prompt.
type Prompt struct {
	ID  string `json:"id"`
	Ref uint64 `json:"ref,omitempty"`
}

// PromptsAnswer is the prompts to generate for again, at most fraction x batch.
type PromptsAnswer struct {
	Prompts []Prompt `json:"prompts"`
	Version int32    `json:"version"`
}

// PromptResults reports the results of prompts.
type PromptResults struct {
	Table   string         `json:"table"`
	Results []PromptResult `json:"results"`
}

// PromptResult is prompts.Result.
type PromptResult struct {
	Prompt
	Correct    int      `json:"correct"`
	Total      int      `json:"total"`
	Replayed   bool     `json:"replayed,omitempty"`
	Difficulty *float64 `json:"difficulty,omitempty"`
}

// TableStatistics is the answer to [Statistics]: the counts of rollout.Stats, and what the service counts. With unit
// step all counts are of steps instead of rollouts. Histograms are lists of [value, count] by ascending value.
type TableStatistics struct {
	TableInfo

	Inserted       uint64 `json:"inserted"` // rollouts
	InsertedGroups uint64 `json:"inserted_groups"`
	WaitingRewards int    `json:"waiting_rewards,omitempty"` // present, and waiting for the rewards of their group
	// by cause: capacity, staleness, uses, consumed, rewind, damage, selection, unrewarded
	Evicted        map[rollout.Cause]uint64 `json:"evicted"`
	Refused        uint64                   `json:"refused"`         // rollouts of insertions that can never enter
	Drawn          uint64                   `json:"drawn"`           // handed out
	Acknowledged   uint64                   `json:"acknowledged"`    // draws that became uses
	Returned       uint64                   `json:"returned"`        // draws that were released
	OnLease        uint64                   `json:"on_lease"`        // drawn - acknowledged - returned
	UpdatesIgnored uint64                   `json:"updates_ignored"` // for evicted rollouts
	NeverUsed      uint64                   `json:"never_used"`      // evicted without a use

	Staleness      rollout.Histogram `json:"staleness"`        // at use, in versions
	MeanStaleness  rollout.Histogram `json:"mean_staleness"`   // at use, mean over tokens, rounded down
	UsesAtEviction rollout.Histogram `json:"uses_at_eviction"` //
	UsesPresent    rollout.Histogram `json:"uses_present"`     // of the rollouts in the table
	SinceLastUse   rollout.Histogram `json:"since_last_use"`   // versions since the use before

	NeverUsedShare float64         `json:"never_used_share"`     // of the rollouts present, in [0, 1]
	AgeDecay       replay.Versions `json:"age_decay,omitempty"`  // tau of a prioritized sampler
	Ages           []AgeShare      `json:"ages,omitempty"`       // of a prioritized sampler, by ascending age
	ESSByAge       []AgeESS        `json:"ess_by_age,omitempty"` // as reported by trainers, by ascending age

	Limiter *LimiterState      `json:"limiter,omitempty"`
	Gate    *GateState         `json:"gate,omitempty"`
	Prompts *PromptsState      `json:"prompts,omitempty"`
	Journal *JournalStatistics `json:"journal,omitempty"`
	Waiting Waiting            `json:"waiting"`

	Down []int `json:"down,omitempty"` // of a table in parts: the parts that this client cannot reach now
}

// Stats returns the counts that rollout.Stats has.
func (s *TableStatistics) Stats() rollout.Stats {
	return rollout.Stats{
		Version: rollout.Version(s.Version), Present: s.Present, PresentBytes: s.Bytes,
		Inserted: s.Inserted, InsertedGroups: s.InsertedGroups, Evicted: s.Evicted, Refused: s.Refused,
		Drawn: s.Drawn, Acknowledged: s.Acknowledged, Returned: s.Returned, UpdatesIgnored: s.UpdatesIgnored,
		NeverUsed: s.NeverUsed, Waiting: s.WaitingRewards,
		Staleness: s.Staleness, MeanStaleness: s.MeanStaleness, UsesAtEviction: s.UsesAtEviction,
		UsesPresent: s.UsesPresent, SinceLastUse: s.SinceLastUse,
	}
}

// AgeShare is replay.AgeShare: the units of one age.
type AgeShare struct {
	Age         int     `json:"age"`         // versions
	Units       int     `json:"units"`       // that can be drawn
	Base        float64 `json:"base"`        // mean priority base
	Probability float64 `json:"probability"` // that a draw is one of them
}

// AgeESS is replay.AgeESS: the effective sample size of the tokens of a range of ages.
type AgeESS struct {
	First  int     `json:"first"` // versions
	Last   int     `json:"last"`
	ESS    float64 `json:"ess"`    // ESS/n, in (0, 1]
	Tokens float64 `json:"tokens"` // measured
}

// LimiterState is the state of a [Limiter]. Insertions wait rather than raise the balance above Max, samples rather
// than lower it below Min.
type LimiterState struct {
	SamplesPerInsert float64 `json:"samples_per_insert"`
	Min              float64 `json:"min"`
	Max              float64 `json:"max"`
	Balance          float64 `json:"balance"` // d = inserted x samples_per_insert - drawn
	Inserted         uint64  `json:"inserted"`
	Drawn            uint64  `json:"drawn"`        // less returned draws
	HeldInserts      uint64  `json:"held_inserts"` // insertions that had to wait since the service started
	HeldSamples      uint64  `json:"held_samples"`
	InsertsHeld      bool    `json:"inserts_held"` // an insertion of one rollout would have to wait now
	SamplesHeld      bool    `json:"samples_held"` // a sample of one rollout would have to wait now
}

// GateState is the state of a [Gate], in rollouts.
type GateState struct {
	RolloutsPerUpdate float64 `json:"rollouts_per_update"`
	MaxStaleness      int     `json:"max_staleness"`
	Allowed           int64   `json:"allowed"`     // that may have been started by now
	Started           int64   `json:"started"`     // inserted or granted
	Outstanding       int64   `json:"outstanding"` // granted, and neither inserted nor returned
	Grants            int     `json:"grants"`      // outstanding ones
	Granted           uint64  `json:"granted"`     // since the service started
	Abandoned         uint64  `json:"abandoned"`   // since the service started
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

// JournalStatistics is the state of a table's journal.
type JournalStatistics struct {
	Sync        string  `json:"sync"` // always, interval or off
	Commits     uint64  `json:"commits"`
	Bytes       int64   `json:"bytes"` // on disk
	Seconds     float64 `json:"commit_seconds"`
	Error       string  `json:"error,omitempty"`      // why it failed
	VerifiedAge float64 `json:"verified_seconds_ago"` // since the whole journal was last read and checked
	Damage      int     `json:"damage"`               // places found damaged by then
}

// Waiting counts requests that wait now.
type Waiting struct {
	Inserts int `json:"inserts"` // for room, or for the limiter
	Samples int `json:"samples"` // for rollouts, or for the limiter
	Starts  int `json:"starts"`  // for the gate
}

// maxName bounds the names of tables, checkpoints and columns, in bytes.
const maxName = 128

// CheckName returns an error for a bad name of a table or a checkpoint. Names are part of file paths and Flight
// descriptors.
func CheckName(name string) error {
	var p option.Problems
	AddName(&p, name)
	if len(p) > 0 {
		return Errorf(Invalid, "%s", p.Line())
	}
	return nil
}

// AddName adds what is wrong with a name, under the key name.
func AddName(p *option.Problems, name string) {
	p.CheckWith("", goodName(name), "name", strconv.Quote(clip(name)), "1 to %d letters, digits, - _ and ., not "+
		"beginning with a dot", maxName)
}

func goodName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

package rollout

import (
	"errors"
	"iter"
	"math"
	"slices"
)

// Errors of tables. Each says when to retry.
var (
	// ErrFull is returned when a bounded queue has no room for an insertion. Retry after trainers have sampled.
	ErrFull = errors.New("table is full")
	// ErrStarved is returned when a table holds too few rollouts to fill a batch. Retry after the next insertion.
	ErrStarved = errors.New("table holds too few rollouts")
	// ErrAhead is returned when an insertion carries a version newer than the table's. Retry after the table has been
	// advanced.
	ErrAhead = errors.New("rollout is ahead of the table's version")
	// ErrInvalid is returned for input that will never be accepted. Nothing of it is kept.
	ErrInvalid = errors.New("invalid input")
	// ErrNoLease is returned when a batch to be settled is not on lease: it was never drawn, or was acknowledged,
	// released or expired before.
	ErrNoLease = errors.New("batch is not on lease")
)

// BatchID names a batch that a table handed out.
type BatchID uint64

// Draw is one sampled rollout with what the table knew about it when it was handed out.
type Draw struct {
	ID          ID
	Group       uint64 // global group number
	Rollout     *Rollout
	Advantage   float32
	Probability float64 // with which this unit was drawn
	Weight      float32 // importance weight; 1 for uniform samplers, fresh draws and draws by prompt
	Fresh       bool    // one of the Request.Fresh
	Staleness   int32   // table version minus the rollout's version, >= 0
	Uses        int32   // acknowledged uses before this draw
	Redelivered bool    // from a queue: it may have been delivered before, by a draw that was not acknowledged
	GroupMean   float32 // mean reward of the group at insertion
	GroupStd    float32 // population standard deviation of the group's rewards at insertion
}

// Batch is the result of one Sample call.
type Batch struct {
	ID      BatchID
	Version Version // of the table when the batch was handed out
	Shard   int
	Draws   []Draw

	// PromptCounts is how many of the draws each of Request.Prompts got, in the order of both; nil if the request named
	// none. See [Batch.ByPrompt].
	PromptCounts []int

	// SourceCounts is how many of the draws each source of the table gave, in the order of both, behind those that
	// Request.Fresh asked for; the rest are the sampler's. Nil if the table has no sources.
	SourceCounts []int

	// LogWeightScale is the logarithm of the weight (N P)^-beta by which the table divided those of the draws: the
	// largest of the batch, or of the shard. Fresh draws are not divided. See [NormaliseWeights].
	LogWeightScale float64

	// Repeated says that the batch was acknowledged before: this is the answer to a repeated request id.
	Repeated bool
}

// ByPrompt yields, for each of the request's prompts, its index and its draws, which may be none.
func (b *Batch) ByPrompt() iter.Seq2[int, []Draw] {
	return func(yield func(int, []Draw) bool) {
		next := 0
		for i, n := range b.PromptCounts {
			if !yield(i, b.Draws[next:next+n]) {
				return
			}
			next += n
		}
	}
}

// NormaliseWeights divides the importance weights of the batches of one update by the largest scale of them all, each
// of which has its own: so the number of trainers that share the update does not change its weights. Fresh draws and
// draws by prompt keep theirs. Repeating it changes nothing.
func NormaliseWeights(batches []*Batch) {
	replayed := func(d Draw) bool { return !d.Fresh }
	largest := math.Inf(-1)
	for _, b := range batches {
		if b.PromptCounts == nil && slices.ContainsFunc(b.Draws, replayed) {
			largest = max(largest, b.LogWeightScale)
		}
	}
	for _, b := range batches {
		if b.LogWeightScale >= largest || b.PromptCounts != nil {
			continue
		}
		for i := range b.Draws {
			if d := &b.Draws[i]; !d.Fresh {
				d.Weight = float32(float64(d.Weight) * math.Exp(b.LogWeightScale-largest))
			}
		}
		b.LogWeightScale = largest
	}
}

// Request asks a table for a batch: for Size rollouts that its sampler draws, or for rollouts of given prompts.
type Request struct {
	Size  int    // rollouts, >= 1; 0 with Prompts
	Fresh int    // draws of rollouts never handed out as fresh before, oldest first; 0 <= Fresh <= Size
	Shard int    // 0 <= Shard < shards
	ID    string // request id; a repeated request gets the same batch; empty: no deduplication

	// With Prompts the batch has up to PerPrompt rollouts of each, none twice: those for which Where is true, with the
	// greatest Order first, of equals the newest. Without Order they are drawn at random. A prompt of which the shard
	// holds nothing gets none: that is no error, and no insertion is waited for.
	Prompts   []string // prompt ids, none twice
	PerPrompt int      // >= 1
	Where     string   // a condition, such as reward >= 1 && age < 8; empty: all
	Order     string   // a number, such as mean_logprob; see package replay/formula for both
}

// MaxRows returns the most rollouts that the batch of a request may have.
func (r *Request) MaxRows() int {
	if len(r.Prompts) == 0 {
		return r.Size
	}
	if r.PerPrompt > math.MaxInt/len(r.Prompts) {
		return math.MaxInt
	}
	return len(r.Prompts) * r.PerPrompt
}

// Feedback is what a trainer measured about one draw in the optimizer step it was drawn for. The zero value of a part
// means that it was not measured.
type Feedback struct {
	ID        ID
	Staleness int32       // of the draw
	Advantage Measurement // mean absolute advantage over the policy's tokens, as used in the step
	TDError   Measurement // of a critic, mean absolute value over the policy's tokens
	GradNorm  Measurement // Euclidean norm of the loss's gradient with respect to the rollout's logits

	// Over the policy's tokens in the loss, with the importance ratios rho = pi/b ([ER] §2.2).
	Tokens       float64 // their number; 0: the ratios were not measured
	RatioSum     float64 // sum of rho, at most 1e20
	RatioSquares float64 // sum of rho^2, at most 1e40
}

// Rewards is what somebody says that rollouts are worth, after they entered a table.
type Rewards struct {
	// repeated with the same content it changes nothing and gets the same answer; "": none
	RequestID string    `json:"request_id,omitempty"`
	By        string    `json:"by,omitempty"` // who says so, such as judge-3; "": nobody knows
	IDs       []ID      `json:"ids"`          // of rollouts, none twice
	Values    []float32 `json:"rewards"`
}

// The bounds of Rewards.
const (
	MostRewards     = 1024 // at once
	MostRewardBytes = 128  // of By, and of RequestID
)

// Rewarded is the answer to [Rewards].
type Rewarded struct {
	Rewarded int `json:"rewarded"` // rollouts that have the reward now
	Left     int `json:"left"`     // that had left the table: nothing but the record has their reward
	Entered  int `json:"entered"`  // that can be drawn from now on, as the rewards of their group are all known
}

// Measurement is a number from 0 to 1e12 that may be unknown, its zero value.
type Measurement struct {
	Value float64
	Known bool
}

// Measured returns a known measurement.
func Measured(v float64) Measurement { return Measurement{v, true} }

// Cause is why a rollout left a table.
type Cause string

// Why rollouts leave a table.
const (
	EvictedByCapacity  Cause = "capacity"   // count or bytes
	EvictedByStaleness Cause = "staleness"  // older than MaxStaleness
	EvictedByUses      Cause = "uses"       // reached MaxUses
	EvictedByConsume   Cause = "consumed"   // taken from a queue
	EvictedByRewind    Cause = "rewind"     // newer than the version rewound to
	EvictedByDamage    Cause = "damage"     // could not be read back from a damaged journal
	EvictedBySelection Cause = "selection"  // others of their group were selected as it was inserted
	EvictedUnrewarded  Cause = "unrewarded" // their group waited for rewards longer than pending_rewards
)

// Stats is what a table has counted since it was made. At any time (invariant 11)
//
//	Inserted     = Present + the sum of Evicted
//	Drawn        = Acknowledged + Returned + draws on lease
//	Acknowledged = the sum of UsesPresent + the sum of UsesAtEviction
type Stats struct {
	Version        Version
	Present        int   // rollouts
	Waiting        int   // of these, rollouts that wait for the rewards of their group
	PresentBytes   int64 // of their payload
	Inserted       uint64
	InsertedGroups uint64
	Evicted        map[Cause]uint64
	Refused        uint64 // rollouts refused for good; retryable refusals are not counted
	Drawn          uint64 // handed out
	Acknowledged   uint64 // draws that became uses
	Returned       uint64 // draws that went back unacknowledged
	UpdatesIgnored uint64 // priority updates addressed to evicted rollouts (invariant 7)
	NeverUsed      uint64 // evicted without a use; falls when a draw is acknowledged after its rollout was evicted

	Staleness      Histogram // at use, in versions
	MeanStaleness  Histogram // at use, mean over the rollout's tokens, rounded down to whole versions
	UsesAtEviction Histogram
	UsesPresent    Histogram // of the rollouts now in the table
	SinceLastUse   Histogram // updates since the previous use; 0: repeated within a batch; first uses are not counted
}

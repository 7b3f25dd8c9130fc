package rollout

// BatchID names a batch that a table handed out.
type BatchID uint64

// Draw is one sampled rollout with what the table knew of it at hand-over.
type Draw struct {
	ID          ID
	Group       uint64 // global group number
	Rollout     *Rollout
	Advantage   float32
	Probability float64 // of this unit in this draw, as used
	Weight      float32 // importance weight; 1 for samplers that draw all alike, and for fresh draws
	Fresh       bool    // one of the Request.Fresh
	Staleness   int32   // table version minus the rollout's version, >= 0
	Uses        int32   // acknowledged uses before this draw
	GroupMean   float32 // mean reward of the group at insertion
	GroupStd    float32 // population standard deviation of the group's rewards at insertion
}

// Batch is what one Sample call hands out.
type Batch struct {
	ID      BatchID
	Version Version // of the table at hand-over
	Shard   int
	Draws   []Draw
}

// Request asks a table for a batch.
type Request struct {
	Size  int    // rollouts, >= 1
	Fresh int    // of them, rollouts that were never handed out as fresh, the oldest first; 0 <= Fresh <= Size
	Shard int    // 0 <= Shard < shards
	ID    string // request id; a repeated one gets the same batch. Empty: no repetition.
}

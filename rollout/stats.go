package rollout

// Cause is why a rollout left a table.
type Cause string

// Why rollouts leave a table.
const (
	EvictedByCapacity  Cause = "capacity"  // count or bytes
	EvictedByStaleness Cause = "staleness" // older than MaxStaleness
	EvictedByUses      Cause = "uses"      // reached MaxUses
	EvictedByConsume   Cause = "consumed"  // taken from a queue
	EvictedByRewind    Cause = "rewind"    // newer than the version rewound to
	EvictedByDamage    Cause = "damage"    // could not be read back from a damaged journal
)

// Stats is what a table has counted since it was made. At any time Inserted is Present plus all of
// Evicted, Drawn is Acknowledged plus Returned plus what is on lease, and Acknowledged is the sum of
// UsesPresent and UsesAtEviction (invariant 11).
type Stats struct {
	Version        Version
	Present        int   // rollouts
	PresentBytes   int64 // of their payload
	Inserted       uint64
	InsertedGroups uint64
	Evicted        map[Cause]uint64
	Refused        uint64 // rollouts of insertions refused for good; retryable refusals are not counted
	Drawn          uint64 // handed out
	Acknowledged   uint64 // draws that became uses
	Returned       uint64 // draws that went back unacknowledged
	UpdatesIgnored uint64 // priority updates addressed to evicted rollouts (invariant 7)
	NeverUsed      uint64 // evicted without a use; falls when a draw outlives its rollout and is acknowledged after

	Staleness      Histogram // at use, in versions
	MeanStaleness  Histogram // at use, mean over the rollout's tokens, rounded down to a version
	UsesAtEviction Histogram
	UsesPresent    Histogram // of the rollouts now in the table
	SinceLastUse   Histogram // updates since the previous use; 0: repeat within a batch; first uses are not counted
}

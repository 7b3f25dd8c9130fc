package pipeline

import "math"

// Fresh draws are of rollouts that no trainer was given as fresh before, the oldest first (rollout.Request.Fresh).

// freshOf returns how many fresh draws each trainer's batch has in update u, the one after version u. Among updates on one
// batch the first draws it.
func (o Options) freshOf(u int) int {
	size := o.Batch / o.Trainers
	switch {
	case o.Mix <= 0:
		return int(math.Round(o.FreshShare * float64(size)))
	case u/o.BatchUpdates%(1+o.Mix) == 0:
		return size
	default:
		return 0
	}
}

// FreshPerUpdate is the mean number of fresh draws per update over all trainers: B/(1+K) with a mix, T times the
// share of B/T, rounded, with a fresh share, else 0; divided by BatchUpdates. Where it is above [Options.NewPerUpdate], trainers wait for fresh
// rollouts. Where it is below, rollouts not drawn as fresh pile up until the buffer drops the oldest: fresh draws are
// then of the oldest that it keeps.
func (o Options) FreshPerUpdate() float64 {
	updates := float64(max(1, o.BatchUpdates))
	if o.Mix > 0 {
		return float64(o.Batch) / (float64(1+o.Mix) * updates)
	}
	return float64(o.Trainers*o.freshOf(0)) / updates
}

// freshPerTurn returns how many fresh draws a trainer takes in a turn of synchronous mode.
func (o Options) freshPerTurn() int {
	batches := o.SyncUpdates / max(1, o.BatchUpdates)
	if o.Mix > 0 {
		return o.Batch / o.Trainers * (batches / (1 + o.Mix))
	}
	return o.freshOf(0) * batches
}

// freshRollouts returns the new rollouts that a turn's fresh draws take, where whole groups go to one trainer's
// shard each.
func (o Options) freshRollouts() int {
	groups := (o.freshPerTurn() + o.Group - 1) / o.Group
	return o.Trainers * o.Group * groups
}

// defaultSyncRollouts returns what fills a batch, or, with a mix, those of the turn's updates that are fresh.
func (o Options) defaultSyncRollouts() int {
	if o.Mix > 0 {
		return o.freshRollouts()
	}
	return max((o.Batch+o.Group-1)/o.Group*o.Group, o.freshRollouts())
}

// freshDefined reports whether Mix and FreshShare are within their ranges and one of them is 0.
func (o Options) freshDefined() bool {
	return o.Mix == 0 && o.FreshShare >= 0 && o.FreshShare <= 1 || o.Mix > 0 && o.Mix < math.MaxInt32 && o.FreshShare == 0
}

// refuseFresh refuses what is wrong with Mix and FreshShare, and with the turns of synchronous mode for them.
func (o Options) refuseFresh(refuse func(bad bool, key string, value any, allowed string, args ...any)) {
	refuse(o.Mix < 0 || o.Mix >= math.MaxInt32, "mix", o.Mix, "0 to %d", math.MaxInt32-1)
	refuse(!(o.FreshShare >= 0 && o.FreshShare <= 1), "fresh_share", o.FreshShare, "0 to 1")
	refuse(o.Mix > 0 && o.FreshShare > 0, "fresh_share", o.FreshShare, "0 with mix %d: one of them says what is fresh", o.Mix)
	if !o.freshDefined() || o.Trainers < 1 || o.Batch < 1 || o.Group < 1 || o.Batch%o.Trainers != 0 {
		return // said already
	}
	refuse(o.FreshShare > 0 && o.freshOf(0) == 0, "fresh_share", o.FreshShare,
		"0, or enough for one fresh draw among the %d of a trainer", o.Batch/o.Trainers)
	switch {
	case o.Mode != Sync || o.SyncUpdates < 1 || o.BatchUpdates < 1 || o.SyncUpdates%o.BatchUpdates != 0:
	case o.Mix == 0:
		refuse(o.SyncRollouts < o.freshRollouts(), "sync_rollouts", o.SyncRollouts,
			"at least %d with fresh_share %g, whole groups for each trainer's %d fresh draws in a turn",
			o.freshRollouts(), o.FreshShare, o.freshPerTurn())
	case o.SyncUpdates/o.BatchUpdates%(1+o.Mix) != 0:
		refuse(true, "sync_updates", o.SyncUpdates, "a multiple of the %d updates of a mix of %d", o.BatchUpdates*(1+o.Mix), o.Mix)
	case o.freshPerTurn()%o.Group != 0:
		refuse(true, "sync_updates", o.SyncUpdates, "such that each trainer's %d fresh draws in a turn are whole groups of %d",
			o.freshPerTurn(), o.Group)
	default:
		refuse(o.SyncRollouts != o.freshRollouts(), "sync_rollouts", o.SyncRollouts,
			"%d with mix %d, what the turn's fresh updates take", o.freshRollouts(), o.Mix)
	}
}

package replay

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// lateBounds are option sets of tables whose rewards come late.
func lateBounds() []Options {
	list := []Options{
		{Capacity: 12, MaxStaleness: 6},
		{Capacity: 24, Shards: 2, MaxUses: 2, MinSize: 3},
		{Capacity: 12, CapacityBytes: 900, DrawAdvantage: AdvantageRegrouped},
		{Capacity: 14, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 3},
		{Capacity: 14, Retention: KeepScored, Score: "reward + 1 / (1 + since_use)", Advantage: advantage.LeaveOneOut},
		{Capacity: 14, MaxStaleness: 2, Pin: "reward > 0"},
		{Capacity: 24, Sources: someSources()},
		{Capacity: 18, Unit: UnitGroup, GroupSize: 3, MaxStaleness: 20, Advantage: advantage.NoStd},
	}
	for i := range list {
		list[i].PendingRewards = 25
	}
	return list
}

// groupOf returns the units of a unit's group that are in the table.
func (m *model) groupOf(u *modelUnit) (mates []*modelUnit) {
	for _, other := range m.all {
		if other.present && other.group == u.group {
			mates = append(mates, other)
		}
	}
	return mates
}

func (m *model) deadline() time.Time {
	return m.now().Add(time.Duration(m.o.PendingRewards * float64(time.Second)))
}

// restartDeadlines is what a crash does to groups that wait.
func (m *model) restartDeadlines() {
	for _, u := range m.all {
		u.deadline = m.deadline()
	}
}

// dropUnrewarded has the groups leave that wait no longer.
func (m *model) dropUnrewarded(now time.Time) {
	for _, u := range m.all {
		if u.present && u.waits && !now.Before(u.deadline) {
			m.evict(u, rollout.EvictedUnrewarded)
		}
	}
}

// reward gives rollouts rewards, by definition.
func (m *model) reward(ids []rollout.ID, values []float32) (done rollout.Rewarded) {
	var groups, opened []*modelUnit // one unit of each
	for i, id := range ids {
		u := m.unitOf(id)
		if !u.present {
			done.Left++
			continue
		}
		done.Rewarded++
		for _, it := range u.items {
			if it.id == id {
				given := *it.r
				given.Reward = values[i]
				it.r = &given
			}
		}
		if !slices.ContainsFunc(groups, func(other *modelUnit) bool { return other.group == u.group }) {
			groups = append(groups, u)
		}
	}
	for _, late := range []bool{true, false} {
		for _, u := range groups {
			if u.waits == late && (late || !slices.Contains(opened, u)) {
				done.Entered += m.compare(m.groupOf(u))
				opened = append(opened, u)
			}
		}
	}
	for _, id := range ids {
		m.noteReward(id)
	}
	for _, u := range groups {
		for _, mate := range m.groupOf(u) {
			switch {
			case !mate.present: // it left with its group
			case mate.reserved && !mate.correct:
				m.evict(mate, rollout.EvictedByCapacity)
			case m.tooOld(mate):
				m.evict(mate, rollout.EvictedByStaleness)
			}
		}
	}
	return done
}

// compare takes advantages among the units of a group, unless a reward is pending, and returns how many rollouts can be
// drawn that could not before.
func (m *model) compare(units []*modelUnit) (entered int) {
	var items []*modelItem
	var rewards []float32
	for _, u := range units {
		for _, it := range u.items {
			items, rewards = append(items, it), append(rewards, it.r.Reward)
			if it.r.Pending() {
				return 0
			}
		}
	}
	advantages := make([]float32, len(rewards))
	moments := advantage.OfGroup(advantages, rewards, m.o.Advantage)
	for i, it := range items {
		it.advantage, it.mean, it.std = advantages[i], float32(moments.Mean), float32(moments.Std())
	}
	for _, u := range units {
		u.correct = u.items[0].r.Reward >= *m.o.PositiveThreshold
		if !u.waits {
			m.rebaseUnit(u)
			continue
		}
		for _, it := range u.items {
			it.base = m.own(it)
			m.largest[u.shard] = max(m.largest[u.shard], it.base)
			if m.o.Entry == EnterMax {
				it.atMax = true
				if it.base = m.largest[u.shard]; it.base <= m.o.PriorityEpsilon {
					it.base = 1
				}
			}
			entered++
		}
		u.waits = false
	}
	return entered
}

// rebaseUnit gives rollouts whose rewards or advantages changed the bases that follow from these.
func (m *model) rebaseUnit(u *modelUnit) {
	for _, it := range u.items {
		if m.o.Sampler != Prioritized || m.o.PriorityBase == BaseGradNorm ||
			it.atMax && m.o.EntryUntil != UntilReport && u.replays == 0 {
			continue
		}
		it.base, it.atMax = m.own(it), false
		m.largest[u.shard] = max(m.largest[u.shard], it.base)
	}
}

// noteReward follows compare.
func (m *model) noteReward(id rollout.ID) {
	u := m.unitOf(id)
	if m.lives == nil || !u.present {
		return
	}
	for _, mate := range m.groupOf(u) {
		for _, it := range mate.items {
			m.lives[it.id].Reward, m.lives[it.id].Advantage = Number(it.r.Reward), Number(it.advantage)
			if it.id != id {
				continue
			}
			e := Event{Kind: WasRewarded, Caller: "judge", Reward: new(float64(it.r.Reward))}
			if m.o.Sampler == Prioritized && !u.waits {
				e.Priority = new(it.base)
			}
			m.note(id, e)
		}
	}
}

// reward gives a few rollouts rewards, of those that wait more than of others, and repeats a call now and then.
func (tr *trial) reward() {
	var ids []rollout.ID
	for _, u := range tr.model.all {
		for _, it := range u.items {
			if u.present && it.r.Pending() && tr.random.IntN(3) > 0 || tr.random.IntN(40) == 0 {
				ids = append(ids, it.id)
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	tr.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(len(ids), 1+tr.random.IntN(6))]
	values := make([]float32, len(ids))
	for i := range values {
		if values[i] = float32(tr.random.IntN(3)) / 2; tr.random.IntN(3) == 0 {
			values[i] = float32(tr.random.NormFloat64())
		}
	}
	r := rollout.Rewards{RequestID: fmt.Sprint("r", tr.random.Uint64()), By: "judge", IDs: ids, Values: values}
	want := tr.model.reward(ids, values)
	for range 1 + tr.random.IntN(2) {
		got, err := tr.table.Reward(ctx, r)
		again, err2 := tr.twin.Reward(ctx, r)
		tr.same(got, again, err, err2)
		tr.must(err)
		if got != want {
			tr.t.Fatalf("rewarding %v gave %+v, by definition %+v", r, got, want)
		}
	}
	for _, id := range ids { // what the model holds is what the table does, by content
		if u := tr.model.unitOf(id); u.present {
			tr.takeOver(u, id)
		}
	}
}

// takeOver has the model hold the table's copy of a rollout whose reward was given.
func (tr *trial) takeOver(u *modelUnit, id rollout.ID) {
	h, ok := tr.table.Inspect().Get(id)
	for _, it := range u.items {
		if it.id != id {
			continue
		}
		if !ok || fmt.Sprint(*h.Rollout) != fmt.Sprint(*it.r) {
			tr.t.Fatalf("rollout %d is %v, by definition %v", id, h.Rollout, it.r)
		}
		it.r = h.Rollout
	}
}

// sameButNaN compares what is shown of a rollout that waits.
func sameButNaN(got, want Held, it *modelItem) bool {
	return math.IsNaN(got.Base) && got.Probability == want.Probability && fmt.Sprint(*got.Rollout) == fmt.Sprint(*it.r) &&
		math.IsNaN(float64(got.Mean)) && math.IsNaN(float64(got.Std))
}

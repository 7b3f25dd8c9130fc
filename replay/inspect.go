package replay

import (
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Held is what a table knows of one rollout it holds.
type Held struct {
	ID        rollout.ID
	Group     uint64
	Shard     int
	Rollout   *rollout.Rollout // shared: read only
	Age       int              // versions since it was made: its staleness if it were drawn now
	Uses      int              // acknowledged
	Leased    int              // draws not settled yet
	Advantage float32
	Mean, Std float32 // of its group's rewards at insertion
	Fresh     bool    // not handed out as fresh yet
	AtMax     bool    // entered at the largest base, and no report came since

	// Of the unit that a draw falls on: the rollout itself, or its group.
	UnitAge     int     // greatest of its rollouts' ages
	Base        float64 // of its priority, mean over its rollouts, epsilon included; NaN with a sampler that does not weigh
	Probability float64 // with which its shard's next draw falls on it; NaN with samplers whose draws hang on earlier ones
}

// Held returns what the table holds, shard by shard and in order of insertion, as of one moment for each shard. It
// costs a look at every rollout.
func (t *Table) Held() []Held {
	var all []Held
	for _, s := range t.shards {
		s.mu.Lock()
		s.expire()
		from := len(all)
		var chance func(s int32) float64
		if s.weighing != nil {
			chance = s.weighing.chances()
		}
		for slot, r := range s.rollouts {
			if r != nil && !s.items[slot].is(gone) {
				all = append(all, s.held(int32(slot), chance))
			}
		}
		s.mu.Unlock()
		slices.SortFunc(all[from:], func(a, b Held) int { return int(int64(a.ID) - int64(b.ID)) })
	}
	return all
}

func (s *shard) held(slot int32, chance func(s int32) float64) Held {
	it := &s.items[slot]
	e := Held{
		ID: it.ID, Group: it.Group, Shard: s.number, Rollout: s.rollouts[slot],
		Age: int(s.version - it.Version), Uses: int(it.Uses), Leased: int(it.Leased), Advantage: it.Advantage, Mean: it.Mean, Std: it.Std,
		AtMax: it.is(atMax), Base: math.NaN(), Probability: math.NaN(),
	}
	first := s.units.first(&s.store, slot)
	e.Fresh = s.items[first].is(fresh | shelved)
	e.UnitAge = int(s.version - s.units.version(&s.store, first))
	switch {
	case s.weighing != nil:
		e.Base = s.weighing.base(first)
		e.Probability = chance(first)
	case s.options.Sampler == Uniform || s.options.Sampler == Distinct:
		e.Probability = 0 // where its draws on lease have exhausted it
		if it := &s.items[first]; s.maxUses == 0 || it.Uses+it.Leased < s.maxUses {
			e.Probability = 1 / float64(s.sampler.size())
		}
	}
	return e
}

// NeverUsedShare returns the share of the rollouts held that have no acknowledged use, in [0, 1]; 0 of an empty table.
func (t *Table) NeverUsedShare() float64 {
	var never, present uint64
	for _, s := range t.shards {
		s.mu.Lock()
		s.expire()
		never += s.counts.UsesPresent.Of(0)
		present += s.counts.UsesPresent.Count()
		s.mu.Unlock()
	}
	if present == 0 {
		return 0
	}
	return float64(never) / float64(present)
}

// AgeShare is the units of one age.
type AgeShare struct {
	Age         int     // versions
	Units       int     // that can be drawn
	Base        float64 // mean of their bases
	Probability float64 // with which a draw falls on one of them; mean over shards
}

// ByAge returns how a prioritized sampler's probabilities lie over ages, in ascending order; nil with another sampler. It costs
// a look at every rollout.
func (t *Table) ByAge() []AgeShare {
	byAge := make(map[int]AgeShare)
	for _, s := range t.shards {
		if s.weighing == nil {
			return nil
		}
		s.mu.Lock()
		s.expire()
		w, chance := s.weighing, s.weighing.chances()
		w.eachDrawable(func(slot int32) {
			age := int(s.version - w.units.version(w.store, slot))
			a := byAge[age]
			a.Units++
			a.Base += w.base(slot)
			a.Probability += chance(slot) / float64(len(t.shards))
			byAge[age] = a
		})
		s.mu.Unlock()
	}
	list := make([]AgeShare, 0, len(byAge))
	for age, a := range byAge {
		a.Age, a.Base = age, a.Base/float64(a.Units)
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b AgeShare) int { return a.Age - b.Age })
	return list
}

// ESSByAge returns the effective sample sizes that trainers reported ([Table.Report]), by ascending age.
func (t *Table) ESSByAge() []AgeESS {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ratios.measured()
}

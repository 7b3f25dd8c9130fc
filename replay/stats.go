package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// cause is why a rollout left, as an index.
type cause int

const (
	byCapacity cause = iota
	byStaleness
	byUses
	byConsume
	byRewind
	causes // what follows has a count of its own: the size of [counts].Evicted is part of its form
)

const (
	bySelection = causes + iota
	byDeadline
)

// name is the cause as statistics show it.
func (c cause) name() rollout.Cause {
	return [...]rollout.Cause{
		rollout.EvictedByCapacity, rollout.EvictedByStaleness, rollout.EvictedByUses,
		rollout.EvictedByConsume, rollout.EvictedByRewind, rollout.EvictedBySelection, rollout.EvictedUnrewarded,
	}[c]
}

// counts is the statistics of a shard (invariant 11), kept at constant cost per event. Fields are exported for
// encoding/gob.
type counts struct {
	Inserted, Groups              uint64
	Evicted                       [causes]uint64
	Drawn, Acknowledged, Returned uint64
	NeverUsed                     uint64
	Lost                          uint64 // left by damage: see Table.Rebuild
	PassedOver                    uint64 // by selection, as they came
	Unrewarded                    uint64 // left by the deadline of pending_rewards

	Staleness, MeanStaleness, UsesAtEviction, UsesPresent, SinceLastUse rollout.Histogram
}

// evicted counts the eviction of a rollout with the given uses.
func (c *counts) evicted(why cause, uses int32) {
	if why == byDeadline {
		c.Unrewarded++
	} else {
		c.Evicted[why]++
	}
	c.UsesAtEviction.Add(int64(uses))
	if uses == 0 {
		c.NeverUsed++
	}
}

// passOver counts a rollout that selection leaves out.
func (c *counts) passOver() {
	c.PassedOver++
	c.UsesAtEviction.Add(0)
	c.NeverUsed++
}

// used counts the next use of a rollout at a version of the table.
func (c *counts) used(it *item, at rollout.Version) {
	c.Acknowledged++
	c.Staleness.Add(int64(at - it.Version))
	c.MeanStaleness.Add(int64(at - it.MeanCeil))
	if it.LastUse != rollout.NoVersion {
		// Acknowledgements may come in another order than the draws.
		c.SinceLastUse.Add(int64(max(at-it.LastUse, 0)))
	}
	uses := int64(it.Uses)
	if !it.is(evicted) {
		c.UsesPresent.Move(uses, uses+1)
		return
	}
	c.UsesAtEviction.Move(uses, uses+1)
	if uses == 0 {
		c.NeverUsed--
	}
}

// addTo adds the counts to a table's statistics.
func (c *counts) addTo(s *rollout.Stats) {
	s.Inserted += c.Inserted
	s.InsertedGroups += c.Groups
	for why, n := range c.Evicted {
		if n > 0 {
			s.Evicted[cause(why).name()] += n
		}
	}
	if c.Lost > 0 {
		s.Evicted[rollout.EvictedByDamage] += c.Lost
	}
	if c.PassedOver > 0 {
		s.Evicted[rollout.EvictedBySelection] += c.PassedOver
	}
	if c.Unrewarded > 0 {
		s.Evicted[rollout.EvictedUnrewarded] += c.Unrewarded
	}
	s.Drawn += c.Drawn
	s.Acknowledged += c.Acknowledged
	s.Returned += c.Returned
	s.NeverUsed += c.NeverUsed
	s.Staleness.Merge(&c.Staleness)
	s.MeanStaleness.Merge(&c.MeanStaleness)
	s.UsesAtEviction.Merge(&c.UsesAtEviction)
	s.UsesPresent.Merge(&c.UsesPresent)
	s.SinceLastUse.Merge(&c.SinceLastUse)
}

// present is the number of rollouts that entered and did not leave.
func (c *counts) present() uint64 { return c.Inserted - c.left() }

// left is the number of rollouts that left, for any cause.
func (c *counts) left() uint64 {
	n := c.Lost + c.PassedOver + c.Unrewarded
	for _, k := range c.Evicted {
		n += k
	}
	return n
}

// onLease is the number of draws that are not settled.
func (c *counts) onLease() uint64 { return c.Drawn - c.Acknowledged - c.Returned }

// clone returns a copy that shares nothing.
func (c *counts) clone() counts {
	d := *c
	for _, h := range []*rollout.Histogram{&d.Staleness, &d.MeanStaleness, &d.UsesAtEviction, &d.UsesPresent,
		&d.SinceLastUse} {
		copied := rollout.Histogram{}
		copied.Merge(h)
		*h = copied
	}
	return d
}

// Inspection shows what a table holds and how its sampler weighs it: for monitoring and for people, not for training.
// Its methods may be called concurrently.
type Inspection struct{ table *Table }

// Inspect returns the table as monitoring sees it.
func (t *Table) Inspect() Inspection { return Inspection{t} }

// Held is what a table knows of one rollout in it.
type Held struct {
	ID        rollout.ID
	Group     uint64
	Shard     int
	Rollout   *rollout.Rollout // shared: read only
	Age       int              // versions since it was made: its staleness if it were drawn now
	Uses      int              // acknowledged
	Leased    int              // draws not settled yet
	Advantage float32
	Mean, Std float32         // of its group's rewards at insertion
	Fresh     bool            // not handed out as fresh yet
	AtMax     bool            // still at the largest base, at which it entered
	Pinned    bool            // max_staleness does not evict it
	Waiting   bool            // for the rewards of its group: it cannot be drawn
	LastUse   rollout.Version // of the table; rollout.NoVersion before the first

	// Of the unit that a draw falls on: the rollout itself, or its group.
	UnitAge int // greatest of its rollouts' ages
	// of its priority, mean over its rollouts, epsilon included; NaN unless the sampler is prioritized
	Base        float64
	Probability float64 // that its shard's next draw falls on it; NaN with samplers whose draws depend on earlier ones

	Order float64 // of [Inspection.Find]: the number by which it is ordered, NaN if it is not known; 0 with none
}

// Draw returns the rollout as a draw that nobody made: its probability is that of the next one, its weight 1.
func (h *Held) Draw() rollout.Draw {
	return rollout.Draw{
		ID: h.ID, Group: h.Group, Rollout: h.Rollout, Advantage: h.Advantage, Probability: h.Probability, Weight: 1,
		Fresh: h.Fresh, Staleness: int32(min(h.Age, math.MaxInt32)), Uses: int32(h.Uses),
		GroupMean: h.Mean, GroupStd: h.Std,
	}
}

// Held returns what the table holds, shard by shard and in order of insertion, as of one moment for each shard. It
// visits every rollout.
func (v Inspection) Held() []Held {
	var all []Held
	for _, s := range v.table.shards {
		from := len(all)
		s.do(func(s *shard) {
			s.expire()
			chance := s.chances()
			for slot := range s.rollouts {
				if s.holds(int32(slot)) {
					all = append(all, s.held(int32(slot), chance))
				}
			}
		})
		slices.SortFunc(all[from:], func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
	}
	return all
}

// Place is where a table holds a rollout.
type Place struct {
	id          rollout.ID
	shard, slot int32
}

// Places returns where the table holds its rollouts, in order of ids. They keep no rollout in memory.
func (v Inspection) Places() []Place {
	var all []Place
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			for slot := range s.rollouts {
				if s.holds(int32(slot)) {
					all = append(all, Place{s.items[slot].ID, int32(s.number), int32(slot)})
				}
			}
		})
	}
	sortPlaces(all)
	return all
}

func sortPlaces(all []Place) {
	slices.SortFunc(all, func(a, b Place) int { return cmp.Compare(a.id, b.id) })
}

// At returns what the table holds at some places, in order of ids. It leaves out the rollouts that have left.
func (v Inspection) At(places []Place) []Held {
	byShard := make(map[int32][]Place)
	for _, p := range places {
		byShard[p.shard] = append(byShard[p.shard], p)
	}
	var all []Held
	for number, places := range byShard {
		v.table.shards[number].do(func(s *shard) {
			s.expire()
			chance := s.chances()
			for _, p := range places {
				if s.holds(p.slot) && s.items[p.slot].ID == p.id {
					all = append(all, s.held(p.slot, chance))
				}
			}
		})
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// holds reports whether a slot holds a rollout that has not been evicted.
func (s *shard) holds(slot int32) bool {
	return int(slot) < len(s.rollouts) && s.rollouts[slot] != nil && !s.items[slot].is(evicted)
}

// chances returns the chance of a slot with sampler prioritized, nil with others.
func (s *shard) chances() func(slot int32) float64 {
	if s.prioritized == nil {
		return nil
	}
	return s.prioritized.chances()
}

func (s *shard) held(slot int32, chance func(s int32) float64) Held {
	it := &s.items[slot]
	e := Held{
		ID: it.ID, Group: it.Group, Shard: s.number, Rollout: s.rollouts[slot],
		Age: int(s.version - it.Version), Uses: int(it.Uses), Leased: int(it.Leased), Advantage: it.Advantage,
		Mean: it.Mean, Std: it.Std,
		AtMax: it.is(atMax), Pinned: it.is(pinned), Waiting: it.is(waits), LastUse: it.LastUse,
		Base: math.NaN(), Probability: math.NaN(),
	}
	first := s.units.first(&s.store, slot)
	e.Fresh = s.waitsFresh(first)
	e.UnitAge = int(s.version - s.units.version(&s.store, first))
	switch {
	case it.is(waits):
		e.Probability = 0
	case s.prioritized != nil:
		e.Base = s.prioritized.base(first)
		e.Probability = chance(first)
	case s.options.composed() != "": // it depends on how many draws each source gives
	case s.options.Sampler == Uniform || s.options.Sampler == Distinct:
		e.Probability = 0 // where its draws on lease have exhausted it
		if it := &s.items[first]; s.maxUses == 0 || it.Uses+it.Leased < s.maxUses {
			e.Probability = 1 / float64(s.sampler.size())
		}
	}
	return e
}

// NeverUsedShare returns the share of the rollouts in the table without an acknowledged use, in [0, 1]; 0 for an empty
// table.
func (v Inspection) NeverUsedShare() float64 {
	var never, present uint64
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			s.expire()
			never += s.counts.UsesPresent.Of(0)
			present += s.counts.UsesPresent.Count()
		})
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
	Probability float64 // that a draw falls on one of them; mean over shards
}

// ByAge returns the draw probabilities of sampler prioritized by age, in ascending order; nil with another sampler. It
// visits every rollout.
func (v Inspection) ByAge() []AgeShare {
	byAge := make(map[int]AgeShare)
	shards := v.table.shards
	for _, s := range shards {
		if s.prioritized == nil {
			return nil
		}
		s.do(func(s *shard) {
			s.expire()
			w, chance := s.prioritized, s.prioritized.chances()
			w.eachDrawable(func(slot int32) {
				age := int(s.version - w.units.version(w.store, slot))
				a := byAge[age]
				a.Units++
				a.Base += w.base(slot)
				a.Probability += chance(slot) / float64(len(shards))
				byAge[age] = a
			})
		})
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
func (v Inspection) ESSByAge() []AgeESS {
	t := v.table
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ratios.measured()
}

// AgeDecay returns tau as it is now, in versions; +Inf where weights do not fall with age, and with samplers other than
// prioritized.
func (v Inspection) AgeDecay() float64 {
	s := v.table.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prioritized == nil {
		return math.Inf(1)
	}
	return s.prioritized.tau
}

package replay

import "github.com/reprise-rl/reprise/rollout"

// cause is why a rollout left, as an index.
type cause int

const (
	byCapacity cause = iota
	byStaleness
	byUses
	byConsume
	byRewind
	causes
)

// name is the cause as statistics show it.
func (c cause) name() rollout.Cause {
	return [causes]rollout.Cause{
		rollout.EvictedByCapacity, rollout.EvictedByStaleness, rollout.EvictedByUses,
		rollout.EvictedByConsume, rollout.EvictedByRewind,
	}[c]
}

// counts is what a shard has counted (invariant 11), each at constant cost. Fields are exported for
// encoding/gob.
type counts struct {
	Inserted, Groups              uint64
	Evicted                       [causes]uint64
	Drawn, Acknowledged, Returned uint64
	NeverUsed                     uint64
	Lost                          uint64 // left by damage: see Table.Rebuild

	Staleness, MeanStaleness, UsesAtEviction, UsesPresent, SinceLastUse rollout.Histogram
}

// evicted counts a rollout that left with so many uses.
func (c *counts) evicted(why cause, uses int32) {
	c.Evicted[why]++
	c.UsesAtEviction.Add(int64(uses))
	if uses == 0 {
		c.NeverUsed++
	}
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
	if !it.is(gone) {
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

// present is how many rollouts came and did not leave.
func (c *counts) present() uint64 { return c.Inserted - c.left() }

// left is how many rollouts left, for whatever cause.
func (c *counts) left() uint64 {
	n := c.Lost
	for _, k := range c.Evicted {
		n += k
	}
	return n
}

// onLease is how many draws are not settled.
func (c *counts) onLease() uint64 { return c.Drawn - c.Acknowledged - c.Returned }

// clone returns a copy that shares nothing.
func (c *counts) clone() counts {
	d := *c
	for _, h := range []*rollout.Histogram{&d.Staleness, &d.MeanStaleness, &d.UsesAtEviction, &d.UsesPresent, &d.SinceLastUse} {
		copied := rollout.Histogram{}
		copied.Merge(h)
		*h = copied
	}
	return d
}

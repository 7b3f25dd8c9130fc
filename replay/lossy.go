package replay

import (
	"slices"
)

// mend makes what is left of a damaged table something that a table can hold: books that cover the rollouts, whole groups,
// no more than the capacity. Rollouts are in order of their ids. It returns how many it dropped.
func (t *Table) mend(r *Recovered) (dropped int) {
	before := len(r.Kept)
	r.Kept = slices.CompactFunc(r.Kept, func(a, b Kept) bool { return a.ID == b.ID })
	if r.Books == nil {
		r.Books = t.guessBooks(r.Kept)
	}
	b := r.Books
	for i := range r.Kept {
		k := &r.Kept[i]
		b.LastID, b.LastGroup = max(b.LastID, k.ID), max(b.LastGroup, k.Group)
		if k.Rollout != nil {
			b.Version = max(b.Version, k.Rollout.Span().Greatest, k.LastUse)
		}
	}
	b.Ratios.Version = max(b.Ratios.Version, b.Version)
	r.Kept = slices.DeleteFunc(r.Kept, func(k Kept) bool { return t.checkKept(&k, b) != nil })
	t.dropPartial(r)
	t.dropOldest(r)
	r.Requests = slices.DeleteFunc(r.Requests, func(q Insertion) bool { return !q.possible(b) })
	seen := make(map[string]bool)
	r.Requests = slices.DeleteFunc(r.Requests, func(q Insertion) bool {
		again := seen[q.BatchID]
		seen[q.BatchID] = true
		return again
	})
	return before - len(r.Kept)
}

// dropPartial takes out the rollouts of groups that are not whole, where draws fall on groups (invariant 8).
func (t *Table) dropPartial(r *Recovered) {
	if t.options.Unit != UnitGroup {
		return
	}
	size := make(map[uint64]int)
	for i := range r.Kept {
		size[r.Kept[i].Group]++
	}
	r.Kept = slices.DeleteFunc(r.Kept, func(k Kept) bool { return size[k.Group] != t.options.GroupSize })
}

// dropOldest takes out what is beyond the capacity: rollouts that had been removed before the damage.
func (t *Table) dropOldest(r *Recovered) {
	type room struct{ recent, kept size }
	o := &t.options
	left := make([]room, len(t.shards))
	for i := range left {
		left[i] = room{size{o.recentCapacity(), o.recentBytes()}, size{o.keptCapacity(), o.keptBytes()}}
	}
	full := make(map[uint64]bool) // groups
	drop := make([]bool, len(r.Kept))
	for i := len(r.Kept) - 1; i >= 0; i-- {
		k := &r.Kept[i]
		at := &left[k.Shard].recent
		if k.Marks&MarkKept != 0 {
			at = &left[k.Shard].kept
		}
		at.count--
		at.bytes -= k.Rollout.Bytes()
		drop[i] = at.count < 0 || at.bytes < 0
		full[k.Group] = full[k.Group] || drop[i]
	}
	kept := r.Kept[:0]
	for i, k := range r.Kept {
		if !drop[i] && (o.Unit != UnitGroup || !full[k.Group]) {
			kept = append(kept, k)
		}
	}
	r.Kept = kept
}

// guessBooks makes books out of what is there.
func (t *Table) guessBooks(all []Kept) *Books {
	b := &Books{Options: t.identity(), Shards: make([]shardBooks, len(t.shards))}
	known := make(map[uint64]bool)
	for i := range all {
		k := &all[i]
		if k.Shard < 0 || k.Shard >= len(b.Shards) {
			continue // dropped after
		}
		s := &b.Shards[k.Shard]
		s.Largest = max(s.Largest, k.Base)
		s.Counts.Inserted++
		if !known[k.Group] {
			known[k.Group] = true
			s.Counts.Groups++
		}
	}
	for i := range b.Shards {
		if p := t.options.Prioritization; p != nil {
			b.Shards[i].Tau = p.AgeDecay
		}
	}
	return b
}

// mendBooks makes a shard's books balance (invariant 11). It returns how many rollouts are missing.
func (s *shard) mendBooks() (lost int) {
	c := &s.counts
	uses := uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	if missing := int64(c.present()) - int64(s.present); missing > 0 {
		lost = int(missing)
		c.loseRollouts(uint64(missing), c.Acknowledged-min(uses, c.Acknowledged))
	}
	c.Inserted = c.left() + uint64(s.present)
	c.Acknowledged = uint64(c.UsesPresent.Sum() + c.UsesAtEviction.Sum())
	c.Drawn = c.Acknowledged + c.Returned
	return lost
}

// loseRollouts counts so many rollouts out, with so many uses in all: nobody knows which had how many.
func (c *counts) loseRollouts(n, uses uint64) {
	c.Lost += n
	for i := range n {
		share := uses / n
		if i < uses%n {
			share++
		}
		c.UsesAtEviction.Add(int64(share))
		if share == 0 {
			c.NeverUsed++
		}
	}
}

// possible tells whether a table with these books can have given the ids.
func (q *Insertion) possible(b *Books) bool {
	return q.BatchID != "" && q.Count >= 0 && uint64(q.Count) <= uint64(b.LastID) &&
		q.First > 0 && uint64(q.First)-1 <= uint64(b.LastID)-uint64(q.Count) // which does not overflow
}

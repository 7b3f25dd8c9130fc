package replay

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// checkFill returns an error if a batch cannot be drawn: one that wraps rollout.ErrStarved if it could be with more
// insertions, rollout.ErrInvalid if it never could.
func (s *shard) checkFill(req rollout.Request) error {
	n, o := req.Size, &s.options
	most := s.options.shardCapacity()
	each := 1 // rollouts per unit
	if s.units == groups {
		each = o.GroupSize
		if n%each != 0 || req.Fresh%each != 0 {
			return fmt.Errorf("size is %d with %d fresh: ask for whole groups of group_size %d: %w", n, req.Fresh, each, rollout.ErrInvalid)
		}
	}
	replayed := n - s.freshOf(req)
	need := n // fresh draws included, which no other draw of the batch repeats
	if o.Sampler.Replaces() {
		need = min(each, replayed)
		if s.maxUses > 0 && n/int(s.maxUses) > most {
			return fmt.Errorf("size is %d: ask for at most capacity x max_uses = %d x %d: %w", n, most, s.maxUses, rollout.ErrInvalid)
		}
	}
	drawable := s.sampler.size() * each
	switch {
	case need > most || s.freshOf(req) > most:
		return fmt.Errorf("size is %d: ask for at most the shard's capacity %d, or raise capacity: %w", n, most, rollout.ErrInvalid)
	case s.present < o.MinSize:
		return fmt.Errorf("sampling shard %d, which holds %d of min_size %d: %w", s.number, s.present, o.MinSize, rollout.ErrStarved)
	case s.fresh.Waiting.Len*each < s.freshOf(req):
		return fmt.Errorf("sampling %d fresh from shard %d, which holds %d never handed out as fresh: %w", req.Fresh, s.number, s.fresh.Waiting.Len*each, rollout.ErrStarved)
	case drawable < need:
		return fmt.Errorf("sampling %d from shard %d, where %d can be drawn: %w", n, s.number, drawable, rollout.ErrStarved)
	case s.maxUses > 0 && need < n && s.remaining < int64(n):
		return fmt.Errorf("sampling %d from shard %d, where max_uses allows %d more draws: %w", n, s.number, s.remaining, rollout.ErrStarved)
	}
	return nil
}

// freshOf returns how many draws of a request come from the queue of the fresh: none from a queue sampler, which gives
// each rollout once anyway.
func (s *shard) freshOf(req rollout.Request) int {
	if s.retention == nil {
		return 0
	}
	return req.Fresh
}

// draw takes a batch, which checkFill allowed, and leaves its slots in scratch. The batch's random stream derives from its
// number, so that there is no generator to keep (invariant 5).
func (s *shard) draw(req rollout.Request) *rollout.Batch {
	random := rollout.Stream(s.options.Seed, s.purpose, s.batches)
	batch := &rollout.Batch{
		// Shards take turns, so that the numbers of one do not depend on the others.
		ID:      rollout.BatchID(s.batches*uint64(s.options.Shards) + uint64(s.number) + 1),
		Version: s.version,
		Shard:   s.number,
		Draws:   make([]rollout.Draw, req.Size),
	}
	s.batches++
	s.scratch = s.scratch[:0]
	for n := s.freshOf(req); len(s.scratch) < n; {
		slot := s.fresh.pop(&s.store)
		s.sampler.took(slot)
		s.handOut(batch, slot, 1, true)
	}
	if left := req.Size - len(s.scratch); left > 0 {
		if s.units == groups {
			left /= s.options.GroupSize
		}
		s.sampler.begin(random, left)
		for range left {
			slot, probability := s.sampler.draw(random)
			s.handOut(batch, slot, probability, false)
		}
	}
	s.sampler.end()
	for i, slot := range s.scratch {
		it := &s.items[slot]
		if s.maxUses == 0 {
			it.Leased++
		}
		s.fill(&batch.Draws[i], it, s.rollouts[slot])
	}
	if s.weighing != nil {
		s.weighing.importance(batch.Draws, s.version)
	}
	s.counts.Drawn += uint64(req.Size)
	return batch
}

// handOut puts a drawn unit's rollouts into the batch.
func (s *shard) handOut(batch *rollout.Batch, slot int32, probability float64, fresh bool) {
	if s.units != groups { // the common case, kept short
		d := &batch.Draws[len(s.scratch)]
		s.scratch = append(s.scratch, slot)
		d.Probability, d.Fresh = probability, fresh
		if s.maxUses > 0 && s.spend(slot) {
			s.exhaust(slot)
		}
		return
	}
	exhausted := false
	s.units.each(&s.store, slot, func(m int32) {
		d := &batch.Draws[len(s.scratch)]
		s.scratch = append(s.scratch, m)
		d.Probability, d.Fresh = probability, fresh
		exhausted = s.maxUses > 0 && s.spend(m) || exhausted
	})
	if exhausted {
		s.exhaust(slot)
	}
}

// spend counts a draw against MaxUses and tells whether the rollout's uses and draws on lease have reached it.
func (s *shard) spend(slot int32) bool {
	it := &s.items[slot]
	it.Leased++
	s.remaining--
	return it.Uses+it.Leased >= s.maxUses
}

// exhaust takes a unit that reached MaxUses out of the draws before the next one, so that probabilities are conditional on
// that (invariants 3 and 4).
func (s *shard) exhaust(slot int32) {
	s.sampler.remove(slot)
	s.fresh.shelve(&s.store, slot)
}

// fill writes what the table knows of a drawn rollout; Probability is there already.
func (s *shard) fill(d *rollout.Draw, it *item, r *rollout.Rollout) {
	d.ID, d.Group, d.Rollout = it.ID, it.Group, r
	d.Advantage = it.Advantage
	d.Weight = 1
	d.Staleness = int32(s.version - it.Version)
	d.Uses = it.Uses
	d.GroupMean, d.GroupStd = it.Mean, it.Std
}

// acknowledge turns draws made at a version of the table into uses, each counted once (invariant 3).
func (s *shard) acknowledge(slots []int32, at rollout.Version) {
	for _, slot := range slots {
		it := &s.items[slot]
		s.counts.used(it, at)
		it.LastUse = max(it.LastUse, at)
		it.Uses++
		it.Leased--
		if s.notes != nil && !it.is(gone) {
			s.notes.changed(slot)
		}
		switch {
		case it.is(gone):
			s.settle(slot)
		case s.retention == nil:
			s.evict(slot, byConsume)
		case s.maxUses > 0 && it.Uses >= s.maxUses:
			s.evict(slot, byUses)
		}
	}
}

// takeBack undoes draws that were not acknowledged: they count as no use and are owed again.
func (s *shard) takeBack(slots []int32, draws []rollout.Draw) {
	s.counts.Returned += uint64(len(slots))
	for i, slot := range slots {
		it := &s.items[slot]
		it.Leased--
		if it.is(gone) {
			s.settle(slot)
			continue
		}
		if s.maxUses > 0 {
			s.remaining++
		}
		if !s.units.isFirst(&s.store, slot) {
			continue
		}
		if draws[i].Fresh || it.is(shelved) {
			s.fresh.restore(&s.store, slot)
		}
		s.sampler.restore(slot)
	}
}

// settle frees the slot of an evicted rollout once nothing of it is on lease.
func (s *shard) settle(slot int32) {
	if s.items[slot].Leased == 0 {
		s.release(slot)
	}
}

package replay

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// checkFill returns an error if a batch of n cannot be drawn: one that wraps rollout.ErrStarved if it
// could be with more insertions, rollout.ErrInvalid if it never could.
func (s *shard) checkFill(n int) error {
	need := n
	if s.options.Sampler == Uniform {
		need = 1
		if s.maxUses > 0 && n/int(s.maxUses) > s.options.shardCapacity() {
			return fmt.Errorf("size is %d: ask for at most capacity x max_uses = %d x %d: %w", n, s.options.shardCapacity(), s.maxUses, rollout.ErrInvalid)
		}
	}
	switch {
	case need > s.options.shardCapacity():
		return fmt.Errorf("size is %d: ask for at most the shard's capacity %d, or raise capacity: %w", n, s.options.shardCapacity(), rollout.ErrInvalid)
	case s.present < s.options.MinSize:
		return fmt.Errorf("sampling shard %d, which holds %d of min_size %d: %w", s.number, s.present, s.options.MinSize, rollout.ErrStarved)
	case s.sampler.size() < need:
		return fmt.Errorf("sampling %d from shard %d, where %d can be drawn: %w", n, s.number, s.sampler.size(), rollout.ErrStarved)
	case need < n && s.maxUses > 0 && s.remaining < int64(n):
		return fmt.Errorf("sampling %d from shard %d, where max_uses allows %d more draws: %w", n, s.number, s.remaining, rollout.ErrStarved)
	}
	return nil
}

// draw takes a batch of n, which checkFill allowed, and leaves its slots in scratch. The batch's random
// stream derives from its number, so that there is no generator to keep (invariant 5).
func (s *shard) draw(n int) *rollout.Batch {
	random := rollout.Stream(s.options.Seed, s.purpose, s.batches)
	batch := &rollout.Batch{
		// Shards take turns, so that the numbers of one do not depend on the others.
		ID:      rollout.BatchID(s.batches*uint64(s.options.Shards) + uint64(s.number) + 1),
		Version: s.version,
		Shard:   s.number,
		Draws:   make([]rollout.Draw, n),
	}
	s.batches++
	s.scratch = s.scratch[:0]
	s.sampler.begin()
	for i := range batch.Draws {
		slot, probability := s.sampler.draw(random)
		s.scratch = append(s.scratch, slot)
		batch.Draws[i].Probability = probability
		if s.maxUses > 0 {
			s.spend(slot)
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
	s.counts.Drawn += uint64(n)
	return batch
}

// spend counts a draw against MaxUses: a rollout whose uses and draws on lease reach it leaves the
// draws before the next one, so that probabilities are conditional on that (invariants 3 and 4).
func (s *shard) spend(slot int32) {
	it := &s.items[slot]
	it.Leased++
	s.remaining--
	if it.Uses+it.Leased >= s.maxUses {
		s.sampler.remove(slot)
	}
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
		switch {
		case it.Gone:
			s.settle(slot)
		case s.retention == nil:
			s.evict(slot, byConsume)
		case s.maxUses > 0 && it.Uses >= s.maxUses:
			s.evict(slot, byUses)
		}
	}
}

// takeBack undoes draws that were not acknowledged: they count as no use and are owed again.
func (s *shard) takeBack(slots []int32) {
	s.counts.Returned += uint64(len(slots))
	for _, slot := range slots {
		it := &s.items[slot]
		it.Leased--
		if it.Gone {
			s.settle(slot)
			continue
		}
		if s.maxUses > 0 {
			s.remaining++
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

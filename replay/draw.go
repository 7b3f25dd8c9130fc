package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// Sample draws a batch and counts its draws as used: for a trainer in the same process, where a batch handed out is a
// batch delivered. An error wraps rollout.ErrStarved if the shard holds too little: fewer than min_size, fewer never
// handed out as fresh than Request.Fresh, fewer drawable than Size (none, with samplers uniform and prioritized), or
// fewer draws than max_uses still allows. A repeated request id gets the same batch, counted once, while the shard
// remembers it: its last 8, and up to 256 within 128 MiB or an eighth of capacity_bytes for all shards.
//
// A request that names prompts gets what the shard has of them, min_size or not, and is never starved. It needs the
// option prompt_index. It costs O(1) for each rollout of these prompts and each operator of its expressions, O(L) where
// they measure the tokens (mean_logprob, length), and with an order a sort of each prompt's.
func (t *Table) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	s, r, err := t.shardOfRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.begin(ctx)
	return s.sample(r)
}

// request is a request with its expressions parsed.
type request struct {
	rollout.Request
	where, order *formula.Formula // nil: not given
}

func (t *Table) shardOfRequest(ctx context.Context, asked rollout.Request) (*lockedShard, request, error) {
	req := request{Request: asked}
	if err := ctx.Err(); err != nil {
		return nil, req, err
	}
	if err := t.checkDraw(&req); err != nil {
		return nil, req, err
	}
	if req.Shard < 0 || req.Shard >= len(t.shards) {
		return nil, req, fmt.Errorf("shard is %d: name one of 0 to %d: %w", req.Shard, len(t.shards)-1,
			rollout.ErrInvalid)
	}
	return t.shards[req.Shard], req, nil
}

// checkDraw refuses a request that no shard can ever fill, and parses the expressions of a draw by prompt.
func (t *Table) checkDraw(req *request) error {
	switch {
	case len(req.Prompts) > 0:
		return t.checkPrompts(req)
	case req.PerPrompt != 0 || req.Where != "" || req.Order != "":
		return fmt.Errorf("per_prompt, where or order is given without prompts: name prompts, or leave them out: %w",
			rollout.ErrInvalid)
	case req.Size < 1:
		return fmt.Errorf("size is %d: ask for at least 1 rollout: %w", req.Size, rollout.ErrInvalid)
	case req.Fresh < 0 || req.Fresh > req.Size:
		return fmt.Errorf("fresh is %d: ask for 0 to size (%d) rollouts: %w", req.Fresh, req.Size, rollout.ErrInvalid)
	}
	return nil
}

// checkRequest returns an error if the shard cannot fill a batch. It wraps rollout.ErrStarved if more insertions help,
// and rollout.ErrInvalid if nothing does.
func (s *shard) checkRequest(req request) error {
	if s.changes != nil && s.given() >= s.recorded+unrecorded {
		return fmt.Errorf("sampling from %s: %w", s.place(), ErrUnrecorded)
	}
	if len(req.Prompts) > 0 {
		return nil
	}
	n, o := req.Size, &s.options
	most := s.options.shardCapacity()
	each := 1 // rollouts per unit
	if s.units == groups {
		each = o.GroupSize
		if n%each != 0 || req.Fresh%each != 0 {
			return fmt.Errorf("size is %d with %d fresh: ask for whole groups of group_size %d: %w", n, req.Fresh, each,
				rollout.ErrInvalid)
		}
	}
	asking := s.ask(req)
	replayed := n - s.freshOf(req)
	need := n // fresh draws included, which no other draw of the batch repeats
	if o.Sampler.Replaces() {
		need = min(each, replayed)
		if s.maxUses > 0 && int64(n) > int64(most)*int64(s.maxUses) {
			return fmt.Errorf("size is %d: ask for at most capacity x max_uses = %d x %d: %w", n, most, s.maxUses,
				rollout.ErrInvalid)
		}
	}
	drawable := s.sampler.size() * each
	switch {
	case s.stuck(max(n, o.MinSize)):
		return fmt.Errorf("size is %d with min_size %d: the queue holds %d of %d, with no room for another group of "+
			"%d: ask for at most %d, or raise capacity: %w", n, o.MinSize, s.present, most, o.PerGroup(o.GroupSize), s.present,
			rollout.ErrInvalid)
	case need > most || s.freshOf(req) > most:
		return fmt.Errorf("size is %d: ask for at most the shard's capacity %d, or raise capacity: %w", n, most,
			rollout.ErrInvalid)
	case asking != nil:
		return asking
	case s.present-s.waitingCount() < o.MinSize:
		return fmt.Errorf("sampling from %s, which holds %d of min_size %d%s: %w", s.place(),
			s.present-s.waitingCount(), o.MinSize, s.losses(), rollout.ErrStarved)
	case s.fresh.Waiting.Len*each < s.freshOf(req):
		return fmt.Errorf("sampling %d fresh from %s, which holds %d never handed out as fresh%s: %w", req.Fresh,
			s.place(), s.fresh.Waiting.Len*each, s.losses(), rollout.ErrStarved)
	case drawable < need:
		return fmt.Errorf("sampling %d from %s, where %d can be drawn%s: %w", n, s.place(), drawable, s.losses(),
			rollout.ErrStarved)
	case s.maxUses > 0 && need < n && s.remaining < int64(n):
		return fmt.Errorf("sampling %d from %s, where max_uses allows %d more draws: %w", n, s.place(),
			s.remaining, rollout.ErrStarved)
	}
	return nil
}

// losses says how many rollouts left the shard by a limit and what keeps the next ones, and what rests; "" if none did.
func (s *shard) losses() string {
	var lost []string
	if n := s.counts.Evicted[byStaleness]; n > 0 {
		lost = append(lost, fmt.Sprintf("%d left because they were older than max_staleness %d at version %d: insert "+
			"rollouts of newer weights, or raise max_staleness", n, s.options.MaxStaleness, s.version))
	}
	if s.ordered != nil && s.options.Cooldown > 0 && (s.ordered.rests() || len(s.leases) > 0) {
		lost = append(lost, fmt.Sprintf("others rest for a cooldown of %d versions after a use, or are on lease: insert "+
			"new rollouts, advance the version, or lower cooldown", s.options.Cooldown))
	}
	if n := s.counts.Evicted[byCapacity]; n > 0 && s.retention != nil && s.retention.scored != nil {
		lost = append(lost, fmt.Sprintf("%d left because their score, %s, was the least, perhaps as they entered: "+
			"insert rollouts of a larger score, or raise capacity", n, s.options.Score))
	}
	if n := s.waitingCount(); n > 0 || s.counts.Unrewarded > 0 {
		lost = append(lost, fmt.Sprintf("%d wait for the rewards of their groups, and %d left without after "+
			"pending_rewards %gs: give rewards, or raise pending_rewards", n, s.counts.Unrewarded,
			s.options.PendingRewards))
	}
	if n := s.counts.Evicted[byUses]; n > 0 {
		lost = append(lost, fmt.Sprintf("%d left after max_uses %d: insert new rollouts, or raise max_uses", n,
			s.options.MaxUses))
	}
	if lost == nil {
		return ""
	}
	return " (" + strings.Join(lost, "; ") + ")"
}

// stuck reports whether a queue holds too little for a batch that needs the given number, and has no room for another
// group.
func (s *shard) stuck(needs int) bool {
	o := &s.options
	return s.retention == nil && o.GroupSize > 0 && o.Unit != UnitStep && o.MaxStaleness == 0 && len(s.leases) == 0 &&
		s.waitingCount() == 0 && s.present < needs && s.present > o.shardCapacity()-o.PerGroup(o.GroupSize)
}

// freshOf returns how many draws of a request come from the fresh queue. Queue samplers give each rollout once anyway,
// and need none.
func (s *shard) freshOf(req request) int {
	if s.retention == nil {
		return 0
	}
	return req.Fresh
}

// given is how many numbers of batches are taken: the next batch has this one.
func (s *shard) given() uint64 { return s.batches + s.skipped }

// skipTo passes over the numbers of batches below given, and perhaps some more.
func (s *shard) skipTo(given uint64) {
	if given > s.given() {
		s.skipped += roundUp(given-s.given(), s.consumed.turn())
	}
}

// roundUp returns the least multiple of unit that is not less than n.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// sample leases and acknowledges in one. Without a request id it puts nothing on lease.
func (s *shard) sample(req request) (*rollout.Batch, error) {
	if req.ID != "" {
		b, leased, err := s.lease(req)
		if err != nil {
			return nil, err
		}
		if leased {
			i, err := s.findLease(b.ID)
			if err != nil {
				return nil, err
			}
			s.acknowledgeLease(i)
		}
		return b, nil
	}
	s.expire()
	if err := s.checkRequest(req); err != nil {
		return nil, err
	}
	b := s.draw(req)
	s.history.settle(b, s.drawn, drawUsed)
	s.acknowledge(s.drawn, b.Version)
	return b, nil
}

// draw takes a batch after checkRequest, and leaves its slots in drawn. The batch's random stream derives from its
// number, so there is no generator state to keep (invariant 5).
func (s *shard) draw(req request) *rollout.Batch {
	random := rollout.Stream(s.options.Seed, s.purpose, s.batches)
	batch := &rollout.Batch{
		// Shards take turns, so that the numbers of one do not depend on the others.
		ID:      rollout.BatchID(s.given()*uint64(s.options.Shards) + uint64(s.number) + 1),
		Version: s.version,
		Shard:   s.number,
		Draws:   make([]rollout.Draw, req.Size),
	}
	if len(s.options.Sources) > 0 && req.Size > 0 {
		batch.SourceCounts = make([]int, len(s.options.Sources))
	}
	s.batches++
	s.drawn = s.drawn[:0]
	if len(req.Prompts) > 0 {
		s.drawByPrompt(random, req, batch)
	} else {
		s.drawSources(random, batch)
	}
	if left := req.Size - len(s.drawn); left > 0 {
		if s.units == groups {
			left /= s.options.GroupSize
		}
		s.sampler.begin(random, left)
		for range left {
			slot, probability := s.sampler.draw(random)
			s.addDraw(batch, slot, probability, false)
		}
	}
	s.sampler.end()
	for i, slot := range s.drawn {
		it := &s.items[slot]
		if s.maxUses == 0 {
			it.Leased++
		}
		s.fill(&batch.Draws[i], it, s.rollouts[slot])
	}
	if s.options.DrawAdvantage != AdvantageStored {
		s.regroup(batch)
	}
	if s.prioritized != nil && req.Size > 0 {
		batch.LogWeightScale = s.prioritized.importance(batch.Draws, s.version)
	}
	s.counts.Drawn += uint64(len(s.drawn))
	if s.history != nil {
		s.history.draw(batch, s.drawn)
	}
	return batch
}

// addDraw adds the rollouts of a drawn unit to the batch.
func (s *shard) addDraw(batch *rollout.Batch, slot int32, probability float64, fresh bool) {
	if s.units != groups { // the common case, kept short
		d := &batch.Draws[len(s.drawn)]
		s.drawn = append(s.drawn, slot)
		d.Probability, d.Fresh = probability, fresh
		if s.maxUses > 0 && s.spend(slot) {
			s.exhaust(slot)
		}
		return
	}
	exhausted := false
	s.units.each(&s.store, slot, func(m int32) {
		d := &batch.Draws[len(s.drawn)]
		s.drawn = append(s.drawn, m)
		d.Probability, d.Fresh = probability, fresh
		exhausted = s.maxUses > 0 && s.spend(m) || exhausted
	})
	if exhausted {
		s.exhaust(slot)
	}
}

// spend counts a draw against max_uses, and reports whether the rollout's uses and draws on lease have reached it.
func (s *shard) spend(slot int32) bool {
	it := &s.items[slot]
	it.Leased++
	s.remaining--
	return it.Uses+it.Leased >= s.maxUses
}

// exhaust makes a unit that reached max_uses undrawable before the next draw, so that later probabilities are
// conditional on it (invariants 3 and 4).
func (s *shard) exhaust(slot int32) {
	s.sampler.remove(slot)
	s.weighOut(slot)
	s.fresh.shelve(&s.store, slot)
	if s.retention != nil {
		s.retention.exhaust(slot)
	}
}

// fill completes a draw with what the table knows of the rollout. Its probability is set already.
func (s *shard) fill(d *rollout.Draw, it *item, r *rollout.Rollout) {
	d.ID, d.Group, d.Rollout = it.ID, it.Group, r
	d.Advantage = it.Advantage
	d.Weight = 1
	d.Staleness = int32(s.version - it.Version)
	d.Uses = it.Uses
	d.Redelivered = it.is(redelivered)
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
		if s.changes != nil && !it.is(evicted) {
			s.changes.changed(slot)
		}
		switch {
		case it.is(evicted):
			s.releaseIfUnleased(slot)
		case s.retention == nil:
			s.evict(slot, byConsume)
		case s.maxUses > 0 && it.Uses >= s.maxUses:
			s.evict(slot, byUses)
		default:
			s.weighUsed(slot)
		}
	}
}

// undoDraws takes back draws that were not acknowledged. They count as no use, and the rollouts can be drawn again.
func (s *shard) undoDraws(slots []int32, draws []rollout.Draw) {
	s.counts.Returned += uint64(len(slots))
	for i, slot := range slots {
		it := &s.items[slot]
		it.Leased--
		if it.is(evicted) {
			s.releaseIfUnleased(slot)
			continue
		}
		if s.retention == nil {
			it.set(redelivered)
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
		s.weighIn(slot)
		if s.retention != nil {
			s.retention.restore(slot)
		}
	}
}

// releaseIfUnleased frees the slot of an evicted rollout once none of its draws is on lease.
func (s *shard) releaseIfUnleased(slot int32) {
	if it := &s.items[slot]; it.Leased == 0 {
		s.leftLeased -= it.Bytes + RolloutOverhead
		s.release(slot)
	}
}

// freshQueue holds the units that were never handed out as fresh, the oldest first: what [FP] draws its fresh batches
// from. A unit is held by its first rollout's slot. Fields are exported for encoding/gob.
type freshQueue struct{ Waiting list }

// push adds a unit that has just entered.
func (q *freshQueue) push(st *store, s int32) {
	st.items[s].set(fresh)
	q.Waiting.push(st, s)
}

// pop returns the oldest unit. The queue is not empty.
func (q *freshQueue) pop(st *store) int32 {
	s := q.Waiting.Head
	q.forget(st, s)
	return s
}

// forget removes a slot, if the queue holds it.
func (q *freshQueue) forget(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		it.clear(fresh)
		q.Waiting.remove(st, s)
	}
	it.clear(shelved)
}

// shelve removes a slot, if the queue holds it, until restore brings it back.
func (q *freshQueue) shelve(st *store, s int32) {
	if st.items[s].is(fresh) {
		q.forget(st, s)
		st.items[s].set(shelved)
	}
}

// restore brings back a slot that was shelved, or whose draw as fresh was not acknowledged. Its place is near the head.
func (q *freshQueue) restore(st *store, s int32) {
	it := &st.items[s]
	if it.is(fresh) {
		return
	}
	it.clear(shelved)
	it.set(fresh)
	q.Waiting.insertByID(st, s, false)
}

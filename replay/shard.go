package replay

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// shard is one part of a table: its rollouts, the rules for keeping and drawing them, and its counts.
type shard struct {
	number  int
	options Options // of the table, defaults filled in
	purpose string  // of its random streams
	maxUses int32   // 0: not bounded

	store
	version     rollout.Version
	present     int
	bytes       int64
	leftLeased  int64 // of rollouts evicted while on lease, with RolloutOverhead
	remaining   int64 // draws that MaxUses still allows, over all present
	sampler     sampler
	prioritized *prioritized // the sampler, if it is prioritized
	ordered     *ordered     // the sampler, if it is ordered
	retention   *retention   // nil for a queue
	ages        *ages        // nil if MaxStaleness is not bounded
	index       index
	prompts     *promptIndex // nil if it is off
	units       units
	fresh       freshQueue  // empty for a queue, where all is fresh
	suppliers   []*supplier // of each batch, before the sampler's draws; none for a queue

	batches  uint64 // drawn so far; the stream of the next one derives from it
	skipped  uint64 // numbers of batches that restores passed over, because others had them
	recorded uint64 // numbers given as of the newest cut that is on disk; see unrecorded
	leases   []*lease
	answered *answers[*rollout.Batch] // acknowledged, by request id
	consumed consumed                 // a queue's acknowledged request ids, whose rollouts are gone
	counts   counts
	changes  *changeLog       // since the last cut; nil if nothing tracks the table
	history  *history         // nil: none
	waiting  *waitingGroups   // nil without Options.PendingRewards
	pin      *formula.Formula // nil: none

	evictCapacity, evictStaleness func(s int32)
	drawn                         []int32     // slots of the batch being drawn
	asked                         []int       // units of it that each source is to draw
	picked                        []pick      // that sources are about to draw
	candidates                    []candidate // of the prompt being drawn from
	freshPrompts                  byPrompt[int32]
	taken                         map[int32]int // slots of the batch, and passed over for others of their prompts
	regrouping                    regrouping
	mates                         []int32 // slots of the group being evicted
}

// A shard remembers the last acknowledged batches by request id: rememberedAlways of them, and up to remembered while
// those of all shards hold at most rememberedBytes, or the table's capacity_bytes / rememberedShare if that is less.
// Their rollouts may have left the table.
const (
	remembered       = 256
	rememberedAlways = 8
	rememberedBytes  = 128 << 20
	rememberedShare  = 8
)

// RolloutOverhead is what a rollout takes besides [rollout.Rollout.Bytes], in a table, decoded, or held by a lease
// after it left: its object, slot and bookkeeping, in bytes. It is measured, and rounded up.
const RolloutOverhead = 512

// rememberedBatches returns the bound of a shard's remembered batches.
func rememberedBatches(o Options) bound[*rollout.Batch] {
	most := int64(rememberedBytes)
	if o.CapacityBytes > 0 {
		most = min(most, o.CapacityBytes/rememberedShare)
	}
	return bound[*rollout.Batch]{batchBytes, most / int64(o.Shards), rememberedAlways}
}

// batchBytes is what a batch holds if its rollouts have left.
func batchBytes(b *rollout.Batch) (bytes int64) {
	for i := range b.Draws {
		bytes += b.Draws[i].Rollout.Bytes() + RolloutOverhead
	}
	return bytes + 8*int64(len(b.PromptCounts)+len(b.SourceCounts))
}

func newShard(o Options, number int) *shard {
	s := &shard{number: number, options: o, purpose: "replay/shard/" + strconv.Itoa(number)}
	s.units = unitsOf(o.Unit)
	s.fresh = freshQueue{newList(freshList)}
	s.sampler = newSampler(&s.options, &s.store)
	if s.prioritized, _ = s.sampler.(*prioritized); s.prioritized != nil && o.Priority != "" {
		s.prioritized.expression = newScore(s, o.Priority)
	}
	if s.ordered, _ = s.sampler.(*ordered); s.ordered != nil {
		*s.ordered = ordered{shard: s, score: newScore(s, o.Order), first: ranking{store: &s.store},
			resting: ranking{store: &s.store}, known: true}
	}
	s.index = index{store: &s.store, shards: uint64(o.Shards)}
	if o.indexesPrompts() {
		s.prompts = newPromptIndex(&s.store)
	}
	s.answered = newAnswers[*rollout.Batch](remembered)
	s.consumed = newConsumed(o.Shards)
	s.answered.bound = rememberedBatches(o)
	if o.MaxStaleness > 0 {
		s.ages = &ages{store: &s.store, heads: make(map[rollout.Version]int32)}
	}
	if !o.Sampler.Consumes() {
		s.maxUses = int32(o.MaxUses)
		s.retention = newRetention(o, &s.store)
		if o.Retention == KeepScored {
			s.retention.scored = &scored{score: newScore(s, o.Score), leaving: ranking{store: &s.store}, known: true}
		}
	}
	s.suppliers = newSuppliers(s)
	s.history = newHistory(s)
	s.waiting = newWaitingGroups(s)
	if o.Pin != "" {
		s.pin, _ = formula.Condition(o.Pin) // Validate has parsed it
	}
	s.evictCapacity = func(slot int32) { s.evict(slot, byCapacity) }
	s.evictStaleness = func(slot int32) { s.evict(slot, byStaleness) }
	return s
}

// place is what errors call the shard: a caller need not know of shards where there is one.
func (s *shard) place() string {
	if s.options.Shards == 1 {
		return "the table"
	}
	return fmt.Sprintf("shard %d", s.number)
}

// oldest returns the least version that max_staleness allows at table version v.
func (s *shard) oldest(v rollout.Version) int64 { return int64(v) - int64(s.options.MaxStaleness) }

// addGroup adds a group and evicts what must leave for it. Rollouts that are too old already are counted as inserted
// and as evicted (invariants 3 and 11).
func (s *shard) addGroup(a *arrivals, from, to int) {
	s.counts.Inserted += uint64(to - from)
	// With unit group the rollouts of a group form a ring of mates, and the first that entered stands for all of them in
	// the sampler. A group of which one is too old does not enter at all: it could never be drawn whole.
	first, last := none, none
	together, waiting := s.units == groups, s.waiting != nil && a.items[from].is(waits)
	allTooOld := (together || waiting) && slices.ContainsFunc(a.items[from:to], s.tooOld)
	for i := from; i < to; i++ {
		if a.items[i].is(unselected) {
			s.counts.passOver()
			if s.history != nil {
				s.history.refuse(&a.items[i], a.rollouts[i], bySelection)
			}
			continue
		}
		if allTooOld || s.tooOld(a.items[i]) {
			s.counts.evicted(byStaleness, 0)
			if s.history != nil {
				s.history.refuse(&a.items[i], a.rollouts[i], byStaleness)
			}
			continue
		}
		slot := s.add(&a.items[i], a.rollouts[i])
		switch {
		case s.prioritized == nil:
		case waiting:
			s.prioritized.hold(slot)
		default:
			s.prioritized.enter(slot, a.bases[i])
		}
		if s.history != nil {
			s.history.insert(&a.items[i], a.rollouts[i], s.baseOf(slot))
		}
		if waiting {
			s.waiting.join(slot)
		}
		if !together {
			if !waiting {
				s.open(slot)
			}
			continue
		}
		if first == none {
			first, last = slot, slot
		}
		s.links[last].Mate, s.links[slot].Mate = slot, first
		last = slot
	}
	switch {
	case waiting && !allTooOld:
		s.waiting.entered(a.items[from].Group)
	case first != none:
		s.open(first)
	}
}

// seeBases lets sampler prioritized see the bases of a group before it is added, but not of rollouts that will not
// enter because they are too old.
func (s *shard) seeBases(a *arrivals, from, to int) {
	if s.units == groups && slices.ContainsFunc(a.items[from:to], s.tooOld) {
		return
	}
	for i := from; i < to; i++ {
		if !s.tooOld(a.items[i]) && !a.items[i].is(unselected|waits) {
			s.prioritized.see(a.bases[i])
		}
	}
}

// tooOld reports whether a new rollout is staler than the table allows.
func (s *shard) tooOld(it item) bool {
	return s.ages != nil && !it.is(pinned) && int64(it.Version) < s.oldest(s.version)
}

// open makes a new unit drawable.
func (s *shard) open(slot int32) {
	s.sampler.add(slot)
	s.weighIn(slot)
	if s.retention != nil {
		s.fresh.push(&s.store, slot)
		if x := s.retention.scored; x != nil {
			x.weigh(slot)
			s.thin(s.rollouts[slot].PromptID, s.options.KeptPerPrompt)
			s.retention.trim(s.evictCapacity)
		}
	}
}

// add adds a rollout. A queue has room for it: see Table.checkRoom.
func (s *shard) add(it *item, r *rollout.Rollout) int32 {
	if s.retention != nil {
		if s.retention.scored == nil {
			s.thin(r.PromptID, s.options.KeptPerPrompt-1)
		}
		s.retention.makeRoom(it.Bytes, s.evictCapacity)
	}
	slot := s.put(it, r)
	if s.retention != nil {
		s.retention.add(slot)
	}
	if s.ages != nil && !it.is(pinned) {
		s.ages.add(slot)
	}
	s.index.add(slot)
	if s.prompts != nil {
		s.prompts.add(slot)
	}
	s.present++
	s.bytes += it.Bytes
	if !it.is(waits) {
		s.remaining += int64(s.maxUses)
	}
	s.counts.UsesPresent.Add(0) // count it among the unused
	if s.changes != nil {
		s.changes.inserted(slot)
	}
	return slot
}

// thin evicts a rollout of a prompt if the shard holds more than some of it and kept_per_prompt bounds them: O(1) for
// each.
func (s *shard) thin(prompt string, keep int) {
	if s.options.KeptPerPrompt == 0 {
		return
	}
	n, first := 0, none // the one that leaves first
	for slot := s.prompts.first(prompt); slot != none; slot = s.prompts.after(slot, prompt) {
		if n++; first == none || s.retention.leavesBefore(slot, first) {
			first = slot
		}
	}
	if n > keep {
		s.evict(first, byCapacity)
	}
}

// evict removes the unit of a rollout and counts the cause. A group that waits for rewards leaves whole.
func (s *shard) evict(slot int32, why cause) {
	if s.items[slot].is(waits) {
		s.waiting.leave(s.items[slot].Group, why)
		return
	}
	if s.units != groups {
		s.sampler.remove(slot)
		s.weighOut(slot)
		s.evictOne(slot, why)
		return
	}
	s.mates = s.mates[:0]
	s.units.each(&s.store, slot, func(m int32) { s.mates = append(s.mates, m) })
	first := s.units.first(&s.store, slot)
	s.sampler.remove(first)
	s.weighOut(first)
	for _, m := range s.mates {
		s.evictOne(m, why)
	}
}

// evictOne removes one rollout. Draws of it on lease stay valid, and its slot is freed once they are settled.
func (s *shard) evictOne(slot int32, why cause) {
	it := &s.items[slot]
	s.fresh.forget(&s.store, slot)
	if s.retention != nil {
		s.retention.remove(slot)
	}
	if s.ages != nil && !it.is(pinned) {
		s.ages.remove(slot)
	}
	s.index.remove(slot)
	if s.prompts != nil {
		s.prompts.remove(slot)
	}
	s.present--
	s.bytes -= it.Bytes
	if s.maxUses > 0 && !it.is(waits) {
		s.remaining -= int64(s.maxUses - it.Uses - it.Leased)
	}
	s.counts.UsesPresent.Remove(int64(it.Uses))
	s.counts.evicted(why, it.Uses)
	if s.changes != nil {
		s.changes.evicted(slot, it)
	}
	if s.history != nil {
		s.history.leave(it, s.rollouts[slot], why)
	}
	if it.Leased > 0 {
		it.set(evicted)
		s.leftLeased += it.Bytes + RolloutOverhead
	} else {
		s.release(slot)
	}
}

// advance sets the version, at least the present one, and evicts what became too old, so that every draw respects
// max_staleness (invariant 3).
func (s *shard) advance(v rollout.Version) {
	from := s.oldest(s.version)
	s.version = v
	if s.ages != nil {
		s.ages.expire(from, s.oldest(v), s.evictStaleness)
	}
}

// rewind sets the version to a lower one. Batches drawn since go back and are forgotten, rollouts with a newer token
// leave (invariant 1), and no last use is later than the version.
func (s *shard) rewind(v rollout.Version) {
	for i := 0; i < len(s.leases); {
		if s.leases[i].Batch.Version > v {
			s.releaseLease(i)
		} else {
			i++
		}
	}
	s.answered.forget(func(b *rollout.Batch) bool { return b.Version > v })
	for _, c := range s.consumed.forgetNewer(v) {
		s.noteConsumed(c)
	}
	for _, p := range s.suppliers {
		if p.members != nil {
			p.members.known = false // last uses change below, and versions come again
		}
	}
	if s.prioritized != nil {
		s.prioritized.computed = rollout.NoVersion
	}
	if s.ordered != nil {
		s.ordered.known = false
	}
	if s.retention != nil && s.retention.scored != nil {
		s.retention.scored.known = false
	}
	for slot := range s.items {
		if s.rollouts[slot] == nil {
			continue
		}
		it := &s.items[slot]
		if s.changes != nil && it.LastUse > v && !it.is(evicted) {
			s.changes.changed(int32(slot))
		}
		it.LastUse = min(it.LastUse, v)
		if it.Greatest > v && !it.is(evicted) {
			s.evict(int32(slot), byRewind)
		}
	}
	s.version = v
}

package replay

import (
	"cmp"
	linked "container/list"
	"math"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// waitingGroups are the groups of a shard that wait for rewards (Options.PendingRewards). Their rollouts are in the
// table, with flag waits: they take room and leave like others, but whole, and nothing draws them. A group whose
// rewards are all known is opened; one that has waited until its deadline leaves.
//
// Snapshots have the deadlines. Journals have the flags only: a rebuilt table gives each group the whole time again.
type waitingGroups struct {
	shard  *shard
	lasts  time.Duration
	groups map[uint64]*waitingGroup
	order  linked.List // of *waitingGroup, by deadline
	count  int         // rollouts
}

type waitingGroup struct {
	number   uint64
	deadline time.Time
	slots    []int32         // in order of ids
	place    *linked.Element // in order
}

// newWaitingGroups returns nil if the table takes no pending rewards, which costs each operation a comparison.
func newWaitingGroups(s *shard) *waitingGroups {
	if s.options.PendingRewards == 0 {
		return nil
	}
	return &waitingGroups{shard: s, groups: make(map[uint64]*waitingGroup),
		lasts: time.Duration(s.options.PendingRewards * float64(time.Second))}
}

// waitingCount is how many rollouts of a shard wait for rewards.
func (s *shard) waitingCount() int {
	if s.waiting == nil {
		return 0
	}
	return s.waiting.count
}

// join adds a rollout that has just entered to its group.
func (w *waitingGroups) join(slot int32) {
	number := w.shard.items[slot].Group
	g := w.groups[number]
	if g == nil {
		g = &waitingGroup{number: number, deadline: w.shard.options.Clock().Add(w.lasts)}
		w.add(g)
	}
	g.slots = append(g.slots, slot)
	w.count++
}

func (w *waitingGroups) add(g *waitingGroup) {
	w.groups[g.number] = g
	g.place = w.order.PushBack(g)
	w.count += len(g.slots)
}

// image returns the groups for a snapshot.
func (w *waitingGroups) image() (list []waitingImage) {
	for at := w.order.Front(); at != nil; at = at.Next() {
		g := at.Value.(*waitingGroup)
		list = append(list, waitingImage{g.number, slices.Clone(g.slots), g.deadline})
	}
	return list
}

// entered makes the sources know a new group, of which they draw nothing, and ranks it for retention scored. A score
// that is not known leaves first.
func (w *waitingGroups) entered(number uint64) {
	s := w.shard
	scored := s.retention != nil && s.retention.scored != nil
	for _, slot := range w.groups[number].slots { // all are there: see checkPendingFits
		if !s.units.isFirst(&s.store, slot) {
			continue
		}
		if s.weighIn(slot); scored {
			s.retention.scored.weigh(slot)
		}
	}
	if scored {
		s.retention.trim(s.evictCapacity)
	}
}

// forget takes a group out, whose rollouts wait no more.
func (w *waitingGroups) forget(g *waitingGroup) {
	delete(w.groups, g.number)
	w.order.Remove(g.place)
	w.count -= len(g.slots)
}

// leave has a whole group leave.
func (w *waitingGroups) leave(number uint64, why cause) {
	g := w.groups[number]
	w.forget(g)
	for _, slot := range g.slots {
		w.shard.evictOne(slot, why)
	}
}

// expire has the groups leave whose time is over.
func (w *waitingGroups) expire() {
	if w.order.Len() == 0 {
		return
	}
	now := w.shard.options.Clock()
	for first := w.order.Front(); first != nil; first = w.order.Front() {
		g := first.Value.(*waitingGroup)
		if now.Before(g.deadline) {
			return
		}
		// The rollouts of a damaged journal whose reward was missing may be lost.
		if w.shard.rewarded(g.slots) {
			w.open(g)
			w.shard.dropUnfit(g.slots)
		} else {
			w.leave(g.number, byDeadline)
		}
	}
}

// rewarded reports whether the rewards of all rollouts are known.
func (s *shard) rewarded(slots []int32) bool {
	return !slices.ContainsFunc(slots, func(slot int32) bool { return s.rollouts[slot].Pending() })
}

// open makes a group drawable, whose rewards are all known, as it would have been at insertion. Its place among others
// is that of its ids.
func (w *waitingGroups) open(g *waitingGroup) {
	s := w.shard
	w.forget(g)
	s.compare(g.slots)
	for _, slot := range g.slots {
		it := &s.items[slot]
		it.clear(waits)
		s.remaining += int64(s.maxUses)
		if s.prioritized != nil {
			s.prioritized.enter(slot, s.options.lateBase(s.rollouts[slot], it.Advantage))
		}
	}
	for _, slot := range g.slots {
		if s.units.isFirst(&s.store, slot) {
			s.openLate(slot)
		}
	}
}

// lateBase is ownBase where it is known, else the largest or the least that a base may be: nobody can be told that a
// function of Options gives another.
func (o *Options) lateBase(r *rollout.Rollout, advantage float32) float64 {
	base := o.ownBase(r, advantage)
	if base != base {
		return o.PriorityEpsilon
	}
	return min(base, maxMeasurement)
}

// openLate makes a unit drawable that is older than others.
func (s *shard) openLate(first int32) {
	if q, ok := s.sampler.(*queue); ok {
		q.waiting.insertByID(&s.store, first, true)
		return
	}
	s.sampler.add(first)
	s.weighIn(first)
	s.items[first].set(fresh)
	s.fresh.Waiting.insertByID(&s.store, first, true)
	if x := s.retention.scored; x != nil {
		x.weigh(first)
	}
}

// compare gives rollouts of one group the advantages and moments of their rewards among one another, all of which are
// known, and what else follows from a reward alone.
func (s *shard) compare(slots []int32) {
	x := &s.regrouping
	x.values = x.values[:0]
	for _, slot := range slots {
		x.values = append(x.values, s.rollouts[slot].Reward)
	}
	var m advantage.Moments
	if s.options.Advantage.GroupRelative() {
		m = advantage.OfGroup(x.values, x.values, s.options.Advantage)
	} else {
		m = advantage.MomentsOf(x.values)
		clear(x.values)
	}
	for i, slot := range slots {
		it, r := &s.items[slot], s.rollouts[slot]
		it.Advantage, it.Mean, it.Std = x.values[i], float32(m.Mean), float32(m.Std())
		if r.Advantage != nil {
			it.Advantage = *r.Advantage
		}
		it.clear(correct)
		it.set(flagIf(r.Reward >= *s.options.PositiveThreshold, correct))
		s.repin(slot)
		if s.changes != nil {
			s.changes.rewritten(slot)
		}
	}
}

// repin pins a rollout that meets the condition for it, and no other.
func (s *shard) repin(slot int32) {
	it := &s.items[slot]
	holds := s.pin != nil && s.pin.Holds(&row{shard: s, slot: slot})
	switch {
	case holds == it.is(pinned):
	case holds:
		s.ages.remove(slot)
		it.set(pinned)
	default:
		it.clear(pinned)
		s.ages.add(slot)
	}
}

// dropUnfit evicts those of rollouts whose reward changed that the table would not have kept until now: what is
// reserved for correct rollouts and is none, and what is too old and is pinned no more.
func (s *shard) dropUnfit(slots []int32) {
	for _, slot := range slots {
		switch it := &s.items[slot]; {
		case !s.holds(slot): // it left with another of its unit
		case it.is(reserved) && !it.is(correct):
			s.evict(slot, byCapacity)
		case s.tooOld(*it):
			s.evict(slot, byStaleness)
		}
	}
}

// reward gives rollouts that the shard holds rewards, and returns how many can be drawn from now on. Their groups'
// advantages, priorities and places follow. Slots are in any order, none twice.
func (s *shard) reward(slots []int32, rewards []float32) (entered int) {
	changed := slices.Clone(slots) // and all others of groups whose rewards are known
	settled := make(map[uint64][]int32)
	for i, slot := range slots {
		given := *s.rollouts[slot] // draws keep the one that they have
		given.Reward = rewards[i]
		s.rollouts[slot] = &given
		s.repin(slot)
		if s.changes != nil {
			s.changes.rewritten(slot)
		}
		if it := &s.items[slot]; !it.is(waits) {
			settled[it.Group] = nil
		}
	}
	for _, slot := range slots {
		it := &s.items[slot]
		if !it.is(waits) {
			continue
		}
		if g := s.waiting.groups[it.Group]; s.rewarded(g.slots) {
			s.waiting.open(g)
			entered += len(g.slots)
			changed = append(changed, g.slots...)
		} else if s.retention != nil && s.retention.scored != nil { // as a table that is restored would rank it
			s.retention.scored.weigh(slot)
		}
	}
	s.findGroups(settled)
	for _, slot := range slots { // in their order, not that of a map
		mates := settled[s.items[slot].Group]
		delete(settled, s.items[slot].Group)
		s.compareAgain(mates)
		changed = append(changed, mates...)
	}
	if s.prioritized != nil {
		s.prioritized.reweigh()
	}
	if s.history != nil {
		for _, slot := range slots {
			s.history.reward(slot)
		}
		for _, slot := range changed {
			s.history.follow(slot)
		}
	}
	s.dropUnfit(changed)
	return entered
}

// findGroups sets the slots of groups, in order of ids: one pass over the shard, as nothing else knows them.
func (s *shard) findGroups(of map[uint64][]int32) {
	if len(of) == 0 {
		return
	}
	for slot := range s.items {
		if list, ok := of[s.items[slot].Group]; ok && s.holds(int32(slot)) {
			of[s.items[slot].Group] = append(list, int32(slot))
		}
	}
	for _, list := range of {
		slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(s.items[a].ID, s.items[b].ID) })
	}
}

// compareAgain compares the rollouts that the shard holds of a group, whose rewards have changed, and has all that
// depends on them follow.
func (s *shard) compareAgain(slots []int32) {
	if len(slots) == 0 {
		return
	}
	s.compare(slots)
	for _, slot := range slots {
		if p := s.prioritized; p != nil && !p.keepsMax(slot) {
			if base := p.rebase(slot); base == base {
				p.report(slot, base)
			}
		}
	}
	for _, slot := range slots {
		if !s.units.isFirst(&s.store, slot) {
			continue
		}
		if s.ordered != nil {
			s.ordered.place(slot)
		}
		s.weighIn(slot)
		if s.retention != nil && s.retention.scored != nil {
			s.retention.scored.weigh(slot)
		}
	}
}

// rebase returns the base that a rollout has by its reward and advantage, NaN if they say nothing of it.
func (p *prioritized) rebase(s int32) float64 {
	r := p.store.rollouts[s]
	switch {
	case p.expression != nil:
		return p.express(s)
	case p.o.PriorityBase == BaseGradNorm, p.o.PriorityBase == BaseTDError && len(r.Values) == 0,
		p.o.PriorityBase == BaseAdvantage && !p.o.Advantage.GroupRelative():
		return math.NaN()
	}
	return p.o.lateBase(r, p.store.items[s].Advantage)
}

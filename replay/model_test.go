package replay

import (
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// model is a table told in the plainest way: one list, everything found by looking at all of it. It
// does not choose what is drawn; it says which draws are right and follows the table's.
type model struct {
	o       Options
	version rollout.Version
	groups  int
	all     []*modelItem // every rollout ever inserted, in order; ID i+1 at i
	leases  []*modelLease

	acknowledged, returned, drawn uint64
	staleness, meanStaleness      rollout.Histogram
	since                         rollout.Histogram
	evicted                       map[rollout.Cause]uint64
}

type modelItem struct {
	id           rollout.ID
	r            *rollout.Rollout
	shard        int
	present      bool
	uses, leased int
	lastUse      rollout.Version
	inEpoch      bool // drawn in the epoch that runs
}

type modelLease struct {
	batch *rollout.Batch
	items []*modelItem
}

func newModel(o Options) *model {
	return &model{o: o, evicted: make(map[rollout.Cause]uint64)}
}

func (m *model) present(shard int) []*modelItem {
	var out []*modelItem
	for _, it := range m.all {
		if it.present && it.shard == shard {
			out = append(out, it)
		}
	}
	return out
}

func (m *model) evict(it *modelItem, why rollout.Cause) {
	it.present = false
	m.evicted[why]++
}

// room tells whether a queue can take a group.
func (m *model) room(g rollout.Group) bool {
	held := m.present(m.groups % m.o.Shards)
	bytes := int64(0)
	for _, it := range held {
		bytes += it.r.Bytes()
	}
	for _, r := range g.Rollouts {
		bytes += r.Bytes()
	}
	return len(held)+len(g.Rollouts) <= m.o.shardCapacity() && bytes <= m.o.shardBytes()
}

func (m *model) insert(g rollout.Group) {
	shard := m.groups % m.o.Shards
	m.groups++
	for _, r := range g.Rollouts {
		it := &modelItem{id: rollout.ID(len(m.all) + 1), r: r, shard: shard, present: true, lastUse: rollout.NoVersion}
		m.all = append(m.all, it)
		if m.tooOld(it) {
			m.evict(it, rollout.EvictedByStaleness)
		}
		m.retain(shard)
	}
}

func (m *model) tooOld(it *modelItem) bool {
	return m.o.MaxStaleness > 0 && int(m.version-it.r.Version()) > m.o.MaxStaleness
}

// retain is METHODS 3: the newest N - round(fraction N), and the newest round(fraction N) correct ones
// not among those; and no more bytes than allowed, the oldest leaving first.
func (m *model) retain(shard int) {
	if m.o.Sampler.Consumes() {
		return
	}
	held := m.present(shard)
	kept := int(math.Round(m.o.PositiveFraction * float64(m.o.shardCapacity())))
	newest := m.o.shardCapacity() - kept
	slices.Reverse(held)
	for i, it := range held {
		switch {
		case i < newest:
		case it.r.Reward >= m.o.PositiveThreshold && kept > 0:
			kept--
		default:
			m.evict(it, rollout.EvictedByCapacity)
		}
	}
	if m.o.CapacityBytes == 0 {
		return
	}
	bytes := int64(0)
	for _, it := range held {
		if bytes += it.r.Bytes(); it.present && bytes > m.o.shardBytes() {
			m.evict(it, rollout.EvictedByCapacity)
		}
	}
}

// left is how many more draws MaxUses allows of a rollout.
func (m *model) left(it *modelItem) int {
	if m.o.Sampler.Consumes() {
		return 1 - it.uses - it.leased
	}
	if m.o.MaxUses == 0 {
		return math.MaxInt32
	}
	return m.o.MaxUses - it.uses - it.leased
}

func (m *model) eligible(shard int) []*modelItem {
	return slices.DeleteFunc(m.present(shard), func(it *modelItem) bool { return m.left(it) <= 0 })
}

// fills tells whether a batch can be drawn.
func (m *model) fills(shard, size int) bool {
	e := m.eligible(shard)
	if len(m.present(shard)) < m.o.MinSize {
		return false
	}
	if m.o.Sampler != Uniform {
		return len(e) >= size
	}
	draws := 0
	for _, it := range e {
		draws += m.left(it)
	}
	return draws >= size
}

// candidates is what the next draw of a batch may fall on.
func (m *model) candidates(shard int, batch []*modelItem) []*modelItem {
	e := m.eligible(shard)
	others := func(ok func(*modelItem) bool) []*modelItem {
		return slices.DeleteFunc(slices.Clone(e), func(it *modelItem) bool {
			return slices.Contains(batch, it) || !ok(it)
		})
	}
	anything := func(*modelItem) bool { return true }
	switch m.o.Sampler {
	case FIFO:
		return e[:1]
	case LIFO:
		return e[len(e)-1:]
	case Uniform:
		return e
	case Epoch:
		if c := others(func(it *modelItem) bool { return !it.inEpoch }); len(c) > 0 {
			return c
		}
		for _, it := range m.all {
			it.inEpoch = it.inEpoch && it.shard != shard
		}
	case Unseen:
		if c := others(func(it *modelItem) bool { return it.uses+it.leased == 0 }); len(c) > 0 {
			return c
		}
	}
	return others(anything)
}

// follow checks the draws of a batch one by one and takes them; it returns what is wrong, "" if nothing.
func (m *model) follow(b *rollout.Batch) string {
	var drawn []*modelItem
	for _, d := range b.Draws {
		it := m.all[d.ID-1]
		c := m.candidates(b.Shard, drawn)
		switch {
		case !slices.Contains(c, it):
			return "a draw fell on what cannot be drawn"
		case d.Probability != 1/float64(len(c)):
			return "a reported probability is not the one used"
		case d.Rollout.PromptID != it.r.PromptID || d.Rollout.Reward != it.r.Reward:
			return "a draw carries another rollout"
		case int(d.Uses) != it.uses || d.Staleness != int32(m.version-it.r.Version()) || d.Staleness < 0:
			return "a draw's uses or staleness is wrong"
		case m.o.MaxStaleness > 0 && int(d.Staleness) > m.o.MaxStaleness:
			return "a draw is too old"
		}
		it.leased++
		it.inEpoch = true
		drawn = append(drawn, it)
	}
	m.drawn += uint64(len(drawn))
	m.leases = append(m.leases, &modelLease{b, drawn})
	return ""
}

func (m *model) lease(id rollout.BatchID) *modelLease {
	i := slices.IndexFunc(m.leases, func(l *modelLease) bool { return l.batch.ID == id })
	l := m.leases[i]
	m.leases = slices.Delete(m.leases, i, i+1)
	return l
}

func (m *model) acknowledge(id rollout.BatchID) {
	l := m.lease(id)
	for _, it := range l.items {
		at := l.batch.Version
		m.acknowledged++
		m.staleness.Add(int64(at - it.r.Version()))
		m.meanStaleness.Add(int64(math.Floor(it.r.Span().MeanStaleness(at))))
		if it.lastUse != rollout.NoVersion {
			m.since.Add(int64(max(at-it.lastUse, 0)))
		}
		it.lastUse = max(it.lastUse, at)
		it.leased--
		it.uses++
		switch {
		case !it.present:
		case m.o.Sampler.Consumes():
			m.evict(it, rollout.EvictedByConsume)
		case m.o.MaxUses > 0 && it.uses >= m.o.MaxUses:
			m.evict(it, rollout.EvictedByUses)
		}
	}
}

func (m *model) release(id rollout.BatchID) {
	for _, it := range m.lease(id).items {
		it.leased--
		it.inEpoch = false
		m.returned++
	}
}

func (m *model) advance(v rollout.Version) {
	m.version = max(m.version, v)
	for _, it := range m.all {
		if it.present && m.tooOld(it) {
			m.evict(it, rollout.EvictedByStaleness)
		}
	}
}

func (m *model) rewind(v rollout.Version) {
	for _, l := range slices.Clone(m.leases) {
		if l.batch.Version > v {
			m.release(l.batch.ID)
		}
	}
	m.version = v
	for _, it := range m.all {
		it.lastUse = min(it.lastUse, v)
		if it.present && it.r.Span().Greatest > v {
			m.evict(it, rollout.EvictedByRewind)
		}
	}
}

// stats is the statistics by definition.
func (m *model) stats() rollout.Stats {
	s := rollout.Stats{
		Version: m.version, Inserted: uint64(len(m.all)), InsertedGroups: uint64(m.groups), Evicted: m.evicted,
		Drawn: m.drawn, Acknowledged: m.acknowledged, Returned: m.returned,
		Staleness: m.staleness, MeanStaleness: m.meanStaleness, SinceLastUse: m.since,
	}
	for _, it := range m.all {
		if it.present {
			s.Present++
			s.PresentBytes += it.r.Bytes()
			s.UsesPresent.Add(int64(it.uses))
			continue
		}
		s.UsesAtEviction.Add(int64(it.uses))
		if it.uses == 0 {
			s.NeverUsed++
		}
	}
	return s
}

package replay

import (
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// model is a table told in the plainest way: one list of units, everything found by looking at all of it. It
// does not choose what is drawn; it says which draws are right and follows the table's.
type model struct {
	o       Options
	version rollout.Version
	tau     float64
	groups  int
	items   int          // rollouts, or steps, ever inserted
	all     []*modelUnit // every unit ever inserted, in order
	largest []float64    // base known, by shard
	leases  []*modelLease

	acknowledged, returned, drawn uint64
	staleness, meanStaleness      rollout.Histogram
	since                         rollout.Histogram
	evicted                       map[rollout.Cause]uint64
}

// modelUnit is what is drawn and leaves together.
type modelUnit struct {
	items        []*modelItem
	shard        int
	group        int
	correct      bool
	present      bool
	uses, leased int
	lastUse      rollout.Version
	inEpoch      bool // drawn in the epoch that runs
	shown        bool // handed out as fresh
}

type modelItem struct {
	id        rollout.ID
	r         *rollout.Rollout
	advantage float32
	mean, std float32 // of what its group compared
	base      float64
	atMax     bool
}

type modelLease struct {
	batch *rollout.Batch
	units []*modelUnit // one for each draw of a unit
	fresh int          // the first so many were drawn as fresh
}

func newModel(o Options) *model {
	m := &model{o: o, evicted: make(map[rollout.Cause]uint64), largest: make([]float64, o.Shards)}
	if o.Sampler == Prioritized {
		m.tau = float64(o.AgeDecay)
	}
	return m
}

// each is the number of rollouts in a draw.
func (m *model) each() int { return max(1, m.o.GroupSize) }

func (m *model) present(shard int) []*modelUnit {
	var out []*modelUnit
	for _, u := range m.all {
		if u.present && u.shard == shard {
			out = append(out, u)
		}
	}
	return out
}

func count(units []*modelUnit) (rollouts int, bytes int64) {
	for _, u := range units {
		rollouts += len(u.items)
		bytes += u.bytes()
	}
	return rollouts, bytes
}

func (u *modelUnit) bytes() (n int64) {
	for _, it := range u.items {
		n += it.r.Bytes()
	}
	return n
}

func (u *modelUnit) least() rollout.Version {
	v := rollout.Version(math.MaxInt32)
	for _, it := range u.items {
		v = min(v, it.r.Version())
	}
	return v
}

func (m *model) evict(u *modelUnit, why rollout.Cause) {
	u.present = false
	m.evicted[why] += uint64(len(u.items))
}

// room tells whether a queue can take a group.
func (m *model) room(g rollout.Group) bool {
	held, heldBytes := count(m.present(m.groups % m.o.Shards))
	more, moreBytes := count(m.split(g))
	return held+more <= m.o.shardCapacity() && heldBytes+moreBytes <= m.o.shardBytes()
}

// insert returns how many IDs it gave.
func (m *model) insert(g rollout.Group) (ids int) {
	shard := m.groups % m.o.Shards
	m.groups++
	for _, u := range m.split(g) {
		u.shard, u.group, u.present = shard, m.groups, true
		m.all = append(m.all, u)
		ids += len(u.items)
		for _, it := range u.items {
			m.items++
			it.id = rollout.ID(m.items)
		}
		if m.tooOld(u) {
			m.evict(u, rollout.EvictedByStaleness)
			continue
		}
		m.enter(u)
		m.retain(shard)
	}
	return ids
}

// enter gives a unit's rollouts their bases.
func (m *model) enter(u *modelUnit) {
	p := &m.o
	if p == nil {
		return
	}
	for _, it := range u.items {
		it.base = m.own(it)
		m.largest[u.shard] = max(m.largest[u.shard], it.base)
		if p.Entry == EnterMax {
			it.atMax, it.base = true, m.largest[u.shard]
			if it.base <= p.PriorityEpsilon {
				it.base = 1
			}
		}
	}
}

func (m *model) own(it *modelItem) float64 {
	p := &m.o
	switch p.PriorityBase {
	case BaseAdvantage:
		return math.Abs(float64(it.advantage)) + p.PriorityEpsilon
	case BaseReward:
		return math.Abs(float64(it.r.Reward)) + p.PriorityEpsilon
	case BaseTDError:
		return plainTDError(it.r) + p.PriorityEpsilon
	case BaseRecency:
		return 1
	case BaseFunction:
		return math.Abs(p.PriorityFunction(it.r, it.advantage)) + p.PriorityEpsilon
	}
	return p.PriorityEpsilon
}

// plainTDError lists the policy's tokens with what each earns, then takes the differences.
func plainTDError(r *rollout.Rollout) float64 {
	if len(r.Values) == 0 {
		return 0
	}
	var tokens []int
	for i, m := range r.Mask {
		if m == 1 {
			tokens = append(tokens, i)
		}
	}
	earned := make([]float64, len(tokens)+1)
	turns := r.Turns
	if len(turns) == 0 {
		turns = []rollout.Turn{{End: int32(len(r.Tokens)), Reward: r.Reward}}
	}
	for _, t := range turns {
		last := 0
		for last+1 < len(tokens) && tokens[last+1] < int(t.End) {
			last++
		}
		earned[last] += float64(t.Reward)
	}
	sum := 0.0
	for k, i := range tokens {
		next := 0.0
		if k+1 < len(tokens) {
			next = float64(r.Values[tokens[k+1]])
		}
		sum += math.Abs(earned[k] + next - float64(r.Values[i]))
	}
	return sum / float64(len(tokens))
}

func (m *model) tooOld(u *modelUnit) bool {
	return m.o.MaxStaleness > 0 && int(m.version-u.least()) > m.o.MaxStaleness
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
	n := 0
	for _, u := range held {
		n += len(u.items)
		switch {
		case n <= newest:
		case u.correct && kept > 0:
			kept--
		default:
			m.evict(u, rollout.EvictedByCapacity)
		}
	}
	if m.o.CapacityBytes == 0 {
		return
	}
	bytes := int64(0)
	for _, u := range held {
		if bytes += u.bytes(); u.present && bytes > m.o.shardBytes() {
			m.evict(u, rollout.EvictedByCapacity)
		}
	}
}

func (m *model) lease(id rollout.BatchID) *modelLease {
	i := slices.IndexFunc(m.leases, func(l *modelLease) bool { return l.batch.ID == id })
	l := m.leases[i]
	m.leases = slices.Delete(m.leases, i, i+1)
	return l
}

func (m *model) acknowledge(id rollout.BatchID) {
	l := m.lease(id)
	for _, u := range l.units {
		at := l.batch.Version
		for _, it := range u.items {
			m.acknowledged++
			m.staleness.Add(int64(at - it.r.Version()))
			m.meanStaleness.Add(int64(math.Floor(meanStaleness(it.r, at))))
			if u.lastUse != rollout.NoVersion {
				m.since.Add(int64(max(at-u.lastUse, 0)))
			}
		}
		u.lastUse = max(u.lastUse, at)
		u.leased--
		u.uses++
		switch {
		case !u.present:
		case m.o.Sampler.Consumes():
			m.evict(u, rollout.EvictedByConsume)
		case m.o.MaxUses > 0 && u.uses >= m.o.MaxUses:
			m.evict(u, rollout.EvictedByUses)
		}
	}
}

func (m *model) release(id rollout.BatchID) {
	l := m.lease(id)
	for i, u := range l.units {
		u.leased--
		u.inEpoch = false
		u.shown = u.shown && i >= l.fresh
		m.returned += uint64(len(u.items))
	}
}

func (m *model) advance(v rollout.Version) {
	m.version = max(m.version, v)
	for _, u := range m.all {
		if u.present && m.tooOld(u) {
			m.evict(u, rollout.EvictedByStaleness)
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
	for _, u := range m.all {
		u.lastUse = min(u.lastUse, v)
		ahead := func(it *modelItem) bool { return it.r.Span().Greatest > v }
		if u.present && slices.ContainsFunc(u.items, ahead) {
			m.evict(u, rollout.EvictedByRewind)
		}
	}
}

// rebase gives a rollout a new base, if it is there.
func (m *model) rebase(id rollout.ID, base func(it *modelItem) float64) bool {
	for _, u := range m.all {
		for _, it := range u.items {
			if it.id != id || !u.present {
				continue
			}
			if m.o.Sampler != Prioritized {
				return true
			}
			if b := base(it); !math.IsNaN(b) {
				it.base, it.atMax = b, false
				m.largest[u.shard] = max(m.largest[u.shard], b)
			}
			return true
		}
	}
	return false
}

// stats is the statistics by definition.
func (m *model) stats() rollout.Stats {
	s := rollout.Stats{
		Version: m.version, Inserted: uint64(m.items), InsertedGroups: uint64(m.groups), Evicted: m.evicted,
		Drawn: m.drawn, Acknowledged: m.acknowledged, Returned: m.returned,
		Staleness: m.staleness, MeanStaleness: m.meanStaleness, SinceLastUse: m.since,
	}
	for _, u := range m.all {
		for _, it := range u.items {
			if u.present {
				s.Present++
				s.PresentBytes += it.r.Bytes()
				s.UsesPresent.Add(int64(u.uses))
				continue
			}
			s.UsesAtEviction.Add(int64(u.uses))
			if u.uses == 0 {
				s.NeverUsed++
			}
		}
	}
	return s
}

// meanStaleness is the mean over the policy's tokens of their staleness at version v.
func meanStaleness(r *rollout.Rollout, v rollout.Version) float64 {
	sum, n := 0.0, 0.0
	for i, m := range r.Mask {
		if m == 1 {
			sum += float64(v - r.Versions[i])
			n++
		}
	}
	return sum / n
}

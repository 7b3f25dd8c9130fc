package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// model is a table told in the plainest way: one list of units, everything found by looking at all of it. It does not
// choose what is drawn; it says which draws are right and follows the table's.
type model struct {
	o       Options
	version rollout.Version
	tau     float64
	groups  int
	items   int      // rollouts, or steps, ever inserted
	skipped struct { // by crashes
		ids    rollout.ID
		groups int
	}
	all     []*modelUnit // every unit ever inserted, in order
	largest []float64    // base known, by shard
	leases  []*modelLease

	refused                       uint64
	acknowledged, returned, drawn uint64
	staleness, meanStaleness      rollout.Histogram
	since                         rollout.Histogram
	evicted                       map[rollout.Cause]uint64

	lives map[rollout.ID]*Life // of Options.History, whole and for good; nil: not told
	now   func() time.Time     // of their events
}

// modelUnit is what is drawn and leaves together.
type modelUnit struct {
	items        []*modelItem
	shard        int
	group        int
	correct      bool
	present      bool
	passed       bool // others of its group were selected
	tooOld       bool // as it was inserted
	uses, leased int
	lastUse      rollout.Version
	inEpoch      bool // drawn in the epoch that runs
	shown        bool // handed out as fresh
	reserved     bool // kept because it is correct
	replays      int  // draws that were not fresh, those that went back left out
	waits        bool // for the rewards of its group
	deadline     time.Time
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
	fresh []bool       // by unit, whether it was drawn as fresh
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
	m.noteEviction(u, why)
	if u.waits { // a group that waits leaves whole
		u.waits = false
		for _, mate := range m.groupOf(u) {
			if mate.present {
				m.evict(mate, why)
			}
		}
	}
}

// room tells whether a queue can take groups, and whether it could if it were empty.
func (m *model) room(groups []rollout.Group) (fits, ever bool) {
	fits, ever = true, true
	for shard := range m.o.Shards {
		more, moreBytes := 0, int64(0)
		for i, g := range groups {
			if (m.groups+i)%m.o.Shards == shard {
				n, bytes := count(slices.DeleteFunc(m.split(g), func(u *modelUnit) bool { return u.passed }))
				more, moreBytes = more+n, moreBytes+bytes
			}
		}
		held, heldBytes := count(m.present(shard))
		ever = ever && more <= m.o.shardCapacity() && moreBytes <= m.o.shardBytes()
		fits = fits && held+more <= m.o.shardCapacity() && heldBytes+moreBytes <= m.o.shardBytes()
	}
	return fits, ever
}

// insert returns how many IDs it gave.
func (m *model) insert(groups ...rollout.Group) (ids int) {
	var units []*modelUnit
	for _, g := range groups {
		split := m.split(g)
		tooOld := slices.ContainsFunc(split, m.tooOld)
		for _, u := range split {
			u.tooOld = m.tooOld(u) || u.waits && tooOld
			u.shard, u.group = m.groups%m.o.Shards, m.groups+m.skipped.groups+1
			units = append(units, u)
			for _, it := range u.items {
				if it.base = m.own(it); u.waits {
					it.base = m.o.PriorityEpsilon
				}
				if !u.tooOld && !u.passed && !u.waits {
					m.largest[u.shard] = max(m.largest[u.shard], it.base)
				}
			}
		}
		m.groups++
	}
	for i, u := range units {
		u.present = true
		m.all = append(m.all, u)
		ids += len(u.items)
		for _, it := range u.items {
			m.items++
			it.id = rollout.ID(m.items) + m.skipped.ids
		}
		m.noteInsertion(u)
		if u.passed {
			m.evict(u, rollout.EvictedBySelection)
			continue
		}
		if u.tooOld {
			u.waits = false
			m.evict(u, rollout.EvictedByStaleness)
			continue
		}
		if u.waits {
			if i+1 == len(units) || units[i+1].group != u.group { // all are there
				m.retain(u.shard)
			}
			continue
		}
		if m.o.Entry == EnterMax {
			m.enterAtMax(u)
		}
		m.thin(u)
		m.retain(u.shard)
	}
	return ids
}

// enterAtMax gives a unit's rollouts the largest base that its shard has seen, those of the same insertion included.
func (m *model) enterAtMax(u *modelUnit) {
	for _, it := range u.items {
		it.atMax, it.base = true, m.largest[u.shard]
		if it.base <= m.o.PriorityEpsilon {
			it.base = 1
		}
	}
}

// refresh gives what was handed out as fresh its own base, where that ends an entry at the maximum.
func (m *model) refresh(shard int) {
	for _, u := range m.present(shard) {
		for _, it := range u.items {
			if m.o.EntryUntil == UntilRefresh && it.atMax && u.shown {
				it.base, it.atMax = m.own(it), false
				m.largest[shard] = max(m.largest[shard], it.base)
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
	return m.o.MaxStaleness > 0 && slices.ContainsFunc(u.items, func(it *modelItem) bool {
		return int(m.version-it.r.Version()) > m.o.MaxStaleness && (m.o.Pin == "" || m.told(u, it, m.o.Pin) == 0)
	})
}

// retain is METHODS 3: the newest N - round(fraction N), and the newest round(fraction N) correct ones not among those;
// and no more bytes than allowed, the oldest leaving first.
func (m *model) retain(shard int) {
	if m.o.Sampler.Consumes() {
		return
	}
	held := m.present(shard)
	if m.o.Retention == KeepScored {
		m.retainScored(held)
		return
	}
	kept := int(math.Round(m.o.PositiveFraction * float64(m.o.shardCapacity())))
	newest := m.o.shardCapacity() - kept
	slices.Reverse(held)
	n, of := 0, make(map[string]int)
	for _, u := range held {
		if !u.reserved { // what is kept because it is correct stays so, whatever room there is among the newest
			n += len(u.items)
		}
		prompt := u.items[0].r.PromptID
		switch {
		case !u.reserved && n <= newest || !u.present: // it has left with its group
		case u.correct && kept > 0 && (m.o.PositivesPerPrompt == 0 || of[prompt] < m.o.PositivesPerPrompt):
			kept--
			of[prompt]++
			u.reserved = true
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

// thin evicts the first to leave of a newcomer's prompt if there are too many of it.
func (m *model) thin(newcomer *modelUnit) {
	same := slices.DeleteFunc(m.present(newcomer.shard), func(u *modelUnit) bool {
		return u.items[0].r.PromptID != newcomer.items[0].r.PromptID
	})
	if m.o.KeptPerPrompt == 0 || len(same) <= m.o.KeptPerPrompt {
		return
	}
	first := same[0]
	for _, u := range same {
		if m.o.Retention == KeepScored && m.score(u, m.o.Score) < m.score(first, m.o.Score) {
			first = u
		}
	}
	m.evict(first, rollout.EvictedByCapacity)
}

// retainScored evicts the unit of the least score, the oldest among equals, until the others fit.
func (m *model) retainScored(held []*modelUnit) {
	for {
		if n, bytes := count(held); n <= m.o.shardCapacity() && bytes <= m.o.shardBytes() {
			return
		}
		least := 0
		for i, u := range held {
			if m.score(u, m.o.Score) < m.score(held[least], m.o.Score) {
				least = i
			}
		}
		m.evict(held[least], rollout.EvictedByCapacity)
		held = slices.DeleteFunc(held, func(u *modelUnit) bool { return !u.present })
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
	m.noteOutcome(l.batch, Used)
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
	m.noteOutcome(l.batch, Returned)
	for i, u := range l.units {
		u.leased--
		u.inEpoch = false
		u.shown = u.shown && !l.fresh[i]
		if !l.fresh[i] {
			u.replays--
		}
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
	for _, u := range m.all {
		u.lastUse = min(u.lastUse, v)
		ahead := func(it *modelItem) bool { return it.r.Span().Greatest > v }
		if u.present && slices.ContainsFunc(u.items, ahead) {
			m.evict(u, rollout.EvictedByRewind)
		}
	}
	m.version = v
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
		Refused: m.refused, Drawn: m.drawn, Acknowledged: m.acknowledged, Returned: m.returned,
		Staleness: m.staleness, MeanStaleness: m.meanStaleness, SinceLastUse: m.since,
	}
	for _, u := range m.all {
		for _, it := range u.items {
			if u.present {
				s.Present++
				if u.waits {
					s.Waiting++
				}
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

// left is how many more draws MaxUses allows of a unit.
func (m *model) left(u *modelUnit) int {
	if m.o.Sampler.Consumes() {
		return 1 - u.uses - u.leased
	}
	if m.o.MaxUses == 0 {
		return math.MaxInt32
	}
	return m.o.MaxUses - u.uses - u.leased
}

func (m *model) eligible(shard int) []*modelUnit {
	return slices.DeleteFunc(m.present(shard), func(u *modelUnit) bool { return m.left(u) <= 0 || u.waits })
}

// rested is what the sampler may draw: it does not rest after a use, nor is it on lease where uses are followed by
// rest.
func (m *model) rested(shard int) []*modelUnit {
	return slices.DeleteFunc(m.eligible(shard), func(u *modelUnit) bool {
		return m.o.Cooldown > 0 && (u.leased > 0 || u.lastUse != rollout.NoVersion &&
			int(m.version-u.lastUse) < m.o.Cooldown)
	})
}

// score is the mean of an expression over a unit, -Inf if it is not known.
func (m *model) score(u *modelUnit, text string) float64 {
	sum := 0.0
	for _, it := range u.items {
		sum += m.told(u, it, text)
	}
	if sum != sum {
		return math.Inf(-1)
	}
	return sum / float64(len(u.items))
}

// fresh is what was never handed out as fresh, the oldest first.
func (m *model) fresh(shard int) []*modelUnit {
	return slices.DeleteFunc(m.eligible(shard), func(u *modelUnit) bool { return u.shown || m.o.Sampler.Consumes() })
}

// fills tells whether a batch can be drawn.
func (m *model) fills(req rollout.Request) bool {
	e, each := m.eligible(req.Shard), m.each()
	held, _ := count(slices.DeleteFunc(m.present(req.Shard), func(u *modelUnit) bool { return u.waits }))
	freshOnes := req.Fresh
	if m.o.Sampler.Consumes() {
		freshOnes = 0
	}
	if held < m.o.MinSize || len(m.fresh(req.Shard))*each < freshOnes || m.waits(req) {
		return false
	}
	if !m.o.Sampler.Replaces() {
		return len(m.rested(req.Shard))*each >= req.Size
	}
	draws := 0
	for _, u := range e {
		draws += m.left(u) * each
	}
	return draws >= req.Size
}

// candidates is what the next draw of a batch may fall on, but the fresh ones, and with which probability.
func (m *model) candidates(shard int, batch []*modelUnit) ([]*modelUnit, func(u *modelUnit) float64) {
	c := m.drawable(shard, batch)
	if m.o.Sampler == Ordered { // the first of those with the largest score, in order of age
		c = []*modelUnit{slices.MaxFunc(c, func(a, b *modelUnit) int {
			return cmp.Compare(m.score(a, m.o.Order), m.score(b, m.o.Order))
		})}
	}
	if m.o.Sampler == Prioritized {
		log := m.logProbabilities(c)
		return c, func(u *modelUnit) float64 { return math.Exp(log[u]) }
	}
	return c, func(*modelUnit) float64 { return 1 / float64(len(c)) }
}

func (m *model) drawable(shard int, batch []*modelUnit) []*modelUnit {
	e := m.rested(shard)
	others := func(ok func(*modelUnit) bool) []*modelUnit {
		return slices.DeleteFunc(slices.Clone(e), func(u *modelUnit) bool {
			return slices.Contains(batch, u) || !ok(u)
		})
	}
	anything := func(*modelUnit) bool { return true }
	switch m.o.Sampler {
	case FIFO:
		return e[:1]
	case LIFO:
		return e[len(e)-1:]
	case Uniform, Prioritized:
		return e
	case Epoch:
		if c := others(func(u *modelUnit) bool { return !u.inEpoch }); len(c) > 0 {
			return c
		}
		for _, u := range m.all {
			u.inEpoch = u.inEpoch && u.shard != shard
		}
	case Unseen:
		if c := others(func(u *modelUnit) bool { return u.uses+u.leased == 0 }); len(c) > 0 {
			return c
		}
	case LeastUsed:
		fewest := math.MaxInt32
		for _, u := range others(anything) {
			fewest = min(fewest, u.uses+u.leased)
		}
		return others(func(u *modelUnit) bool { return u.uses+u.leased == fewest })
	}
	return others(anything)
}

// logProbabilities is METHODS 3: p = base exp(-age/tau), w = p^alpha, P = w/sum w, or the decay after the exponent.
func (m *model) logProbabilities(units []*modelUnit) map[*modelUnit]float64 {
	p, log := &m.o, make(map[*modelUnit]float64)
	most := math.Inf(-1)
	for _, u := range units {
		base := 0.0
		for _, it := range u.items {
			if p.PriorityBase == BaseExpression {
				it.base = max(0, m.told(u, it, p.Priority)) + p.PriorityEpsilon
			}
			base += it.base / float64(len(u.items))
		}
		age := float64(m.version - u.least())
		if p.DecayOrder == AfterExponent {
			log[u] = p.PriorityExponent*math.Log(base) - age/m.tau
		} else {
			log[u] = p.PriorityExponent * (math.Log(base) - age/m.tau)
		}
		most = max(most, log[u])
	}
	sum := 0.0
	for _, u := range units {
		sum += math.Exp(log[u] - most)
	}
	for _, u := range units {
		log[u] -= most + math.Log(sum)
	}
	return log
}

// near allows what rounding makes of probabilities above 1e-290.
func near(got, want float64) bool {
	return math.Abs(got-want) <= 1e-9*want || want <= 1e-290 && got <= 1e-289
}

// follow checks the draws of a batch one by one and takes them; it returns what is wrong, "" if nothing.
func (m *model) follow(b *rollout.Batch, req rollout.Request) string {
	var drawn []*modelUnit
	if m.o.Sampler.Consumes() {
		req.Fresh = 0
	}
	if req.Fresh > 0 {
		m.refresh(b.Shard)
	}
	waiting := m.fresh(b.Shard)
	least := math.Inf(1)  // logarithm of the least N P that counts for importance weights
	var shares []float64  // N P of each draw
	var counts []float64  // expected draws of each unit, where they are stratified
	var pool []*modelUnit // those units
	replayed := (req.Size - req.Fresh) / m.each()
	turns := m.turnsOf(req)
	var fresh []bool
	for i := 0; i < len(b.Draws); i += m.each() {
		d := b.Draws[i]
		u := m.unitOf(d.ID)
		if u == nil {
			return "a draw fell on what was never inserted"
		}
		if i < req.Fresh && !d.Fresh {
			return "fresh draws do not come first, or are not told"
		}
		chance, eligible := 1.0, 1.0
		if i < req.Fresh {
			if u != waiting[len(drawn)] {
				return "a fresh draw is not the oldest"
			}
		} else if c, of, asFresh := turns.next(drawn, fresh); c != nil {
			if d.Fresh != asFresh || !slices.Contains(c, u) {
				return "a draw of a source fell on what it does not hold, or twice on the same"
			}
			chance, eligible = of(u), float64(len(c))
		} else if d.Fresh {
			return "a draw of the sampler is fresh"
		} else {
			c, of := m.candidates(b.Shard, drawn)
			if !slices.Contains(c, u) {
				return "a draw fell on what cannot be drawn"
			}
			chance, eligible = of(u), float64(len(c))
			if m.o.Sampler == Prioritized && pool == nil {
				pool = c
				for _, v := range c {
					counts = append(counts, of(v)*float64(replayed))
				}
				if m.o.ImportanceNorm == ByTable {
					for _, x := range m.logProbabilities(c) {
						least = min(least, x+math.Log(float64(len(c))))
					}
				}
			}
		}
		fresh = append(fresh, d.Fresh)
		for k := range m.each() {
			if problem := m.checkDraw(b.Draws[i+k], u, k, d.Fresh, chance); problem != "" {
				return problem
			}
		}
		if !d.Fresh {
			least = min(least, math.Log(eligible*chance))
		}
		for range m.each() {
			shares = append(shares, eligible*chance)
		}
		u.leased++
		u.inEpoch = true
		u.shown = u.shown || d.Fresh
		if !d.Fresh {
			u.replays++
		}
		drawn = append(drawn, u)
	}
	if problem := m.checkWeights(b, shares, least); problem != "" {
		return problem
	}
	if m.o.MaxUses == 0 && m.o.Sampler == Prioritized && m.o.Draws == Stratified {
		for i, v := range pool {
			n := 0.0
			for _, u := range drawn[req.Fresh/m.each():] {
				if u == v {
					n++
				}
			}
			if n < math.Floor(counts[i]-1e-9)-1 || n > math.Ceil(counts[i]+1e-9)+1 {
				return fmt.Sprintf("stratified draws fell %v times on a unit, %v are expected", n, counts[i])
			}
		}
	}
	m.drawn += uint64(len(b.Draws))
	if problem := m.checkAdvantages(b); problem != "" {
		return problem
	}
	m.leases = append(m.leases, &modelLease{b, drawn, fresh})
	m.noteDraws(b)
	if problem := turns.check(b, drawn, fresh); problem != "" {
		return problem
	}
	return ""
}

// checkDraw checks the k-th rollout of a drawn unit.
func (m *model) checkDraw(d rollout.Draw, u *modelUnit, k int, fresh bool, chance float64) string {
	it := u.items[k]
	switch {
	case d.ID != it.id:
		return "a unit is not drawn whole and in order"
	case d.Fresh != fresh:
		return "a unit is fresh in part"
	case m.o.Sampler != Prioritized && m.o.Sources == nil && d.Probability != chance, !near(d.Probability, chance):
		return fmt.Sprintf("a reported probability is not the one used, %v", chance)
	case d.Rollout.PromptID != it.r.PromptID || d.Rollout.Reward != it.r.Reward ||
		len(d.Rollout.Tokens) != len(it.r.Tokens):
		return "a draw carries another rollout"
	case m.o.DrawAdvantage == AdvantageStored && d.Advantage != it.advantage:
		return "a draw's advantage is not the stored one"
	case d.Group != uint64(u.group) || d.GroupMean != it.mean || d.GroupStd != it.std:
		return "a draw's group is wrong"
	case int(d.Uses) != u.uses || d.Staleness != int32(m.version-it.r.Version()) || d.Staleness < 0:
		return "a draw's uses or staleness is wrong"
	case m.o.MaxStaleness > 0 && int(d.Staleness) > m.o.MaxStaleness && (m.o.Pin == "" || m.told(u, it, m.o.Pin) == 0):
		return "a draw is too old"
	}
	return ""
}

// checkWeights compares the importance weights with (N P)^-beta over the largest; least is that of log N P.
func (m *model) checkWeights(b *rollout.Batch, shares []float64, least float64) string {
	p := &m.o
	for i, d := range b.Draws {
		want := 1.0
		if p.Sampler == Prioritized && !d.Fresh {
			beta := *p.ImportanceBeta
			if *p.ImportanceAnneal > 0 {
				beta = min(beta+(1-beta)*float64(m.version)/float64(*p.ImportanceAnneal), 1)
			}
			want = math.Exp(beta * (least - math.Log(shares[i])))
		}
		if got := float64(d.Weight); !(math.Abs(got-want) <= 2e-7*want+1e-37) || got > 1 {
			return fmt.Sprintf("rollout %d of probability %v has weight %v, by definition %v", d.ID,
				d.Probability, got, want)
		}
	}
	return ""
}

func (m *model) unitOf(id rollout.ID) *modelUnit {
	for _, u := range m.all {
		if slices.ContainsFunc(u.items, func(it *modelItem) bool { return it.id == id }) {
			return u
		}
	}
	return nil
}

// split makes the units of a group.
func (m *model) split(g rollout.Group) (units []*modelUnit) {
	var compared []float32 // rewards, or the returns of steps
	var parts [][]*rollout.Rollout
	for _, r := range g.Rollouts {
		of := []*rollout.Rollout{r}
		if m.o.Unit == UnitStep {
			of = m.steps(r)
		}
		if m.o.StepReturns == 0 {
			compared = append(compared, r.Reward)
		} else {
			for _, part := range of {
				compared = append(compared, part.Reward)
			}
		}
		parts = append(parts, of)
	}
	chosen := m.selected(compared)
	among := make([]float32, 0, len(compared))
	for _, i := range chosen {
		among = append(among, compared[i])
	}
	moments := advantage.MomentsOf(among)
	advantages := make([]float32, len(compared))
	advantage.OfGroup(among, among, m.o.Advantage)
	waits := slices.ContainsFunc(g.Rollouts, (*rollout.Rollout).Pending)
	if unknown := math.NaN(); waits {
		moments = advantage.Moments{Mean: unknown, Var: unknown}
		for i := range among {
			among[i] = float32(unknown)
		}
	}
	for k, i := range chosen {
		advantages[i] = among[k]
	}
	next := 0
	for i, r := range g.Rollouts {
		for _, part := range parts[i] {
			at := i
			if m.o.StepReturns != 0 {
				at = next
			}
			next++
			it := &modelItem{r: part, advantage: advantages[at], mean: float32(moments.Mean),
				std: float32(moments.Std())}
			if m.o.Unit == UnitGroup && i > 0 {
				units[0].items = append(units[0].items, it)
				continue
			}
			units = append(units, &modelUnit{
				items: []*modelItem{it}, correct: !waits && r.Reward >= *m.o.PositiveThreshold, lastUse: rollout.NoVersion,
				passed: m.o.Select > 0 && !slices.Contains(chosen, i),
				waits:  waits, deadline: m.deadline(),
			})
		}
	}
	return units
}

// selected returns the places of the rewards whose rollouts enter: of the subsets that have the i largest and the
// others of the smallest, that of the largest variance.
func (m *model) selected(rewards []float32) []int {
	order := make([]int, len(rewards))
	for i := range order {
		order[i] = i
	}
	k := m.o.Select
	if k == 0 || k >= len(rewards) {
		return order
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(rewards[j], rewards[i]) })
	best, most := order[:k], spread(rewards, order[:k])
	for i := 0; i < k && m.o.SelectBy == SelectVariance; i++ {
		subset := slices.Concat(order[:i], order[len(order)-k+i:])
		if v := spread(rewards, subset); v > most*(1+1e-9) {
			best, most = subset, v
		}
	}
	best = slices.Clone(best)
	slices.Sort(best)
	return best
}

// spread is the population variance of some rewards: half the mean square of their differences.
func spread(rewards []float32, places []int) (sum float64) {
	for _, i := range places {
		for _, j := range places {
			d := float64(rewards[i]) - float64(rewards[j])
			sum += d * d / 2 / float64(len(places)*len(places))
		}
	}
	return sum
}

// steps makes the steps of a rollout, the reward of each by its definition.
func (m *model) steps(r *rollout.Rollout) []*rollout.Rollout {
	steps, _ := r.Steps()
	if m.o.StepReturns == 0 || len(r.Turns) == 0 {
		return steps
	}
	for i := range steps {
		sum := 0.0
		for k := i; k < len(r.Turns) && (m.o.StepReturns < 0 || k < i+m.o.StepReturns); k++ {
			sum += math.Pow(m.o.StepDiscount, float64(k-i)) * float64(r.Turns[k].Reward)
		}
		steps[i].Reward = float32(sum)
		steps[i].Turns = []rollout.Turn{r.Turns[i]}
		steps[i].Turns[0].Reward = float32(sum)
	}
	return steps
}

var ctx = context.Background()

// fakeClock is a clock that moves when told to.
type fakeClock struct{ now time.Time }

func (c *fakeClock) time() time.Time { return c.now }

// someRollout makes a rollout of a few tokens, whose versions lie in [v-spread, v].
func someRollout(r *rand.Rand, prompt string, v rollout.Version) *rollout.Rollout {
	x := &rollout.Rollout{PromptID: prompt, Temperature: 1, TopP: 1, Reward: float32(r.IntN(2))}
	for i := range 2 + r.IntN(4) {
		if i == 0 {
			x.Tokens, x.Mask = append(x.Tokens, 1), append(x.Mask, 0)
			x.Logprobs, x.Versions = append(x.Logprobs, 0), append(x.Versions, rollout.NoVersion)
			continue
		}
		x.Tokens, x.Mask = append(x.Tokens, int32(r.IntN(8))), append(x.Mask, 1)
		x.Logprobs = append(x.Logprobs, -r.Float32())
		x.Versions = append(x.Versions, max(0, v-rollout.Version(r.IntN(3))))
	}
	return x
}

func someGroup(r *rand.Rand, n int, v rollout.Version) rollout.Group {
	g := rollout.Group{Size: n}
	prompt := fmt.Sprint("p", r.IntN(1000))
	for range n {
		g.Rollouts = append(g.Rollouts, someRollout(r, prompt, v))
	}
	return g
}

// trial runs random operations on a table, on the model, and on a twin of the table that is now and then replaced by
// one restored from its snapshot (invariant 5).
type trial struct {
	t           *testing.T
	random      *rand.Rand
	clock       *fakeClock
	table, twin *Table
	model       *model
}

func newTrial(t *testing.T, o Options, seed uint64) *trial {
	tr := &trial{t: t, random: rollout.Stream(seed, "trial", 0), clock: &fakeClock{time.Unix(1000, 0)}}
	o.Clock, o.LeaseSeconds, o.Seed = tr.clock.time, 10, seed+1
	tr.table, tr.twin = mustNew(t, o), mustNew(t, o)
	tr.model = newModel(tr.table.Options())
	tr.model.now = tr.clock.time
	return tr
}

func mustNew(t testing.TB, o Options) *Table {
	t.Helper()
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (tr *trial) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

// same demands equal answers of the table and its twin.
func (tr *trial) same(a, b any, errA, errB error) {
	tr.t.Helper()
	if fmt.Sprint(errA) != fmt.Sprint(errB) || !reflect.DeepEqual(a, b) {
		tr.t.Fatalf("the table answered %v, %v, its twin %v, %v", a, errA, b, errB)
	}
}

func (tr *trial) step() {
	if tr.model.o.PendingRewards > 0 && tr.random.IntN(4) == 0 {
		tr.reward()
		return
	}
	switch k := tr.random.IntN(100); {
	case k < 35:
		tr.insert()
	case k < 53:
		tr.sample()
	case k < 60:
		if tr.model.o.PromptIndex {
			tr.byPrompt()
		} else {
			tr.sample()
		}
	case k < 70:
		tr.lease()
	case k < 80:
		tr.settle()
	case k < 90:
		tr.advance()
	case k < 92:
		v := max(0, tr.model.version-rollout.Version(tr.random.IntN(3)))
		tr.must(tr.table.Rewind(ctx, v))
		tr.must(tr.twin.Rewind(ctx, v))
		tr.model.rewind(v)
	case k < 93:
		tr.tick()
	case k < 95:
		tr.update()
	case k < 97:
		tr.report()
	case k < 98:
		tr.setAgeDecay()
	default:
		tr.restoreTwin()
	}
}

func (tr *trial) advance() {
	v := tr.model.version + rollout.Version(tr.random.IntN(3)-1)
	switch tr.random.IntN(20) {
	case 0, 1:
		v += 20
	case 2:
		if tr.model.o.Sampler == Prioritized {
			v += rollout.Version(tr.random.IntN(100_000))
		}
	}
	v = max(v, 0)
	tr.must(tr.table.Advance(ctx, v))
	tr.must(tr.twin.Advance(ctx, v))
	tr.model.advance(v)
	tr.followAgeDecay()
}

// followAgeDecay takes over an age decay that moves by itself: other tests say where to.
func (tr *trial) followAgeDecay() {
	if p := &tr.model.o; p != nil && p.TargetESS > 0 {
		tr.model.tau = tr.table.Inspect().AgeDecay()
	}
}

func (tr *trial) insert() {
	g := tr.someGroup()
	if tr.random.IntN(20) == 0 {
		x := g.Rollouts[len(g.Rollouts)-1]
		x.Versions[slices.Index(x.Mask, 1)] = tr.model.version + 1
		_, err := tr.table.Insert(ctx, g)
		_, err2 := tr.twin.Insert(ctx, g)
		tr.same(nil, nil, err, err2)
		if !errors.Is(err, rollout.ErrAhead) {
			tr.t.Fatalf("an insertion ahead of the table gave %v", err)
		}
		return
	}
	insertion := []rollout.Group{g}
	for tr.random.IntN(3) == 0 {
		insertion = append(insertion, tr.someGroup())
	}
	fits, ever := true, true
	if tr.model.o.Sampler.Consumes() {
		fits, ever = tr.model.room(insertion)
	}
	was, _ := json.Marshal(insertion)
	ids, err := tr.table.Insert(ctx, insertion...)
	ids2, err2 := tr.twin.Insert(ctx, insertion...)
	tr.same(ids, ids2, err, err2)
	if fits {
		tr.must(err)
		last := rollout.ID(tr.model.items) + tr.model.skipped.ids
		n := tr.model.insert(insertion...)
		if len(ids) != n || ids[0] != last+1 || ids[n-1] != last+rollout.ID(n) {
			tr.t.Fatalf("%d rollouts after %d got the ids %v", n, last, ids)
		}
		if is, _ := json.Marshal(insertion); string(is) != string(was) {
			tr.t.Fatalf("insertion changed %s to %s", was, is)
		}
	} else if ever && !errors.Is(err, rollout.ErrFull) || !ever && !errors.Is(err, rollout.ErrInvalid) {
		tr.t.Fatalf("an insertion into a full queue gave %v; into an empty one it would fit: %v", err, ever)
	}
	if !ever {
		for _, g := range insertion {
			n, _ := count(tr.model.split(g))
			tr.model.refused += uint64(n)
		}
	}
}

// someGroup makes a group with what the table's options need.
func (tr *trial) someGroup() rollout.Group {
	n := 1 + tr.random.IntN(4)
	switch tr.model.o.Unit {
	case UnitGroup:
		n = tr.model.o.GroupSize
	case UnitStep:
		n = 1 + tr.random.IntN(2)
	}
	g := someGroup(tr.random, n, tr.model.version)
	prompt := fmt.Sprint("p", tr.random.IntN(6)) // asked again and again
	for _, r := range g.Rollouts {
		r.PromptID = prompt
	}
	for i, r := range g.Rollouts {
		if tr.random.IntN(6) == 0 { // late
			r = someRollout(tr.random, r.PromptID, max(0, tr.model.version-rollout.Version(tr.random.IntN(40))))
			g.Rollouts[i] = r
		}
		if tr.random.IntN(3) == 0 {
			r.Reward = float32(tr.random.NormFloat64())
		}
		if tr.model.o.Unit == UnitStep && tr.random.IntN(3) > 0 {
			g.Rollouts[i] = someTurns(tr.random, r)
		}
		g.Rollouts[i].Values = someValues(tr.random, len(g.Rollouts[i].Tokens))
	}
	if tr.model.o.PendingRewards > 0 && tr.random.IntN(2) == 0 {
		for _, r := range g.Rollouts {
			if tr.random.IntN(2) == 0 {
				r.Reward = float32(math.NaN())
			}
		}
	}
	return g
}

func someValues(r *rand.Rand, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	return values
}

// someTurns repeats a rollout's completion in two or three turns, with a token of the environment before each.
func someTurns(random *rand.Rand, r *rollout.Rollout) *rollout.Rollout {
	x := *r
	x.Tokens, x.Mask, x.Logprobs, x.Versions = nil, nil, nil, nil
	for range 2 + random.IntN(2) {
		start := int32(len(x.Tokens))
		x.Tokens, x.Mask = append(x.Tokens, r.Tokens...), append(x.Mask, r.Mask...)
		x.Logprobs, x.Versions = append(x.Logprobs, r.Logprobs...), append(x.Versions, r.Versions...)
		x.Turns = append(x.Turns, rollout.Turn{Start: start + int32(random.IntN(2)), End: int32(len(x.Tokens)),
			Reward: random.Float32()})
	}
	return &x
}

func (tr *trial) request() rollout.Request {
	each := tr.model.each()
	req := rollout.Request{Size: each * (1 + tr.random.IntN(5)), Shard: tr.random.IntN(tr.model.o.Shards)}
	if tr.random.IntN(3) == 0 {
		req.Fresh = each * tr.random.IntN(req.Size/each+1)
	}
	return req
}

// drawn checks a batch, or the refusal to give one, and tells whether there is a batch.
func (tr *trial) drawn(req rollout.Request, b *rollout.Batch, err error) bool {
	tr.t.Helper()
	if !tr.model.fills(req) {
		if !errors.Is(err, rollout.ErrStarved) {
			tr.t.Fatalf("sampling %+v from too few gave %v", req, err)
		}
		return false
	}
	if len(b.Draws) != req.Size || b.Version != tr.model.version || b.Shard != req.Shard {
		tr.t.Fatalf("asked for %+v at version %d, got %d draws of shard %d at version %d", req, tr.model.version,
			len(b.Draws), b.Shard, b.Version)
	}
	if problem := tr.model.follow(b, req); problem != "" {
		tr.t.Fatalf("%s: %+v", problem, b)
	}
	return true
}

func (tr *trial) sample() {
	req := tr.request()
	b, err := tr.table.Sample(ctx, req)
	b2, err2 := tr.twin.Sample(ctx, req)
	tr.same(b, b2, err, err2)
	if tr.drawn(req, b, err) {
		tr.model.acknowledge(b.ID)
	}
}

func (tr *trial) lease() {
	req := tr.request()
	b, err := tr.table.Lease(ctx, req)
	b2, err2 := tr.twin.Lease(ctx, req)
	tr.same(b, b2, err, err2)
	tr.drawn(req, b, err)
}

func (tr *trial) settle() {
	if len(tr.model.leases) == 0 {
		return
	}
	id := tr.model.leases[tr.random.IntN(len(tr.model.leases))].batch.ID
	if tr.random.IntN(2) == 0 {
		tr.must(tr.table.Acknowledge(ctx, id))
		tr.must(tr.twin.Acknowledge(ctx, id))
		tr.model.acknowledge(id)
	} else {
		tr.must(tr.table.Release(ctx, id))
		tr.must(tr.twin.Release(ctx, id))
		tr.model.release(id)
	}
	if err := tr.table.Acknowledge(ctx, id); !errors.Is(err, rollout.ErrNoLease) {
		tr.t.Fatalf("settling a batch twice gave %v", err)
	}
}

// choice is expressions of a draw by prompt, told in Go.
type choice struct {
	where, order string
	holds        func(m *model, u *modelUnit, it *modelItem) bool
	score        func(m *model, u *modelUnit, it *modelItem) float64
}

func choices() []choice {
	all := func(*model, *modelUnit, *modelItem) bool { return true }
	reward := func(_ *model, _ *modelUnit, it *modelItem) float64 { return float64(it.r.Reward) }
	return []choice{
		{holds: all},
		{where: "reward > 0", holds: func(_ *model, _ *modelUnit, it *modelItem) bool { return it.r.Reward > 0 }},
		{order: "reward", holds: all, score: reward},
		{"uses == 0 || age < 2", "-advantage", func(m *model, u *modelUnit, it *modelItem) bool {
			return u.uses == 0 || m.version-it.r.Version() < 2
		}, func(_ *model, _ *modelUnit, it *modelItem) float64 { return -float64(it.advantage) }},
		{"since_use > 1 and group_std >= 0", "length", func(m *model, u *modelUnit, _ *modelItem) bool {
			return u.lastUse == rollout.NoVersion || m.version-u.lastUse > 1
		}, func(_ *model, _ *modelUnit, it *modelItem) float64 {
			n := 0.0
			for _, m := range it.r.Mask {
				n += float64(m)
			}
			return n
		}},
	}
}

// byPrompt draws by prompt, for use or on lease, from both tables.
func (tr *trial) byPrompt() {
	c := choices()[tr.random.IntN(len(choices()))]
	req := rollout.Request{Shard: tr.random.IntN(tr.model.o.Shards), PerPrompt: 1 + tr.random.IntN(3), Where: c.where,
		Order: c.order}
	for _, p := range tr.random.Perm(7)[:1+tr.random.IntN(4)] { // of p6 there are none
		req.Prompts = append(req.Prompts, fmt.Sprint("p", p))
	}
	draw, again, used := tr.table.Lease, tr.twin.Lease, tr.random.IntN(2) == 0
	if used {
		draw, again = tr.table.Sample, tr.twin.Sample
	}
	b, err := draw(ctx, req)
	b2, err2 := again(ctx, req)
	tr.same(b, b2, err, err2)
	tr.must(err)
	if problem := tr.model.followPrompts(b, req, c); problem != "" {
		tr.t.Fatalf("%s: %+v got %+v", problem, req, b)
	}
	if used {
		tr.model.acknowledge(b.ID)
	}
}

// followPrompts checks a draw by prompt and takes it: of each prompt by the definition, looking at the whole shard.
func (m *model) followPrompts(b *rollout.Batch, req rollout.Request, c choice) string {
	if len(b.PromptCounts) != len(req.Prompts) || b.LogWeightScale != 0 || b.Shard != req.Shard {
		return "a batch is not of its request"
	}
	var drawn []*modelUnit
	for i, draws := range b.ByPrompt() {
		left := slices.DeleteFunc(m.eligible(req.Shard), func(u *modelUnit) bool {
			it := u.items[0]
			return it.r.PromptID != req.Prompts[i] || !c.holds(m, u, it)
		})
		if c.score != nil {
			slices.SortFunc(left, func(a, b *modelUnit) int {
				return cmp.Or(cmp.Compare(c.score(m, b, b.items[0]), c.score(m, a, a.items[0])),
					cmp.Compare(b.items[0].id, a.items[0].id))
			})
		}
		if want := min(req.PerPrompt, len(left)); len(draws) != want {
			return fmt.Sprintf("%s got %d, by definition %d", req.Prompts[i], len(draws), want)
		}
		for _, d := range draws {
			u, chance := m.unitOf(d.ID), 1.0
			at := slices.Index(left, u)
			if at < 0 || c.score != nil && at != 0 {
				return fmt.Sprintf("%d is not the next to draw", d.ID)
			}
			if c.score == nil {
				chance = 1 / float64(len(left))
			}
			if problem := m.checkDraw(d, u, 0, false, chance); problem != "" || d.Weight != 1 {
				return problem + fmt.Sprintf(" with weight %v", d.Weight)
			}
			left = slices.Delete(left, at, at+1)
			drawn = append(drawn, u)
		}
	}
	for _, u := range drawn {
		u.leased++
		u.inEpoch = true
		u.replays++
	}
	m.drawn += uint64(len(b.Draws))
	m.leases = append(m.leases, &modelLease{b, drawn, make([]bool, len(drawn))})
	m.noteDraws(b)
	return m.checkAdvantages(b)
}

// tick lets every lease expire.
func (tr *trial) tick() {
	tr.clock.now = tr.clock.now.Add(10 * time.Second)
	for len(tr.model.leases) > 0 {
		tr.model.release(tr.model.leases[0].batch.ID)
	}
	tr.model.dropUnrewarded(tr.clock.now)
	statsOf(tr.table)
	statsOf(tr.twin)
}

// someIDs returns a few IDs that were given.
func (tr *trial) someIDs() (ids []rollout.ID) {
	for range min(3, len(tr.model.all)) {
		items := tr.model.all[tr.random.IntN(len(tr.model.all))].items
		ids = append(ids, items[tr.random.IntN(len(items))].id)
	}
	return ids
}

// update gives a few rollouts bases and compares the count of those evicted (invariant 7).
func (tr *trial) update() {
	before, gone := statsOf(tr.table).UpdatesIgnored, uint64(0)
	var list []Priority
	for _, id := range tr.someIDs() {
		p := Priority{ID: id, Value: min(math.Exp(10*tr.random.NormFloat64()), maxMeasurement)}
		list = append(list, p)
		if !tr.model.rebase(id, func(*modelItem) float64 { return p.Value + tr.model.o.PriorityEpsilon }) {
			gone++
		}
		tr.model.noteReport(rollout.Feedback{ID: id})
	}
	tr.must(updateOf(tr.table, list...))
	tr.must(updateOf(tr.twin, list...))
	if got := statsOf(tr.table).UpdatesIgnored - before; got != gone {
		tr.t.Fatalf("%d of %d updates were ignored, %d rollouts were gone", got, len(list), gone)
	}
}

// report is as update, with feedback.
func (tr *trial) report() {
	before, gone := statsOf(tr.table).UpdatesIgnored, uint64(0)
	var list []rollout.Feedback
	for _, id := range tr.someIDs() {
		f := rollout.Feedback{
			ID: id, Staleness: tr.random.Int32N(40), Advantage: rollout.Measured(tr.random.Float64()),
			TDError: rollout.Measured(tr.random.Float64()), GradNorm: rollout.Measured(tr.random.Float64()),
			Tokens: 10, RatioSum: 10, RatioSquares: 10 + 10*tr.random.Float64(),
		}
		if tr.random.IntN(4) == 0 {
			f.Advantage, f.TDError, f.GradNorm = rollout.Measurement{}, rollout.Measurement{}, rollout.Measurement{}
		}
		list = append(list, f)
		if !tr.model.rebase(id, func(it *modelItem) float64 {
			p := &tr.model.o
			if it.atMax && p.EntryUntil != UntilReport && tr.model.unitOf(id).replays == 0 {
				return math.NaN()
			}
			given := map[Base]rollout.Measurement{BaseAdvantage: f.Advantage, BaseTDError: f.TDError,
				BaseGradNorm: f.GradNorm}
			if x, ok := given[p.PriorityBase]; ok && x.Known {
				return x.Value + p.PriorityEpsilon
			} else if ok {
				return math.NaN()
			} else if it.atMax {
				return tr.model.own(it)
			}
			return it.base
		}) {
			gone++
		}
		tr.model.noteReport(f)
	}
	tr.must(tr.table.Report(ctx, list...))
	tr.must(tr.twin.Report(ctx, list...))
	if got := statsOf(tr.table).UpdatesIgnored - before; got != gone {
		tr.t.Fatalf("%d of %d reports were ignored, %d rollouts were gone", got, len(list), gone)
	}
}

func (tr *trial) setAgeDecay() {
	tau := []float64{0.5, 3, 500, math.Inf(1)}[tr.random.IntN(4)]
	if tr.model.o.Sampler != Prioritized {
		return
	}
	setTau(tr.table, tau)
	setTau(tr.twin, tau)
	tr.model.tau = tau
}

func (tr *trial) restoreTwin() {
	var b bytes.Buffer
	tr.must(tr.twin.Snapshot(&b))
	fresh := mustNew(tr.t, tr.twin.Options())
	tr.must(fresh.Restore(&b))
	tr.twin = fresh
}

// prioritizations are option sets that between them have every option at every value, or near.
func prioritizations() []Options {
	var list []Options
	add := func(change func(p *Options)) {
		p := prioritizedOptions()
		change(&p)
		list = append(list, p)
	}
	add(func(p *Options) {})
	add(func(p *Options) {
		p.PriorityBase, p.DecayOrder, p.Draws, p.ImportanceNorm, p.AgeDecay = BaseTDError, AfterExponent,
			Independent, ByTable, 3
	})
	add(func(p *Options) {
		p.PriorityBase, p.Entry, p.ImportanceNorm, p.ImportanceAnneal, p.AgeDecay = BaseGradNorm, EnterMax,
			ByTable, new(100), 20
	})
	add(func(p *Options) {
		p.PriorityBase, p.Entry, p.PriorityExponent, p.ImportanceBeta = BaseReward, EnterMax, 2, new(1.0)
		p.EntryUntil = UntilRefresh
	})
	add(func(p *Options) {
		p.PriorityBase, p.Draws, p.AgeDecay, p.PriorityEpsilon, p.ImportanceAnneal = BaseFunction, Independent,
			Versions(math.Inf(1)), 0.1, new(30)
		p.PriorityFunction = func(r *rollout.Rollout, advantage float32) float64 {
			return float64(len(r.Tokens)) - 10*float64(advantage)
		}
	})
	add(func(p *Options) {
		p.PriorityBase, p.AgeDecay, p.TargetESS, p.ImportanceNorm = BaseRecency, 10, 0.8, ByTable
	})
	add(func(p *Options) {
		p.Entry, p.TargetESS, p.Draws, p.ImportanceBeta = EnterMax, 0.9, Independent, new(0.0)
		p.EntryUntil = UntilReport
	})
	add(func(p *Options) {
		p.PriorityBase, p.Priority, p.ImportanceNorm = BaseExpression, "(abs(advantage) + group_std) / (1 + uses)", ByTable
	})
	add(func(p *Options) {
		p.PriorityBase, p.Priority, p.AgeDecay = BaseExpression, "age < 2 ? reward : 1 / (1 + since_use)",
			Versions(math.Inf(1))
		p.Draws = Independent
	})
	return list
}

// orderings are option sets of sampler ordered.
func orderings() []Options {
	return []Options{
		{Sampler: Ordered, Order: "version - 2 * uses", Cooldown: 2},
		{Sampler: Ordered, Order: "reward + 1 / (1 + since_use)"},
		{Sampler: Ordered, Order: "reward > 0.5 ? meta.none : tokens", Cooldown: 1},
	}
}

// Whatever is done, the table does what the definitions say: invariants 1, 2, 3, 5, 7 and 11, and the probabilities of
// 4.
func TestTableAgreesWithTheModelUnderRandomOperations(t *testing.T) {
	tests.OneGoroutine(t)
	bounds := []Options{
		{Capacity: 12},
		{Capacity: 12, MaxStaleness: 2, Unit: UnitStep},
		{Capacity: 12, MaxUses: 2, Unit: UnitStep, StepReturns: 2, StepDiscount: 0.5},
		{Capacity: 24, Shards: 2, Unit: UnitStep, StepReturns: ToTheEnd},
		{Capacity: 12, MaxUses: 2, MinSize: 4},
		{Capacity: 12, CapacityBytes: 900},
		{Capacity: 12, Select: 2},
		{Capacity: 12, Retention: KeepScored, Score: "version - 2 * uses", MaxUses: 3},
		{Capacity: 12, Retention: KeepScored, Score: "reward > 0.5 ? meta.none : tokens", CapacityBytes: 900},
		{Capacity: 14, KeptPerPrompt: 2, MaxUses: 3, MaxStaleness: 6},
		{Capacity: 14, MaxStaleness: 2, Pin: "reward > 0", MaxUses: 4},
		{Capacity: 18, MaxStaleness: 3, Pin: "group_std > 0", Unit: UnitGroup, GroupSize: 3},
		{Capacity: 20, Shards: 2, KeptPerPrompt: 2, Retention: KeepScored, Score: "reward + 1 / (1 + since_use)"},
		{Capacity: 24, Shards: 2, Retention: KeepScored, Score: "reward + 1 / (1 + since_use)", MaxStaleness: 6},
		{Capacity: 18, Unit: UnitGroup, GroupSize: 3, Retention: KeepScored, Score: "reward + 1 / (1 + since_use)"},
		{Capacity: 24, Shards: 2, Select: 1, SelectBy: SelectReward, MaxStaleness: 3, Advantage: advantage.NoStd},
		{Capacity: 24, Shards: 2, MaxUses: 3, MaxStaleness: 3},
		{Capacity: 12, Retention: KeepPositive, PositiveFraction: 0.25},
		{Capacity: 24, Shards: 3, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 2, MaxStaleness: 4,
			Unit: UnitStep},
		{Capacity: 20, Retention: KeepPositive, PositiveFraction: 0.7, PositivesPerPrompt: 2, PositiveShare: 0.6},
		{Capacity: 24, Shards: 2, Retention: KeepPositive, PositiveFraction: 0.5, PositivesPerPrompt: 1, MaxUses: 3,
			PositiveShare: 0.5, MaxStaleness: 6},
		{Capacity: 24, Sources: someSources()},
		{Capacity: 24, DrawAdvantage: AdvantageRegrouped, Shards: 2, MaxUses: 3},
		{Capacity: 24, DrawAdvantage: AdvantageBaseline, Retention: KeepPositive, PositiveFraction: 0.5,
			Advantage: advantage.LeaveOneOut},
		{Capacity: 18, DrawAdvantage: AdvantageRegrouped, Unit: UnitGroup, GroupSize: 3, Advantage: "no_std"},
		{Capacity: 24, Shards: 2, Sources: slices.Concat(someSources()[:1], someSources()[3:]), MaxUses: 2, MaxStaleness: 6},
		{Capacity: 20, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 3,
			Sources: slices.Concat([]Source{{Name: "kept", Pool: PoolReserved, Share: "0.3", Backfill: "spare"}},
				someSources()[1:])},
		{Capacity: 18, Unit: UnitStep, Sources: someSources()[2:], MaxUses: 3, MinSize: 3},
		{Capacity: 22, Unit: UnitGroup, GroupSize: 2, Sources: groupSources(), MaxUses: 3},
		{Capacity: 24, Sources: promptSources(), DrawAdvantage: AdvantageSplit},
		{Capacity: 30, Sources: promptSources(), DrawAdvantage: AdvantageRegrouped, MaxUses: 2, MaxStaleness: 8},
		{Capacity: 48, Shards: 2, Sources: slices.Concat(promptSources()[:2], promptSources()[3:]), Unit: UnitStep,
			MaxUses: 3},
		{Capacity: 18, Unit: UnitGroup, GroupSize: 3, MaxUses: 2, MaxStaleness: 30},
		{Capacity: 22, Unit: UnitGroup, GroupSize: 2, Shards: 2, MaxStaleness: 5},
		{Capacity: 14, Unit: UnitGroup, GroupSize: 2, CapacityBytes: 1200, MaxUses: 1},
	}
	bounds = append(bounds, lateBounds()...)
	for _, kind := range Samplers() {
		for _, o := range bounds {
			o.Sampler = kind
			if kind.Consumes() {
				o.MaxUses, o.Retention, o.PositiveFraction, o.PositivesPerPrompt, o.Score = 0, "", 0, 0, ""
				o.KeptPerPrompt, o.Pin = 0, ""
				if o.DrawAdvantage == AdvantageBaseline {
					o.DrawAdvantage = AdvantageRegrouped
				}
			}
			if kind.Consumes() || kind == Prioritized {
				o.PositiveShare, o.Sources = 0, nil
			}
			if kind == Ordered {
				for _, p := range orderings() {
					o.Order, o.Cooldown = p.Order, p.Cooldown
					runTrials(t, o, tests.Rounds(2, 1, 1))
				}
				continue
			}
			if kind != Prioritized {
				runTrials(t, o, tests.Rounds(3, 1, 1))
				continue
			}
			for _, p := range prioritizations() {
				runTrials(t, withPriorities(p, o), 1)
			}
		}
	}
}

func runTrials(t *testing.T, o Options, seeds int) {
	o.PromptIndex, o.History = !o.Sampler.Consumes() && o.Unit != UnitGroup, 1<<14
	name := fmt.Sprintf("%s/capacity=%d,bytes=%d,staleness=%d,uses=%d,shards=%d,%s%s", o.Sampler, o.Capacity,
		o.CapacityBytes, o.MaxStaleness, o.MaxUses, o.Shards, o.Retention, o.Unit)
	if o.Sampler == Prioritized {
		name += fmt.Sprintf("/%s,%s,%s", o.PriorityBase, o.Draws, o.Entry)
	}
	name += o.Order + o.Score
	if o.PendingRewards > 0 {
		name += "/late"
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(seeds) {
			tr := newTrial(t, o, seed)
			tr.model.lives, tr.model.now = make(map[rollout.ID]*Life), tr.clock.time
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			steps := tests.Count(250, 80)
			for i := range steps {
				tr.step()
				tr.check()
				if i%5 == 0 {
					tr.checkStats()
				}
				if i%50 == 49 || i == steps-1 {
					tr.checkLives()
				}
			}
		}
	})
}

// prioritizedOptions are those of sampler prioritized with its defaults.
func prioritizedOptions() Options { return Options{Sampler: Prioritized}.WithDefaults() }

// withPriorities returns o with sampler prioritized and the priority options of p.
func withPriorities(p, o Options) Options {
	o.Sampler = Prioritized
	o.PriorityBase, o.PriorityEpsilon, o.PriorityExponent, o.PriorityFunction = p.PriorityBase, p.PriorityEpsilon,
		p.PriorityExponent, p.PriorityFunction
	o.Priority = p.Priority
	o.AgeDecay, o.DecayOrder, o.TargetESS, o.Draws = p.AgeDecay, p.DecayOrder, p.TargetESS, p.Draws
	o.Entry, o.EntryUntil = p.Entry, p.EntryUntil
	o.ImportanceBeta, o.ImportanceAnneal, o.ImportanceNorm = p.ImportanceBeta, p.ImportanceAnneal, p.ImportanceNorm
	return o
}

// statsOf returns a table's statistics.
func statsOf(table *Table) rollout.Stats {
	s, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return s
}

// Priority is the base that a test gives a rollout.
type Priority struct {
	ID    rollout.ID
	Value float64
}

func updateOf(table *Table, priorities ...Priority) error {
	ids, values := make([]rollout.ID, len(priorities)), make([]float64, len(priorities))
	for i, p := range priorities {
		ids[i], values[i] = p.ID, p.Value
	}
	return table.Update(context.Background(), ids, values)
}

func setTau(table *Table, tau float64) {
	table.mu.Lock()
	defer table.mu.Unlock()
	table.setAgeDecay(tau)
}

// check compares contents.
func (tr *trial) check() {
	tr.t.Helper()
	for i := range tr.table.shards {
		tr.checkShard(i, tr.table.shards[i].shard)
		tr.checkShard(i, tr.twin.shards[i].shard)
	}
	tr.checkHeld()
	tr.checkByAge()
}

// checkStats compares statistics, and that counts add up.
func (tr *trial) checkStats() {
	tr.t.Helper()
	got, want := statsOf(tr.table), tr.model.stats()
	want.UpdatesIgnored = got.UpdatesIgnored // compared at each update
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		tr.t.Fatalf("statistics\n%s, by definition\n%s", a, b)
	}
	twin := statsOf(tr.twin)
	if c, _ := json.Marshal(twin); string(c) != string(a) {
		tr.t.Fatalf("statistics\n%s, of the restored twin\n%s", a, c)
	}
	if n := tr.table.present(); n != want.Present {
		tr.t.Fatalf("table holds %d, by definition %d", n, want.Present)
	}
	balance(tr.t, got, onLease(tr.model))
}

func onLease(m *model) (n int) {
	for _, l := range m.leases {
		n += len(l.units) * m.each()
	}
	return n
}

// balance checks invariant 11.
func balance(t testing.TB, s rollout.Stats, leased int) {
	t.Helper()
	var evicted uint64
	for _, n := range s.Evicted {
		evicted += n
	}
	switch {
	case s.Inserted != uint64(s.Present)+evicted:
		t.Fatalf("inserted %d, present %d, evicted %d", s.Inserted, s.Present, evicted)
	case float64(s.Acknowledged) != s.UsesPresent.Sum()+s.UsesAtEviction.Sum():
		t.Fatalf("acknowledged %d, uses %v + %v", s.Acknowledged, s.UsesPresent.Sum(), s.UsesAtEviction.Sum())
	case s.Drawn != s.Acknowledged+s.Returned+uint64(leased):
		t.Fatalf("drawn %d, acknowledged %d, returned %d, on lease %d", s.Drawn, s.Acknowledged, s.Returned, leased)
	case uint64(s.Present) != s.UsesPresent.Count() || evicted != s.UsesAtEviction.Count():
		t.Fatalf("present %d of %d, evicted %d of %d", s.UsesPresent.Count(), s.Present,
			s.UsesAtEviction.Count(), evicted)
	}
}

func (tr *trial) checkShard(number int, s *shard) {
	units := tr.model.present(number)
	held, bytes := count(units)
	if s.present > s.options.shardCapacity() || s.bytes > s.options.shardBytes() {
		tr.t.Fatalf("shard %d holds %d rollouts of %d bytes", number, s.present, s.bytes)
	}
	if held != s.present || bytes != s.bytes || s.index.n != s.present {
		tr.t.Fatalf("shard %d holds %d, indexes %d, by definition %d", number, s.present, s.index.n, held)
	}
	if e := tr.model.rested(number); s.sampler.size() != len(e) {
		tr.t.Fatalf("shard %d can draw %d, by definition %d", number, s.sampler.size(), len(e))
	}
	if n := len(tr.model.fresh(number)); s.fresh.Waiting.Len != n {
		tr.t.Fatalf("shard %d holds %d fresh, by definition %d", number, s.fresh.Waiting.Len, n)
	}
	for _, u := range units {
		for _, it := range u.items {
			slot := s.index.find(it.id)
			if slot == none || int(s.items[slot].Uses) != u.uses || int(s.items[slot].Leased) != u.leased {
				tr.t.Fatalf("shard %d: rollout %d is not what it should be", number, it.id)
			}
		}
	}
	waiting, pinned := 0, int64(0) // slots kept for draws on lease
	for slot, r := range s.rollouts {
		if r != nil && s.items[slot].is(evicted) && s.items[slot].Leased > 0 {
			waiting++
			pinned += r.Bytes() + RolloutOverhead
		}
	}
	if s.leftLeased != pinned {
		tr.t.Fatalf("shard %d: %d bytes are pinned, it says %d", number, pinned, s.leftLeased)
	}
	if len(s.items) != s.present+waiting+len(s.free) {
		tr.t.Fatalf("shard %d: %d slots, %d present, %d waiting, %d free", number, len(s.items), s.present,
			waiting, len(s.free))
	}
}

// checkHeld compares what the table shows of its rollouts. The twin is never looked at, and draws the same.
func (tr *trial) checkHeld() {
	tr.t.Helper()
	m, got, i := tr.model, tr.table.Inspect().Held(), 0
	for shard := range m.o.Shards {
		e := m.eligible(shard)
		log := map[*modelUnit]float64{}
		if m.o.Sampler == Prioritized {
			m.logProbabilities(m.present(shard)) // which computes bases by an expression
			log = m.logProbabilities(e)
		}
		for _, u := range m.present(shard) {
			for _, it := range u.items {
				want := Held{
					ID: it.id, Group: uint64(u.group), Shard: shard, Age: int(m.version - it.r.Version()), Uses: u.uses,
					Leased:    u.leased,
					Advantage: it.advantage, Mean: it.mean, Std: it.std, Waiting: u.waits,
					Fresh:   !u.shown && !m.o.Sampler.Consumes() && !u.waits,
					Pinned:  m.o.Pin != "" && m.told(u, it, m.o.Pin) != 0,
					LastUse: u.lastUse, AtMax: it.atMax, UnitAge: int(m.version - u.least()), Base: math.NaN(), Probability: math.NaN(),
				}
				switch drawable := slices.Contains(e, u); {
				case u.waits:
					want.Probability = 0
				case m.o.Sampler == Uniform, m.o.Sampler == Distinct:
					if m.o.composed() != "" {
						break
					}
					want.Probability = 0
					if drawable {
						want.Probability = 1 / float64(len(e))
					}
				case m.o.Sampler == Prioritized:
					want.Base, want.Probability = 0, 0
					for _, mate := range u.items {
						want.Base += mate.base / float64(len(u.items))
					}
					if drawable {
						want.Probability = math.Exp(log[u])
					}
				}
				if i == len(got) {
					tr.t.Fatalf("the table shows %d rollouts and not %d", i, it.id)
				}
				tr.checkOneHeld(got[i], want, it)
				i++
			}
		}
	}
	if i != len(got) {
		tr.t.Fatalf("the table shows %d rollouts, by definition it holds %d", len(got), i)
	}
}

func (tr *trial) checkOneHeld(got, want Held, it *modelItem) {
	tr.t.Helper()
	same := func(a, b float64) bool { return near(a, b) || math.IsNaN(a) && math.IsNaN(b) }
	ok := same(got.Base, want.Base) && same(got.Probability, want.Probability) &&
		reflect.DeepEqual(got.Rollout, it.r) && (tr.model.o.Unit == UnitStep || got.Rollout == it.r)
	if want.Waiting {
		ok = ok && got.Rollout == it.r || sameButNaN(got, want, it)
		got.Advantage, got.Mean, got.Std, want.Advantage, want.Mean, want.Std = 0, 0, 0, 0, 0, 0
	}
	want.Base, want.Probability, want.Rollout = got.Base, got.Probability, got.Rollout
	if math.IsNaN(got.Base) {
		got.Base, want.Base = 0, 0
	}
	if math.IsNaN(got.Probability) {
		got.Probability, want.Probability = 0, 0
	}
	if !ok || got != want {
		tr.t.Fatalf("the table shows %+v, by definition %+v of base %v", got, want, it.base)
	}
}

// checkByAge compares the shares of ages.
func (tr *trial) checkByAge() {
	tr.t.Helper()
	m, want, age := tr.model, map[int]AgeShare{}, -1
	for shard := range m.o.Shards {
		if m.o.Sampler != Prioritized {
			break
		}
		e := m.eligible(shard)
		log := m.logProbabilities(e)
		for _, u := range e {
			a := want[int(m.version-u.least())]
			a.Units++
			a.Probability += math.Exp(log[u]) / float64(m.o.Shards)
			for _, it := range u.items {
				a.Base += it.base / float64(len(u.items))
			}
			want[int(m.version-u.least())] = a
		}
	}
	got := tr.table.Inspect().ByAge()
	if len(got) != len(want) {
		tr.t.Fatalf("the table shows %d ages, by definition %d", len(got), len(want))
	}
	for _, a := range got {
		w := want[a.Age]
		if a.Age <= age || a.Units != w.Units || !near(a.Base, w.Base/float64(w.Units)) ||
			!near(a.Probability, w.Probability) {
			tr.t.Fatalf("the table shows %+v, by definition %+v", a, w)
		}
		age = a.Age
	}
}

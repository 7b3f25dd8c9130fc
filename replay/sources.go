package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/replay/sumtree"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Source is a part of each batch, drawn before the sampler draws the rest from the whole table. No source draws what
// the batch holds already.
type Source struct {
	// what backfill and errors call it; none twice
	Name string `json:"name"`
	// what it draws from
	Pool Pool `json:"pool,omitempty" default:"table"`
	// of each batch, rounded to whole draws: a number, or an expression over version, such as 0.5 - version / 400, of
	// which what is below 0 counts as 0 and what is above 1 as 1
	Share Share `json:"share,omitempty" default:"count decides"`
	// rollouts of each batch, instead of a share
	Count int `json:"count,omitempty" default:"share decides" range:"[0, 2147483647]"`
	// a condition that its rollouts meet, such as reward >= 1 && age < 8; of unit group, all rollouts of the group
	Where string `json:"where,omitempty" default:"all"`
	// a number, such as abs(advantage): draws are in proportion to it, and never fall on what has none above 0; of unit
	// group, the mean over the group
	Weight string `json:"weight,omitempty" default:"all alike"`
	// of pool prompts, a number: of each prompt those with the greatest come first, such as -age
	Order string `json:"order,omitempty" default:"at random"`
	// rollouts of one prompt that it gives a batch at most
	PerPrompt int `json:"per_prompt,omitempty" default:"no limit" range:"[0, 2147483647]"`
	// of pool prompts, a condition that all fresh rollouts of a prompt in the batch meet, or it draws none of the prompt:
	// group_mean == 0 for groups that failed
	FreshWhere string `json:"fresh_where,omitempty" default:"all"`
	// of pool prompts, have each draw take the place of a fresh rollout of its prompt, the oldest first, which is passed
	// over; such a source has no places of its own, and stands behind the fresh ones
	Replace bool `json:"replace,omitempty" default:"off"`
	// have the batch wait until it holds enough; of pool fresh, those that fail the condition count too
	Wait bool `json:"wait,omitempty" default:"off"`
	// the source after it that draws in the places that it leaves free
	Backfill string `json:"backfill,omitempty" default:"the sampler"`
}

// Pool is what a source draws from.
type Pool string

// What sources draw from.
const (
	PoolTable Pool = "table" // all rollouts that can be drawn, without replacement
	// those never handed out as fresh, the oldest first; what does not meet the condition leaves its place free, and does
	// not come again as fresh
	PoolFresh    Pool = "fresh"
	PoolReserved Pool = "reserved" // the part that retention positive reserves, without replacement
	// the prompts that the batch has fresh rollouts of: their other rollouts, those still to be handed out as fresh left
	// out, without replacement, prompt by prompt in the order of the fresh ones as far as the source's places go
	PoolPrompts Pool = "prompts"
)

// Values returns everything that a source may draw from.
func (Pool) Values() []string { return texts(PoolTable, PoolFresh, PoolReserved, PoolPrompts) }

// Share is a part of each batch: a number from 0 to 1, or an expression over the table's version. In JSON a number may
// be one.
type Share string

// UnmarshalJSON reads a number or a text.
func (s *Share) UnmarshalJSON(text []byte) error {
	var number json.Number
	if json.Unmarshal(text, &number) == nil && !bytes.HasPrefix(text, []byte(`"`)) {
		*s = Share(number)
		return nil
	}
	return json.Unmarshal(text, (*string)(s))
}

// constant returns the share that is the same at every version, false if it is an expression or none.
func (s Share) constant() (float64, bool) {
	x, err := strconv.ParseFloat(string(s), 64)
	return x, err == nil
}

// A weight counts as one within these, so that the sum of all is a number.
const (
	minWeight = 1e-100
	maxWeight = 1e100
)

// composition returns the sources of every batch: those of the options, or the one that positive_share stands for.
func (o *Options) composition() []Source {
	if o.PositiveShare == 0 {
		return o.Sources
	}
	return []Source{{Name: "positive_share", Pool: PoolReserved,
		Share: Share(strconv.FormatFloat(o.PositiveShare, 'g', -1, 64))}}
}

// composed names the key that has batches composed of sources, "" if none does.
func (o *Options) composed() string {
	switch {
	case len(o.Sources) > 0:
		return "sources"
	case o.PositiveShare > 0:
		return "positive_share"
	}
	return ""
}

// indexesPrompts reports whether shards have an index of their rollouts by prompt.
func (o *Options) indexesPrompts() bool {
	return o.PromptIndex || o.KeptPerPrompt > 0 || o.DrawAdvantage == AdvantageBaseline ||
		slices.ContainsFunc(o.Sources, func(s Source) bool { return s.PerPrompt > 0 || s.Pool == PoolPrompts })
}

// maxSources bounds what each source costs an insertion, and in memory: 9 bytes a rollout.
const maxSources = 16

// validateSources checks the sources, defaults filled in, by themselves and against the rest.
func (o Options) validateSources(problems *option.Problems) {
	if len(o.Sources) == 0 {
		return
	}
	problems.CheckWith("", o.Sampler != Prioritized, "sources", len(o.Sources),
		"none with sampler prioritized, whose importance weights are for its own draws: use a source's weight")
	problems.CheckWith("", o.PositiveShare == 0, "positive_share", o.PositiveShare,
		"0 with sources: use a source with pool reserved")
	problems.CheckWith("", !o.Sampler.Consumes(), "sources", len(o.Sources), "none with sampler %s, a queue", o.Sampler)
	problems.Check(len(o.Sources) <= maxSources, "sources", len(o.Sources), "at most %d", maxSources)
	if len(o.Sources) > maxSources {
		return
	}
	left := 1.0
	for i, s := range o.Sources {
		key := fmt.Sprintf("sources[%d]", i)
		problems.In(key, func(p *option.Problems) { s.validate(p, o, i) })
		if x, ok := s.Share.constant(); ok {
			problems.CheckWith("", x <= left+1e-9, key+".share", s.Share, "at most %.3g, what the shares before it leave", left)
			left -= x
		}
	}
}

// validate checks the i-th source.
func (s Source) validate(p *option.Problems, o Options, i int) {
	p.CheckFields(s, nil)
	check := p.CheckWith
	names := make([]string, 0, len(o.Sources))
	for _, other := range o.Sources {
		names = append(names, other.Name)
	}
	check("", s.Name != "", "name", s.Name, "a name")
	check("", !slices.Contains(names[:i], s.Name), "name", s.Name, "one that no source before it has")
	_, err := s.schedule()
	if err != nil {
		p.Check(false, "share", s.Share, "a number from 0 to 1, or an expression over version: %v", err)
	} else if x, ok := s.Share.constant(); ok {
		p.Check(x >= 0 && x <= 1, "share", s.Share, "0 to 1")
	}
	filled := slices.ContainsFunc(o.Sources[:i], func(b Source) bool { return b.Backfill == s.Name })
	check("count", s.Share == "" || s.Count == 0, "share", s.Share, "none with count %d: give one of them", s.Count)
	check("count", s.Share != "" || s.Count > 0 || filled || s.Replace, "share", s.Share,
		"a share or a count, or a source before it with backfill %s", s.Name)
	check("backfill", s.Backfill == "" || slices.Contains(names[i+1:], s.Backfill), "backfill", s.Backfill,
		"the name of a source after it; wait: true has the batch wait")
	checkCondition(p, "where", s.Where)
	checkCondition(p, "fresh_where", s.FreshWhere)
	checkNumber(p, "weight", s.Weight)
	checkNumber(p, "order", s.Order)
	check("pool", s.Pool != PoolFresh || i == 0 || o.Sources[i-1].Pool == PoolFresh, "pool", s.Pool,
		"another pool behind source %s of pool %s: put all sources of pool fresh first", names[max(i-1, 0)],
		o.Sources[max(i-1, 0)].Pool)
	check("pool", s.Weight == "" || s.Pool == PoolTable, "weight", s.Weight, "none with pool %s", s.Pool)
	prompts := s.Pool == PoolPrompts
	check("pool", s.PerPrompt == 0 || s.Pool == PoolTable || prompts, "per_prompt", s.PerPrompt, "0 with pool %s", s.Pool)
	check("", s.PerPrompt == 0 || o.Unit != UnitGroup, "per_prompt", s.PerPrompt, "0 with unit group, which has no index "+
		"by prompt")
	check("", !prompts || o.Unit != UnitGroup, "pool", s.Pool, "another with unit group, which has no index by prompt")
	check("pool", s.Order == "" || prompts, "order", s.Order, "none with pool %s", s.Pool)
	check("pool", s.FreshWhere == "" || prompts, "fresh_where", s.FreshWhere, "none with pool %s", s.Pool)
	check("pool", !s.Wait || !prompts, "wait", s.Wait, "false with pool prompts, which depends on the batch")
	check("pool", !s.Replace || prompts, "replace", s.Replace, "false with pool %s", s.Pool)
	behind := i > 0 && (o.Sources[i-1].Pool == PoolFresh || o.Sources[i-1].Replace)
	check("pool", !s.Replace || !prompts || behind, "replace", s.Replace, "false but directly behind the sources of pool "+
		"fresh")
	check("", !s.Replace || !prompts || s.Share == "" && s.Count == 0 && s.Backfill == "" && !filled, "replace", s.Replace,
		"false with a share, a count or a backfill: it takes the places of fresh rollouts")
	check("pool", s.Where == "" || s.Pool != PoolReserved, "where", s.Where, "none with pool %s", s.Pool)
	check("", s.Pool != PoolReserved || o.PositiveFraction > 0, "pool", s.Pool,
		"table, fresh or prompts with positive_fraction 0, which reserves nothing")
	check("", o.Unit != UnitGroup || s.Count%max(o.GroupSize, 1) == 0, "count", s.Count,
		"a multiple of group_size %d with unit group", o.GroupSize)
}

// schedule returns the share as a formula, nil if there is none.
func (s *Source) schedule() (*formula.Formula, error) {
	if s.Share == "" {
		return nil, nil
	}
	return formula.Schedule(string(s.Share))
}

// supply is what draws of a source fall on. Those of a batch fall on different units: what the batch holds already is
// held before, and end forgets it.
type supply interface {
	size() int // that can be drawn
	holdForBatch(s int32)
	draw(r *rand.Rand) (s int32, probability float64)
	end()
}

// supplier is a source as a shard draws from it.
type supplier struct {
	Source
	share   *formula.Formula // nil: count
	where   *formula.Formula // nil: all
	prompts promptSource
	fills   int      // the supplier that draws in its place; none: the sampler
	supply  supply   // nil: the fresh queue, or the prompts of the batch
	members *members // the supply, if it is the table
	row     row      // of the condition, with the fresh queue
}

// newSuppliers returns the suppliers of a shard: fresh draws that a request asks for, then the sources.
func newSuppliers(s *shard) []*supplier {
	if s.retention == nil {
		return nil
	}
	list := []*supplier{{Source: Source{Name: "fresh", Pool: PoolFresh, Wait: true}, fills: int(none)}}
	sources := s.options.composition()
	for _, source := range sources {
		p := &supplier{Source: source, fills: int(none), row: row{shard: s}}
		for i := range sources {
			if sources[i].Name == source.Backfill {
				p.fills = i + 1
			}
		}
		p.share, _ = source.schedule() // Validate has parsed all
		if source.Where != "" {
			p.where, _ = formula.Condition(source.Where)
		}
		switch source.Pool {
		case PoolPrompts:
			p.prompts = newPromptSource(source)
		case PoolTable, "":
			p.members = newMembers(s, p)
			p.supply = p.members
		case PoolReserved:
			p.supply = &s.retention.positives
		}
		list = append(list, p)
	}
	return list
}

// ask sets asked to how many units of a batch each source is to draw, and refuses a batch that one lacks units for.
func (s *shard) ask(req request) error {
	s.asked = resized(s.asked, len(s.suppliers))
	clear(s.asked)
	if len(s.suppliers) == 0 {
		return nil
	}
	each := 1
	if s.units == groups {
		each = s.options.GroupSize
	}
	s.asked[0] = req.Fresh / each
	left, waiting := req.Size/each-s.asked[0], s.asked[0]
	for i, p := range s.suppliers[1:] {
		want, ok := p.want(req.Size, each, s.version)
		if !ok {
			return fmt.Errorf("sources: %s: share: %s is not a number at version %d: write an expression that is one at "+
				"every version: %w", p.Name, p.Share, s.version, rollout.ErrInvalid)
		}
		want = min(want, left)
		left -= want
		s.asked[i+1] = want
		held := 0
		switch {
		case p.members != nil && want > 0:
			p.members.follow()
			held = p.members.count
		case p.supply != nil:
			held = p.supply.size()
		case p.Pool == PoolFresh:
			held = s.fresh.Waiting.Len - waiting
			waiting += want
		}
		if most := p.most(s); p.Wait && want*each > most {
			return fmt.Errorf("sources: %s: a batch of %d waits for %d rollouts of it, and it can hold %d: ask for a smaller "+
				"batch, or lower its share or count: %w", p.Name, req.Size, want*each, most, rollout.ErrInvalid)
		}
		if p.Wait && held < want {
			return fmt.Errorf("sampling %d of source %s from %s, which holds %d%s%s: insert such rollouts, or do not "+
				"wait for it: %w", want*each, p.Name, s.place(), max(held, 0)*each, p.condition(), s.losses(),
				rollout.ErrStarved)
		}
	}
	return nil
}

// want returns how many units of a batch the source is to draw as far as places are left, false if its share is not a
// number at the version.
func (p *supplier) want(size, each int, v rollout.Version) (int, bool) {
	if p.share == nil {
		return p.Count / each, true
	}
	x := p.share.At(float64(v))
	return int(math.Round(max(0, min(x, 1)) * float64(size) / float64(each))), x == x
}

// FreshDraws returns how many rollouts of a batch of size the sources of pool fresh ask for at a version of the table,
// and whether that differs between versions; nil if there are none.
func (o Options) FreshDraws(size int) (at func(v rollout.Version) int, differs bool) {
	each, fresh := 1, []*supplier(nil)
	if o.Unit == UnitGroup {
		each = max(o.GroupSize, 1)
	}
	for _, s := range o.Sources {
		if s.Pool != PoolFresh {
			continue
		}
		p := &supplier{Source: s}
		p.share, _ = s.schedule()
		fresh = append(fresh, p)
		differs = differs || p.share != nil && p.share.Reads(formula.Version)
	}
	if fresh == nil {
		return nil, false
	}
	return func(v rollout.Version) (n int) {
		for _, p := range fresh {
			if want, ok := p.want(size, each, v); ok {
				n = min(n+want, size/each)
			}
		}
		return n * each
	}, differs
}

// most returns how many rollouts of a shard a source can hold.
func (p *supplier) most(s *shard) int {
	if p.Pool == PoolReserved {
		return int(float64(s.options.shardCapacity()) * s.options.PositiveFraction)
	}
	return s.options.shardCapacity()
}

// condition says which rollouts a source holds.
func (p *supplier) condition() string {
	if p.Where == "" || p.members == nil {
		return ""
	}
	return fmt.Sprintf(" where %s", strings.TrimSpace(p.Where))
}

// pick is a unit that a source is about to draw.
type pick struct {
	slot        int32
	probability float64
	source      int
}

// drawSources adds the draws of the sources to a batch, as many as ask said.
func (s *shard) drawSources(random *rand.Rand, batch *rollout.Batch) {
	s.picked = s.picked[:0]
	clear(s.taken)
	i := 0
	for ; i < len(s.suppliers) && s.suppliers[i].Pool == PoolFresh; i++ {
		if want := s.asked[i]; want > 0 {
			s.backfill(i, want-s.pickFresh(i, want))
		}
	}
	for ; i < len(s.suppliers) && s.suppliers[i].Replace; i++ {
		s.replaceFresh(random, i)
	}
	s.addPicked(batch)
	for ; i < len(s.suppliers); i++ {
		p, before, want := s.suppliers[i], len(s.drawn), s.asked[i]
		if want == 0 {
			continue
		}
		if p.Pool == PoolPrompts {
			s.drawOfPrompts(random, i, want, batch)
		} else {
			s.drawSupply(random, i, want, batch)
		}
		got := len(s.drawn) - before
		if s.units == groups {
			got /= s.options.GroupSize
		}
		s.backfill(i, want-got)
	}
}

// backfill adds units to what the source that replaces the i-th draws.
func (s *shard) backfill(i, units int) {
	if p := s.suppliers[i]; p.fills > i {
		s.asked[p.fills] += units
	}
}

// pickFresh picks units of the fresh queue for the i-th source. Those that do not meet the condition are passed over.
func (s *shard) pickFresh(i, want int) (got int) {
	p := s.suppliers[i]
	s.refresh()
	for range min(want, s.fresh.Waiting.Len) {
		slot := s.fresh.pop(&s.store)
		if p.where != nil && !p.row.unitHolds(p.where, slot) {
			s.passOver(slot)
			continue
		}
		s.picked = append(s.picked, pick{slot, 1, i})
		got++
	}
	return got
}

// passOver leaves out of the batch a unit that has left the fresh queue.
func (s *shard) passOver(slot int32) {
	if s.changes != nil {
		s.changes.changed(slot)
	}
}

// addPicked adds what is picked to the batch.
func (s *shard) addPicked(batch *rollout.Batch) {
	for _, x := range s.picked {
		s.addPick(batch, x)
	}
	s.picked = s.picked[:0]
}

func (s *shard) addPick(batch *rollout.Batch, x pick) {
	before := len(s.drawn)
	s.sampler.holdForBatch(x.slot)
	s.addDraw(batch, x.slot, x.probability, s.suppliers[x.source].Pool == PoolFresh)
	if x.source > 0 && batch.SourceCounts != nil { // the first is the request's own
		batch.SourceCounts[x.source-1] += len(s.drawn) - before
	}
}

// drawSupply takes units of the i-th source's supply that the batch does not hold.
func (s *shard) drawSupply(random *rand.Rand, i, want int, batch *rollout.Batch) {
	p := s.suppliers[i]
	if p.members != nil {
		p.members.follow() // ask does so only where it asks for some
	}
	for _, slot := range s.drawn {
		p.supply.holdForBatch(slot)
	}
	for ; want > 0 && p.supply.size() > 0; want-- {
		slot, probability := p.supply.draw(random)
		s.addPick(batch, pick{slot, probability, i})
	}
	p.supply.end()
}

// weighIn has the sources weigh a unit, named by its first slot, that entered or came back.
func (s *shard) weighIn(first int32) {
	for _, p := range s.suppliers {
		if p.members != nil {
			p.members.weigh(first)
		}
	}
}

// weighUsed has the sources and priorities whose expressions read uses weigh the unit of a rollout that was used.
func (s *shard) weighUsed(slot int32) {
	if x := s.retention.scored; x != nil && x.byUse {
		x.weigh(s.units.first(&s.store, slot))
	}
	switch {
	case s.prioritized != nil:
		s.prioritized.used(slot)
	case s.ordered != nil:
		s.ordered.place(s.units.first(&s.store, slot))
	}
	for _, p := range s.suppliers {
		if p.members != nil && p.members.byUse {
			p.members.weigh(s.units.first(&s.store, slot))
		}
	}
}

// undrawable reports whether a rollout waits for the rewards of its group, or its uses and draws on lease have reached
// max_uses.
func (s *shard) undrawable(slot int32) bool {
	it := &s.items[slot]
	return s.maxUses > 0 && it.Uses+it.Leased >= s.maxUses || it.is(waits)
}

// weighOut has the sources forget a unit that left or is exhausted.
func (s *shard) weighOut(first int32) {
	for _, p := range s.suppliers {
		if p.members != nil {
			p.members.set(first, 0)
		}
	}
}

// members is the units of a table that a source may draw, by their weights. A unit's weight is a function of what the
// shard knows of it at its version, and never of what happened before, so snapshots and journals have nothing of it.
//
// A draw costs O(log N), and so does every change of a unit, with its expressions. Those that read age or since_use are
// evaluated for all units, O(N), before the first draw at another version.
type members struct {
	*supplier
	shard        *shard
	weight       *formula.Formula // nil: all alike
	tree         sumtree.Tree
	count        int // of weight above 0
	known        bool
	version      rollout.Version // of the weights, if they are known
	byAge, byUse bool            // see changes

	// Of the batch being drawn.
	held    []int32
	weights []float64 // of those held
	zeros   []float64
	given   map[string]int // draws of a prompt, where PerPrompt bounds them by more than 1
}

func newMembers(s *shard, p *supplier) *members {
	m := &members{supplier: p, shard: s}
	if p.Weight != "" {
		m.weight, _ = formula.Score(p.Weight)
	}
	m.byAge, m.byUse = changes(p.where, m.weight)
	if p.PerPrompt > 1 {
		m.given = make(map[string]int)
	}
	return m
}

// follow weighs all units if their weights are not those of the present version.
func (m *members) follow() {
	if m.known && (!m.byAge || m.version == m.shard.version) {
		return
	}
	m.known, m.version, m.count = true, m.shard.version, 0
	m.tree.Grow(max(len(m.shard.items), 1))
	m.tree.Refill(func(leaf []float64) {
		for slot := range leaf {
			if leaf[slot] = m.weightOf(int32(slot)); leaf[slot] > 0 {
				m.count++
			}
		}
	})
}

// weigh gives a unit, named by its first slot, its weight, or leaves that to follow.
func (m *members) weigh(slot int32) {
	if m.byAge && m.version != m.shard.version {
		m.known = false
	}
	if m.known {
		m.set(slot, m.weightOf(slot))
	}
}

func (m *members) set(slot int32, weight float64) {
	if !m.known {
		return
	}
	m.tree.Grow(int(slot) + 1)
	before := m.tree.At(int(slot))
	if weight > 0 {
		m.count++
	}
	if before > 0 {
		m.count--
	}
	m.tree.Set(int(slot), weight)
}

// weightOf returns the weight of the unit of which a slot is the first, 0 if there is none that can be drawn.
func (m *members) weightOf(slot int32) float64 {
	s := m.shard
	if !s.holds(slot) || !s.units.isFirst(&s.store, slot) {
		return 0
	}
	if s.undrawable(slot) {
		return 0
	}
	if m.where != nil && !m.row.unitHolds(m.where, slot) {
		return 0
	}
	if m.weight == nil {
		return 1
	}
	w := m.row.unitMean(m.weight, slot)
	if !(w > 0) {
		return 0
	}
	return max(minWeight, min(w, maxWeight))
}

// unitHolds reports whether all rollouts of a unit meet a condition.
func (r *row) unitHolds(f *formula.Formula, first int32) bool {
	holds := true
	r.shard.units.each(&r.shard.store, first, func(slot int32) {
		r.slot, r.measured = slot, false
		holds = holds && f.Holds(r)
	})
	return holds
}

// unitMean returns the mean of a number over the rollouts of a unit.
func (r *row) unitMean(f *formula.Formula, first int32) float64 {
	sum, n := 0.0, 0.0
	r.shard.units.each(&r.shard.store, first, func(slot int32) {
		r.slot, r.measured = slot, false
		sum += f.Number(r)
		n++
	})
	return sum / n
}

func (m *members) size() int { return m.count }

// holdForBatch makes a unit undrawable until the batch ends.
func (m *members) holdForBatch(slot int32) {
	if int(slot) < m.tree.Len() && m.tree.At(int(slot)) > 0 {
		m.held, m.weights = append(m.held, slot), append(m.weights, m.tree.At(int(slot)))
		m.set(slot, 0)
	}
}

// holdPrompt holds all units of a unit's prompt.
func (m *members) holdPrompt(slot int32) {
	before := len(m.held)
	for mate := range m.shard.prompts.mates(slot) {
		if w := m.tree.At(int(mate)); w > 0 {
			m.held, m.weights = append(m.held, mate), append(m.weights, w)
		}
	}
	mates := m.held[before:]
	m.count -= len(mates)
	for len(m.zeros) < len(mates) {
		m.zeros = append(m.zeros, 0)
	}
	m.tree.SetEach(mates, m.zeros)
}

func (m *members) draw(random *rand.Rand) (int32, float64) {
	total := m.tree.Total()
	slot := int32(m.tree.Find(random.Float64() * total))
	probability := m.tree.At(int(slot)) / total
	if m.PerPrompt == 0 || m.PerPrompt > 1 && m.give(slot) < m.PerPrompt {
		m.holdForBatch(slot)
	} else {
		m.holdPrompt(slot)
	}
	return slot, probability
}

// give counts a draw, and returns how many the batch has of its prompt.
func (m *members) give(slot int32) int {
	prompt := m.shard.rollouts[slot].PromptID
	n := m.given[prompt] + 1
	m.given[prompt] = n
	return n
}

// end gives the held units their weights back, but those that their draws have exhausted.
func (m *members) end() {
	for i, slot := range m.held {
		if m.shard.undrawable(slot) {
			m.weights[i] = 0
		} else {
			m.count++
		}
	}
	m.tree.SetEach(m.held, m.weights)
	m.held, m.weights = m.held[:0], m.weights[:0]
	clear(m.given)
}

package replay

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

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
	return slices.DeleteFunc(m.present(shard), func(u *modelUnit) bool { return m.left(u) <= 0 })
}

// fresh is what was never handed out as fresh, the oldest first.
func (m *model) fresh(shard int) []*modelUnit {
	return slices.DeleteFunc(m.eligible(shard), func(u *modelUnit) bool { return u.shown || m.o.Sampler.Consumes() })
}

// fills tells whether a batch can be drawn.
func (m *model) fills(req rollout.Request) bool {
	e, each := m.eligible(req.Shard), m.each()
	held, _ := count(m.present(req.Shard))
	freshOnes := req.Fresh
	if m.o.Sampler.Consumes() {
		freshOnes = 0
	}
	if held < m.o.MinSize || len(m.fresh(req.Shard))*each < freshOnes {
		return false
	}
	if !m.o.Sampler.Replaces() {
		return len(e)*each >= req.Size
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
	if m.o.Sampler == Prioritized {
		log := m.logProbabilities(c)
		return c, func(u *modelUnit) float64 { return math.Exp(log[u]) }
	}
	return c, func(*modelUnit) float64 { return 1 / float64(len(c)) }
}

func (m *model) drawable(shard int, batch []*modelUnit) []*modelUnit {
	e := m.eligible(shard)
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
			base += it.base / float64(len(u.items))
		}
		age := float64(m.version - u.least())
		if p.Decay == AfterExponent {
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
	waiting := m.fresh(b.Shard)
	least := math.Inf(1)  // logarithm of the least N P that counts for importance weights
	var shares []float64  // N P of each draw
	var counts []float64  // expected draws of each unit, where they are stratified
	var pool []*modelUnit // those units
	replayed := (req.Size - req.Fresh) / m.each()
	for i := 0; i < len(b.Draws); i += m.each() {
		d := b.Draws[i]
		u := m.unitOf(d.ID)
		if u == nil {
			return "a draw fell on what was never inserted"
		}
		if d.Fresh != (i < req.Fresh) {
			return "fresh draws do not come first, or are not told"
		}
		chance, eligible := 1.0, 1.0
		if d.Fresh {
			if u != waiting[len(drawn)] {
				return "a fresh draw is not the oldest"
			}
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
	m.leases = append(m.leases, &modelLease{b, drawn, req.Fresh / m.each()})
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
	case m.o.Sampler != Prioritized && d.Probability != chance, !near(d.Probability, chance):
		return fmt.Sprintf("a reported probability is not the one used, %v", chance)
	case d.Rollout.PromptID != it.r.PromptID || d.Rollout.Reward != it.r.Reward || len(d.Rollout.Tokens) != len(it.r.Tokens):
		return "a draw carries another rollout"
	case d.Group != uint64(u.group) || d.Advantage != it.advantage || d.GroupMean != it.mean || d.GroupStd != it.std:
		return "a draw's group or advantage is wrong"
	case int(d.Uses) != u.uses || d.Staleness != int32(m.version-it.r.Version()) || d.Staleness < 0:
		return "a draw's uses or staleness is wrong"
	case m.o.MaxStaleness > 0 && int(d.Staleness) > m.o.MaxStaleness:
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
			return fmt.Sprintf("rollout %d of probability %v has weight %v, by definition %v", d.ID, d.Probability, got, want)
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

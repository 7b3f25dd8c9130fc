package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// AgeDecay returns tau as it is now, in versions; +Inf where weights do not fall with age, and with samplers that do not
// weigh.
func (t *Table) AgeDecay() float64 {
	s := t.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.weighing == nil {
		return math.Inf(1)
	}
	return s.weighing.tau
}

// SetAgeDecay changes tau at the cost of a look at every rollout. It refuses one below 0.001 versions, and any with a sampler
// that does not weigh.
func (t *Table) SetAgeDecay(ctx context.Context, tau float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.options.Prioritization == nil {
		return fmt.Errorf("age_decay is %g: sampler %s has none: %w", tau, t.options.Sampler, rollout.ErrInvalid)
	}
	if !(tau >= minAgeDecay) {
		return fmt.Errorf("age_decay is %g: give %g versions or more, +Inf for none: %w", tau, minAgeDecay, rollout.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setAgeDecay(tau)
	return nil
}

func (t *Table) setAgeDecay(tau float64) {
	for _, s := range t.shards {
		s.mu.Lock()
		s.weighing.setAgeDecay(tau)
		s.mu.Unlock()
	}
}

// autoEvery is the least number of versions between two moves of an automatic age decay.
const autoEvery = 100

// adapt moves tau, at most every autoEvery versions, to where a batch would have the target ESS. It holds Table.mu.
func (t *Table) adapt() {
	p := t.options.Prioritization
	if p == nil || p.TargetESS == 0 || t.version-t.moved < autoEvery {
		return
	}
	known := t.ratios.measured()
	if len(known) < 2 {
		return
	}
	t.moved = t.version
	t.setAgeDecay(solveAgeDecay(t.masses(), newCurve(known), p))
}

// ageMass is the undecayed weight of the units of one age, as a logarithm.
type ageMass struct{ age, log float64 }

// masses adds up base^alpha by age over all shards, in ascending order of age.
func (t *Table) masses() []ageMass {
	alpha := t.options.Prioritization.Exponent
	byVersion := make(map[rollout.Version]float64)
	for _, s := range t.shards {
		s.mu.Lock()
		w := s.weighing
		w.eachDrawable(func(slot int32) {
			v := w.units.version(w.store, slot)
			x := alpha * math.Log(w.base(slot))
			if sum, ok := byVersion[v]; ok { // added up as logarithms, which no exponent makes overflow
				x, sum = max(x, sum), min(x, sum)
				x += math.Log1p(math.Exp(sum - x))
			}
			byVersion[v] = x
		})
		s.mu.Unlock()
	}
	list := make([]ageMass, 0, len(byVersion))
	for _, v := range slices.SortedFunc(maps.Keys(byVersion), func(a, b rollout.Version) int { return cmp.Compare(b, a) }) {
		list = append(list, ageMass{float64(t.version - v), byVersion[v]})
	}
	return list
}

// mixtureESS is ESS/n of a batch whose tokens come from ages by their masses decayed with a rate per version: 1 over the
// mean of 1/e(age) (docs/METHODS.md, section 3).
func mixtureESS(masses []ageMass, e curve, rate float64) float64 {
	if len(masses) == 0 {
		return 1
	}
	heaviest := math.Inf(-1)
	for _, m := range masses {
		heaviest = max(heaviest, m.log-rate*m.age)
	}
	var total, inverse float64
	for _, m := range masses {
		x := m.log - rate*m.age - heaviest
		total += math.Exp(x)
		inverse += math.Exp(x - e.at(m.age)) // in one: the factors may be 0 and infinite
	}
	return total / inverse
}

// The range in which an automatic age decay moves.
const (
	leastAutoDecay    = 1
	greatestAutoDecay = 1e6
)

// solveAgeDecay bisects log tau for the target: the more old rollouts count, the lower is the ESS.
func solveAgeDecay(masses []ageMass, e curve, p *Prioritization) float64 {
	short := func(tau float64) bool { return mixtureESS(masses, e, p.rate(tau)) < p.TargetESS }
	low, high := float64(leastAutoDecay), float64(greatestAutoDecay)
	if !short(high) {
		return high
	}
	if short(low) {
		return low
	}
	for range 60 {
		middle := math.Sqrt(low * high)
		if short(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

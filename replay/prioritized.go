package replay

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/replay/sumtree"
	"github.com/reprise-rl/reprise/rollout"
)

// prioritized draws units with probability w/sum w, with replacement ([FP], docs/METHODS.md section 3).
//
// All weights shrink by one factor per version, which leaves the probabilities as they are. So nothing is refreshed: a
// unit's weight is kept as
//
//	exp(alpha log base + rate (version - ref) - shift)
//
// and only newer units come in heavier. The tree is a cache of these. When weights near overflow, ref moves and all
// are scaled by a power of 2, which is exact; those that underflow have probability 0. When the total falls to where
// a unit of probability 1e-290 would underflow, or tau changes, all weights are computed anew from the bases: what was
// lost comes back, and a table of ancient rollouts draws as a fresh one.
type prioritized struct {
	store *store
	o     *Prioritization
	units units

	tau, rate float64
	ref       rollout.Version
	shift     float64

	tree    sumtree.Tree
	bases   []float64 // by slot: above 0 where the unit can be drawn, else with the sign turned
	count   int       // of drawable units
	largest float64   // base known so far

	// The least weight, for weights normalised by table; nil otherwise. It holds logarithms, which cannot underflow, in a scale
	// of their own: exponent log base + rate (version - leastRef).
	least    *sumtree.Min
	leastRef rollout.Version

	// Of the batch being drawn.
	drawn     []int32
	chance    []float64
	next      int
	exhausted bool      // a unit since begin
	began     float64   // units that could be drawn at begin
	share     []float64 // by draw: N P over what N was at begin
	smallest  float64   // logarithm of the least probability of all units at begin, for weights normalised by table
	buffer    []float64
}

// The total stays above lightest, so that a weight of share 1e-290 of it is a normal float64, exact to its last bit. A weight
// stays below 2^highest, which leaves room to add up 2^31 of them. Weights computed anew have the heaviest between the two, so
// that neither bound is met again soon.
const (
	lightest = 0x1p-50
	highest  = 960
	middle   = 450
)

func newPrioritized(o *Prioritization, st *store, u units) *prioritized {
	p := &prioritized{store: st, o: o, units: u, tau: o.AgeDecay, rate: o.rate(o.AgeDecay)}
	if o.Normalisation == ByTable {
		p.least = new(sumtree.Min)
	}
	return p
}

// add makes a unit drawable. Every rollout of it has its base; see enter.
func (p *prioritized) add(s int32) {
	p.units.each(p.store, s, func(m int32) { p.bases[m] = math.Abs(p.bases[m]) })
	p.count++
	p.weigh(s)
}

// enter gives a new rollout its base, before its unit is added.
func (p *prioritized) enter(s int32, base float64) {
	for int(s) >= len(p.bases) {
		p.bases = append(p.bases, 0)
	}
	p.largest = max(p.largest, base)
	if p.o.Entry == EnterMax {
		base = p.largest
		if base <= p.o.Epsilon { // nothing is known: with the least, those that enter now would hardly be drawn later
			base = 1
		}
		p.store.items[s].set(atMax)
	}
	p.bases[s] = -base
}

// touch reads the bases of slots. So little happens between the reads that their waits for memory overlap; report, which reads
// one and then computes, would wait for each in turn.
//
//go:noinline
func (p *prioritized) touch(slots []int32) float64 {
	sum := 0.0 // returned so that the reads are not optimised away
	for _, s := range slots {
		if s != none {
			sum += p.bases[s]
		}
	}
	return sum
}

// report gives a rollout that is present a new base.
func (p *prioritized) report(s int32, base float64) {
	p.largest = max(p.largest, base)
	p.store.items[s].clear(atMax)
	p.bases[s] = math.Copysign(base, p.bases[s])
	if p.bases[s] > 0 {
		p.weigh(p.units.first(p.store, s))
	}
}

// remove makes a unit undrawable.
func (p *prioritized) remove(s int32) {
	if p.bases[s] <= 0 {
		return
	}
	p.units.each(p.store, s, func(m int32) { p.bases[m] = -p.bases[m] })
	p.count--
	p.exhausted = true
	p.tree.Set(int(s), 0)
	if p.least != nil {
		p.least.Set(int(s), math.Inf(1))
	}
}

// restore makes a unit drawable again that its draws on lease had exhausted.
func (p *prioritized) restore(s int32) {
	if p.bases[s] < 0 {
		p.add(s)
	}
}

func (p *prioritized) took(int32) {}
func (p *prioritized) size() int  { return p.count }

// base returns a unit's base: the mean of its rollouts'.
func (p *prioritized) base(s int32) float64 {
	if p.units != groups {
		return math.Abs(p.bases[s])
	}
	sum, n := 0.0, 0.0
	p.units.each(p.store, s, func(m int32) { n++ })
	p.units.each(p.store, s, func(m int32) { sum += math.Abs(p.bases[m]) / n })
	return min(sum, math.MaxFloat64) // which rounding may pass
}

// logWeight returns the logarithm of a unit's weight, seen from a version. The difference of versions is exact, and near 0
// for whatever weighs anything.
func (p *prioritized) logWeight(s int32, ref rollout.Version) float64 {
	age := float64(int64(p.units.version(p.store, s)) - int64(ref))
	return p.o.Exponent*math.Log(p.base(s)) + p.rate*age
}

// weigh puts a drawable unit's weight into the tree.
func (p *prioritized) weigh(s int32) {
	p.room(int(s) + 1)
	x := p.logWeight(s, p.ref) - p.shift
	if x > highest*math.Ln2 {
		p.scaleDown(x)
		x = p.logWeight(s, p.ref) - p.shift
	}
	p.tree.Set(int(s), math.Exp(x))
	if p.least != nil {
		p.least.Set(int(s), p.logWeight(s, p.leastRef))
	}
}

func (p *prioritized) room(n int) {
	if n > p.tree.Len() {
		p.tree.Grow(n)
		if p.least != nil {
			p.least.Grow(n)
		}
	}
}

// scaleDown changes the scale so that a weight of logarithm x becomes about 1. The reference version takes up as much of
// it as it can, so that shift stays small and versions are compared with near ones.
func (p *prioritized) scaleDown(x float64) {
	k := math.Round(x / math.Ln2)
	shift := p.shift + k*math.Ln2
	if p.rate > 0 {
		d := max(0, min(math.Floor(shift/p.rate), math.MaxInt32-float64(p.ref)))
		p.ref += rollout.Version(d)
		shift -= p.rate * d
	}
	p.shift = shift
	p.tree.Scale(-int(min(k, 1<<16)))
	p.renewLeast()
}

// settle sees to it that weights can be drawn from: nothing that matters has underflowed.
func (p *prioritized) settle() {
	if p.count > 0 && p.tree.Total() < lightest {
		p.renew()
	}
}

// heaviest returns the drawable unit of the greatest weight, none if there is no unit.
func (p *prioritized) heaviest() int32 {
	heaviest, most := none, math.Inf(-1)
	p.eachDrawable(func(s int32) {
		if x := p.logWeight(s, p.ref); x > most {
			heaviest, most = s, x
		}
	})
	return heaviest
}

// renew computes every weight from its base, in a scale in which the heaviest is 2^middle.
func (p *prioritized) renew() {
	heaviest := p.heaviest()
	if heaviest == none {
		return
	}
	p.ref = p.units.version(p.store, heaviest)
	p.shift = p.o.Exponent*math.Log(p.base(heaviest)) - middle*math.Ln2
	p.tree.Refill(func(leaf []float64) {
		clear(leaf)
		p.eachDrawable(func(s int32) { leaf[s] = math.Exp(p.logWeight(s, p.ref) - p.shift) })
	})
	p.renewLeast()
}

// renewLeast brings the logarithms of weights, where they are kept, near the reference version: far from it their last bits
// would be lost.
func (p *prioritized) renewLeast() {
	if p.least == nil {
		return
	}
	p.leastRef = p.ref
	p.least.Refill(func(leaf []float64) {
		for i := range leaf {
			leaf[i] = math.Inf(1)
		}
		p.eachDrawable(func(s int32) { leaf[s] = p.logWeight(s, p.leastRef) })
	})
}

func (p *prioritized) eachDrawable(visit func(s int32)) {
	for s, base := range p.bases {
		if base > 0 && p.units.isFirst(p.store, int32(s)) {
			visit(int32(s))
		}
	}
}

// setAgeDecay changes tau.
func (p *prioritized) setAgeDecay(tau float64) {
	p.tau, p.rate = tau, p.o.rate(tau)
	p.renew()
}

// chances returns what gives a unit's probability in the next draw, for as long as nothing changes. It settles nothing
// itself: what is drawn must not hang on who looked.
func (p *prioritized) chances() func(s int32) float64 {
	weight, total := func(s int32) float64 { return p.tree.At(int(s)) }, p.tree.Total()
	if p.count > 0 && total < lightest {
		heaviest := p.heaviest()
		ref, shift := p.units.version(p.store, heaviest), p.o.Exponent*math.Log(p.base(heaviest))
		weight, total = func(s int32) float64 { return math.Exp(p.logWeight(s, ref) - shift) }, 0
		p.eachDrawable(func(s int32) { total += weight(s) })
	}
	return func(s int32) float64 {
		if p.bases[s] <= 0 {
			return 0
		}
		return weight(s) / total
	}
}

// begin draws the whole batch, so that the tree's cache misses overlap.
func (p *prioritized) begin(r *rand.Rand, n int) {
	p.settle()
	p.drawn = resized(p.drawn, n)
	p.chance = resized(p.chance, n)
	p.buffer = resized(p.buffer, n)
	p.share = resized(p.share, n)
	p.next, p.exhausted, p.began = 0, false, float64(p.count)
	if p.o.Spread == Stratified {
		p.tree.Stratified(r, p.drawn, p.buffer)
		r.Shuffle(n, func(i, j int) { p.drawn[i], p.drawn[j] = p.drawn[j], p.drawn[i] })
	} else {
		p.tree.Independent(r, p.drawn, p.buffer)
	}
	total := p.tree.Total()
	for i, s := range p.drawn {
		p.chance[i] = p.tree.At(int(s)) / total
	}
	p.smallest = math.Inf(1)
	if p.least != nil {
		behind := p.rate * float64(int64(p.leastRef)-int64(p.ref))
		p.smallest = p.least.Least() + behind - p.shift - math.Log(total)
	}
}

// draw hands out the next draw of the batch. Once a unit was exhausted (MaxUses), those that fell on it are made again
// among the others, and all that follow fall on the others with their share of what is left.
func (p *prioritized) draw(r *rand.Rand) (int32, float64) {
	s, chance := p.drawn[p.next], p.chance[p.next]
	share := &p.share[p.next]
	p.next++
	if !p.exhausted {
		*share = chance
		return s, chance
	}
	p.settle()
	total := p.tree.Total()
	if p.bases[s] < 0 {
		s = int32(p.tree.Find(r.Float64() * total))
	}
	chance = p.tree.At(int(s)) / total
	*share = chance * float64(p.count) / p.began
	return s, chance
}

func (p *prioritized) end() {}

// importance sets the weights of a batch's draws but the fresh ones, which come first: (N P)^-beta over the largest, N being
// the units that could be drawn at that draw. What N is at the first draw cancels.
func (p *prioritized) importance(draws []rollout.Draw, v rollout.Version) {
	beta := p.o.BetaAt(v)
	if beta == 0 {
		return
	}
	for len(draws) > 0 && draws[0].Fresh {
		draws = draws[1:]
	}
	if len(draws) == 0 {
		return
	}
	shares, each := p.share[:p.next], len(draws)/p.next // rollouts of a unit
	smallest := min(p.smallest, math.Log(slices.Min(shares)))
	for i, share := range shares {
		w := float32(math.Exp(beta * (smallest - math.Log(share))))
		for k := range each {
			draws[i*each+k].Weight = w
		}
	}
}

// resized returns a slice of n elements with whatever stood there.
func resized[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// weightState is what a snapshot keeps of a prioritized sampler. Weights are kept as they stand, to the last bit: computed
// anew they could differ in it, and so could draws. Fields are exported for encoding/gob.
type weightState struct {
	Tau             float64
	Ref, LeastRef   rollout.Version
	Shift, Largest  float64
	Bases           []float64
	Weights, Leasts []float64
	Count           int
}

func (p *prioritized) state() samplerState {
	st := weightState{Tau: p.tau, Ref: p.ref, LeastRef: p.leastRef, Shift: p.shift, Largest: p.largest, Bases: p.bases, Count: p.count}
	for s := range p.tree.Len() {
		st.Weights = append(st.Weights, p.tree.At(s))
		if p.least != nil {
			st.Leasts = append(st.Leasts, p.least.At(s))
		}
	}
	return samplerState{Weights: st}
}

func (p *prioritized) setState(state samplerState) {
	st := state.Weights
	p.tau, p.rate = st.Tau, p.o.rate(st.Tau)
	p.ref, p.leastRef, p.shift, p.largest, p.bases, p.count = st.Ref, st.LeastRef, st.Shift, st.Largest, st.Bases, st.Count
	p.room(len(st.Weights))
	p.tree.Refill(func(leaf []float64) { copy(leaf, st.Weights) })
	if p.least != nil {
		p.least.Refill(func(leaf []float64) { copy(leaf, st.Leasts) })
	}
}

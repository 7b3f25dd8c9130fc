package replay

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/replay/sumtree"
	"github.com/reprise-rl/reprise/rollout"
)

// The total stays above minTotal, so that a weight of share 1e-290 of it is a normal float64, exact to its last bit. A
// weight stays below 2^maxExponent, which leaves room to add up 2^31 of them. Weights computed anew have the heaviest
// between the two, so that neither bound is met again soon.
const (
	minTotal      = 0x1p-50
	maxExponent   = 960
	resetExponent = 450
)

// prioritized draws units with probability w/sum w, with replacement ([FP], docs/METHODS.md section 3).
//
// All weights shrink by one factor per version, which leaves the probabilities as they are. So nothing is refreshed: a
// unit's weight is kept as
//
//	exp(alpha log base + rate (version - ref) - shift)
//
// and only newer units come in heavier. The tree is a cache of these. When weights near overflow, ref moves and all are
// scaled by a power of 2, which is exact; those that underflow have probability 0. When the total falls to where a unit
// of probability 1e-290 would underflow, or tau changes, all weights are recomputed from the bases: nothing is lost,
// and a table of ancient rollouts draws like a fresh one.
type prioritized struct {
	store *store
	o     *Options
	units units

	expression *score          // of which the bases are; nil: of priority_base
	computed   rollout.Version // the version of the bases, where the expression changes with versions

	tau, rate float64
	ref       rollout.Version
	shift     float64

	tree    sumtree.Tree
	bases   []float64 // by slot: above 0 where the unit can be drawn, else with the sign turned
	count   int       // drawable units
	largest float64   // largest base seen so far, of rollouts that entered and of reports
	changed []int32   // units with new bases, until reweigh

	// The least weight, for weights normalised by table; nil otherwise. It holds logarithms, which cannot underflow, in
	// a scale of their own: exponent log base + rate (version - minRef).
	least  *sumtree.Min
	minRef rollout.Version

	// State of the batch being drawn.
	drawn     []int32
	chance    []float64
	next      int
	exhausted bool      // a unit since begin
	began     float64   // units that could be drawn at begin
	share     []float64 // by draw: N P over what N was at begin
	smallest  float64   // logarithm of the least probability of all units at begin, for weights normalised by table
	buffer    []float64
}

func newPrioritized(o *Options, st *store, u units) *prioritized {
	p := &prioritized{store: st, o: o, units: u}
	p.tau, p.rate = float64(o.AgeDecay), o.decayRate(float64(o.AgeDecay))
	if o.ImportanceNorm == ByTable {
		p.least = new(sumtree.Min)
	}
	return p
}

// add makes a unit drawable. Every rollout of it has its base; see enter.
func (p *prioritized) add(s int32) {
	p.units.each(p.store, s, func(m int32) { p.bases[m] = math.Abs(p.bases[m]) })
	p.count++
	p.room(int(s) + 1)
	p.weigh(s)
}

// see notes a base, of which the largest is that of entries at the maximum.
func (p *prioritized) see(base float64) { p.largest = max(p.largest, base) }

// enter gives a new rollout its base, before its unit is added. With entry max it is the largest seen, which includes
// those of all rollouts of its insertion: see Table.addToShards.
func (p *prioritized) enter(s int32, base float64) {
	for int(s) >= len(p.bases) {
		p.bases = append(p.bases, 0)
	}
	if p.expression != nil {
		base = p.express(s)
	}
	p.see(base)
	if p.o.Entry == EnterMax {
		base = p.largest
		// nothing is known: with the least, those that enter now would hardly be drawn later
		if base <= p.o.PriorityEpsilon {
			base = 1
		}
		p.store.items[s].set(atMax)
	}
	p.bases[s] = -base
}

// hold makes room for the base of a rollout that waits for its reward.
func (p *prioritized) hold(s int32) {
	for int(s) >= len(p.bases) {
		p.bases = append(p.bases, 0)
	}
	p.bases[s] = -p.o.PriorityEpsilon
}

// readmit gives a rollout of a rebuilt table its base, before its unit is added.
func (p *prioritized) readmit(s int32, base float64) {
	p.bases = append(p.bases, 0)
	if p.expression != nil {
		p.computed = p.expression.row.shard.version
		base = p.express(s)
	}
	p.bases[s] = -base
}

// keepsMax reports whether a rollout stays at the maximum at which it entered although a report of it came: none of its
// draws was a replay. Of the draws of a unit that was handed out as fresh, one was not.
func (p *prioritized) keepsMax(s int32) bool {
	it := &p.store.items[s]
	if !it.is(atMax) || p.o.EntryUntil == UntilReport {
		return false
	}
	draws := it.Uses + it.Leased
	if !p.store.waitsFresh(p.units.first(p.store, s)) {
		draws--
	}
	return draws <= 0
}

// prefetchBases reads the bases of slots in a row, so that their cache misses overlap. report reads one and then
// computes, and would wait for each in turn.
//
//go:noinline
func (p *prioritized) prefetchBases(slots []int32) float64 {
	sum := 0.0 // returned so that the reads are not optimised away
	for _, s := range slots {
		if s != none {
			sum += p.bases[s]
		}
	}
	return sum
}

// report gives a rollout a new base. Its unit keeps its weight until reweigh.
func (p *prioritized) report(s int32, base float64) {
	p.see(base)
	p.store.items[s].clear(atMax)
	p.bases[s] = math.Copysign(base, p.bases[s])
	if p.bases[s] > 0 {
		p.changed = append(p.changed, p.units.first(p.store, s))
	}
}

// reweigh gives the units of rollouts that were reported their new weights.
func (p *prioritized) reweigh() {
	p.weigh(p.changed...)
	p.changed = p.changed[:0]
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

func (p *prioritized) holdForBatch(int32)   {}
func (p *prioritized) setUses(int32, int32) {}
func (p *prioritized) size() int            { return p.count }

// base returns a unit's base: the mean of its rollouts'.
func (p *prioritized) base(s int32) float64 {
	if p.units != groups {
		return p.baseOf(s)
	}
	sum, n := 0.0, 0.0
	p.units.each(p.store, s, func(m int32) { n++ })
	p.units.each(p.store, s, func(m int32) { sum += p.baseOf(m) / n })
	return min(sum, math.MaxFloat64) // which rounding may pass
}

// baseOf returns a rollout's base.
func (p *prioritized) baseOf(s int32) float64 {
	if p.expression != nil && p.outdated() {
		return p.express(s)
	}
	return math.Abs(p.bases[s])
}

// express computes a rollout's base by the expression.
func (p *prioritized) express(s int32) float64 {
	x := p.expression.of(s)
	if !(x > 0) {
		x = 0
	}
	return p.o.withEpsilon(min(x, maxMeasurement))
}

// outdated reports whether the bases are those of another version, where the expression changes with versions.
func (p *prioritized) outdated() bool {
	return p.expression.byAge && p.computed != p.expression.row.shard.version
}

// follow computes all bases and weights anew if they are outdated. The weights are then a function of the bases and of
// the version alone, so that looking, which computes none, changes no draw.
func (p *prioritized) follow() {
	if p.expression == nil || !p.outdated() {
		return
	}
	for s, base := range p.bases {
		if p.store.rollouts[s] != nil {
			p.bases[s] = math.Copysign(p.express(int32(s)), base)
		}
	}
	p.computed = p.expression.row.shard.version
	p.ref = p.computed
	p.renew()
}

// used computes the base of a rollout that was used anew, if the expression changes with uses.
func (p *prioritized) used(s int32) {
	if p.expression == nil || !p.expression.byUse {
		return
	}
	p.bases[s] = math.Copysign(p.express(s), p.bases[s])
	if p.bases[s] > 0 {
		p.weigh(p.units.first(p.store, s))
	}
}

// begin draws the whole batch, so that the tree's cache misses overlap.
func (p *prioritized) begin(r *rand.Rand, n int) {
	p.follow()
	p.rescaleIfTiny()
	p.drawn = resized(p.drawn, n)
	p.chance = resized(p.chance, n)
	p.buffer = resized(p.buffer, n)
	p.share = resized(p.share, n)
	p.next, p.exhausted, p.began = 0, false, float64(p.count)
	if p.o.Draws == Stratified {
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
		behind := p.rate * float64(int64(p.minRef)-int64(p.ref))
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
	p.rescaleIfTiny()
	total := p.tree.Total()
	if p.bases[s] < 0 {
		s = int32(p.tree.Find(r.Float64() * total))
	}
	chance = p.tree.At(int(s)) / total
	*share = chance * float64(p.count) / p.began
	return s, chance
}

func (p *prioritized) end() {}

// importance sets the weights of a batch's draws but the fresh ones, which come first: (N P)^-beta over the largest, N
// being the units that could be drawn at that draw. It returns the logarithm of the largest. In the quotient what N is
// at the first draw cancels.
func (p *prioritized) importance(draws []rollout.Draw, v rollout.Version) (logLargest float64) {
	beta := p.o.BetaAt(v)
	if beta == 0 {
		return 0
	}
	for len(draws) > 0 && draws[0].Fresh {
		draws = draws[1:]
	}
	if len(draws) == 0 {
		return 0
	}
	shares, each := p.share[:p.next], len(draws)/p.next // rollouts of a unit
	smallest := min(p.smallest, math.Log(slices.Min(shares)))
	for i, share := range shares {
		w := float32(math.Exp(beta * (smallest - math.Log(share))))
		for k := range each {
			draws[i*each+k].Weight = w
		}
	}
	return -beta * (smallest + math.Log(p.began))
}

// totals returns the logarithms of the sum of the weights, with ages counted from a version, and of the largest
// importance weight, with weights normalised by table. There is a unit to draw.
func (p *prioritized) totals(v rollout.Version) (logMass, logLargest float64) {
	p.follow()
	p.rescaleIfTiny()
	logMass = math.Log(p.tree.Total()) + p.shift + p.rate*float64(int64(p.ref)-int64(v))
	if p.least != nil {
		least := p.least.Least() + p.rate*float64(int64(p.minRef)-int64(v))
		logLargest = -p.o.BetaAt(v) * (math.Log(float64(p.count)) + least - logMass)
	}
	return logMass, logLargest
}

// logWeight returns the logarithm of a unit's weight, seen from a version. The difference of versions is exact, and
// near 0 for whatever weighs anything.
func (p *prioritized) logWeight(s int32, ref rollout.Version) float64 {
	sinceRef := float64(int64(p.units.version(p.store, s)) - int64(ref))
	return p.o.PriorityExponent*math.Log(p.base(s)) + p.rate*sinceRef
}

// weigh puts the weights of drawable units, whose bases are set, into the tree. All are computed before the first is
// put there, so that neither waits for the other.
func (p *prioritized) weigh(units ...int32) {
	p.buffer = resized(p.buffer, len(units))
	logs := func() (greatest float64) {
		greatest = math.Inf(-1)
		for i, s := range units {
			x := p.logWeight(s, p.ref) - p.shift
			p.buffer[i] = x
			greatest = max(greatest, x)
		}
		return greatest
	}
	if x := logs(); x > maxExponent*math.Ln2 {
		p.scaleDown(x)
		logs()
	}
	for i, x := range p.buffer {
		p.buffer[i] = math.Exp(x)
	}
	for i, s := range units {
		p.tree.Set(int(s), p.buffer[i])
		if p.least != nil {
			p.least.Set(int(s), p.logWeight(s, p.minRef))
		}
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

// scaleDown changes the scale so that a weight of logarithm x becomes about 1. The reference version takes up as much
// of it as it can, so that shift stays small and versions are compared with near ones.
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

// rescaleIfTiny sees to it that weights can be drawn from: nothing that matters has underflowed.
func (p *prioritized) rescaleIfTiny() {
	if p.count > 0 && p.tree.Total() < minTotal {
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

// renew computes every weight from its base, in a scale in which the heaviest is 2^resetExponent.
func (p *prioritized) renew() {
	heaviest := p.heaviest()
	if heaviest == none {
		return
	}
	p.ref = p.units.version(p.store, heaviest)
	p.shift = p.o.PriorityExponent*math.Log(p.base(heaviest)) - resetExponent*math.Ln2
	p.tree.Refill(func(leaf []float64) {
		clear(leaf)
		p.eachDrawable(func(s int32) { leaf[s] = math.Exp(p.logWeight(s, p.ref) - p.shift) })
	})
	p.renewLeast()
}

// renewLeast brings the logarithms of weights, where they are kept, near the reference version: far from it their last
// bits would be lost.
func (p *prioritized) renewLeast() {
	if p.least == nil {
		return
	}
	p.minRef = p.ref
	p.least.Refill(func(leaf []float64) {
		for i := range leaf {
			leaf[i] = math.Inf(1)
		}
		p.eachDrawable(func(s int32) { leaf[s] = p.logWeight(s, p.minRef) })
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
	p.tau, p.rate = tau, p.o.decayRate(tau)
	p.renew()
}

// chances returns what gives a unit's probability in the next draw, for as long as nothing changes. It settles nothing
// itself, so that looking does not change what is drawn.
func (p *prioritized) chances() func(s int32) float64 {
	weight, total := func(s int32) float64 { return p.tree.At(int(s)) }, p.tree.Total()
	if p.count > 0 && (total < minTotal || p.expression != nil && p.outdated()) {
		heaviest := p.heaviest()
		ref, shift := p.units.version(p.store, heaviest), p.o.PriorityExponent*math.Log(p.base(heaviest))
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

// resized returns a slice of n elements. Their values are undefined.
func resized[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// weightState is what a snapshot keeps of sampler prioritized. It keeps the weights to the last bit, because recomputed
// weights could differ in it, and so could draws. Fields are exported for encoding/gob.
type weightState struct {
	Tau             float64
	Ref, LeastRef   rollout.Version
	Shift, Largest  float64
	Bases           []float64
	Weights, Leasts []float64
	Count           int
	Computed        rollout.Version // of the bases, by an expression
}

func (p *prioritized) state() samplerState {
	st := weightState{Tau: p.tau, Ref: p.ref, LeastRef: p.minRef, Shift: p.shift, Largest: p.largest,
		Bases: slices.Clone(p.bases), Count: p.count, Computed: p.computed}
	st.Weights = make([]float64, 0, p.tree.Len())
	if p.least != nil {
		st.Leasts = make([]float64, 0, p.tree.Len())
	}
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
	p.tau, p.rate = st.Tau, p.o.decayRate(st.Tau)
	p.ref, p.minRef, p.shift, p.largest, p.bases, p.count = st.Ref, st.LeastRef, st.Shift, st.Largest, st.Bases,
		st.Count
	p.computed = st.Computed
	p.room(len(st.Weights))
	p.tree.Refill(func(leaf []float64) { copy(leaf, st.Weights) })
	if p.least != nil {
		p.least.Refill(func(leaf []float64) { copy(leaf, st.Leasts) })
	}
}

// ownBase returns a rollout's base before any report.
func (o *Options) ownBase(r *rollout.Rollout, advantage float32) float64 {
	switch o.PriorityBase {
	case BaseAdvantage:
		return math.Abs(float64(advantage)) + o.PriorityEpsilon
	case BaseReward:
		return math.Abs(float64(r.Reward)) + o.PriorityEpsilon
	case BaseTDError:
		if len(r.Values) > 0 {
			return tdError(r) + o.PriorityEpsilon
		}
	case BaseRecency:
		return 1
	case BaseFunction:
		return math.Abs(o.PriorityFunction(r, advantage)) + o.PriorityEpsilon
	}
	return o.PriorityEpsilon // entry is max and the first report sets it, or an expression does
}

// withEpsilon adds priority_epsilon to what a trainer gives.
func (o *Options) withEpsilon(x float64) float64 { return min(x+o.PriorityEpsilon, math.MaxFloat64) }

// learnsBase reports whether a trainer's feedback gives bases of this kind.
func (o *Options) learnsBase() bool {
	return o.PriorityBase == BaseAdvantage || o.PriorityBase == BaseTDError || o.PriorityBase == BaseGradNorm
}

// reportedBase returns the base that feedback gives, without epsilon.
func (o *Options) reportedBase(f rollout.Feedback) rollout.Measurement {
	switch o.PriorityBase {
	case BaseAdvantage:
		return f.Advantage
	case BaseTDError:
		return f.TDError
	}
	return f.GradNorm
}

// tdError is the mean over the policy's tokens of |r_t + V_next - V_t| without discount, V being Rollout.Values. V_next
// is the value at the policy's next token, 0 after the last one. r_t is a turn's reward at the turn's last token;
// without turns it is the rollout's reward at the last token.
func tdError(r *rollout.Rollout) float64 {
	var sum, n, next, reward float64
	turns := r.Turns
	if len(turns) == 0 {
		reward = float64(r.Reward)
	}
	for i := len(r.Tokens) - 1; i >= 0; i-- {
		for len(turns) > 0 && i < int(turns[len(turns)-1].End) {
			reward += float64(turns[len(turns)-1].Reward)
			turns = turns[:len(turns)-1]
		}
		if r.Mask[i] == 0 {
			continue
		}
		v := float64(r.Values[i])
		sum += math.Abs(reward + next - v)
		n++
		next, reward = v, 0
	}
	return sum / n
}

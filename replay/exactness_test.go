package replay

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// exactness runs random operations on a table and now and then compares the probability of every unit with what
// docs/METHODS.md, section 3, makes of bases, ages, alpha and tau in 256 bits.
type exactness struct {
	t       *testing.T
	random  *rand.Rand
	table   *Table
	tau     float64
	gradual bool                   // versions go up by ones, and rollouts are new: weights grow until they are scaled
	bases   map[rollout.ID]float64 // by definition, evicted rollouts included
	last    rollout.ID
	leases  []rollout.BatchID
	logs    map[[3]float64]*big.Float // of the mean of bases
	worst   float64                   // relative error
	ancient int                       // comparisons in which no weight in the tree was worth drawing from
	moved   int                       // comparisons before which the reference version had moved
	tiny    int                       // probabilities below 1e-200 that were compared
}

// wide is a positive number of any size.
func wide(r *rand.Rand) float64 {
	switch r.IntN(4) {
	case 0:
		return math.Pow(10, 312*r.Float64()-300) // to 1e12, the largest that is accepted
	case 1:
		return math.Pow(10, 42*r.Float64()-30)
	}
	return math.Exp(2 * r.NormFloat64())
}

func (x *exactness) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *exactness) step() {
	v, k := x.table.Version(), x.random.IntN(100)
	if x.gradual {
		k = []int{0, 0, 55, 69}[k%4]
	}
	switch {
	case k < 30:
		x.insert(v)
	case k < 55:
		x.update()
	case k < 65:
		x.must(x.table.Advance(ctx, v+rollout.Version(x.random.IntN(4))))
	case k < 69:
		x.must(x.table.Advance(ctx, v+rollout.Version(x.random.IntN(100_001))))
	case k < 89:
		x.draw()
	case k < 93:
		for _, id := range x.leases {
			x.must(x.table.Release(ctx, id))
		}
		x.leases = x.leases[:0]
	case k < 96:
		x.tau = []float64{1, 3, 500, 1e6, math.Inf(1)}[x.random.IntN(5)]
		setTau(x.table, x.tau)
	case k < 97:
		for _, id := range x.leases {
			x.must(x.table.Release(ctx, id))
		}
		x.leases = x.leases[:0]
		x.must(x.table.Rewind(ctx, max(0, v-rollout.Version(x.random.IntN(1+x.random.IntN(20_000))))))
	case k < 99 || x.random.IntN(2) > 0:
		_ = x.table.Inspect().ByAge() // which changes nothing
	default:
		var b bytes.Buffer
		x.must(x.table.Snapshot(&b))
		restored := mustNew(x.t, x.table.Options())
		x.must(restored.Restore(&b))
		x.table = restored
	}
}

func (x *exactness) insert(v rollout.Version) {
	behind := rollout.Version(0)
	switch k := x.random.IntN(6); {
	case k == 0 && !x.gradual:
		behind = rollout.Version(x.random.IntN(100_000))
	case k == 1:
		behind = rollout.Version(x.random.IntN(20))
	}
	o := x.table.Options()
	g := someGroup(x.random, max(1, o.GroupSize), max(0, v-behind))
	for _, r := range g.Rollouts {
		r.Reward = float32(math.Exp(3 * x.random.NormFloat64()))
	}
	ids, err := x.table.Insert(ctx, g)
	x.must(err)
	for i, id := range ids {
		x.bases[id], x.last = float64(g.Rollouts[i].Reward)+o.PriorityEpsilon, id
	}
}

func (x *exactness) update() {
	if x.last == 0 {
		return
	}
	id := x.last - rollout.ID(x.random.Uint64N(min(uint64(x.last), 100)))
	value := wide(x.random)
	x.must(updateOf(x.table, Priority{id, value}))
	x.bases[id] = value + x.table.Options().PriorityEpsilon
}

func (x *exactness) draw() {
	o := x.table.Options()
	req := rollout.Request{Size: max(1, o.GroupSize) * (1 + x.random.IntN(4)), Shard: x.random.IntN(o.Shards)}
	if x.random.IntN(3) > 0 {
		_, _ = x.table.Sample(ctx, req) // there may be too few
	} else if b, err := x.table.Lease(ctx, req); err == nil {
		x.leases = append(x.leases, b.ID)
	}
}

// compare does so for every unit of every shard.
func (x *exactness) compare() {
	x.t.Helper()
	held := x.table.Inspect().Held()
	for i, s := range x.table.shards {
		if s.prioritized.count > 0 && s.prioritized.tree.Total() < minTotal {
			x.ancient++
		}
		if s.prioritized.ref > 0 {
			x.moved++
		}
		var units [][]Held
		for _, h := range held {
			if h.Shard != i {
				continue
			}
			if n := len(units); n > 0 && x.table.options.Unit == UnitGroup && units[n-1][0].Group == h.Group {
				units[n-1] = append(units[n-1], h)
			} else {
				units = append(units, []Held{h})
			}
		}
		x.compareShard(s.shard, units)
	}
}

func (x *exactness) compareShard(s *shard, units [][]Held) {
	x.t.Helper()
	weights := make([]*big.Float, len(units)) // logarithms; nil: not drawable
	var most *big.Float
	for i, u := range units {
		if x.table.options.MaxUses > 0 && u[0].Uses+u[0].Leased >= x.table.options.MaxUses {
			continue
		}
		weights[i] = x.logWeight(u)
		if most == nil || weights[i].Cmp(most) > 0 {
			most = weights[i]
		}
	}
	total := bigOf(0)
	for i, w := range weights {
		if w == nil {
			continue
		}
		w = bigSub(w, most)
		if below, _ := w.Float64(); below < -2000 {
			weights[i] = bigOf(0)
			continue
		}
		weights[i] = bigExp(w)
		total = bigAdd(total, weights[i])
	}
	settled := x.random.IntN(2) == 0
	if settled { // as the next draw would; what it draws from is compared too
		s.prioritized.rescaleIfTiny()
	}
	sum := 0.0
	for i, u := range units {
		want := bigOf(0)
		if weights[i] != nil {
			want = bigQuo(weights[i], total)
		}
		x.compareUnit(u, want)
		sum += u[0].Probability
		if tree := &s.prioritized.tree; settled && most != nil {
			x.compareProbability(u[0], tree.At(int(s.index.find(u[0].ID)))/tree.Total(), want)
		}
	}
	if most != nil && math.Abs(sum-1) > 1e-12 {
		x.t.Fatalf("the probabilities of %d units add up to %v", len(units), sum)
	}
}

// logWeight is alpha (log base - age/tau), or alpha log base - age/tau, with the mean base and the greatest age of a
// unit.
func (x *exactness) logWeight(u []Held) *big.Float {
	p := &x.table.options
	var bases [3]float64
	age := 0
	for i, h := range u {
		bases[i] = x.bases[h.ID]
		age = max(age, h.Age)
	}
	log := x.logs[bases]
	if log == nil {
		sum := bigOf(0)
		for _, base := range bases {
			sum = bigAdd(sum, bigOf(base))
		}
		log = bigLog(bigQuo(sum, bigOf(float64(len(u)))))
		x.logs[bases] = log
	}
	decay := bigOf(0)
	if !math.IsInf(x.tau, 1) {
		decay = bigQuo(bigOf(float64(age)), bigOf(x.tau))
	}
	if p.DecayOrder == AfterExponent {
		return bigSub(bigMul(bigOf(p.PriorityExponent), log), decay)
	}
	return bigMul(bigOf(p.PriorityExponent), bigSub(log, decay))
}

func (x *exactness) compareUnit(u []Held, want *big.Float) {
	x.t.Helper()
	for _, h := range u {
		if h.Probability != u[0].Probability {
			x.t.Fatalf("rollouts %d and %d of one unit have probabilities %v and %v", u[0].ID, h.ID, u[0].Probability,
				h.Probability)
		}
	}
	x.compareProbability(u[0], u[0].Probability, want)
}

func (x *exactness) compareProbability(h Held, got float64, want *big.Float) {
	x.t.Helper()
	if want.Cmp(bigOf(1e-290)) <= 0 {
		if !(got >= 0 && got <= 1e-289) {
			x.t.Fatalf("rollout %d of age %d: probability %v, by definition %s", h.ID, h.Age, got, want.Text('g', 20))
		}
		return
	}
	if want.Cmp(bigOf(1e-200)) < 0 {
		x.tiny++
	}
	wrong, _ := bigQuo(bigSub(bigOf(got), want), want).Float64()
	x.worst = max(x.worst, math.Abs(wrong))
	if !(math.Abs(wrong) <= 1e-9) {
		x.t.Fatalf("rollout %d of age %d: probability %v, by definition %s: relative error %.2g", h.ID, h.Age, got,
			want.Text('g', 20), wrong)
	}
}

// Probabilities are those of the definition, whatever happened before.
func TestProbabilitiesEqualAReferenceOfManyBits(t *testing.T) {
	for _, c := range []struct {
		Options
		exponent, tau, epsilon float64
		decay                  Decay
		spread                 Draws
		gradual                bool
	}{
		{Options{Capacity: 48, MaxUses: 2}, 0.6, 500, 1e-300, BeforeExponent, Stratified, false},
		{Options{Capacity: 48, MaxStaleness: 60_000}, 0.3, 3, 1e-6, BeforeExponent, Stratified, false},
		{Options{Capacity: 64, Shards: 2, MaxUses: 1}, 2, 500, 1e-300, AfterExponent, Independent, false},
		{Options{Capacity: 50, Unit: UnitGroup, GroupSize: 3, MaxUses: 1}, 1, 1, 1e-300, BeforeExponent,
			Stratified, false},
		{Options{Capacity: 64, Unit: UnitGroup, GroupSize: 2, Shards: 2}, 1.5, math.Inf(1), 1e-300, AfterExponent,
			Independent, false},
		{Options{Capacity: 40, MaxUses: 2}, 100, 1, 1e-300, BeforeExponent, Stratified, false},
		{Options{Capacity: 40, MaxUses: 2}, 0.05, 3, 1e-300, AfterExponent, Stratified, false},
		{Options{Capacity: 48}, 2, 1, 1e-300, BeforeExponent, Stratified, true},
		{Options{Capacity: 48, Unit: UnitGroup, GroupSize: 2}, 1, 1, 1e-300, AfterExponent, Independent, true},
	} {
		t.Run(fmt.Sprintf("alpha=%g,tau=%g,%s,%s,uses=%d,shards=%d,gradual=%v", c.exponent, Versions(c.tau), c.decay,
			c.Unit, c.MaxUses, c.Shards, c.gradual), func(t *testing.T) {
			t.Parallel()
			p := prioritizedOptions()
			p.PriorityBase, p.PriorityEpsilon, p.PriorityExponent, p.AgeDecay, p.DecayOrder, p.Draws = BaseReward, c.epsilon,
				c.exponent, Versions(c.tau), c.decay, c.spread
			p.ImportanceNorm = ByTable
			c.Options = withPriorities(p, c.Options)
			c.Options.Seed = 3
			x := &exactness{
				t: t, gradual: c.gradual, random: rollout.Stream(3, "exactness", uint64(c.exponent*10)),
				table: mustNew(t, c.Options), tau: c.tau,
				bases: make(map[rollout.ID]float64), logs: make(map[[3]float64]*big.Float),
			}
			operations := 10_000
			if testing.Short() {
				operations = 500
			}
			for i, next := 0, 0; i < operations; i++ {
				x.step()
				if i == next {
					x.compare()
					next += 1 + x.random.IntN(59)
				}
			}
			t.Logf("greatest relative error %.2g; %d compared tiny, %d times of the ancient only, %d times from a "+
				"later reference", x.worst, x.tiny, x.ancient, x.moved)
			if c.exponent > 0 && !testing.Short() &&
				(x.moved == 0 || !c.gradual && (x.tiny == 0 || x.ancient == 0 && c.MaxUses > 0)) {
				t.Error("the operations did not reach what they are for")
			}
		})
	}
}

// precision of the reference, in bits.
const precision = 224

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

func bigMul(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Mul(a, b) }
func bigAdd(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Add(a, b) }
func bigSub(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Sub(a, b) }
func bigQuo(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Quo(a, b) }

// bigLn2 is 2 atanh(1/3).
var bigLn2 = bigMul(bigOf(2), bigAtanh(bigQuo(bigOf(1), bigOf(3))))

// bigAtanh is x + x^3/3 + x^5/5 + …, for small x.
func bigAtanh(x *big.Float) *big.Float {
	sum, term, square := bigOf(0), new(big.Float).Copy(x), bigMul(x, x)
	for n := 1; term.Sign() != 0 && term.MantExp(nil) > x.MantExp(nil)-precision; n += 2 {
		sum = bigAdd(sum, bigQuo(term, bigOf(float64(n))))
		term = bigMul(term, square)
	}
	return sum
}

// bigLog is the natural logarithm of a positive number m 2^e: e ln 2 + 2 atanh((m-1)/(m+1)).
func bigLog(x *big.Float) *big.Float {
	m := new(big.Float).SetPrec(precision)
	e := x.MantExp(m)
	if m.Cmp(bigOf(math.Sqrt2/2)) < 0 {
		m, e = bigMul(m, bigOf(2)), e-1
	}
	at := bigAtanh(bigQuo(bigSub(m, bigOf(1)), bigAdd(m, bigOf(1))))
	return bigAdd(bigMul(bigOf(float64(e)), bigLn2), bigMul(bigOf(2), at))
}

// bigExp is 2^k (exp(r/2^16))^(2^16) with x = k ln 2 + r, the inner one by its series.
func bigExp(x *big.Float) *big.Float {
	const halvings = 16
	quotient, _ := bigQuo(x, bigLn2).Float64()
	k := math.Round(quotient)
	r := bigSub(x, bigMul(bigOf(k), bigLn2))
	r.SetMantExp(r, -halvings)
	sum, term := bigOf(1), bigOf(1)
	for n := 1; ; n++ {
		term = bigQuo(bigMul(term, r), bigOf(float64(n)))
		if term.Sign() == 0 || term.MantExp(nil) < -precision-halvings {
			break
		}
		sum = bigAdd(sum, term)
	}
	for range halvings {
		sum = bigMul(sum, sum)
	}
	return sum.SetMantExp(sum, int(k))
}

// The reference itself must be right: against known digits, against package math, and against its own inverse.
func TestTheReferenceForExponentialsIsRight(t *testing.T) {
	for want, got := range map[string]*big.Float{
		"0.693147180559945309417232121458176568075500134360255254120680009": bigLn2,
		"2.71828182845904523536028747135266249775724709369995957496696763":  bigExp(bigOf(1)),
		"2.30258509299404568401799145468436420760110148862877297603332790":  bigLog(bigOf(10)),
	} {
		// 62 digits are printed, which are 206 bits.
		if text := got.Text('g', 63)[:63]; text != want[:63] {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	for _, x := range []float64{-1e6, -700, -1, -1e-20, 0, 1e-9, 0.5, 3, 709, 1e5} {
		back := bigLog(bigExp(bigOf(x)))
		if diff, _ := bigSub(back, bigOf(x)).Float64(); math.Abs(diff) > 1e-60*max(1, math.Abs(x)) {
			t.Errorf("log exp %v is off by %v", x, diff)
		}
		if got, _ := bigExp(bigOf(x)).Float64(); math.Abs(got-math.Exp(x)) > 1e-15*math.Exp(x) {
			t.Errorf("exp %v is %v, package math says %v", x, got, math.Exp(x))
		}
	}
}

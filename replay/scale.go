package replay

import (
	"math"

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
			p.least.Set(int(s), p.logWeight(s, p.leastRef))
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
	p.tau, p.rate = tau, p.o.decayRate(tau)
	p.renew()
}

// chances returns what gives a unit's probability in the next draw, for as long as nothing changes. It settles nothing
// itself, so that looking does not change what is drawn.
func (p *prioritized) chances() func(s int32) float64 {
	weight, total := func(s int32) float64 { return p.tree.At(int(s)) }, p.tree.Total()
	if p.count > 0 && total < minTotal {
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

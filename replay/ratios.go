package replay

import (
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// ratios is what trainers measured of the ratios rho = pi/b by age of the rollout, smoothed: newer measurements count
// more. Fields are exported for encoding/gob.
type ratios struct {
	Bins    []ratioBin
	Version rollout.Version // of the table, now
}

// ratioBin is the tokens of a range of ages. What was measured fading versions ago counts 1/e of what is measured now.
type ratioBin struct {
	Tokens, Sum, Squares float64
	Version              rollout.Version // at which they were as they stand
}

const fading = 100.0 // versions

// Ages have a bin each below exactAges, then there are binsPerOctave to each doubling.
const (
	exactAges     = 64
	binsPerOctave = 8
)

// binOf returns the bin of an age, and bounds the ages of a bin.
func binOf(age int) int {
	if age < exactAges {
		return age
	}
	return exactAges + int(binsPerOctave*math.Log2(float64(age)/exactAges))
}

func bounds(bin int) (first, last int) {
	if bin < exactAges {
		return bin, bin
	}
	edge := func(b int) int {
		at := int(exactAges * math.Exp2(float64(b-exactAges)/binsPerOctave))
		for binOf(at) < b {
			at++
		}
		for at > exactAges && binOf(at-1) >= b {
			at--
		}
		return at
	}
	return edge(bin), edge(bin+1) - 1
}

// add takes in one draw's ratios, where they were measured.
func (e *ratios) add(f rollout.Feedback) {
	if !(f.Tokens > 0 && f.RatioSum > 0 && f.RatioSquares > 0) {
		return
	}
	b := binOf(int(f.Staleness))
	for b >= len(e.Bins) {
		e.Bins = append(e.Bins, ratioBin{Version: e.Version})
	}
	e.Bins[b] = e.faded(b)
	e.Bins[b].Tokens += f.Tokens
	e.Bins[b].Sum += f.RatioSum
	e.Bins[b].Squares += f.RatioSquares
}

// faded returns a bin as it counts now. ESS/n does not change by fading: it is a ratio.
func (e *ratios) faded(b int) ratioBin {
	bin := e.Bins[b]
	k := math.Exp(-float64(max(e.Version-bin.Version, 0)) / fading)
	return ratioBin{bin.Tokens * k, bin.Sum * k, bin.Squares * k, e.Version}
}

// rewind sets the version back; what was measured later stays, as of then.
func (e *ratios) rewind(v rollout.Version) {
	for b := range e.Bins {
		e.Bins[b].Version = min(e.Bins[b].Version, v)
	}
	e.Version = v
}

// AgeESS is the effective sample size of tokens of a range of ages.
type AgeESS struct {
	First, Last int     // versions
	ESS         float64 // ESS/n = (sum rho)^2/(n sum rho^2), in (0, 1]
	Tokens      float64 // behind it, those measured longer ago counting less
}

// measured returns the ages of which enough is known, in ascending order.
func (e *ratios) measured() []AgeESS {
	var list []AgeESS
	for b := range e.Bins {
		bin := e.faded(b)
		if bin.Tokens < 1 {
			continue
		}
		first, last := bounds(b)
		list = append(list, AgeESS{first, last, min(bin.Sum*bin.Sum/(bin.Tokens*bin.Squares), 1), bin.Tokens})
	}
	return list
}

// curve is ESS/n as a function of age: the curve that never rises nearest to what was measured, log-linear between the ages
// measured, and beyond the last falling at the mean rate up to it.
type curve struct{ ages, logs []float64 }

// newCurve makes the measured logarithms fall by pooling neighbours that rise into their mean, weighted by tokens (isotonic
// regression): one age whose ratios chanced to be wild drags down no others than it must.
func newCurve(measured []AgeESS) curve {
	type pool struct{ log, tokens, ages float64 }
	c := curve{ages: []float64{0}, logs: []float64{0}} // a rollout of the present policy has ratio 1
	var pools []pool
	for _, m := range measured {
		age := float64(m.First+m.Last) / 2
		if age == 0 {
			continue
		}
		c.ages = append(c.ages, age)
		last := pool{math.Log(m.ESS), max(m.Tokens, 1), 1}
		for n := len(pools); n > 0 && pools[n-1].log < last.log; n = len(pools) {
			before := pools[n-1]
			tokens := before.tokens + last.tokens
			last = pool{(before.log*before.tokens + last.log*last.tokens) / tokens, tokens, before.ages + last.ages}
			pools = pools[:n-1]
		}
		pools = append(pools, last)
	}
	for _, p := range pools {
		for range int(p.ages) {
			c.logs = append(c.logs, p.log)
		}
	}
	return c
}

// at returns the logarithm of ESS/n at an age.
func (c curve) at(age float64) float64 {
	n := len(c.ages)
	if last := c.ages[n-1]; age >= last {
		if last == 0 {
			return 0
		}
		return c.logs[n-1] * age / last
	}
	i := 1
	for c.ages[i] < age {
		i++
	}
	share := (age - c.ages[i-1]) / (c.ages[i] - c.ages[i-1])
	return c.logs[i-1] + share*(c.logs[i]-c.logs[i-1])
}

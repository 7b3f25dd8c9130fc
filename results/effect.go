package results

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Pairs is a quantity of pairs of runs, such as the difference of their accuracy. The pairs of one block began with the
// same base model. What is said of the mean is said of these base models.
//
// The tests ask that both the t test and the sign-flip test reject. If a value is infinite, as the compute to a target
// that was never reached, only signed ranks count.
type Pairs struct {
	values []float64
	blocks []int // of each value, counted from 0
	count  int   // of blocks
}

// NewPairs returns the pairs with these values, NaN left out, in these blocks.
func NewPairs(values []float64, blocks []uint64) Pairs {
	var p Pairs
	names := make(map[uint64]int)
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		block, ok := names[blocks[i]]
		if !ok {
			block = len(names)
			names[blocks[i]] = block
		}
		p.values, p.blocks = append(p.values, v), append(p.blocks, block)
	}
	p.count = len(names)
	return p
}

// Values returns the values, in the order given.
func (p Pairs) Values() []float64 { return p.values }

// N is the number of pairs.
func (p Pairs) N() int { return len(p.values) }

// finite reports whether all values are.
func (p Pairs) finite() bool {
	return !slices.ContainsFunc(p.values, func(v float64) bool { return math.IsInf(v, 0) })
}

// Blocks returns the mean of each block, in the order of their first values.
func (p Pairs) Blocks() []float64 {
	sums, n := make([]float64, p.count), make([]float64, p.count)
	for i, v := range p.values {
		sums[p.blocks[i]] += v
		n[p.blocks[i]]++
	}
	for i := range sums {
		sums[i] /= n[i]
	}
	return sums
}

// Mean is the mean over blocks of their means, NaN without values. If a value is infinite it is the median of the means
// of any two values (Hodges and Lehmann).
func (p Pairs) Mean() float64 {
	switch {
	case p.N() == 0:
		return math.NaN()
	case !p.finite():
		return quantileOf(p.walsh(), 0.5)
	}
	return meanOf(p.Blocks())
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// freedom is the degrees of freedom of the spread within blocks.
func (p Pairs) freedom() float64 { return float64(p.N() - p.count) }

// deviation is the standard error of the mean, from the spread within blocks.
func (p Pairs) deviation() float64 {
	n, means := make([]float64, p.count), p.Blocks()
	squares, inverse := 0.0, 0.0
	for i, v := range p.values {
		d := v - means[p.blocks[i]]
		squares += d * d
		n[p.blocks[i]]++
	}
	for _, k := range n {
		inverse += 1 / k
	}
	blocks := float64(p.count)
	return math.Sqrt(squares / p.freedom() * inverse / blocks / blocks)
}

// Interval returns the interval of the mean at a level (0.95): by the t distribution within blocks; by signed ranks if
// a value is infinite. Both ends are NaN with too few pairs to tell.
func (p Pairs) Interval(level float64) (low, high float64) {
	switch {
	case p.freedom() < 1:
		return math.NaN(), math.NaN()
	case p.finite():
		half := p.deviation() * distuv.StudentsT{Sigma: 1, Nu: p.freedom()}.Quantile((1+level)/2)
		return p.Mean() - half, p.Mean() + half
	}
	walsh := p.walsh()
	out := signedRanks(p.N(), (1-level)/2)
	if out == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	return walsh[out-1], walsh[len(walsh)-out]
}

// walsh returns the means of any two values, a value with itself among them, in order. Infinities of both signs meet in
// the middle, at 0.
func (p Pairs) walsh() (list []float64) {
	for i, a := range p.values {
		for _, b := range p.values[i:] {
			mean := a/2 + b/2
			if math.IsNaN(mean) {
				mean = 0
			}
			list = append(list, mean)
		}
	}
	slices.Sort(list)
	return list
}

// signedRanks returns how many Walsh averages of n values lie outside an interval at each end, so that each side has at
// most a chance of tail: the largest k with P(W < k) <= tail, W the signed-rank statistic.
func signedRanks(n int, tail float64) int {
	ways := make([]float64, n*(n+1)/2+1) // subsets of 1..n, by their sum
	ways[0] = 1
	for r := 1; r <= n; r++ {
		for sum := len(ways) - 1; sum >= r; sum-- {
			ways[sum] += ways[sum-r]
		}
	}
	below, all := 0.0, math.Exp2(float64(n))
	for k, w := range ways {
		if below += w; below/all > tail {
			return k
		}
	}
	return len(ways) - 1
}

// PAbove returns the chance of values as high as these if the true mean were bound or less: small if it is above. It is
// 1 with too few pairs to tell.
func (p Pairs) PAbove(bound float64) float64 { return p.above(bound, 1) }

// PBelow returns the chance of values as low as these if the true mean were bound or more.
func (p Pairs) PBelow(bound float64) float64 { return p.above(bound, -1) }

// above tests whether the mean lies on a side of a bound: above it (side 1) or below (side -1).
func (p Pairs) above(bound, side float64) float64 {
	if p.freedom() < 1 {
		return 1
	}
	off := make([]float64, p.N())
	for i, v := range p.values {
		off[i] = side * (v - bound)
	}
	if !p.finite() {
		return flips(ranked(off))
	}
	mean, deviation := side*(p.Mean()-bound), p.deviation()
	t := 1.0
	switch {
	case deviation > 0:
		t = distuv.StudentsT{Sigma: 1, Nu: p.freedom()}.CDF(-mean / deviation)
	case mean > 0:
		t = 0
	}
	n := make([]float64, p.count)
	for _, b := range p.blocks {
		n[b]++
	}
	for i, b := range p.blocks {
		off[i] /= n[b]
	}
	return max(t, flips(off))
}

// ranked replaces values by the ranks of their sizes, with their signs. Equal sizes share a rank.
func ranked(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(values[i]), math.Abs(values[j])) })
	ranks := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && math.Abs(values[order[to]]) == math.Abs(values[order[from]]) {
			to++
		}
		for _, i := range order[from:to] {
			if values[i] != 0 {
				ranks[i] = math.Copysign(float64(from+to+1)/2, values[i])
			}
		}
		from = to
	}
	return ranks
}

const (
	exactFlips  = 14 // values up to which all choices of signs are tried
	randomFlips = 1 << exactFlips
	flipSeed    = 0x666c6970 // "flip"
)

// flips returns the share of all choices of signs for which the sum of the values is as high as it is, the values'
// own among them. Of many values it tries a sample of the choices.
func flips(values []float64) float64 {
	observed, size := 0.0, 0.0
	for _, v := range values {
		observed += v
		size += math.Abs(v)
	}
	rng := rand.New(rand.NewPCG(flipSeed, 0))
	choices := randomFlips
	if len(values) <= exactFlips {
		choices = 1 << len(values)
	}
	high := 0
	for choice := range choices {
		if len(values) > exactFlips && choice > 0 {
			choice = int(rng.Uint64() >> 1) // up to 63 values
		}
		sum := 0.0
		for i, v := range values {
			if choice>>i&1 == 1 {
				v = -v
			}
			sum += v
		}
		if sum >= observed-1e-12*size {
			high++
		}
	}
	return float64(high) / float64(choices)
}

// ClaimRuns is how many runs, or pairs of runs, a claim needs (docs/METHODS.md, section 7).
const ClaimRuns = 8

// Effect is a difference or a ratio over seeds: the mean, of ratios the geometric mean, and its interval at 95%. What
// is infinite is null.
type Effect struct {
	Seeds int    `json:"seeds"` // that have a value
	Mean  Number `json:"mean"`
	Low   Number `json:"low"` // of two seeds or more
	High  Number `json:"high"`
}

// differenceEffect returns the effect of differences, NaN left out.
func differenceEffect(values []float64) Effect {
	return effectOf(values, func(v float64) float64 { return v })
}

// ratioEffect returns the effect of ratios, NaN left out. They may be 0 or infinite.
func ratioEffect(ratios []float64) Effect {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	return effectOf(logs, math.Exp)
}

// effectOf returns the mean of values in one block and its interval, each put through a rising function.
func effectOf(values []float64, through func(float64) float64) Effect {
	p := NewPairs(values, make([]uint64, len(values)))
	low, high := p.Interval(0.95)
	return Effect{p.N(), Num(through(p.Mean())), Num(through(low)), Num(through(high))}
}

// doubt is the sentence about an interval that includes "no effect" (1 of ratios, 0 of differences), and "" of another.
// least is the least effect that so many seeds would have shown, "" if that is not finite.
func (e Effect) doubt(none float64, least string) string {
	if !e.Low.Known() || e.Low.Float() > none || e.High.Float() < none {
		return ""
	}
	s := fmt.Sprintf(" The interval includes %g: a difference is not established", none)
	if least != "" && e.Low != e.High {
		s += fmt.Sprintf("; %d seeds that vary like these would have shown %s", e.Seeds, least)
	}
	return s + "."
}

// PartOf returns the p-value of the claim that at least some of several tests' claims hold, from the tests' p-values
// (Bonferroni's test of a partial conjunction).
func PartOf(chances []float64, some int) float64 {
	ordered := slices.Sorted(slices.Values(chances))
	return min(1, float64(len(ordered)-some+1)*ordered[some-1])
}

// Holm returns which of several tests reject, so that the chance of any false rejection among them is at most level.
func Holm(chances []float64, level float64) []bool {
	order := make([]int, len(chances))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(chances[i], chances[j]) })
	reject := make([]bool, len(chances))
	for rank, i := range order {
		if chances[i] > level/float64(len(chances)-rank) {
			break
		}
		reject[i] = true
	}
	return reject
}

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
// same base model. What is said of the mean is said of these base models, but for AcrossBlocks.
//
// The value of a pair is known, or it lies between two bounds, of which one may be infinite: if a run never reached its
// target, what it would have cost is only known to exceed what was spent. All that is said of the mean then holds
// wherever between their bounds the values lie: that it is high follows from the lower bounds alone, and that it is low
// from the upper ones. Tests ask that both the t test and the sign-flip test reject.
type Pairs struct {
	low, high sample // the same pairs
}

// NewPairs returns the pairs with these values, NaN left out, in these blocks.
func NewPairs(values []float64, blocks []uint64) Pairs {
	return NewBoundedPairs(values, values, blocks)
}

// NewBoundedPairs returns pairs whose values lie between these bounds. A lower bound may be -Inf and an upper one +Inf.
// Pairs with a bound that is NaN are left out.
func NewBoundedPairs(low, high []float64, blocks []uint64) Pairs {
	var p Pairs
	names := make(map[uint64]int)
	for i := range low {
		if math.IsNaN(low[i]) || math.IsNaN(high[i]) {
			continue
		}
		block, ok := names[blocks[i]]
		if !ok {
			block = len(names)
			names[blocks[i]] = block
		}
		p.low.add(low[i], block)
		p.high.add(high[i], block)
	}
	return p
}

// Values returns the lower and the upper bounds, in the order given. They are the same where values are known.
func (p Pairs) Values() (low, high []float64) { return p.low.values, p.high.values }

// N is the number of pairs.
func (p Pairs) N() int { return len(p.low.values) }

// Known reports whether the values are known.
func (p Pairs) Known() bool { return slices.Equal(p.low.values, p.high.values) }

// Blocks returns the mean of each block, or the bounds between which it lies, in the order of their first values.
func (p Pairs) Blocks() (low, high []float64) { return p.low.means(), p.high.means() }

// Mean returns the mean over blocks of their means, or the bounds between which it lies; NaN without pairs.
func (p Pairs) Mean() (low, high float64) { return meanOf(p.low.means()), meanOf(p.high.means()) }

// Interval returns the interval of the mean at a level (0.95), by the t distribution within blocks: the low end of the
// lower bounds' and the high end of the upper ones'. An end is infinite if a bound is. Both are NaN with too few pairs
// to tell.
func (p Pairs) Interval(level float64) (low, high float64) {
	low, _ = p.low.interval(level)
	_, high = p.high.interval(level)
	return low, high
}

// AcrossBlocks returns the interval of the mean over all base models of which these are a sample: by the t distribution
// of the blocks' means, with a degree of freedom less than there are blocks. Both ends are NaN with fewer than two.
func (p Pairs) AcrossBlocks(level float64) (low, high float64) {
	low, _ = p.low.acrossBlocks(level)
	_, high = p.high.acrossBlocks(level)
	return low, high
}

// PAbove returns the chance of values as high as these if the true mean were bound or less: small if it is above. It is
// 1 with too few pairs to tell, or if a value has no lower bound.
func (p Pairs) PAbove(bound float64) float64 { return p.low.above(bound, 1) }

// PBelow returns the chance of values as low as these if the true mean were bound or more. It is 1 with too few pairs
// to tell, or if a value has no upper bound.
func (p Pairs) PBelow(bound float64) float64 { return p.high.above(bound, -1) }

// sample is values in blocks.
type sample struct {
	values []float64
	blocks []int // of each value, counted from 0
	count  int   // of blocks
}

func (s *sample) add(value float64, block int) {
	s.values, s.blocks, s.count = append(s.values, value), append(s.blocks, block), max(s.count, block+1)
}

// finite reports whether all values are.
func (s sample) finite() bool {
	return !slices.ContainsFunc(s.values, func(v float64) bool { return math.IsInf(v, 0) })
}

// sizes returns the number of values of each block.
func (s sample) sizes() []float64 {
	n := make([]float64, s.count)
	for _, b := range s.blocks {
		n[b]++
	}
	return n
}

// means returns the mean of each block.
func (s sample) means() []float64 {
	sums, n := make([]float64, s.count), s.sizes()
	for i, v := range s.values {
		sums[s.blocks[i]] += v
	}
	for i := range sums {
		sums[i] /= n[i]
	}
	return sums
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// freedom is the degrees of freedom of the spread within blocks.
func (s sample) freedom() float64 { return float64(len(s.values) - s.count) }

// deviation is the standard error of the mean, from the spread within blocks.
func (s sample) deviation() float64 {
	means, squares, inverse := s.means(), 0.0, 0.0
	for i, v := range s.values {
		d := v - means[s.blocks[i]]
		squares += d * d
	}
	for _, n := range s.sizes() {
		inverse += 1 / n
	}
	blocks := float64(s.count)
	return math.Sqrt(squares / s.freedom() * inverse / blocks / blocks)
}

func (s sample) interval(level float64) (low, high float64) {
	if s.freedom() < 1 {
		return math.NaN(), math.NaN()
	}
	return s.around(s.deviation(), level, s.freedom())
}

func (s sample) acrossBlocks(level float64) (low, high float64) {
	if s.count < 2 {
		return math.NaN(), math.NaN()
	}
	means, squares, blocks := s.means(), 0.0, float64(s.count)
	for _, m := range means {
		d := m - meanOf(means)
		squares += d * d
	}
	return s.around(math.Sqrt(squares/(blocks-1)/blocks), level, blocks-1)
}

// around returns the t interval of the mean from its standard error. The mean is infinite if a value is.
func (s sample) around(deviation, level, freedom float64) (low, high float64) {
	mean := meanOf(s.means())
	if !s.finite() {
		return mean, mean
	}
	half := deviation * distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile((1+level)/2)
	return mean - half, mean + half
}

// above tests whether the mean lies on a side of a bound: above it (side 1) or below (side -1).
func (s sample) above(bound, side float64) float64 {
	if s.freedom() < 1 || !s.finite() {
		return 1
	}
	mean, deviation := side*(meanOf(s.means())-bound), s.deviation()
	t := 1.0
	switch {
	case deviation > 0:
		t = distuv.StudentsT{Sigma: 1, Nu: s.freedom()}.CDF(-mean / deviation)
	case mean > 0:
		t = 0
	}
	off, n := make([]float64, len(s.values)), s.sizes()
	for i, v := range s.values {
		off[i] = side * (v - bound) / n[s.blocks[i]]
	}
	return max(t, flips(off))
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
	var sums [][256]float64 // of eight values each, with the signs that a byte chooses
	for some := range slices.Chunk(values, 8) {
		var of [256]float64
		for signs := range of {
			for i, v := range some {
				if signs>>i&1 == 1 {
					v = -v
				}
				of[signs] += v
			}
		}
		sums = append(sums, of)
	}
	high := 0
	for choice := range choices {
		if len(values) > exactFlips && choice > 0 {
			choice = int(rng.Uint64() >> 1) // up to 63 values
		}
		sum := 0.0
		for i := range sums {
			sum += sums[i][choice>>(8*i)&255]
		}
		if sum >= observed-1e-12*size {
			high++
		}
	}
	return float64(high) / float64(choices)
}

// ClaimRuns is how many runs, or pairs of runs, a claim needs (docs/METHODS.md, section 7).
const ClaimRuns = 8

// Effect is a difference or a ratio over seeds: the mean, of ratios the geometric mean, and its interval at 95%. Where
// a run never reached its target the mean may be known to one side only; then so is the interval, and the other end is
// null. Where that is so of runs of both arms the mean is null too.
type Effect struct {
	Seeds int    `json:"seeds"` // that have a value
	Bound Side   `json:"bound,omitempty"`
	Mean  Number `json:"mean"`
	Low   Number `json:"low"` // of two seeds or more
	High  Number `json:"high"`
}

// Side says how a quantity relates to a number that stands for it.
type Side string

// The sides.
const (
	Exactly Side = ""
	AtMost  Side = "at most"
	AtLeast Side = "at least"
)

// differenceEffect returns the effect of differences, NaN left out.
func differenceEffect(values []float64) Effect {
	return effectOf(NewPairs(values, make([]uint64, len(values))), func(v float64) float64 { return v })
}

// effectOf returns the mean of pairs of one block and its interval, each put through a rising function.
func effectOf(p Pairs, through func(float64) float64) Effect {
	e := Effect{Seeds: p.N()}
	low, high := p.Mean()
	switch {
	case e.Seeds == 0:
	case low == high:
		e.Mean = Num(through(low))
	case math.IsInf(low, -1) && math.IsInf(high, 1):
	case math.IsInf(low, -1):
		e.Bound, e.Mean = AtMost, Num(through(high))
	default:
		e.Bound, e.Mean = AtLeast, Num(through(low))
	}
	if low, high = p.Interval(0.95); !math.IsInf(low, -1) {
		e.Low = Num(through(low))
	}
	e.High = Num(through(high))
	return e
}

// Text writes the mean, or the side of it that is known.
func (e Effect) Text(write func(float64) string) string {
	low, high := e.Mean.Float(), e.Mean.Float()
	switch e.Bound {
	case AtMost:
		low = math.Inf(-1)
	case AtLeast:
		high = math.Inf(1)
	}
	return SpanText(low, high, write)
}

// IntervalText writes the ends of the interval that are known, "" if none is.
func (e Effect) IntervalText(write func(float64) string) string {
	low, high := math.Inf(-1), math.Inf(1)
	if e.Low.Known() {
		low = e.Low.Float()
	}
	if e.High.Known() {
		high = e.High.Float()
	}
	return IntervalText(low, high, write)
}

// SpanText writes a quantity that lies between bounds, of which either may be infinite.
func SpanText(low, high float64, write func(float64) string) string {
	switch {
	case math.IsInf(low, -1) && math.IsInf(high, 1):
		return "not known"
	case math.IsInf(low, -1):
		return string(AtMost) + " " + write(high)
	case math.IsInf(high, 1):
		return string(AtLeast) + " " + write(low)
	case low < high:
		return write(low) + " to " + write(high)
	default:
		return write(low)
	}
}

// IntervalText writes an interval of which either end may be infinite, "" if both are, or if they are NaN.
func IntervalText(low, high float64, write func(float64) string) string {
	switch {
	case math.IsNaN(low) || math.IsInf(low, -1) && math.IsInf(high, 1):
		return ""
	case math.IsInf(low, -1):
		return "up to " + write(high)
	case math.IsInf(high, 1):
		return "from " + write(low)
	default:
		return write(low) + " to " + write(high)
	}
}

// doubt is the sentence about an interval that includes "no effect" (1 of ratios, 0 of differences), and "" of another.
// least is the least effect that this number of seeds would have shown, "" if that is not known.
func (e Effect) doubt(none float64, least string) string {
	if !e.Low.Known() && !e.High.Known() || e.Low.Float() > none || e.High.Float() < none {
		return ""
	}
	s := fmt.Sprintf(" The interval includes %g: a difference is not established", none)
	if least != "" && e.Low != e.High {
		s += fmt.Sprintf("; %d seeds that vary like these would have shown %s", e.Seeds, least)
	}
	return s + "."
}

// MeanDifference returns how much more the mean of x is than that of y, with the t interval of samples that may vary
// differently (Welch). Its ends are NaN if a sample has fewer than two values.
func MeanDifference(x, y []float64, level float64) (mean, low, high float64) {
	var variances [2]float64 // of the means
	var freedoms float64
	for i, values := range [][]float64{x, y} {
		m, n := meanOf(values), float64(len(values))
		for _, v := range values {
			variances[i] += (v - m) * (v - m) / (n - 1) / n
		}
		freedoms += variances[i] * variances[i] / (n - 1)
	}
	mean = meanOf(x) - meanOf(y)
	both := variances[0] + variances[1]
	if len(x) < 2 || len(y) < 2 {
		return mean, math.NaN(), math.NaN()
	}
	if both == 0 {
		return mean, mean, mean
	}
	half := math.Sqrt(both) * distuv.StudentsT{Sigma: 1, Nu: both * both / freedoms}.Quantile((1+level)/2)
	return mean, mean - half, mean + half
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

package results

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

// The figures of METHODS, section 9.
func TestTheIntervalOfPairs(t *testing.T) {
	ratios := []float64{0.67, 0.58, 0.70, 0.85, 0.59, 0.81, 0.58, 0.67}
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	p := NewPairs(logs, make([]uint64, len(logs)))
	low, high := p.Interval(0.95)
	mean, _ := p.Mean()
	for _, c := range []struct{ got, want float64 }{
		{math.Exp(mean), 0.68}, {math.Exp(low), 0.60}, {math.Exp(high), 0.76},
	} {
		if math.Abs(c.got-c.want) > 0.01 {
			t.Errorf("%.3f, want %.2f", c.got, c.want)
		}
	}
	if got := p.PBelow(0); got > 1.0/256 || got < 1.0/256 { // all eight lie below: the t test is surer
		t.Errorf("the chance of ratios of 1 is %g, want that of eight equal signs", got)
	}
	if got := p.PAbove(0); got < 0.99 {
		t.Errorf("the chance that the ratios are above 1 by luck is %g", got)
	}
}

func TestBlocksCountAlikeAndTheirDifferenceIsNoNoise(t *testing.T) {
	// Two runs on one base, four on another: the bases differ by 10, the runs on them by little.
	p := NewPairs([]float64{0.9, 1.1, 10.9, 11.1, math.NaN(), 10.8, 11.2}, []uint64{7, 7, 3, 3, 3, 3, 3})
	blocks, _ := p.Blocks()
	if mean, _ := p.Mean(); p.N() != 6 || !slices.Equal(blocks, []float64{1, 11}) || mean != 6 {
		t.Errorf("%d values, blocks %v, mean %g", p.N(), blocks, mean)
	}
	// squares 0.02 + 0.10 over 4 degrees of freedom; 1/2 + 1/4 over 4; t of 4 is 2.776
	low, high := p.Interval(0.95)
	if want := 2.776 * math.Sqrt(0.12/4*0.75/4); math.Abs(high-6-want) > 1e-3 || math.Abs(6-low-want) > 1e-3 {
		t.Errorf("%g to %g, want 6 ± %g", low, high, want)
	}
	one := NewPairs([]float64{1}, []uint64{1})
	if low, high := one.Interval(0.95); !math.IsNaN(low) || !math.IsNaN(high) || one.PAbove(0) != 1 {
		t.Errorf("one pair: %g to %g, chance %g", low, high, one.PAbove(0))
	}
	if mean, _ := NewPairs(nil, nil).Mean(); !math.IsNaN(mean) {
		t.Error("no values have a mean")
	}
	// Over base models: the blocks' means 1 and 11 deviate by 50 squared, over 2 blocks; t of 1 is 12.706.
	low, high = p.AcrossBlocks(0.95)
	if want := 12.706 * math.Sqrt(50.0/2); math.Abs(high-6-want) > 1e-2 || math.Abs(6-low-want) > 1e-2 {
		t.Errorf("over base models %g to %g, want 6 ± %g", low, high, want)
	}
	if low, high := one.AcrossBlocks(0.95); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("one base model: %g to %g", low, high)
	}
}

// A value that is only known to be low says as much against a bound as if it lay at its upper end, and nothing for it.
func TestBoundsCountAgainstWhatIsClaimed(t *testing.T) {
	inf := math.Inf(1)
	high := []float64{-3, -2, -4, -3, -2, -3, -4, -1}
	low := slices.Clone(high)
	low[2], low[7] = -inf, -inf
	exact, p := NewPairs(high, make([]uint64, 8)), NewBoundedPairs(low, high, make([]uint64, 8))
	if got, want := p.PBelow(0), exact.PBelow(0); got != want || p.Known() || !exact.Known() {
		t.Errorf("bounds are below 0 with a chance of %g, want %g", got, want)
	}
	if got := p.PAbove(-100); got != 1 {
		t.Errorf("values without a lower bound are above -100 with a chance of %g", got)
	}
	from, to := p.Interval(0.95)
	if _, want := exact.Interval(0.95); from != -inf || to != want {
		t.Errorf("%g to %g, want no low end and %g", from, to, want)
	}
	if from, to := p.Mean(); from != -inf || to != -2.75 {
		t.Errorf("the mean lies between %g and %g, want -Inf and -2.75", from, to)
	}
	for i := range high { // the other way about
		low[i], high[i] = -high[i], -low[i]
	}
	p = NewBoundedPairs(low, high, make([]uint64, 8))
	if got, want := p.PAbove(0), exact.PBelow(0); got != want || p.PBelow(100) != 1 {
		t.Errorf("bounds are above 0 with a chance of %g, want %g", got, want)
	}
}

// Wherever between its bounds a true value lies, tests and intervals of the bounds keep what they promise.
func TestCensoredPairsKeepTheirLevel(t *testing.T) {
	tests.Long(t)
	const trials, budget = 800, 0.5
	rng := rand.New(rand.NewPCG(3, 4))
	rejected, covered, found := 0, 0, 0
	for range trials {
		var low, high, lower, upper []float64
		blocks := make([]uint64, 12)
		for i := range blocks {
			blocks[i] = uint64(i % 3)
			// the opponent's logarithm of compute is cut at its budget; the ratio's mean is 0, then -1
			own, opponent := 0.3*rng.NormFloat64(), 0.3*rng.NormFloat64()
			a, b := LogRatio(math.Exp(own), math.Exp(min(opponent, budget)), true, opponent < budget)
			low, high = append(low, a), append(high, b)
			a, b = LogRatio(math.Exp(own-1), math.Exp(min(opponent, budget)), true, opponent < budget)
			lower, upper = append(lower, a), append(upper, b)
		}
		p := NewBoundedPairs(low, high, blocks)
		if p.PBelow(0) <= 0.05 || p.PAbove(0) <= 0.05 && !p.Known() {
			rejected++
		}
		if low, high := p.Interval(0.9); low <= 0 && 0 <= high {
			covered++
		}
		if NewBoundedPairs(lower, upper, blocks).PBelow(0) <= 0.05 {
			found++
		}
	}
	if share := float64(rejected) / trials; share > 0.075 {
		t.Errorf("%.3f of the tests reject at 0.05", share)
	}
	if share := float64(covered) / trials; share < 0.88 {
		t.Errorf("%.3f of the intervals at 90%% have the mean", share)
	}
	if share := float64(found) / trials; share < 0.95 {
		t.Errorf("a ratio of exp(-1) is found in %.3f of the trials", share)
	}
}

// Under no effect, both tests together reject about as often as they say, whatever the blocks and the distribution.
func TestPairsKeepTheirLevel(t *testing.T) {
	tests.Long(t)
	rng := rand.New(rand.NewPCG(1, 2))
	draws := map[string]func() float64{
		"normal": rng.NormFloat64,
		"heavy":  func() float64 { return rng.NormFloat64() / max(0.2, rng.Float64()) },
		"coarse": func() float64 { return float64(rng.IntN(5) - 2) },
	}
	for name, draw := range draws {
		const trials = 800
		rejected, covered := 0, 0
		for range trials {
			values, blocks := make([]float64, 12), make([]uint64, 12)
			for i := range values {
				values[i], blocks[i] = draw(), uint64(i%3)
			}
			p := NewPairs(values, blocks)
			if p.PAbove(0) <= 0.05 {
				rejected++
			}
			if low, high := p.Interval(0.9); low <= 0 && 0 <= high {
				covered++
			}
		}
		// 5% with a standard deviation of 0.8%; both tests together are a little below. Coarse values have ties.
		if share := float64(rejected) / trials; share > 0.075 || share < 0.015 {
			t.Errorf("%s: %.3f of the tests reject at 0.05", name, share)
		}
		if share := float64(covered) / trials; share < 0.87 || share > 0.98 {
			t.Errorf("%s: %.3f of the intervals at 90%% have the mean", name, share)
		}
	}
}

func TestHolmAndPartialConjunctions(t *testing.T) {
	if got := Holm([]float64{0.04, 0.001, 0.02, 0.3}, 0.05); !slices.Equal(got, []bool{false, true, false, false}) {
		t.Errorf("rejects %v", got) // 0.02 is above 0.05/3
	}
	if got := Holm([]float64{0.02, 0.001, 0.016}, 0.05); !slices.Equal(got, []bool{true, true, true}) {
		t.Errorf("rejects %v", got)
	}
	chances := []float64{0.5, 0.01, 0.02}
	for some, want := range []float64{0, 0.03, 0.04, 0.5} {
		if some > 0 && math.Abs(PartOf(chances, some)-want) > 1e-12 {
			t.Errorf("%d of %v: %g, want %g", some, chances, PartOf(chances, some), want)
		}
	}
}

// By hand: 1, 2, 3 and 2, 4, 6 differ by 2 in the mean, their variances 1 and 4 give a standard error of sqrt(5/3) and
// 50/17 degrees of freedom, at which the t distribution has its 97.5% quantile at 3.2188.
func TestADifferenceOfMeansHasWelchsInterval(t *testing.T) {
	mean, low, high := MeanDifference([]float64{2, 4, 6}, []float64{1, 2, 3}, 0.95)
	if half := 3.2188 * math.Sqrt(5.0/3); mean != 2 || math.Abs(high-2-half) > 1e-3 || math.Abs(2-low-half) > 1e-3 {
		t.Errorf("%g (%g to %g), want 2 ± %g", mean, low, high, half)
	}
	if mean, low, _ := MeanDifference([]float64{2, 4, 6}, []float64{1}, 0.95); mean != 3 || !math.IsNaN(low) {
		t.Errorf("%g from %g of a sample of one", mean, low)
	}
	if _, low, high := MeanDifference([]float64{1, 1}, []float64{0, 0}, 0.95); low != 1 || high != 1 {
		t.Errorf("%g to %g of samples that do not vary", low, high)
	}
}

package results

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
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
	for _, c := range []struct{ got, want float64 }{
		{math.Exp(p.Mean()), 0.68}, {math.Exp(low), 0.60}, {math.Exp(high), 0.76},
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
	if p.N() != 6 || !slices.Equal(p.Blocks(), []float64{1, 11}) || p.Mean() != 6 {
		t.Errorf("%d values, blocks %v, mean %g", p.N(), p.Blocks(), p.Mean())
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
	if !math.IsNaN(NewPairs(nil, nil).Mean()) {
		t.Error("no values have a mean")
	}
}

func TestATargetNeverReachedCountsByItsRank(t *testing.T) {
	inf := math.Inf(1)
	p := NewPairs([]float64{1, 2, 3, 4, 5, 6, 7, inf}, make([]uint64, 8))
	low, high := p.Interval(0.95) // W < 4 has a chance of 5/256 of 8 values, W < 5 of 7/256: three lie outside
	if low != 2 || high != inf || p.Mean() != 4.5 {
		t.Errorf("%g, %g to %g", p.Mean(), low, high)
	}
	if got := p.PAbove(0); got != 1.0/256 {
		t.Errorf("eight values above 0 have a chance of %g", got)
	}
	if got := p.PAbove(8); got < 0.9 {
		t.Errorf("one value above 8 of eight has a chance of %g", got)
	}
	both := NewPairs([]float64{-inf, inf, -inf, inf, -1, 1}, make([]uint64, 6))
	if got := both.Mean(); got != 0 {
		t.Errorf("the middle is %g", got)
	}
}

// Under no effect, both tests together reject about as often as they say, whatever the blocks and the distribution.
func TestPairsKeepTheirLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draws := map[string]func() float64{
		"normal": rng.NormFloat64,
		"heavy":  func() float64 { return rng.NormFloat64() / max(0.2, rng.Float64()) },
		"coarse": func() float64 { return float64(rng.IntN(5) - 2) },
		"never": func() float64 {
			if rng.IntN(4) == 0 {
				return math.Inf(1 - 2*rng.IntN(2))
			}
			return rng.NormFloat64()
		},
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

package design

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestAnExactLineGivesItsCorrelation(t *testing.T) {
	for _, c := range []struct{ common, rho float64 }{{0.002, 0.3}, {0, 0}, {-0.001, 0}, {0.1, 1}} {
		var means []MeanNoise
		for _, b := range []int{1, 2, 4, 8, 16} {
			means = append(means, MeanNoise{b, 7 * (1/float64(b) + c.common), 320 / b})
		}
		f := fitCorrelation(means, 150)
		near(t, "sbar2", f.Mean, 7, 1e-10)
		if math.Abs(f.C-c.common) > 1e-10 || math.Abs(f.Rho-c.rho) > 1e-8 {
			t.Errorf("c is %v and rho %v, want %v and %v", f.C, f.Rho, c.common, c.rho)
		}
		if outside := c.common < 0 || c.common > 0.01; f.Clipped != outside {
			t.Errorf("c = %v is clipped: %v", c.common, f.Clipped)
		}
		if f.Residual > 1e-9 || f.Error > 1e-9 {
			t.Errorf("an exact line leaves %v, with an error of %v", f.Residual, f.Error)
		}
	}
}

func TestDrawsThatDoNotHelpAreWhollyCorrelated(t *testing.T) {
	f := fitCorrelation([]MeanNoise{{1, 1, 9}, {4, 1, 9}, {16, 1.1, 9}}, 10)
	if f.Rho != 1 || !f.Clipped || !math.IsInf(f.C, 1) {
		t.Errorf("the fit is %+v", f)
	}
}

func TestTwoSizesHaveNoScatterToEstimateAnErrorFrom(t *testing.T) {
	f := fitCorrelation([]MeanNoise{{1, 1.1, 9}, {4, 0.35, 9}}, 1)
	near(t, "c", f.C, 0.1, 1e-12)
	if !math.IsNaN(f.Error) {
		t.Errorf("the error is %v", f.Error)
	}
}

func TestCorrelationOfSimulatedGradientsIsRecoveredWithItsError(t *testing.T) {
	// The mean of b draws is shared noise of variance c plus noise of variance 1/b, in a few dimensions; its variance about the true
	// gradient, 0 here, is estimated from count micro-batches, each with shared noise of its own.
	rng := rand.New(rand.NewPCG(6, 7))
	const common, r, runs, dimensions = 0.02, 20, 1500, 12
	sum, squares := 0.0, 0.0
	var standardized []float64
	for range runs {
		var means []MeanNoise
		for _, b := range []int{1, 2, 4, 8, 16} {
			count := 320 / b
			total := 0.0
			for range count * dimensions {
				total += square(math.Sqrt(common)*rng.NormFloat64() + rng.NormFloat64()/math.Sqrt(float64(b)))
			}
			means = append(means, MeanNoise{b, total / float64(count), count})
		}
		f := fitCorrelation(means, r)
		sum += f.C
		squares += square(f.C)
		standardized = append(standardized, math.Abs(f.C-common)/f.Error)
	}
	mean := sum / runs
	spread := math.Sqrt(squares/runs - mean*mean)
	if math.Abs(mean-common) > 4*spread/math.Sqrt(runs) {
		t.Errorf("c is %v with a spread of %v over %d runs, want %v", mean, spread, runs, common)
	}
	// Five sizes leave three degrees of freedom: (c - truth)/error is Student's t, whose magnitude has the median 0.765. Its standard error
	// over 1500 runs is 0.02.
	slices.Sort(standardized)
	if z := standardized[runs/2]; math.Abs(z-0.765) > 0.1 {
		t.Errorf("errors are off: the median of |c - truth|/error is %v, want 0.765", z)
	}
}

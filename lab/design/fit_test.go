package design

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// minMax is isotonic regression by its closed form: the greatest over starts of the least over ends of the mean
// between.
func minMax(values []weighted) []float64 {
	fitted := make([]float64, len(values))
	for i := range values {
		fitted[i] = math.Inf(-1)
		for from := 0; from <= i; from++ {
			least, sum, weight := math.Inf(1), 0.0, 0.0
			for to := from; to < len(values); to++ {
				sum += values[to].weight * values[to].value
				weight += values[to].weight
				if to >= i {
					least = min(least, sum/weight)
				}
			}
			fitted[i] = max(fitted[i], least)
		}
	}
	return fitted
}

func TestPoolingAdjacentViolatorsIsIsotonicRegression(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 4))
	for range 2000 {
		values := make([]weighted, 1+rng.IntN(12))
		for i := range values {
			values[i] = weighted{float64(i), 1 + 0.05*float64(i) + rng.Float64(), 0.1 + 5*rng.Float64()}
		}
		want := minMax(values)
		rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		for i, v := range ascending(values) {
			if v.at != float64(i) {
				t.Fatalf("place %d holds %v", i, v.at)
			}
			near(t, "the smoothed value", v.value, want[i], 1e-12)
		}
	}
}

func TestEqualStalenessesArePooledByWeight(t *testing.T) {
	got := ascending([]weighted{{3, 10, 1}, {1, 2, 3}, {1, 6, 1}})
	if len(got) != 2 || got[0] != (weighted{1, 3, 4}) || got[1] != (weighted{3, 10, 1}) {
		t.Errorf("the values are %v", got)
	}
}

func TestTheTableFillsWhatWasNotMeasured(t *testing.T) {
	f, err := Fit(Measurements{Noise: []Noise{{Staleness: 6.5, Variance: 8}, {Staleness: 2, Variance: 2},
		{Staleness: 4, Variance: 6}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{2, 2, 2, 4, 6, 6.8, 7.6}
	got := f.Table.Values()
	if len(got) != len(want) {
		t.Fatalf("the table is %v, want %v", got, want)
	}
	for s := range want {
		near(t, "sigma2", got[s], want[s], 1e-14)
	}
	if f.TableResidual != 0 {
		t.Errorf("ascending measurements leave a residual of %v", f.TableResidual)
	}
	if len(f.Smoothed) != 3 || f.Smoothed[0].Staleness != 2 || f.Smoothed[2].Variance != 8 {
		t.Errorf("smoothed: %v", f.Smoothed)
	}
}

func TestThePowerLawOfItsOwnProfileIsFound(t *testing.T) {
	for _, a := range []float64{0, 0.01, 0.05, 0.2, 0.37, 0.8, 2} {
		var noise []Noise
		law := PowerLaw{Exponent: a, Scale: 3}
		for s := range 30 { // the variance over [s, s+1), from the profile's own mean
			x := float64(s)
			mean := law.Mean(x+1) * (x + 1)
			if s > 0 {
				mean -= law.Mean(x) * x
			}
			noise = append(noise, Noise{Staleness: x, Variance: mean, Count: 1 + s%3})
		}
		f, err := Fit(Measurements{Noise: noise})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(f.PowerLaw.Exponent-a) > 1e-6 {
			t.Errorf("the exponent is %v, want %v", f.PowerLaw.Exponent, a)
		}
		near(t, "the scale", f.PowerLaw.Scale, 3, 1e-5)
		if f.PowerLawResidual > 1e-6 {
			t.Errorf("the residual at a = %v is %v", a, f.PowerLawResidual)
		}
	}
}

// noisy returns measurements around a law, each with the error of a variance from count rollouts in the given
// dimensions.
func noisy(rng *rand.Rand, law PowerLaw, dimensions int) []Noise {
	var noise []Noise
	for s := range 24 {
		count := 40 + 10*(s%5)
		relative := math.Sqrt(2 / float64(count*dimensions))
		v := law.Scale * versionMean(float64(s), law.Exponent) * (1 + relative*rng.NormFloat64())
		noise = append(noise, Noise{Staleness: float64(s), Variance: v, Count: count})
	}
	return noise
}

func TestANoisyPowerLawIsRecovered(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 5))
	law := PowerLaw{Exponent: 0.15, Scale: 2}
	const runs = 100
	sum, squares, falls := 0.0, 0.0, 0
	for range runs {
		f, err := Fit(Measurements{RolloutCost: 5.28, Noise: noisy(rng, law, 4)})
		if err != nil {
			t.Fatal(err)
		}
		sum += f.PowerLaw.Exponent
		squares += square(f.PowerLaw.Exponent)
		values := f.Table.Values()
		for s := 1; s < len(values); s++ {
			if values[s] < values[s-1] {
				falls++
			}
		}
		// The table is a little above the residual of chance, which is sqrt(2/(60 x 4)) = 0.09, at most.
		if f.TableResidual > 0.13 || f.PowerLawResidual > 0.14 {
			t.Errorf("residuals are %v and %v", f.TableResidual, f.PowerLawResidual)
		}
		near(t, "sbar2 of the table", f.Table.Mean(24), law.Mean(24), 0.1)
	}
	mean := sum / runs
	spread := math.Sqrt(squares/runs - mean*mean)
	if math.Abs(mean-law.Exponent) > 4*spread/math.Sqrt(runs) || spread > 0.02 {
		t.Errorf("the exponent is %v with a spread of %v, want %v", mean, spread, law.Exponent)
	}
	if falls > 0 {
		t.Errorf("fitted tables fall %d times", falls)
	}
}

// Old rollouts are few, and their variances, each a sum of squares, are more often too small than too large.
func TestFewOldRolloutsDoNotLookLessNoisy(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 9))
	law := PowerLaw{Exponent: 0.2, Scale: 2}
	const runs = 150
	sum, squares := 0.0, 0.0
	for range runs {
		var noise []Noise
		for s, count := range []int{400, 60, 40, 20, 10, 6, 4, 4, 4, 4, 4, 4} {
			v := 0.0
			for range count {
				v += law.mean(float64(s)) * square(rng.NormFloat64()) / float64(count)
			}
			noise = append(noise, Noise{Staleness: float64(s), Variance: v, Count: count})
		}
		f, err := Fit(Measurements{Noise: noise})
		if err != nil {
			t.Fatal(err)
		}
		sum += f.PowerLaw.Exponent
		squares += square(f.PowerLaw.Exponent)
	}
	mean := sum / runs
	if off := math.Sqrt((squares/runs - mean*mean) / runs); math.Abs(mean-law.Exponent) > 4*off {
		t.Errorf("the exponent is %v ± %v, want %v", mean, off, law.Exponent)
	}
}

func TestNoAscendingProfileIsNearerThanTheTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 10))
	nearer := 0
	for range 200 {
		var noise []Noise
		for range 1 + rng.IntN(10) {
			noise = append(noise, Noise{Staleness: float64(rng.IntN(12)), Variance: rng.ExpFloat64() + 1e-3,
				Count: 1 + rng.IntN(50)})
		}
		f, err := Fit(Measurements{Noise: noise})
		if err != nil {
			t.Fatal(err)
		}
		if f.TableResidual > f.PowerLawResidual*(1+1e-9)+1e-9 {
			t.Fatalf("%v lie %v from the table and %v from the law", noise, f.TableResidual, f.PowerLawResidual)
		}
		if f.TableResidual < 0.9*f.PowerLawResidual {
			nearer++
		}
	}
	if nearer < 40 {
		t.Errorf("the table is nearer in only %d of 200 cases", nearer)
	}
}

func TestAMeasurementWeighsByWhatIsKnownOfIt(t *testing.T) {
	fit := func(noise ...Noise) float64 {
		f, err := Fit(Measurements{Noise: noise})
		if err != nil {
			t.Fatal(err)
		}
		return f.Table.At(0)
	}
	near(t, "by counts", fit(Noise{0, 2, 30, 0}, Noise{0, 6, 10, 0}), 3, 1e-14)
	near(t, "without counts", fit(Noise{0, 2, 0, 0}, Noise{0, 6, 0, 0}), 4, 1e-14)
	near(t, "by errors", fit(Noise{0, 2, 30, 0.2}, Noise{0, 6, 10, 0.6}), 4, 1e-14)
	near(t, "by one error of two", fit(Noise{0, 2, 30, 0.2}, Noise{0, 6, 10, 0}), 3, 1e-14)
}

func TestNoiseThatFallsOrStandsAloneIsFlat(t *testing.T) {
	f, err := Fit(Measurements{Noise: []Noise{{0, 3, 50, 0}, {1, 2, 50, 0}, {9, 1, 50, 0}}})
	if err != nil || f.PowerLaw.Exponent != 0 {
		t.Errorf("the law is %+v, %v", f.PowerLaw, err)
	}
	near(t, "the scale", f.PowerLaw.Scale, 2, 1e-12)
	near(t, "the table", f.Table.At(9), 2, 1e-14)
	f, err = Fit(Measurements{Noise: []Noise{{5, 3, 50, 0}}})
	if err != nil || f.PowerLaw != (PowerLaw{0, 3}) && math.Abs(f.PowerLaw.Scale-3) > 1e-12 {
		t.Errorf("the law is %+v, %v", f.PowerLaw, err)
	}
}

func TestDoubtsSayWhatIsDoubtful(t *testing.T) {
	good := Measurements{
		RolloutCost: 5, NewPerUpdate: 100,
		Noise: []Noise{{0, 1, 50, 0}, {4, 1.2, 50, 0}, {8, 1.5, 50, 0}},
		Means: []MeanNoise{{1, 1.001, 160}, {2, 0.501, 80}, {4, 0.251, 40}, {16, 0.0635, 10}},
	}
	for name, c := range map[string]struct {
		change func(m *Measurements)
		want   string
	}{
		"nothing":  {func(*Measurements) {}, ""},
		"proxy":    {func(m *Measurements) { m.Proxy = true }, "proxy"},
		"cost":     {func(m *Measurements) { m.RolloutCost = 0 }, "rollout cost was not measured"},
		"old only": {func(m *Measurements) { m.Noise = m.Noise[1:] }, "below staleness 4"},
		"one":      {func(m *Measurements) { m.Noise = m.Noise[:1] }, "one staleness only"},
		"short": {func(m *Measurements) { m.Noise = []Noise{{0, 1, 50, 0}, {3, 2, 50, 0}} },
			"up to staleness 3 only"},
		"falling": {func(m *Measurements) { m.Noise[2].Variance = 0.1 },
			"does not grow with staleness: both profiles are flat"},
		"down, then up": {func(m *Measurements) {
			m.Noise = []Noise{{0, 1, 50, 0}, {4, 0.2, 50, 0}, {8, 0.2, 50, 0}, {12, 0.9, 50, 0}}
		}, "The nearest power law is flat, although the table rises to 1.93 times its first value"},
		"within errors": {func(m *Measurements) {
			m.Noise = []Noise{{0, 1, 50, 0.1}, {4, 1.1, 50, 0.2}, {8, 1.3, 50, 0.2}}
		}, "noise may not grow at all: the table rises from 1 ± 0.1 to 1.3 ± 0.2."},
		"beyond errors": {func(m *Measurements) {
			m.Noise = []Noise{{0, 1, 50, 0.1}, {4, 1.3, 50, 0.1}, {8, 1.5, 50, 0.1}}
		}, ""},
		"few":       {func(m *Measurements) { m.Noise[1].Count = 29 }, "fewer than 30"},
		"no means":  {func(m *Measurements) { m.Means = nil }, "correlation was not measured"},
		"negative":  {func(m *Measurements) { m.Means[3].Variance = 0.05 }, "below 0"},
		"far above": {func(m *Measurements) { m.NewPerUpdate = 1e6 }, "above 1"},
		"not distinct": {func(m *Measurements) { m.Means[2].Variance, m.Means[3].Variance = 0.22, 0.07 },
			"correlation may be 0"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			m.Noise, m.Means = append([]Noise(nil), good.Noise...), append([]MeanNoise(nil), good.Means...)
			c.change(&m)
			f, err := Fit(m)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(f.Doubts.All(), "\n"); c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("the doubts do not say %q: %q", c.want, all)
			}
		})
	}
}

func TestFitNamesEveryMeasurementThatIsUnfit(t *testing.T) {
	_, err := Fit(Measurements{
		RolloutCost: -1,
		Noise:       []Noise{{-1, 0, -1, -1}, {0, math.Inf(1), 0, math.NaN()}},
		Means:       []MeanNoise{{0, math.NaN(), -2}},
	})
	for _, want := range []string{
		"rollout_cost: -1", "noise[0].staleness: -1", "noise[0].variance: 0", "noise[0].count: -1",
		"noise[0].error: -1", "noise[1].variance: +Inf",
		"noise[1].error: NaN", "means[0].draws: 0", "means[0].variance: NaN", "means[0].count: -2",
		"means: 1: want micro-batches of at least two sizes", "new_per_update: 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := Fit(Measurements{}); err == nil || !strings.Contains(err.Error(), "noise: none") {
		t.Errorf("nothing is fitted: %v", err)
	}
}

func TestAFittedTheoryIsReadyToUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	m := Measurements{RolloutCost: 5.28, NewPerUpdate: 145, Noise: noisy(rng, PowerLaw{0.2, 1}, 100),
		Means: []MeanNoise{{1, 1.002, 9}, {16, 0.0645, 9}}}
	f, err := Fit(m)
	if err != nil {
		t.Fatal(err)
	}
	for name, theory := range map[string]Theory{"table": f.Theory(f.Table), "power law": f.Theory(f.PowerLaw)} {
		if err := theory.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		near(t, "m", theory.TrainCost, 1/5.28, 1e-15)
		near(t, "rho", theory.Correlation, 145*0.002, 1e-9)
		if _, err := theory.Configure(eightGPUs()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Correlation, f.RolloutCost = nil, 0
	if theory := f.Theory(f.Table); theory.Correlation != 0 || theory.Validate() == nil {
		t.Errorf("what was not measured is taken for known: %+v", theory)
	}
}

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
		if f.Error > 1e-9 {
			t.Errorf("an exact line has an error of %v", f.Error)
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
	// The mean of b draws is shared noise of variance c plus noise of variance 1/b, in a few dimensions; its variance
	// about the true gradient, 0 here, is estimated from count micro-batches, each with shared noise of its own.
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
	// Five sizes leave three degrees of freedom: (c - truth)/error is Student's t, whose magnitude has the median
	// 0.765. Its standard error over 1500 runs is 0.02.
	slices.Sort(standardized)
	if z := standardized[runs/2]; math.Abs(z-0.765) > 0.1 {
		t.Errorf("errors are off: the median of |c - truth|/error is %v, want 0.765", z)
	}
}

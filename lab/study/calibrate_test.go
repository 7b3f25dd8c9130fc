package study

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
)

// noiseOf is the noise of a run that a theory describes exactly, in a unit of its own.
func noiseOf(dir string, cost, fresh, exponent, rho, unit float64) *results.Noise {
	n := &results.Noise{
		Run: dir, Seed: 1, Version: 90, Held: 4000, Fresh: 2000,
		RolloutCost: results.Num(cost), NewPerUpdate: results.Num(fresh), Mean: results.Num(2 * unit),
		Common: results.Num(rho / fresh), CommonError: results.Num(0.1 * rho / fresh), Residual: results.Num(0.02),
	}
	k := 2*exponent + 1
	n.ByStaleness = []results.StaleNoise{{Rollouts: 2000, Variance: unit / k, Error: results.Num(0.01 * unit / k)}}
	for s := 1; s <= 20; s++ { // staleness s stands for all from s to s+1
		v := unit / k * (math.Pow(float64(s)+1, k) - math.Pow(float64(s), k))
		n.ByStaleness = append(n.ByStaleness, results.StaleNoise{First: s, Last: s, Age: float64(s), Rollouts: 200,
			Variance: v, Error: results.Num(0.05 * v)})
	}
	for b := 1; b <= 16; b *= 2 {
		v := 2 * unit * (1/float64(b) + rho/fresh)
		n.MicroBatches = append(n.MicroBatches, results.BatchNoise{Draws: b, Batches: 4000 / b, Variance: v, Dealt: v})
	}
	return n
}

// proxyOf is the noise of a run without a checkpoint.
func proxyOf(dir string, cost float64) *results.Noise {
	n := &results.Noise{Run: dir, Proxy: true, RolloutCost: results.Num(cost), NewPerUpdate: results.Num(50),
		Warnings: []string{"No gradients could be taken."}}
	n.ByStaleness = []results.StaleNoise{
		{Tokens: 1000, Variance: 1},
		{First: 1, Last: 1, Age: 1, Tokens: 500, Variance: 1.1},
		{First: 2, Last: 5, Age: 3.5, Tokens: 500, Variance: 1.4},
	}
	return n
}

func calibrated(t *testing.T, runs ...*results.Noise) design.Known {
	t.Helper()
	k, err := calibrate(runs)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Validate(); err != nil {
		t.Fatal(err)
	}
	return k
}

func containsText(sentences []string, want string) bool {
	return slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(s, want) })
}

func TestTheCalculatorIsFittedToTheNoiseOfARun(t *testing.T) {
	k := calibrated(t, noiseOf("a", 5.28, 150, 0.2, 0.3, 1))
	if k.RolloutCost != 5.28 || math.Abs(k.Correlation-0.3) > 1e-6 || math.Abs(k.Exponent-0.2) > 1e-6 ||
		k.Origins != (design.Origins{RolloutCost: "measured", Correlation: "measured", Noise: "measured",
			NoiseScale: "unknown", Coherence: "assumed"}) {
		t.Errorf("fitted %+v", k)
	}
	if _, ok := k.Profile.(*design.Table); !ok || k.Profile.Reach() != 21 {
		t.Errorf("the profile is %T up to %v, want a table of staleness 0 to 20", k.Profile, k.Profile.Reach())
	}
	for _, want := range []string{
		"a, seed 1, version 90: gradients of 4000 rollouts of the table, up to 20 versions old, and of 2000 fresh ones",
		"costs 5.28 units", "takes in 150 new rollouts", "1.00 ± 0.01 at 0 (2000 rollouts)",
		"exponent a = 0.2 and is off by 0%; the nearest table that does not fall is off by 0%",
		"of 2.8 (1/b + c) with c = 0.002 ± 0.0002", "R c = 0.3",
	} {
		if !containsText(k.HowMeasured, want) {
			t.Errorf("%q does not say %q", k.HowMeasured, want)
		}
	}
}

func TestTheNoiseScaleIsThatOfMostRunsOrUnknown(t *testing.T) {
	told := func(scale float64) *results.Noise {
		n := noiseOf("a", 5, 150, 0.2, 0.3, 1)
		n.Scale = results.Num(scale)
		return n
	}
	unknown := noiseOf("b", 5, 150, 0.2, 0.3, 1)
	for _, c := range []struct {
		runs []*results.Noise
		want float64
	}{
		{[]*results.Noise{told(1900)}, 1900},
		{[]*results.Noise{told(1000), told(1500), told(9000)}, 1250}, // four times 2000 fresh rollouts say no more
		{[]*results.Noise{told(1000), unknown}, 0},
		{[]*results.Noise{told(9000)}, 0},
		{[]*results.Noise{proxyOf("p", 4)}, 0},
	} {
		k := calibrated(t, c.runs...)
		if k.NoiseScale != c.want || (c.want == 0) != (len(k.Doubts.Scale) > 0) ||
			(k.Origins.NoiseScale == design.Measured) != (c.want > 0) {
			t.Errorf("%v, from %q, in doubt because %q; want %v", k.NoiseScale, k.Origins.NoiseScale, k.Doubts.Scale, c.want)
		}
	}
}

// Seeds differ in the size of their gradients, which does not matter, and in their costs, whose median counts.
func TestCostsOfSeveralRunsAreMediansAndTheirNoiseIsPooled(t *testing.T) {
	all := []*results.Noise{
		noiseOf("a", 5, 150, 0.2, 0.3, 1), noiseOf("b", 6, 150, 0.2, 0.3, 400), noiseOf("c", 10, 150, 0.2, 0.3, 0.01),
	}
	all[1].Warnings = []string{"The run has not ended."}
	k, alone := calibrated(t, all...), calibrated(t, all[0])
	if k.RolloutCost != 6 || math.Abs(k.Correlation-0.3) > 1e-6 || math.Abs(k.Exponent-alone.Exponent) > 1e-6 {
		t.Errorf("fitted %+v, of the first alone %+v", k, alone)
	}
	if !containsText(k.HowMeasured, "6 (IQR 5.5 to 8 over 3 runs)") ||
		!containsText(k.Warnings, "b: The run has not ended.") {
		t.Errorf("measured %q, warnings %q", k.HowMeasured, k.Warnings)
	}
}

func TestAProxyLeavesTheCorrelationAssumed(t *testing.T) {
	k := calibrated(t, proxyOf("p", 4))
	if _, ok := k.Profile.(design.PowerLaw); !ok || k.Origins.Correlation != "assumed" || k.Correlation != 0.1 ||
		k.RolloutCost != 4 || !(k.Exponent > 0) {
		t.Errorf("fitted %+v", k)
	}
	doubts := k.Doubts.All()
	if !containsText(doubts, "0.1 is assumed") || containsText(doubts, "taken as 0") ||
		!containsText(doubts, "proxy") ||
		!containsText(k.HowMeasured, "n/ESS of importance ratios up to age 5") {
		t.Errorf("measured %q, doubts %q", k.HowMeasured, doubts)
	}
	if !strings.Contains(k.Origins.Noise, "by proxy") || containsText(k.HowMeasured, "rollout's gradient") ||
		!containsText(k.HowMeasured, "by age, relative to tokens of the current policy: 1.00 at 0, 1.10 at 1, 1.40 "+
			"at 3.5.") {
		t.Errorf("a proxy is taken for gradients: from %q, measured %q", k.Origins.Noise, k.HowMeasured)
	}
	mixed := calibrated(t, proxyOf("p", 4), noiseOf("a", 5, 150, 0.2, 0.3, 7))
	if _, ok := mixed.Profile.(*design.Table); !ok || mixed.Origins.Correlation != "measured" ||
		mixed.RolloutCost != 4.5 || !containsText(mixed.Warnings, "1 of 2 runs have no gradients") {
		t.Errorf("fitted %+v", mixed)
	}
}

func TestTheRecommendationDoubtsALawBeyondItsMeasurements(t *testing.T) {
	// If generation costs next to nothing, no rollout is kept.
	for cost, doubted := range map[float64]bool{4: true, 0.01: false} {
		f := design.Fleet{GPUs: 8, Batch: 256, Group: 16, MostCapacity: 1 << 30}
		r, err := design.Recommend(calibrated(t, proxyOf("p", cost)), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		if containsText(r.Caveats(), "fitted up to staleness 3.5") != doubted {
			t.Errorf("x* is %v, of the configuration %v: %q", r.Optimum.X, r.Plan.Horizon, r.Caveats())
		}
	}
}

func TestRunsOfAnotherConfigurationAreNamed(t *testing.T) {
	var dirs []string
	for _, text := range []string{
		"seed: 1", "seed: 2\nname: another", "seed: 3\npipeline: {batch: 512}\nreplay: {capacity: 8192}",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, results.ConfigFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	got, err := configurationDifferences(dirs)
	if want := dirs[2] + " differs from " + dirs[0] + " in pipeline.batch, replay.capacity: "; err != nil ||
		len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%q, %v, want one sentence that begins with %q", got, err, want)
	}
}

func TestAListOfStalenessesHasTheFirstAndTheLast(t *testing.T) {
	n := noiseOf("a", 5, 150, 0.2, 0.3, 1)
	long := noiseByStaleness([]*results.Noise{n})
	if got := strings.Count(long, " at "); got != listedStalenesses || !strings.Contains(long, " at 0 ") ||
		!strings.HasSuffix(long, " at 20 (200 rollouts)") {
		t.Errorf("%d stalenesses: %s", got, long)
	}
	n.ByStaleness = n.ByStaleness[:1]
	if text := noiseByStaleness([]*results.Noise{n}); text != "1.00 ± 0.01 at 0 (2000 rollouts)" {
		t.Errorf("one staleness: %s", text)
	}
}

func TestRunsWithoutARolloutCostAreRefused(t *testing.T) {
	n := noiseOf("a", 5, 150, 0.2, 0.3, 1)
	n.RolloutCost = results.Number{}
	if _, err := calibrate([]*results.Noise{n}); err == nil ||
		!strings.Contains(err.Error(), "choose a run with updates") {
		t.Errorf("error %v", err)
	}
}

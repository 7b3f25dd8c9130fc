package report

import (
	"bytes"
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/sim"
)

// designed returns the page of a recommendation for assumptions that are changed.
func designed(t *testing.T, f design.Fleet, change func(*design.Known)) Designed {
	t.Helper()
	k := design.Assumptions()
	change(&k)
	r, err := design.Recommend(k, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Designed{Recommendation: r, Began: time.Now(), Call: "reprise design"}
}

func unchanged(*design.Known) {}

func commandFleet() design.Fleet {
	return design.Fleet{GPUs: 8, Batch: 1024, Group: 8, MostCapacity: 64 * 1024}
}

func profileOf(t *testing.T, sigma2 ...float64) func(*design.Known) {
	t.Helper()
	table, err := design.NewTable(sigma2)
	if err != nil {
		t.Fatal(err)
	}
	return func(k *design.Known) { k.GiveProfile(table, "a file") }
}

func TestThePageOfARecommendationOpensOffline(t *testing.T) {
	law := func(a float64) func(*design.Known) {
		return func(k *design.Known) { k.GiveProfile(design.PowerLaw{Exponent: a}, "") }
	}
	for name, d := range map[string]Designed{
		"assumed": designed(t, commandFleet(), unchanged),
		"flat":    designed(t, commandFleet(), func(k *design.Known) { law(0)(k); k.GiveCorrelation(0) }),
		"steep":   designed(t, commandFleet(), law(2)),
		"large":   designed(t, design.Fleet{GPUs: 8192, Batch: 5040, Group: 8, MostCapacity: 64 * 5040}, unchanged),
		"profile": designed(t, commandFleet(), profileOf(t, 1, 1.2, 1.3, 1.5, 1.6, 1.7)),
		"alone":   designed(t, design.Fleet{GPUs: 2, Batch: 1, Group: 1, MostCapacity: 64}, unchanged),
	} {
		var out bytes.Buffer
		d.Command = "reprise train --set pipeline.workers=4"
		if err := Design(&out, d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		page := out.String()
		for _, want := range []string{
			"Optimal staleness horizon over the rollout cost", "Optimal replay ratio over the rollout cost",
			"Cost over the staleness horizon", "The weight against a step", "Savings by split of the GPUs and capacity",
			"Neighbours", d.sheet().Title, ">highest<",
			"<pre class=\"command\">reprise train \\\n  --set pipeline.workers=4</pre>", "commit", "machine", "seeds",
			"plain SGD",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q", name, want)
			}
		}
		if n := strings.Count(page, "<svg"); n < 6 {
			t.Errorf("%s: %d pictures, want 6 or more", name, n)
		}
		if regexp.MustCompile(`(src|href)="https?:`).MatchString(page) || strings.Contains(page, "NaN") {
			t.Errorf("%s: the page loads something or shows NaN", name)
		}
	}
}

// valueNear returns the value of a curve's point nearest to x.
func valueNear(c results.Curve, x float64) float64 {
	at := slices.MinFunc(c.At, func(a, b results.Point) int { return cmp.Compare(math.Abs(a.X-x), math.Abs(b.X-x)) })
	return at.Y.Float()
}

func TestCurvesPassThroughTheRecommendation(t *testing.T) {
	d := designed(t, commandFleet(), unchanged)
	about := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got/want-1) <= 0.05) {
			t.Errorf("%s is %v, want about %v", what, got, want)
		}
	}
	optima := d.optimaOverCost()
	about("x* at mu", valueNear(optima[0].Curves[0], d.RolloutCost), d.Optimum.X)
	about("y* at mu", valueNear(optima[1].Curves[0], d.RolloutCost), d.Optimum.Y)
	for i, v := range d.neighbouringVariants() {
		about("x* of "+v.name, valueNear(optima[0].Curves[i], d.RolloutCost), v.theory.Optimum().X)
	}
	cost := d.costOverHorizon()
	about("J at x*", valueNear(cost.Curves[0], d.Optimum.X), d.Optimum.Objective/d.Theory.OnPolicy())
	for _, c := range cost.Curves {
		for _, p := range c.At {
			if p.Y.Known() && p.Y.Float() > maxCost {
				t.Errorf("%s: %v at %v is above %v", c.Name, p.Y.Float(), p.X, maxCost)
			}
		}
	}
	about("the line of training that uses each rollout once", cost.Guides[1].Y.Float(), 1/(2+d.Correlation))
	weights := rewardWeights(8).Curves
	about("the weight at p = 1/2", valueNear(weights[0], 0.5), (1-math.Sqrt(0.26))/math.Sqrt(0.26))
	about("the weight at p = 0, where the paper's figure ends", valueNear(weights[0], 0), 9)
	if n := len(weights[1].At); n != 9 {
		t.Errorf("a group of 8 shows %d success rates, want 9", n)
	}
	about("the share of groups of 8 that are all alike at p = 1/2", valueNear(silentGroups(8).Curves[0], 0.5), 2./256)
}

func TestTheNoiseProfileShowsItsMeasurements(t *testing.T) {
	figure := func(change func(*design.Known)) results.Figure {
		t.Helper()
		d := designed(t, commandFleet(), change)
		s := d.noiseProfile()
		if len(s) != 1 || len(s[0].Figures) != 1 || !slices.Equal(s[0].Text, d.HowMeasured) {
			t.Fatalf("sections %+v", s)
		}
		return s[0].Figures[0]
	}
	gradients := figure(func(k *design.Known) {
		profileOf(t, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)(k)
		k.HowMeasured = []string{"Measured in a run."}
		k.Noise = []design.Noise{{Variance: 1, Error: 0.1}, {Staleness: 7, Variance: 1.7, Error: 0.2}}
	})
	points := gradients.Curves[len(gradients.Curves)-1]
	if len(gradients.Curves) != 3 || !points.Points || len(points.At) != 2 || points.At[1].Low.Float() != 1.5 ||
		points.At[1].High.Float() != 1.9 {
		t.Errorf("of gradients: %+v", points)
	}
	ratios := figure(func(k *design.Known) {
		k.GiveProfile(design.PowerLaw{Exponent: 0.1, Scale: 1.2}, "")
		k.Noise = []design.Noise{{Variance: 1}, {Staleness: 1, Variance: 1.2}, {Staleness: 3.5, Variance: 1.55}}
	})
	points = ratios.Curves[len(ratios.Curves)-1]
	if len(ratios.Curves) != 2 || len(points.At) != 3 || points.At[1].Low.Known() ||
		strings.Contains(ratios.Title+ratios.Y.Title, "Variance") {
		t.Errorf("of a proxy: %+v", ratios)
	}
	if off := valueNear(ratios.Curves[0], 3.5)/1.55 - 1; math.Abs(off) > 0.1 {
		t.Errorf("the law is %.0f%% off its measurements", 100*off)
	}
	if s := designed(t, commandFleet(), unchanged).noiseProfile(); s != nil {
		t.Errorf("a given law has the section %+v", s)
	}
}

func TestThePageShowsASchedule(t *testing.T) {
	d := designed(t, commandFleet(), unchanged)
	var err error
	d.Schedule, err = sim.Compare(t.Context(), sim.Trial{
		Options:  pipeline.Options{Workers: 6, Trainers: 2, RolloutCost: 5.28, Batch: 64, Group: 8},
		Workload: sim.Workload{Lengths: sim.Lognormal{Median: 10, Sigma: 1, Max: 100}, Slowness: 1}, Rollouts: 5000,
	}, 512, sim.InParts{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Design(&out, d); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"lifo queue", "fifo queue", "trainers waited", "With the first-in, first-out queue",
		"Staleness", "Uses", "Time since last use"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestHistogramsOfAScheduleShowEveryShareOnce(t *testing.T) {
	var a sim.ComparisonArm
	for v := range int64(1000) {
		a.Staleness.Histogram.Add(v)
	}
	a.Staleness.Count = 1000
	f := armHistograms([]sim.ComparisonArm{a, {}}, "t", "u", "n",
		func(a sim.ComparisonArm) sim.Counts { return a.Staleness })
	if len(f.Curves) != 1 || len(f.Curves[0].At) > maxCurveBins+1 {
		t.Fatalf("%d curves, the first of %d points", len(f.Curves), len(f.Curves[0].At))
	}
	sum, x := 0.0, -1.0
	for _, p := range f.Curves[0].At {
		if p.X <= x {
			t.Fatalf("points go back from %g to %g", x, p.X)
		}
		sum, x = sum+p.Y.Float(), p.X
	}
	if math.Abs(sum-0.999) > 1e-9 {
		t.Errorf("shares add up to %g, want 0.999", sum)
	}
}

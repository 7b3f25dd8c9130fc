package study

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
)

// flatFit is a fit without growth of noise and without correlation.
func flatFit(*results.Run) (fit, error) {
	return fit{theory: design.Theory{TrainCost: 1 / 5.28, Profile: design.PowerLaw{}}, profile: "power law"}, nil
}

// ordered is a world in which the cells do as a forecast from flatFit says, in its sense, against it, or in an order
// that shifts with seeds.
func ordered(sense func(seed uint64) float64) world {
	x, _ := flatFit(nil)
	return func(a Arm, seed uint64) behaviour {
		b := usual()
		s := split{a.Config.Pipeline.Workers, a.Config.Pipeline.Trainers}
		if j := x.objective(cell{s, a.Config.Replay.Capacity}); slices.Contains(labSplits(), s) && !math.IsNaN(j) {
			b.speed = 3 * math.Pow(j, -sense(seed))
		}
		return b
	}
}

func judgedBy(t *testing.T, o Options, w world, fitted func(*results.Run) (fit, error)) Judgement {
	t.Helper()
	j, err := judgeTheory(foundIn(theory(), o, w), fitted)
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, "theory", j)
	return j
}

func TestTheTheoryHoldsIfItOrdersTheGrid(t *testing.T) {
	with := judgedBy(t, Options{Seeds: 12}, ordered(func(uint64) float64 { return 1 }), flatFit)
	against := judgedBy(t, Options{Seeds: 12}, ordered(func(uint64) float64 { return -1 }), flatFit)
	for i := range with.Findings {
		if got := with.Findings[i]; got.Verdict != results.Holds {
			t.Errorf("in its order: %s: %s", got.Verdict, got.Found)
		}
		if got := against.Findings[i]; got.Verdict != results.DoesNotHold {
			t.Errorf("against it: %s: %s", got.Verdict, got.Found)
		}
	}
	if got := with.Findings[0].Found; !strings.Contains(got, "the other 3: +0.") ||
		!strings.Contains(got, "Recommended: buffer 15360, (4,4).") {
		t.Error(got)
	}
	if got := with.Findings[1].Found; !strings.Contains(got, ": 1.00 (12 runs") {
		t.Error(got)
	}
	if got := against.Findings[1].Found; !strings.Contains(got, ": \u22121.00 (12 runs") {
		t.Error(got)
	}
}

func TestDisagreeingShortRunsDecideNothing(t *testing.T) {
	// Two fits in four see replay as worthless, and recommend the smallest buffer with the most workers.
	steep := func(r *results.Run) (fit, error) {
		x, _ := flatFit(r)
		if r.Seed%2 == 0 {
			x.theory.Profile = design.PowerLaw{Exponent: 3, Scale: 1}
			x.theory.Correlation = 1
		}
		return x, nil
	}
	for i, x := range judgedBy(t, Options{Seeds: 12}, ordered(func(uint64) float64 { return 1 }), steep).Findings {
		if x.Verdict != results.Inconclusive {
			t.Errorf("finding %d: %s: %s", i, x.Verdict, x.Found)
		}
	}
}

// One fit recommends alike on every seed; what is uncertain is the order of the cells, which turns with the seed.
func TestAGridThatChangesWithTheSeedDecidesNothing(t *testing.T) {
	shifting := ordered(func(seed uint64) float64 { return 1 - 2*float64(seed%2) })
	for i, x := range judgedBy(t, Options{Seeds: 12}, shifting, flatFit).Findings {
		if x.Verdict != results.Inconclusive {
			t.Errorf("finding %d: %s: %s", i, x.Verdict, x.Found)
		}
	}
}

func TestAShortRunThatCannotBeMeasuredIsReportedAndLeftOut(t *testing.T) {
	broken := func(r *results.Run) (fit, error) {
		if r.Seed == 2 {
			return fit{}, errors.New("the table is empty")
		}
		return flatFit(r)
	}
	j := judgedBy(t, Options{Seeds: 12}, ordered(func(uint64) float64 { return 1 }), broken)
	if j.Findings[0].Verdict != results.Holds || !strings.Contains(j.Findings[0].Found, "11 runs") {
		t.Errorf("%s: %s", j.Findings[0].Verdict, j.Findings[0].Found)
	}
	if told := j.Sections[0].Text; len(told) != 1 || told[0] != "Seed 2: the table is empty." {
		t.Errorf("told: %q", told)
	}
}

func TestACellsPointFollowsMETHODS(t *testing.T) {
	p := pointOf(cell{split{6, 2}, 16 * labBatch}, 5.28)
	if math.Abs(p.X-16*5.28/3) > 1e-9 || math.Abs(p.Y-1.76) > 1e-9 {
		t.Errorf("x = %v, y = %v; want N/R = 28.16 and μT/W = 1.76", p.X, p.Y)
	}
}

func TestNoiseIsFittedByTheTableOfMeasuredVariances(t *testing.T) {
	n := &results.Noise{Run: "r", RolloutCost: results.Num(5), NewPerUpdate: results.Num(100)}
	for s := range 5 {
		n.ByStaleness = append(n.ByStaleness, results.StaleNoise{First: s, Last: s, Age: float64(s), Rollouts: 100,
			Variance: 2 + float64(s)})
	}
	for _, b := range []int{1, 2, 4, 8, 16} {
		n.MicroBatches = append(n.MicroBatches, results.BatchNoise{Draws: b, Variance: 4 * (1/float64(b) + 0.002),
			Batches: 64 / b})
	}
	x, err := fitNoise(n)
	if err != nil {
		t.Fatal(err)
	}
	if x.profile != "table" || math.Abs(x.theory.TrainCost-0.2) > 1e-12 || math.Abs(x.theory.Correlation-0.2) > 1e-6 {
		t.Errorf("profile %s, m %v, rho %v; want table, 0.2, R c = 0.2", x.profile, x.theory.TrainCost,
			x.theory.Correlation)
	}
	for s := range 5 {
		if got, want := x.theory.Profile.At(float64(s)), 1+float64(s)/2; math.Abs(got-want) > 1e-9 {
			t.Errorf("sigma2(%d) = %v of that of fresh rollouts, want %v", s, got, want)
		}
	}
	n.Proxy, n.MicroBatches = true, nil
	if x, err = fitNoise(n); err != nil || x.profile != "power law" {
		t.Errorf("of a proxy: %s, %v", x.profile, err)
	}
	n.RolloutCost = results.Number{}
	if _, err = fitNoise(n); err == nil {
		t.Error("a fit without a rollout cost is taken")
	}
}

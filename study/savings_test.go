package study

import (
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// rated is an arm of a family at a learning rate, whose runs reach the target at the steps of compute given by seed; 0:
// not at all.
func rated(rate float64, reachedAt ...int) Runs {
	a := Runs{Arm: short()}
	a.Arm.Config = withRate(a.Arm.Config, rate)
	for i, at := range reachedAt {
		p := make([]float64, 5)
		for k := range p {
			if at > 0 && k >= at {
				p[k] = 0.5
			}
		}
		a.Runs = append(a.Runs, noted(uint64(i+1), true, p...))
	}
	return a
}

func TestTheLearningRateOfASeedIsChosenOnTheOtherSeeds(t *testing.T) {
	// The second rate is quick on two seeds: without one of them its median is behind the first's, without one of the
	// others it is ahead.
	family := []Runs{rated(0.1, 2, 2, 2, 2), rated(0.2, 1, 1, 3, 3)}
	got := tuned("with replay", family)
	if want := []float64{0.1, 0.1, 0.2, 0.2}; !slices.Equal(got.at, want) {
		t.Errorf("rates %v, want %v: each is chosen on the other seeds", got.at, want)
	}
	if got.rates() != "0.1 (2 of 4 seeds) and 0.2 (2 of 4 seeds)" || got.rateOn(3) != "0.2" ||
		got.rateOn(5) != missing || got.Name != "with replay" {
		t.Errorf("%s: %s; on seed 3 %s, on seed 5 %s", got.Name, got.rates(), got.rateOn(3), got.rateOn(5))
	}
	for i, r := range got.Runs.Runs {
		if r != family[int(math.Round(10*got.at[i]))-1].Runs[i] {
			t.Errorf("seed %d is not judged by its run at rate %g", i+1, got.at[i])
		}
	}
	if one := tuned("alone", []Runs{rated(0.1, 3), rated(0.2, 1)}); !slices.Equal(one.at, []float64{0.2}) {
		t.Errorf("a single seed is judged at %v, want the better rate", one.at)
	}
	if none := tuned("unreached", []Runs{rated(0.1, 0, 0), rated(0.2, 0, 4)}); len(none.at) != 2 {
		t.Errorf("of rates that do not reach the target %v are taken, want one a seed", none.at)
	}
}

func TestALearningRateWithoutRunsIsSkipped(t *testing.T) {
	empty := rated(0.1)
	if got := tuned("with replay", []Runs{empty, rated(0.2, 1, 0)}); !slices.Equal(got.at, []float64{0.2, 0.2}) {
		t.Errorf("rates %v, want those that ran", got.at)
	}
}

func TestAFailedRunCountsAsZeroInTheMedianCurve(t *testing.T) {
	whole := rated(0.1, 3, 3, 3)
	failing := rated(0.1, 1, 1, 1)
	failing.Runs[0] = noted(1, false, 0, 0.5)
	if got := curvesRatio(failing, whole); !(got > 0.3 && got < 0.4) {
		t.Errorf("with one of three runs failed the median curves' ratio is %g, want the 1/3 of the other two", got)
	}
	failing.Runs[1] = noted(2, false, 0, 0.5)
	if got := curvesRatio(failing, whole); !math.IsInf(got, 1) {
		t.Errorf("with two of three failed it is %g, want infinity: their median is nothing", got)
	}
}

func TestOneStepBehindDoesNotRefuteAClaimAboutAllSteps(t *testing.T) {
	steps := savingsQueues(Options{Seeds: 4})[0].Config.Budget.Compute
	for behind, want := range map[float64]results.Verdict{1: results.CannotTell, 2: results.DoesNotHold} {
		f := foundIn(savings(), Options{Seeds: 4}, trained(func(b *behaviour) { b.level = 1 }))
		for _, a := range f.Arms {
			for _, r := range a.Runs {
				for i := range r.Evals {
					if k := float64(i); replays(a.Arm) && k > steps/2 && k <= steps/2+behind {
						r.Evals[i].Pass1 = 0.1
					}
				}
			}
		}
		j, err := judgeSavings(f)
		if err != nil {
			t.Fatal(err)
		}
		if x := j.Findings[3]; x.Verdict != want {
			t.Errorf("behind at %g steps: %s, want %s: %s", behind, x.Verdict, want, x.Found)
		}
	}
}

package study

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// promptsAsClaimed is a world in which the claims of [PR] hold.
func promptsAsClaimed() invention {
	return invention{
		noise: 0.002,
		accuracy: func(arm string, part float64) float64 {
			early := math.Min(part, 1.0/3)
			switch arm {
			case randomRewards:
				return 0.2 + 0.05*part
			case promptReplay, filledReplay:
				return 0.2 + early*0.9 + 0.0*part
			case boldest().name(), noCooldown().name(), noLimit().name():
				return 0.2 + 0.1*part
			}
			return 0.2 + 0.3*part
		},
		zero: func(arm string, _ float64) float64 {
			if arm == promptReplay {
				return 0.3
			}
			return 0.4
		},
		advantage: func(arm string, _ float64) float64 {
			if arm == promptReplay {
				return 0.6
			}
			return 0.5
		},
	}
}

// promptsReversed is a world in which they do not.
func promptsReversed() invention {
	return invention{
		noise: 0.002,
		accuracy: func(arm string, part float64) float64 {
			switch arm {
			case randomRewards, fewPrompts:
				return 0.2 - 0.15*part
			case promptReplay, filledReplay:
				return 0.2 - 0.1*part
			case boldest().name():
				return 0.2 + 0.5*part
			}
			return 0.2 + 0.3*part
		},
		zero: func(arm string, _ float64) float64 {
			if arm == promptReplay {
				return 0.5
			}
			return 0.4
		},
		advantage: func(arm string, _ float64) float64 {
			if arm == promptReplay {
				return 0.4
			}
			return 0.5
		},
	}
}

func TestPromptReplayIsJudgedByTheRuns(t *testing.T) {
	s, four := ofPretrained(prompts()), Options{Seeds: 12}
	expect(t, promptsAsClaimed().judged(t, s, four), alikeVerdicts(10, results.Holds)...)
	expect(t, promptsReversed().judged(t, s, four), alikeVerdicts(10, results.DoesNotHold)...)
	for _, o := range []Options{{Seeds: 2}, {Seeds: 12, Quick: true}} {
		expect(t, promptsAsClaimed().judged(t, s, o), alikeVerdicts(10, results.Inconclusive)...)
	}
	noisy := promptsAsClaimed()
	noisy.noise = 50
	findings := noisy.judged(t, s, four)
	want := append([]results.Verdict{results.Holds, results.Holds}, alikeVerdicts(8, results.Inconclusive)...)
	expect(t, findings, want...) // shares and advantages have no noise here
}

// ofPretrained is a study whose runs begin with a pretrained policy.
func ofPretrained(s Study) Study {
	arms := s.Arms
	s.Arms = func(o Options) []Arm {
		list := arms(o)
		for i := range list {
			list[i].Config.Policy.Init = "pretrained"
		}
		return list
	}
	return s
}

func TestControlsOfAPretrainedPolicyAreUntestedOnAnother(t *testing.T) {
	findings := promptsReversed().judged(t, prompts(), Options{Seeds: 12})
	expect(t, findings[7:9], results.Untested, results.Untested)
	if want := "0 of 12 runs began with a pretrained one"; !strings.Contains(findings[7].Why, want) {
		t.Errorf("why %q, want it to say %q", findings[7].Why, want)
	}
}

func TestPromptReplayThatOnlyPaysAtFirstDoesNotHold(t *testing.T) {
	w := promptsAsClaimed()
	w.zero = func(arm string, part float64) float64 { // a third less over the first third, more afterwards
		if arm != promptReplay {
			return 0.4
		}
		if part <= early {
			return 0.3
		}
		return 0.47
	}
	zero := w.judged(t, prompts(), Options{Seeds: 12})[0]
	if zero.Verdict != results.DoesNotHold || !strings.Contains(zero.Found, "−0.1") {
		t.Errorf("%s: %s", zero.Verdict, zero.Found)
	}
}

// What costs accuracy everywhere, and less of it where rollouts are dear, gains nothing there.
func TestPromptReplayThatLosesLessGainsNothing(t *testing.T) {
	w := promptsAsClaimed()
	w.accuracy = func(arm string, part float64) float64 {
		switch arm {
		case promptReplay, filledReplay:
			return 0.2 + 0.2*part
		case cheapReplay:
			return 0.2 + 0.1*part
		}
		return 0.2 + 0.3*part
	}
	expect(t, w.judged(t, prompts(), Options{Seeds: 12})[9:], results.DoesNotHold)
}

func TestAFailedControlCountsAsLost(t *testing.T) {
	w := promptsAsClaimed()
	w.fails = func(arm string, _ uint64) float64 {
		if arm == fewPrompts || arm == randomRewards {
			return 0.2
		}
		return 0
	}
	findings := w.judged(t, ofPretrained(prompts()), Options{Seeds: 12})
	if findings[7].Verdict != results.DoesNotHold || findings[8].Verdict != results.DoesNotHold {
		t.Errorf("%s; %s", findings[7].Verdict, findings[8].Verdict)
	}
}

func TestAControlWithoutRunsCannotBeDecided(t *testing.T) {
	w := promptsAsClaimed()
	w.missing = func(arm string, seed uint64) bool { return arm == cheapReplay || arm == fewPrompts && seed != 3 }
	findings := w.judged(t, ofPretrained(prompts()), Options{Seeds: 12})
	if findings[7].Verdict != results.Inconclusive || findings[9].Verdict != results.Inconclusive ||
		findings[8].Verdict != results.Holds {
		t.Errorf("%s; %s; %s", findings[7].Verdict, findings[8].Verdict, findings[9].Verdict)
	}
}

func TestControlsChangeWhatTheyControl(t *testing.T) {
	arms := make(map[string]run.Config)
	for _, a := range promptArms(Options{Seeds: 12}) {
		arms[a.Name] = a.Config
	}
	if got := arms[fewPrompts].Prompts.Limit; got != fixedPrompts {
		t.Errorf("the control trains on %d prompts", got)
	}
	if arms[randomRewards].Task["random_rewards"] != 0.5 || arms[allPrompts].Task["random_rewards"] != nil {
		t.Error("rewards are random in the wrong arm")
	}
}

func TestArmsWithFilledBatchesDifferInTheRolloutCostAlone(t *testing.T) {
	arms := make(map[string]run.Config)
	for _, a := range promptArms(Options{Seeds: 12}) {
		arms[a.Name] = a.Config
	}
	for dear, cheap := range map[string]string{
		allPrompts: cheapPlain, filledPlain: cheapFilled, filledReplay: cheapReplay,
	} {
		c, d := arms[cheap], arms[dear]
		if c.Pipeline.RolloutCost >= 1 || d.Pipeline.RolloutCost < 5 {
			t.Errorf("%s: μ is %g, and %g with cheap rollouts", dear, d.Pipeline.RolloutCost, c.Pipeline.RolloutCost)
		}
		c.Pipeline.RolloutCost = d.Pipeline.RolloutCost
		settings := func(c run.Config) map[string]string {
			s, err := c.Settings()
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if a, b := settings(c), settings(d); !maps.Equal(a, b) {
			t.Errorf("%s differs from %s in more than μ: %v, %v", cheap, dear, a, b)
		}
		replays := d.Prompts.Fraction > 0
		if d.Pipeline.FilterGroups != (dear != allPrompts) || replays != (dear == filledReplay) {
			t.Errorf("%s: batches are filled: %t, fraction %g", dear, d.Pipeline.FilterGroups, d.Prompts.Fraction)
		}
	}
}

func TestATableSaysWhatFilledBatchesGenerate(t *testing.T) {
	for _, fills := range []bool{false, true} {
		a := Runs{Arm: Arm{"arm", promptBase()}}
		if fills {
			a.Config = filled(a.Config)
		}
		want := map[bool]float64{false: 1, true: 1.75}[fills]
		r := &results.Run{Summary: &results.Summary{GeneratedPerInserted: results.Num(1.75)}}
		if got := generatedPerUsed(a, r); got != want {
			t.Errorf("filled %t: %g rollouts generated per rollout learned from, want %g", fills, got, want)
		}
	}
	if got := generatedPerUsed(Runs{Arm: Arm{"arm", filled(promptBase())}}, &results.Run{}); !math.IsNaN(got) {
		t.Errorf("a run without a summary generated %g", got)
	}
}

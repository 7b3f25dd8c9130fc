package study

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
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
			case promptReplay:
				return 0.2 + early*0.9 + 0.0*part
			case boldest().name():
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
			case promptReplay:
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
	s, four := prompts(), Options{Seeds: 12}
	expect(t, promptsAsClaimed().judged(t, s, four), alikeVerdicts(8, results.Holds)...)
	expect(t, promptsReversed().judged(t, s, four), alikeVerdicts(8, results.DoesNotHold)...)
	for _, o := range []Options{{Seeds: 2}, {Seeds: 12, Quick: true}} {
		expect(t, promptsAsClaimed().judged(t, s, o), alikeVerdicts(8, results.CannotTell)...)
	}
	noisy := promptsAsClaimed()
	noisy.noise = 50
	findings := noisy.judged(t, s, four)
	expect(t, findings, append([]results.Verdict{results.Holds, results.Holds}, alikeVerdicts(6, results.CannotTell)...)...) // shares and advantages have no noise here
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
		case promptReplay:
			return 0.2 + 0.2*part
		case cheapReplay:
			return 0.2 + 0.1*part
		}
		return 0.2 + 0.3*part
	}
	expect(t, w.judged(t, prompts(), Options{Seeds: 12})[7:], results.DoesNotHold)
}

func TestAFailedControlCountsAsLost(t *testing.T) {
	w := promptsAsClaimed()
	w.fails = func(arm string, _ uint64) float64 {
		if arm == fewPrompts || arm == randomRewards {
			return 0.2
		}
		return 0
	}
	findings := w.judged(t, prompts(), Options{Seeds: 12})
	if findings[5].Verdict != results.DoesNotHold || findings[6].Verdict != results.DoesNotHold {
		t.Errorf("%s; %s", findings[5].Verdict, findings[6].Verdict)
	}
}

func TestAControlWithoutRunsCannotBeDecided(t *testing.T) {
	w := promptsAsClaimed()
	w.missing = func(arm string, seed uint64) bool { return arm == cheapReplay || arm == fewPrompts && seed != 3 }
	findings := w.judged(t, prompts(), Options{Seeds: 12})
	if findings[5].Verdict != results.CannotTell || findings[7].Verdict != results.CannotTell ||
		findings[6].Verdict != results.Holds {
		t.Errorf("%s; %s; %s", findings[5].Verdict, findings[6].Verdict, findings[7].Verdict)
	}
}

func TestRefillTimeFollowsTheBottleneck(t *testing.T) {
	c := run.Config{Pipeline: run.Pipeline{Options: pipeline.Options{Mode: "sync", Workers: 6, Trainers: 2,
		RolloutCost: 6}}}
	if generation, all := refill(c, 0.5); generation != 2 || all != 2.5 {
		t.Errorf("in turn: %g of %g, want 2 of 2.5", generation, all)
	}
	c.Pipeline.Mode = "async"
	if generation, all := refill(c, 0.5); generation != 2 || all != 2 {
		t.Errorf("at once, where generation is the bottleneck: %g of %g, want 2 of 2", generation, all)
	}
	c.Pipeline.RolloutCost = 0.3
	if generation, all := refill(c, 0.5); math.Abs(generation-0.1) > 1e-12 || all != 0.5 {
		t.Errorf("at once, where training is: %g of %g, want 0.1 of 0.5", generation, all)
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
	cheap := arms[cheapPlain]
	if updates := cheap.Budget.Compute * unit(cheap) / bufferUnit(cheap); math.Abs(updates-arms[allPrompts].Budget.Compute) > 1e-9 {
		t.Errorf("with cheap rollouts %g updates, want as many as without", updates)
	}
}

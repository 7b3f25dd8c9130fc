package study

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// ogAsClaimed is a world in which the claims of [OG] hold.
func ogAsClaimed(arm string, part float64) float64 {
	switch {
	case arm == og11 && part > 0.55 && part < 0.65:
		return 0.2 // of 0.35 before
	case strings.HasPrefix(arm, "(1,10)"):
		return 0.15 + 0.1*part
	case arm == og11:
		return 0.2 + 0.25*part
	}
	return 0.2 + 0.28*part
}

// ogReversed is a world in which they do not.
func ogReversed(arm string, part float64) float64 {
	switch {
	case arm == og11 && part > 0.55 && part < 0.65:
		return 0.27
	case arm == og11:
		return 0.3 + 0.2*part
	case strings.HasPrefix(arm, "(1,10)"):
		return 0.6
	case part > 0.55 && part < 0.65:
		return 0.1
	}
	return 0.2 + 0.2*part
}

func TestOffPolicyGRPOIsJudgedByTheRuns(t *testing.T) {
	s, four := offPolicyGRPO(), Options{Seeds: 12}
	expect(t, invention{accuracy: ogAsClaimed, noise: 0.002}.judged(t, s, four), alikeVerdicts(6, results.Holds)...)
	expect(t, invention{accuracy: ogReversed, noise: 0.002}.judged(t, s, four),
		alikeVerdicts(6, results.DoesNotHold)...)
	for _, o := range []Options{{Seeds: 3}, {Seeds: 1}, {Seeds: 12, Quick: true}} {
		expect(t, invention{accuracy: ogAsClaimed, noise: 0.002}.judged(t, s, o),
			alikeVerdicts(6, results.Inconclusive)...)
	}
}

// [OG] eq. 8 is an expectation over all prompts of the masked objective, so masked groups count in the mean.
func TestMaskedArmsAverageOverAllGroups(t *testing.T) {
	masked := 0
	for _, a := range grpoArms(Options{}) {
		if l := a.Config.Learner; l.MaskZeroVariance {
			masked++
			if l.MaskedDenominator != "all" {
				t.Errorf("%s averages over the groups %s", a.Name, l.MaskedDenominator)
			}
		}
	}
	if masked != 2 {
		t.Errorf("%d arms mask groups, want 2", masked)
	}
}

func TestAFailedScheduleIsTheLessStable(t *testing.T) {
	w := invention{accuracy: func(string, float64) float64 { return 0.4 },
		fails: func(arm string, seed uint64) float64 {
			if arm == og11 {
				return 0.5
			}
			return 0
		}}
	findings := w.judged(t, offPolicyGRPO(), Options{Seeds: 12})
	expect(t, findings[:3], results.Holds, results.Holds, results.Holds)
	if findings[4].Verdict != results.DoesNotHold {
		t.Errorf("with (1,1) gone for half of its checkpoints: %s, %s", findings[4].Verdict, findings[4].Found)
	}
}

func TestAScheduleWithoutRunsLeavesTheOthersJudged(t *testing.T) {
	w := invention{accuracy: ogAsClaimed, noise: 0.002,
		missing: func(arm string, _ uint64) bool { return arm == og101 }}
	findings := w.judged(t, offPolicyGRPO(), Options{Seeds: 12})
	expect(t, findings, results.Holds, results.Holds, results.Inconclusive, results.Inconclusive, results.Inconclusive,
		results.Holds)
	if !strings.HasPrefix(findings[2].Why, "There are no runs to compare. ") {
		t.Errorf("why not: %s", findings[2].Why)
	}
}

func TestTenUpdatesOnABatchAreComparedAfterEqualRollouts(t *testing.T) {
	f := invention{accuracy: func(arm string, part float64) float64 { return part }}.invent(offPolicyGRPO(),
		Options{Seeds: 12})
	on, slow := f.Of(og11), f.Of(og110)
	// 300 updates' compute: 300 batches, or 123 of ten updates and a part of another, whose generation is mu/(10 + mu)
	// of their compute.
	if on.end(freshRollouts) != 300*512 || slow.end(freshRollouts) != 124*512 {
		t.Errorf("rollouts: %g and %g", on.end(freshRollouts), slow.end(freshRollouts))
	}
	// The last evaluations of (1,1) within 124 batches are those at 90, 105 and 120 of 300, those of (1,10) at 270, 285
	// and 300.
	if got := known(difference(on, slow, settledAt(slow.end(freshRollouts), freshRollouts))); math.Abs(got-(105.0-
		285)/300) > 1e-9 {
		t.Errorf("difference after equal rollouts: %g", got)
	}
}

func TestMoreLearningPerBatchIsNotSlower(t *testing.T) {
	w := invention{noise: 0.002, accuracy: func(arm string, part float64) float64 {
		if strings.HasPrefix(arm, "(1,10)") {
			return 0.2 + 0.2*part // of its 124 batches
		}
		return 0.2 + 0.3*part // of 300: 0.12 after 124
	}}
	slower := w.judged(t, offPolicyGRPO(), Options{Seeds: 12})[5]
	// After 300 updates (1,1) is at 0.2 + 0.3 of its 300 batches, (1,10) at 0.2 + 0.2 of its first 30 of 124.
	if slower.Verdict != results.DoesNotHold || !strings.Contains(slower.Found, "for a batch: +0.09") ||
		!strings.Contains(slower.Found, "After 300 updates each, ten of which (1,10) makes on a batch: +0.25") {
		t.Errorf("%s: %s", slower.Verdict, slower.Found)
	}
}

func TestCheckpointsAfterAFailureCountAsZero(t *testing.T) {
	w := invention{accuracy: func(string, float64) float64 { return 0.4 },
		fails: func(string, uint64) float64 { return 0.4 }}
	f := w.invent(offPolicyGRPO(), Options{Seeds: 1})
	on := f.Of(og11)
	list := checkpoints(on, on.Runs[0], 0, 1)
	if len(list) != 20 || list[7] != 0.4 || list[8] != 0 || list[19] != 0 {
		t.Errorf("checkpoints: %v", list)
	}
	if least, most := on.median(quantileOfCheckpoints(0)), on.median(quantileOfCheckpoints(1)); least != 0 ||
		most != 0.4 {
		t.Errorf("from %g to %g, want from 0 to 0.4", least, most)
	}
}

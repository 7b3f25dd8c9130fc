package study

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
)

// freshAsClaimed is a world in which the claims of [FP] hold.
func freshAsClaimed(arm string, part float64) float64 {
	task, method, _ := strings.Cut(arm, ": ")
	if task == "easy arithmetic" {
		return 0.9
	}
	levels := map[string]float64{
		onPolicy: 0.2, standardPER: 0.1, freshPER: 0.4, uniformPER: 0.3, tauName(10): 0.3, tauName(1000): 0.38,
		tauName(replay.Versions(math.Inf(1))): 0.28,
		noWeights:                             0.4,
	}
	if method == noWeights && part > 0.75 && part < 0.85 {
		return 0.1
	}
	return 0.05 + levels[method]*part
}

// freshReversed is a world in which they do not.
func freshReversed(arm string, part float64) float64 {
	task, method, _ := strings.Cut(arm, ": ")
	if task == "easy arithmetic" && method != onPolicy {
		return 0.7
	}
	levels := map[string]float64{
		onPolicy: 0.3, standardPER: 0.5, freshPER: 0.1, uniformPER: 0.3, tauName(10): 0.25, tauName(1000): 0.1,
		tauName(replay.Versions(math.Inf(1))): 0.25,
		noWeights:                             0.3,
	}
	switch {
	case method == noWeights && part > 0.75 && part < 0.85:
		return 0.05
	case method == freshPER && part > 0.45 && part < 0.55:
		return 0.6
	}
	return 0.05 + levels[method]*part
}

func TestFreshnessIsJudgedByTheRuns(t *testing.T) {
	s, four := freshness(), Options{Seeds: 12}
	expect(t, invention{accuracy: freshAsClaimed, noise: 0.002}.judged(t, s, four), alikeVerdicts(9, results.Holds)...)
	expect(t, invention{accuracy: freshReversed, noise: 0.002}.judged(t, s, four),
		alikeVerdicts(9, results.DoesNotHold)...)
	expect(t, invention{accuracy: freshAsClaimed, noise: 50}.judged(t, s, four)[:8], alikeVerdicts(8, results.Inconclusive)...) // a shift makes no fall
	for _, o := range []Options{{Seeds: 3}, {Seeds: 4, Quick: true}} {
		expect(t, invention{accuracy: freshAsClaimed, noise: 0.002}.judged(t, s, o),
			alikeVerdicts(9, results.Inconclusive)...)
	}
}

// FreshPER's code: stored at the largest priority; without age decay until replayed, with it until the next iteration.
func TestFreshnessArmsEnterAsInFreshPERsCode(t *testing.T) {
	for _, a := range freshnessArms(Options{}) {
		r := a.Config.Replay
		if r.Sampler != replay.Prioritized {
			continue
		}
		want := replay.UntilRefresh
		if strings.HasSuffix(a.Name, standardPER) {
			want = replay.UntilReplay
		}
		if r.Entry != replay.EnterMax || r.EntryUntil != want {
			t.Errorf("%s enters rollouts at %s until %s, want %s", a.Name, r.Entry, r.EntryUntil, want)
		}
	}
}

func TestAGainOnOneTaskIsNotAGainOnMostTasks(t *testing.T) {
	w := invention{noise: 0.02, accuracy: func(arm string, part float64) float64 {
		if arm == freshName("sokoban", freshPER) {
			return 0.3 + 0.3*part
		}
		return 0.3
	}}
	gain := w.judged(t, freshness(), Options{Seeds: 12})[0]
	if gain.Verdict == results.Holds || !strings.Contains(gain.Found, "sokoban: +0.2") {
		t.Errorf("%s: %s", gain.Verdict, gain.Found)
	}
}

func TestReplayIsComparedAfterEqualFreshRollouts(t *testing.T) {
	f := invention{accuracy: func(_ string, part float64) float64 { return part }}.invent(freshness(),
		Options{Seeds: 12})
	task := f.freshRuns(false)[0]
	// A turn costs B(2 + mu) with replay: of 200 updates' compute 172.5 turns, and so 173 batches.
	if on, fresh := task.on.end(freshRollouts), task.fresh.end(freshRollouts); on != 200*512 || fresh != 173*512 {
		t.Fatalf("fresh rollouts: %g on-policy, %g with replay", on, fresh)
	}
	// Within 173 batches the last evaluations on-policy are those at 150, 160 and 170 of 200; with replay at 180, 190
	// and 200.
	if got, want := known(atEqualRollouts(task.fresh, task.on)), (190.0-160)/200; math.Abs(got-want) > 1e-9 {
		t.Errorf("difference after equal rollouts: %g, want %g", got, want)
	}
	if got := known(difference(task.fresh, task.on, settled)); math.Abs(got) > 1e-9 {
		t.Errorf("difference at equal compute: %g, want 0", got)
	}
}

func TestReplayThatEndsWithAnErrorHasLostItsPolicy(t *testing.T) {
	w := invention{accuracy: func(string, float64) float64 { return 0.5 }, fails: func(arm string, _ uint64) float64 {
		if strings.HasSuffix(arm, standardPER) {
			return 0.6
		}
		return 0
	}}
	findings := w.judged(t, freshness(), Options{Seeds: 12})
	expect(t, findings[2:4], results.Holds, results.Holds)
	j, err := judgeFreshness(w.invent(freshness(), Options{Seeds: 12}))
	if err != nil {
		t.Fatal(err)
	}
	if last := j.Sections[len(j.Sections)-1]; len(last.Grids) != 1 || len(last.Grids[0].Rows) != 12*len(freshTasks()) {
		t.Errorf("failed runs are not listed: %+v", last)
	}
}

func TestTaskWithoutRunsLeavesTheOthersJudged(t *testing.T) {
	w := invention{accuracy: freshAsClaimed, noise: 0.002, missing: func(arm string, seed uint64) bool {
		return strings.HasPrefix(arm, "search") || strings.HasPrefix(arm, "arithmetic") && seed == 2
	}}
	findings := w.judged(t, freshness(), Options{Seeds: 12})
	expect(t, findings[:4], results.Holds, results.Holds, results.Holds, results.Holds)
	if !strings.Contains(findings[0].Found, "search: not measured.") {
		t.Errorf("what is missing is not said: %s", findings[0].Found)
	}
}

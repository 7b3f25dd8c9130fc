package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// What `reprise train --compare` runs without a configuration is what the archived study chose on addition.
func TestTheBuiltInExperimentIsTheBest(t *testing.T) {
	built, err := run.Load("../configs/addition.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := archives(t)
	i := slices.IndexFunc(all, func(a *results.Archive) bool { return a.Study == best().Name })
	if i < 0 {
		t.Fatal("docs/studies has no archive of best")
	}
	_, found := archivedStudy(t, all[i])
	for name, config := range map[string]run.Config{tunedReplay: built, tunedQueue: built.BaselineArm()} {
		config.Task["held_out"] = labHeldOut // of which a fifth chooses
		got, err := newJob(Arm{name, config}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want, err := newJob(found.Of("addition"+name).Arm, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got.digest != want.digest {
			t.Errorf("addition%s: configs/addition.yaml has %+v, the winner is %+v", name, got.config, want.config)
		}
	}
}

// Each stage builds on what the ones before chose, and the arms that are judged on the last.
func TestTheTournamentBuildsOnWhatWasChosen(t *testing.T) {
	o := Options{Seeds: 12, chosen: map[string]int{}}
	names := func() (list []string) {
		for _, p := range bestPilots(o) {
			list = append(list, p.Name)
		}
		return list
	}
	before := strings.Join(names(), "; ")
	for _, p := range bestPilots(o) {
		for _, a := range p.Arms {
			if err := a.Config.Validate(); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
	}
	pick := func(pilot, arm string) {
		t.Helper()
		for _, p := range bestPilots(o) {
			for i, a := range p.Arms {
				if p.Name == pilot && strings.HasSuffix(a.Name, ": "+arm) {
					o.chosen[pilot] = i
					return
				}
			}
		}
		t.Errorf("%s has no arm %s", pilot, arm)
	}
	pick("addition: with replay, batches", "positive retention")
	pick("addition: with replay, loss", "AsymRE")
	pick("addition: with replay, last rate", "rate × 1.4")
	pick("addition: without replay, batches", "filled batches")
	pick("addition: without replay, loss", "wide clip")
	arms := bestArms(o)
	queue, plain, winner := arms[0].Config, arms[1].Config, arms[2].Config
	if winner.Replay.PositiveFraction != 0.4 || winner.Learner.Objective != asymre ||
		math.Abs(winner.Learner.LearningRate-1.4*plain.Learner.LearningRate) > 1e-12 || winner.Learner.MaskZeroVariance {
		t.Errorf("the winner is %+v", winner)
	}
	if !queue.Pipeline.FilterGroups || queue.Learner.ClipHigh != 0.4 || queue.Replay.Sampler != "lifo" {
		t.Errorf("without replay %+v", queue)
	}
	if plain.Learner.Objective == asymre || plain.Replay.PositiveFraction != 0 {
		t.Errorf("the plain buffer is %+v", plain)
	}
	for _, p := range bestPilots(o) {
		for _, a := range p.Arms {
			if p.Name == "addition: without replay, loss" && strings.HasSuffix(a.Name, "AsymRE") {
				t.Error("AsymRE is combined with filled batches")
			}
		}
	}
	if after := strings.Join(names(), "; "); after != before {
		t.Errorf("the pilots were %s and are %s", before, after)
	}
}

func TestTheTournamentIsJudgedByTheRuns(t *testing.T) {
	speeds := func(queue, plain, winner float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			switch {
			case strings.HasSuffix(a.Name, tunedQueue):
				b.speed = queue
			case strings.HasSuffix(a.Name, tunedReplay):
				b.speed = winner
			default:
				b.speed = plain
			}
			b.speed *= 1 + 0.02*alternating(seed)
			return b
		}
	}
	for _, c := range []struct {
		w    world
		want [3]results.Verdict
	}{
		{speeds(1, 2, 4), [3]results.Verdict{results.Holds, results.Holds, results.Holds}},
		{speeds(4, 2, 1), [3]results.Verdict{results.DoesNotHold, results.DoesNotHold, results.DoesNotHold}},
		{speeds(1, 4, 1.4), [3]results.Verdict{results.Holds, results.DoesNotHold, results.DoesNotHold}},
	} {
		for i, f := range judged(t, best(), Options{Seeds: 12}, c.w).Findings {
			if f.Verdict != c.want[i] {
				t.Errorf("%q: %s, want %s: %s", f.Claim, f.Verdict, c.want[i], f.Found)
			}
		}
	}
}

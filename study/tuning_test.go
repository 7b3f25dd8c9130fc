package study

import (
	"math"
	"slices"
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
	i := slices.IndexFunc(all, func(a *results.Archive) bool { return a.Study == "opponent" })
	if i < 0 {
		t.Fatal("docs/studies has no archive of opponent")
	}
	_, found := archivedStudy(t, all[i])
	for name, config := range map[string]run.Config{"recipe": built, "queue": built.BaselineArm()} {
		arm := found.Of(name).Arm
		config.Task["held_out"] = labHeldOut                // of which a fifth chooses
		config.Evaluate.Target = arm.Config.Evaluate.Target // of the demo alone
		if rate := arm.Config.Learner.LearningRate; math.Abs(config.Learner.LearningRate/rate-1) < 1e-9 {
			config.Learner.LearningRate = rate // of a tuning that rounds
		}
		got, err := newJob(Arm{name, config}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want, err := newJob(arm, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got.digest != want.digest {
			t.Errorf("%s: configs/addition.yaml has %+v, the winner is %+v", name, got.config, want.config)
		}
	}
}

// Each stage builds on what the ones before chose.
func TestTheTuningOfTheQueueBuildsOnWhatWasChosen(t *testing.T) {
	o := Options{Seeds: 12, chosen: map[string]int{}}
	pick := func(stage int, arm string) {
		t.Helper()
		p := queueTuning(o)[stage]
		o.chosen[p.Name] = slices.IndexFunc(p.Arms, func(a Arm) bool { return a.Name == p.Name+": "+arm })
		if o.chosen[p.Name] < 0 {
			t.Fatalf("%s has no arm %s", p.Name, arm)
		}
	}
	pick(1, "filled batches")
	pick(2, "wide clip")
	c, what := queueTuning(o).chosen(o)
	if !c.Pipeline.FilterGroups || c.Learner.ClipHigh != 0.4 || c.Replay.Sampler != "lifo" {
		t.Errorf("%s was chosen: %+v", what, c)
	}
	for _, a := range queueTuning(o)[2].Arms {
		if a.Config.Learner.Objective == asymre {
			t.Errorf("%s is combined with filled batches", a.Name)
		}
	}
}

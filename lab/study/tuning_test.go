package study

import (
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/run"
)

// What `reprise train --compare` runs without a configuration is what the archived study chose on addition, for a
// shorter time.
func TestTheBuiltInExperimentIsTheBest(t *testing.T) {
	built, err := run.Load("../../configs/addition.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, found := archivedStudy(t, archiveOf(t, "raft"))
	for name, config := range map[string]run.Config{"recipe": built, "queue": built.BaselineArm()} {
		arm := found.Of(name + ", right answers alone")
		config.Task["held_out"] = labHeldOut                                                  // of which a fifth chooses
		config.Evaluate.Target, config.Budget = arm.Config.Evaluate.Target, arm.Config.Budget // of the demo alone
		if rate := arm.Config.Learner.LearningRate; math.Abs(config.Learner.LearningRate/rate-1) < 1e-9 {
			config.Learner.LearningRate = rate // of a tuning that rounds
		}
		if got, want := digestOf(t, config), digestOf(t, arm.Config); got != want {
			t.Errorf("%s: configs/addition.yaml has %+v, the winner is %+v", name, config, arm.Config)
		}
	}
}

// digestOf returns the digest of a run of a configuration with seed 1.
func digestOf(t *testing.T, c run.Config) string {
	t.Helper()
	j, err := newJob(Arm{"", c}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return j.digest
}

// beforeTheLastStage is what a family had chosen when its last stage began.
func beforeTheLastStage(t *testing.T, found *Found, family string) run.Config {
	t.Helper()
	for _, p := range found.pilots {
		if p.Name == family+": last: as before" {
			return p.Config
		}
	}
	t.Fatalf("%s has no last stage", family)
	return run.Config{}
}

// Studies of other tasks begin with what each family had chosen on addition before its last stage, which opponent.go
// states.
func TestFamiliesBeginWithWhatTheArchivedStudyChose(t *testing.T) {
	_, found := archivedStudy(t, archiveOf(t, "opponent"))
	task := opponentTasks()[0]
	task.transfer = true
	for _, f := range families() {
		chosen := beforeTheLastStage(t, found, f.name)
		stated := task.config(Options{}, f, chosen.Pipeline.Batch, chosen.Learner.LearningRate)
		if got, want := digestOf(t, stated), digestOf(t, chosen); got != want {
			t.Errorf("%s begins with %+v, and chose %+v", f.name, stated, chosen)
		}
		rate := chosen.Learner.LearningRate / task.rateOf(chosen.Pipeline.Batch)
		if math.Abs(rate/f.times-1) > 0.05 {
			t.Errorf("%s begins with %g times the rate of its batch, and chose %.3g", f.name, f.times, rate)
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

// A rate at an end of those tried has two further rates beyond it; one in the middle has none.
func TestRatesBeyondTheBestOneAreTried(t *testing.T) {
	for chosen, want := range [][]float64{{1e-3, 5e-4, 2.5e-4}, {2e-3}, {4e-3, 8e-3, 16e-3}} {
		o := Options{chosen: map[string]int{"learning rate, x": chosen}}
		var got []float64
		for _, a := range tuneRate(o, "x", run.Default(), 1e-3, 2e-3, 4e-3)[1].Arms {
			got = append(got, a.Config.Learner.LearningRate)
		}
		if !slices.Equal(got, want) {
			t.Errorf("arm %d was best, and %v are tried further, want %v", chosen, got, want)
		}
	}
}

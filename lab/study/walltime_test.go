package study

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/lab/run"
)

// The claims on stalls at W/T = mu are about schedules in which only chance makes a side wait.
func TestSchedulesOfWallTimeStallByTheVarianceOfLengths(t *testing.T) {
	arms := make(map[string]run.Config)
	for _, a := range stallArms(Options{Quick: true}) {
		p := a.Config.Pipeline
		if p.RolloutCost != float64(p.Workers)/float64(p.Trainers) {
			t.Errorf("%s: μ is %g for %d workers and %d trainers", a.Name, p.RolloutCost, p.Workers, p.Trainers)
		}
		a.Config.Budget.Compute, a.Config.Evaluate.Every = 30, 30
		arms[a.Name] = a.Config
	}
	wait := func(name string) float64 {
		c, ok := arms[name]
		if !ok {
			t.Fatalf("there is no arm %q", name)
		}
		var starts run.Starts
		if err := starts.Expect(c); err != nil {
			t.Fatal(err)
		}
		defer starts.Release(c)
		start, err := starts.Begin(context.Background(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := run.Train(context.Background(), c, start, filepath.Join(t.TempDir(), "run"), run.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		waited := sum.TrainerTimes[0].Stalled
		for _, w := range sum.WorkerTimes {
			waited += w.Stalled
		}
		return waited / (6 * sum.Clock)
	}
	varying, equal := wait("schedule, queue, varying lengths"), wait("schedule, queue, equal lengths")
	buffer := wait("schedule, buffer, varying lengths")
	if varying < 1.3*equal || buffer > varying {
		t.Errorf("GPUs of the queue wait %.4f of the time with varying lengths and %.4f with equal ones, those of the "+
			"buffer %.4f", varying, equal, buffer)
	}
}

package run

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/results"
)

func TestSharesOfTimeSinceTheLastUpdateAddUpToOne(t *testing.T) {
	var m usage
	for _, u := range []pipeline.Update{
		{Time: 10, Workers: []pipeline.GPUTime{{Busy: 10}, {Busy: 4, Stalled: 6}}, Trainer: pipeline.GPUTime{Busy: 5, Stalled: 5}},
		{Time: 20, Workers: []pipeline.GPUTime{{Busy: 15, Stalled: 5}, {Busy: 4, Stalled: 6, Idle: 10}}, Trainer: pipeline.GPUTime{Busy: 5, Stalled: 5, Idle: 10}},
	} {
		l := m.line(u, 0)
		want := [6]float64{0.7, 0.3, 0, 0.5, 0.5, 0}
		if u.Time == 20 {
			want = [6]float64{0.25, 0.25, 0.5, 0, 0, 1}
		}
		for i, n := range []results.Number{l.WorkerBusy, l.WorkerStalled, l.WorkerIdle, l.TrainerBusy, l.TrainerStalled, l.TrainerIdle} {
			if math.Abs(n.Float()-want[i]) > 1e-12 {
				t.Errorf("at %g, share %d is %v, want %v", u.Time, i, n.Float(), want[i])
			}
		}
	}
}

func TestASummaryTellsStalledFromIdleAndPlansWhatAQueueAllows(t *testing.T) {
	for name, c := range map[string]struct {
		settings                  []string
		newPerUpdate, replayRatio float64
		stalled, idle             bool
	}{
		"workers outrun a queue":  {[]string{"replay.sampler=fifo", "pipeline.workers=8", "pipeline.trainers=1", "pipeline.rollout_cost=2"}, 16, 1, true, false},
		"trainers outrun a queue": {[]string{"replay.sampler=lifo", "pipeline.workers=3", "pipeline.trainers=2", "pipeline.rollout_cost=4"}, 16, 1, true, false},
		"in turns with a queue":   {[]string{"replay.sampler=fifo", "pipeline.mode=sync", "pipeline.sync_rollouts=32", "pipeline.sync_updates=2"}, 16, 1, false, true},
		"in turns with a table":   {[]string{"pipeline.mode=sync", "pipeline.sync_rollouts=24", "pipeline.sync_updates=3", "pipeline.trainers=1"}, 8, 2, false, true},
		"at once with a table":    {[]string{"pipeline.workers=3", "pipeline.trainers=2", "pipeline.rollout_cost=4"}, 6, 8.0 / 3, true, false},
	} {
		config := small(t, append(c.settings, "evaluate.samples=0")...)
		s, err := Train(context.Background(), config, begin(t, config), filepath.Join(t.TempDir(), "run"), Hooks{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.NewPerUpdatePlanned != c.newPerUpdate || math.Abs(s.ReplayRatioPlanned-c.replayRatio) > 1e-12 {
			t.Errorf("%s: planned %g new rollouts per update and the replay ratio %g, want %g and %g", name, s.NewPerUpdatePlanned, s.ReplayRatioPlanned, c.newPerUpdate, c.replayRatio)
		}
		var sum results.GPU
		for _, g := range append(s.WorkerTimes, s.TrainerTimes...) {
			if all := g.Busy + g.Stalled + g.Idle; math.Abs(all-s.Clock) > 1e-9*s.Clock {
				t.Errorf("%s: a GPU accounts for %g of %g", name, all, s.Clock)
			}
			sum.Stalled += g.Stalled
			sum.Idle += g.Idle
		}
		if (sum.Stalled > 0) != c.stalled || (sum.Idle > 0) != c.idle {
			t.Errorf("%s: stalled for %g, idle for %g", name, sum.Stalled, sum.Idle)
		}
		if s.TokenStaleness.Count() != s.Used || s.UsesPresent.Count()+s.Uses.Count() != s.Inserted {
			t.Errorf("%s: staleness by token of %d uses of %d, uses of %d + %d rollouts of %d", name,
				s.TokenStaleness.Count(), s.Used, s.UsesPresent.Count(), s.Uses.Count(), s.Inserted)
		}
	}
}

// Samplers with replacement are content with one rollout; a run that is told nothing else waits for a batch.
func TestARunDoesNotBeginWithCopiesOfItsFirstRollouts(t *testing.T) {
	for _, sampler := range []string{"uniform", "prioritized"} {
		dir := t.TempDir()
		train(t, small(t, "pipeline.batch=48", "pipeline.trainers=2", "pipeline.workers=1", "budget.updates=2", "replay.sampler="+sampler, "replay.capacity=96"), dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		first := r.Updates[0]
		if drawn := (1 - first.NeverDrawn.Float()) * float64(first.TableSize); drawn < 20 {
			t.Errorf("%s: the first batch of 48 came from %.0f rollouts", sampler, drawn)
		}
	}
}

func TestTheLeastSizeOfATable(t *testing.T) {
	for set, want := range map[string]int{
		"replay.sampler=uniform":                            8, // a trainer's share of 16
		"replay.sampler=prioritized":                        8,
		"replay.sampler=uniform,replay.min_size=1":          1,
		"replay.sampler=uniform,pipeline.mode=sync":         0,
		"replay.sampler=uniform,replay.capacity_bytes=9999": 0,
		"replay.sampler=distinct":                           0,
		"replay.sampler=fifo":                               0,
	} {
		c := small(t, append(strings.Split(set, ","), "pipeline.trainers=2")...)
		if got := c.replayOptions(0).MinSize; got != want {
			t.Errorf("%s: %d, want %d", set, got, want)
		}
	}
}

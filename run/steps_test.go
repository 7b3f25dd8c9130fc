package run

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
)

// Runs whose table keeps the steps of episodes, of every kind of episode: they end in the same bytes when they are
// resumed.
func TestRunsLearnFromStepsInPlaceOfEpisodes(t *testing.T) {
	for name, k := range kinds() {
		for objective, set := range map[string][]string{
			"own rewards": nil,
			"returns":     {"replay.step_returns=-1", "replay.step_discount=0.9", "learner.mask_zero_variance=true"},
			"critic":      {"replay.step_returns=2", "learner.objective=ppo", "replay.sampler=prioritized", "replay.priority_base=td_error", "pipeline.batch_updates=2"},
		} {
			if testing.Short() && objective != "critic" { // under the race detector; without -short all run, on CI too
				continue
			}
			t.Run(name+", "+objective, func(t *testing.T) {
				all := append([]string{"replay.unit=step", "replay.capacity=96", "budget.updates=12", "pipeline.batch=24"}, append(k.set, set...)...)
				c := counts(t, k.rules, all...)
				whole, stopped := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "stopped")
				sum := train(t, c, whole)
				if sum.Updates != 12 || sum.Sampling == nil && c.Replays() || sum.Sampling.Unit != "step" {
					t.Errorf("the run ended as %+v", sum)
				}
				interrupt(t, c, stopped, 5)
				resume(t, c, stopped)
				sameRuns(t, stopped, whole)
			})
		}
	}
}

// The steps of a run's table are those of the episodes that entered it, their rewards the returns by the environment's
// rewards.
func TestTheTableHoldsTheReturnsOfTheEpisodesSteps(t *testing.T) {
	c := counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.step_returns=3", "replay.step_discount=0.5", "replay.capacity=100000")
	start := begin(t, c)
	s, err := newSession(context.Background(), c, start, filepath.Join(t.TempDir(), "run"), Hooks{}, true)
	if err != nil {
		t.Fatal(err)
	}
	g, _, w := maker(t, c)
	group, _ := generated(t, g, w, jobOf(g, 0, 6), 0)
	ctx := context.Background()
	if _, err := s.table.Insert(ctx, rollout.Group{Rollouts: group}); err != nil {
		t.Fatal(err)
	}
	held, next, sum := s.table.(embedded).Inspect().Held(), 0, 0.0
	for _, r := range group {
		for i, turn := range r.Turns {
			want := 0.0
			for k := i; k < min(i+3, len(r.Turns)); k++ {
				want += math.Pow(0.5, float64(k-i)) * float64(r.Turns[k].Reward)
			}
			step := held[next].Rollout
			if math.Abs(float64(step.Reward)-want) > 1e-6 || len(step.Tokens) != int(turn.End) || step.Turns[0].Start != turn.Start {
				t.Errorf("step %d is %+v, want reward %v and the tokens before %d", next, step, want, turn.End)
			}
			sum += float64(held[next].Advantage)
			next++
		}
	}
	if next != len(held) || next <= len(group) {
		t.Errorf("%d steps of %d episodes, the table holds %d", next, len(group), len(held))
	}
	if math.Abs(sum) > 1e-4 { // they are relative to the mean of all steps
		t.Errorf("the advantages of a group's steps add up to %v", sum)
	}
	if o := s.table.Options(); o.Unit != replay.UnitStep || o.StepReturns != 3 || o.StepDiscount != 0.5 {
		t.Errorf("the table's options are %+v", o)
	}
}

func TestStepsAreCountedAsUses(t *testing.T) {
	c := counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.sampler=fifo", "replay.capacity=96", "pipeline.batch=24", "budget.updates=5")
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, c, dir)
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Updates) != 5 || sum.Used != 5*24 {
		t.Errorf("%d updates used %d steps, want 5 of 24", len(r.Updates), sum.Used)
	}
	if episodes := r.Updates[4].Inserted; sum.Inserted <= episodes || math.Abs(sum.ReplayRatio.Float()-5*24/float64(sum.Inserted)) > 1e-12 {
		t.Errorf("%d episodes made %d steps, used %v times each: want %v", episodes, sum.Inserted, sum.ReplayRatio.Float(), 5*24/float64(sum.Inserted))
	}
}

// What is planned counts in the unit of what is measured: steps that are used, of so many episodes.
func TestReplayOfStepsIsPlannedInSteps(t *testing.T) {
	for name, set := range map[string][]string{
		"async":          {"pipeline.workers=3", "pipeline.rollout_cost=4"},
		"turns":          {"pipeline.mode=sync", "pipeline.sync_rollouts=16", "pipeline.sync_updates=2"},
		"each step once": {"replay.sampler=fifo", "replay.capacity=96", "pipeline.workers=12", "pipeline.trainers=1"},
	} {
		all := append([]string{"replay.unit=step", "pipeline.batch=24", "budget.updates=40", "evaluate.every=100", "warmup.steps=0"}, set...)
		sum := train(t, counts(t, counting{turns: 5, slip: 0.2}, all...), filepath.Join(t.TempDir(), "run"))
		for what, pair := range map[string][2]float64{
			"uses of each": {sum.ReplayRatio.Float(), sum.ReplayRatioPlanned}, "episodes per update": {sum.NewPerUpdate.Float(), sum.NewPerUpdatePlanned},
		} {
			if math.Abs(pair[0]/pair[1]-1) > 0.25 {
				t.Errorf("%s: %s: %v, planned %v", name, what, pair[0], pair[1])
			}
		}
	}
}

func jobOf(g *generator, number uint64, size int) pipeline.Job {
	return pipeline.Job{Number: number, Size: size, Prompt: g.environment.Train(number)}
}

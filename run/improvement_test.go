package run

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
)

func TestABatchIsMeasuredWhereABoundFallsWithinItsUpdates(t *testing.T) {
	for _, c := range []struct {
		every, updates rollout.Version
		begins         []rollout.Version // of the first 13
	}{
		{1, 1, []rollout.Version{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{4, 1, []rollout.Version{3, 7, 11}},
		{4, 2, []rollout.Version{2, 6, 10}},
		{4, 3, []rollout.Version{3, 6, 9}}, // updates 4, 8 and 12 are of the batches that begin at 3, 6 and 9
		{2, 5, []rollout.Version{0, 5, 10}},
		{7, 5, []rollout.Version{5, 10}},
	} {
		i := improvement{every: c.every, updates: c.updates}
		var got []rollout.Version
		for v := range rollout.Version(13) {
			if i.begins(v) {
				got = append(got, v)
			}
		}
		if len(got) != len(c.begins) {
			t.Errorf("bound every %d updates, %d on a batch: measured batches begin at %v, want %v", c.every, c.updates, got, c.begins)
			continue
		}
		for k := range got {
			if got[k] != c.begins[k] {
				t.Errorf("bound every %d updates, %d on a batch: measured batches begin at %v, want %v", c.every, c.updates, got, c.begins)
				break
			}
		}
	}
}

// The change that is logged is that of the mean reward from the weights with which the update's batch began.
func TestTheTrueChangeOfRewardStandsBesideTheBound(t *testing.T) {
	c := small(t, "pipeline.mode=sync", "pipeline.batch_updates=3", "evaluate.bound_every=2", "budget.updates=8", "warmup.steps=200", "learner.learning_rate=0.002", "pipeline.batch=32", "replay.capacity=64", "checkpoint.every=1")
	dir := filepath.Join(t.TempDir(), "run")
	start := begin(t, c)
	task, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	rewards := map[int]float64{}
	at := func(update int, s *Start) {
		measure, err := newImprovement(c, task, s.textModel)
		if err != nil {
			t.Fatal(err)
		}
		r, err := measure.reward(context.Background(), s.weights)
		if err != nil {
			t.Fatal(err)
		}
		rewards[update] = r
	}
	at(0, start)
	_, err = Train(context.Background(), c, start, dir, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 1 {
			return // its checkpoint comes after the hook
		}
		place, err := findCheckpoint(dir)
		if err != nil {
			t.Fatal(err)
		}
		before, err := loadStart(place)
		if err != nil {
			t.Fatal(err)
		}
		at(u.Update-1, before)
	}})
	if err != nil {
		t.Fatal(err)
	}
	last, err := loadStart(filepath.Join(dir, results.CheckpointDir))
	if err != nil {
		t.Fatal(err)
	}
	at(8, last)
	r, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, u := range r.Updates {
		change, measured := u.Other["reward_change"]
		bound, bounded := u.Other["bound"]
		if measured != bounded || u.Update%2 == 1 && measured {
			t.Errorf("update %d has a change: %t, a bound: %t", u.Update, measured, bounded)
		}
		if !measured {
			continue
		}
		seen++
		began := (u.Update - 1) / 3 * 3
		if want := (rewards[u.Update] - rewards[began]) / u.Other["bound_scale"].Float(); math.Abs(change.Float()-want) > 1e-12 {
			t.Errorf("update %d changed the reward by %v, want %v from version %d on", u.Update, change.Float(), want, began)
		}
		if math.IsNaN(bound.Float()) {
			t.Errorf("update %d has bound %v", u.Update, bound)
		}
	}
	if seen < 3 || rewards[8] == rewards[0] {
		t.Errorf("%d changes were measured, rewards are %v: the test shows little", seen, rewards)
	}
}

func TestNothingIsMeasuredWhereNoBoundIsAskedFor(t *testing.T) {
	c := small(t)
	if i, err := newImprovement(c, nil, textModel{}); i != nil || err != nil {
		t.Errorf("got %v, %v", i, err)
	}
}

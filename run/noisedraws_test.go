package run

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// recalled trains a run and returns the session of its checkpoint.
func recalled(t *testing.T, c Config, dir string) (*session, *saved) {
	t.Helper()
	train(t, c, dir)
	place, err := findCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, state, err := recall(context.Background(), c, dir, place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.table.close() })
	return s, state
}

// Fresh rollouts are the weights' own: their ratios are 1, and they are of prompts that the run had not come to.
func TestFreshRolloutsAreOfTheNewestWeights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := small(t)
	s, state := recalled(t, c, dir)
	draws, err := s.freshDraws(context.Background(), state, NoiseOptions{Fresh: 12})
	if err != nil {
		t.Fatal(err)
	}
	if len(draws) != 12 {
		t.Fatalf("%d draws, want 12", len(draws))
	}
	for i, d := range draws {
		want := s.task.Train(state.Machine.NextJob + uint64(i/4)).ID
		if d.Rollout.PromptID != want || d.Rollout.Version() != state.Machine.Version || d.Staleness != 0 || d.Weight != 1 {
			t.Errorf("draw %d is of prompt %s, version %d, staleness %d, weight %v; want %s, %d, 0, 1", i, d.Rollout.PromptID, d.Rollout.Version(), d.Staleness, d.Weight, want, state.Machine.Version)
		}
	}
	for i := range draws { // a step on a copy of the learner sees ratios of 1
		draws[i].Advantage = 1
	}
	m, err := s.learner.Step(context.Background(), []*rollout.Batch{{Draws: draws}})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(m.Metrics["mean_ratio"]-1) > 1e-5 || math.Abs(m.Metrics["ess"]-1) > 1e-5 {
		t.Errorf("ratios %v, ESS %v: want 1", m.Metrics["mean_ratio"], m.Metrics["ess"])
	}
}

// A run that asks a few prompts over and over is measured on those.
func TestFreshRolloutsKeepToTheLimitOfPrompts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := solving(t, "prompts.limit=3", "replay.capacity=96")
	s, state := recalled(t, c, dir)
	draws, err := s.freshDraws(context.Background(), state, NoiseOptions{Fresh: 16})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range draws {
		if want := s.task.Train((state.Machine.NextJob + uint64(i/4)) % 3).ID; d.Rollout.PromptID != want {
			t.Errorf("draw %d is of prompt %s, want %s", i, d.Rollout.PromptID, want)
		}
	}
	if n := noise(t, dir, NoiseOptions{Held: 32, Fresh: 32}); !strings.Contains(strings.Join(n.Warnings, " "), "first 3 prompts over and over") {
		t.Errorf("warnings %q", n.Warnings)
	}
}

// Held draws are those of the table, each once; advantages over the batch are taken over all of them.
func TestHeldDrawsAreAUniformChoiceOfTheTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := solving(t, "learner.advantage=batch", "replay.capacity=96")
	s, _ := recalled(t, c, dir)
	ages := make(map[rollout.ID]int)
	for _, h := range s.table.(embedded).Inspect().Held() {
		ages[h.ID] = h.Age
	}
	draws := s.heldDraws(NoiseOptions{Held: 1000})
	if len(draws) != len(ages) || len(ages) < 90 {
		t.Fatalf("%d draws of %d rollouts", len(draws), len(ages))
	}
	var sum, squares float64
	for _, d := range draws {
		if age, held := ages[d.ID]; !held || age != int(d.Staleness) || d.Weight != 1 {
			t.Errorf("draw %d has staleness %d and weight %v, its rollout age %d (held: %v)", d.ID, d.Staleness, d.Weight, age, held)
		}
		delete(ages, d.ID)
		sum += float64(d.Advantage)
		squares += float64(d.Advantage) * float64(d.Advantage)
	}
	if n := float64(len(draws)); math.Abs(sum/n) > 1e-5 || math.Abs(squares/n-1) > 1e-4 {
		t.Errorf("advantages have mean %v and mean square %v, want 0 and 1", sum/n, squares/n)
	}
	chosen := make(map[rollout.ID]int) // in 400 choices of ten
	for seed := range uint64(400) {
		for _, d := range s.heldDraws(NoiseOptions{Held: 10, Seed: seed}) {
			chosen[d.ID]++
		}
	}
	chi, want := 0.0, 4000/float64(len(draws))
	for _, d := range draws {
		off := float64(chosen[d.ID]) - want
		chi += off * off / want
	}
	if df := float64(len(draws) - 1); chi > df+5*math.Sqrt(2*df) {
		t.Errorf("chi-square of %v over %v rollouts: the choice is not uniform", chi, df+1)
	}
}

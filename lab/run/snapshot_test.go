package run

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// trainedSnapshot trains a run and opens its last checkpoint.
func trainedSnapshot(t *testing.T, c Config) *Snapshot {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	train(t, c, dir)
	place, err := findCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSnapshot(context.Background(), c, dir, place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Generated rollouts are the newest weights' own: their ratios are 1, and their prompts are the next ones.
func TestASnapshotGeneratesWithTheNewestWeights(t *testing.T) {
	s := trainedSnapshot(t, small(t))
	held, err := s.Generate(context.Background(), 1, 3)
	if err != nil || len(held) != 12 {
		t.Fatalf("%d rollouts, %v; want 12", len(held), err)
	}
	batch := &rollout.Batch{}
	for i, h := range held {
		want := s.session.task.Train(s.state.Machine.NextJob + uint64(i/4)).ID
		if h.Rollout.PromptID != want || h.Rollout.Version() != s.state.Machine.Version || h.Age != 0 {
			t.Errorf("rollout %d is of prompt %s, version %d, age %d; want %s, %d, 0",
				i, h.Rollout.PromptID, h.Rollout.Version(), h.Age, want, s.state.Machine.Version)
		}
		batch.Draws = append(batch.Draws, rollout.Draw{ID: h.ID, Group: h.Group, Rollout: h.Rollout,
			Advantage: 1, Weight: 1})
	}
	m, err := s.session.learner.Step(context.Background(), []*rollout.Batch{batch})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(m.Metrics["mean_ratio"]-1) > 1e-5 || math.Abs(m.Metrics["ess"]-1) > 1e-5 {
		t.Errorf("ratios %v, ESS %v: want 1", m.Metrics["mean_ratio"], m.Metrics["ess"])
	}
}

func TestASnapshotGeneratesForTheRunsLimitOfPrompts(t *testing.T) {
	s := trainedSnapshot(t, small(t, "prompts.limit=3"))
	held, err := s.Generate(context.Background(), 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range held {
		if want := s.session.task.Train((s.state.Machine.NextJob + uint64(i/4)) % 3).ID; h.Rollout.PromptID != want {
			t.Errorf("rollout %d is of prompt %s, want %s", i, h.Rollout.PromptID, want)
		}
	}
}

// A table of steps is given steps.
func TestASnapshotGeneratesStepsForATableOfSteps(t *testing.T) {
	tests.LongShared(t)
	s := trainedSnapshot(t, counts(t, counting{turns: 5, slip: 0.2}, "replay.unit=step", "replay.capacity=96",
		"pipeline.batch=24"))
	held, err := s.Generate(context.Background(), 1, 4)
	if err != nil || len(held) <= 16 {
		t.Fatalf("%d steps of 16 episodes, %v", len(held), err)
	}
	for _, h := range held {
		if len(h.Rollout.Turns) != 1 {
			t.Errorf("a step has %d turns", len(h.Rollout.Turns))
		}
	}
	if last := s.Last(); last.Stored <= last.Inserted {
		t.Errorf("%d steps of %d episodes entered", last.Stored, last.Inserted)
	}
}

func TestASnapshotOfARunWithoutATableSaysWhereItIs(t *testing.T) {
	served := filepath.Join(t.TempDir(), "served")
	place := Remote{Address: "grpc://127.0.0.1:1/lab", Options: client.Options{RetryFor: time.Millisecond}}
	if err := createFolder(served, small(t).WithBuffer(place)); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(t.TempDir(), "begun")
	if err := createFolder(begun, small(t)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		served: "its rollouts are in table grpc://127.0.0.1:1/lab of a service", begun: "it has no checkpoint",
	} {
		var missing *NoTableError
		if _, err := OpenSnapshot(context.Background(), dir, nil); !errors.As(err, &missing) || missing.Why != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

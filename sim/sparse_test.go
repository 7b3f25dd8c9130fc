package sim_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

// sparse makes the group of a job in Continues of one piece each, with version 10 for the first, 11 for the second, and so on.
func sparse(t *testing.T, g sim.Sparse, job uint64, size int) []*rollout.Rollout {
	t.Helper()
	gen, err := g.Start(pipeline.Job{Number: job, Size: size, Prompt: sim.Task{}.Train(job)})
	if err != nil {
		t.Fatal(err)
	}
	for v, done := rollout.Version(10), false; !done; v++ {
		if _, err := gen.Rollouts(); err == nil {
			t.Fatal("a group was handed out with pieces left")
		}
		if done, err = gen.Continue(context.Background(), pipeline.Weights{Version: v}, 1); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := gen.Rollouts()
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestSparseGroupsAreValidAndDependOnSeedAndJob(t *testing.T) {
	g := sim.Sparse{Seed: 1, Pieces: 5, Lengths: sim.Lognormal{Median: 100, Sigma: 1, Max: 1000}}
	for job := range uint64(100) {
		if err := (rollout.Group{Rollouts: sparse(t, g, job, 16), Size: 16}).Validate(rollout.Limits{}); err != nil {
			t.Fatalf("job %d: %v", job, err)
		}
	}
	if !reflect.DeepEqual(sparse(t, g, 3, 16), sparse(t, g, 3, 16)) {
		t.Error("the same job twice differs")
	}
	other := g
	other.Seed = 2
	if reflect.DeepEqual(sparse(t, g, 3, 16), sparse(t, g, 4, 16)) || reflect.DeepEqual(sparse(t, g, 3, 16), sparse(t, other, 3, 16)) {
		t.Error("another job, or another seed, makes the same group")
	}
}

func TestARolloutHasItsShareOfThePieces(t *testing.T) {
	lengths := sim.Lognormal{Median: 100, Sigma: 1, Max: 1000}
	const pieces = 8
	for job := range uint64(50) {
		whole, err := (&sim.Generator{Seed: 1, Lengths: lengths}).Start(pipeline.Job{Number: job, Size: 16})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := whole.Continue(context.Background(), pipeline.Weights{}, 0); err != nil {
			t.Fatal(err)
		}
		want, err := whole.Rollouts()
		if err != nil {
			t.Fatal(err)
		}
		longest := 0
		for _, r := range want {
			longest = max(longest, len(r.Tokens))
		}
		for i, r := range sparse(t, sim.Sparse{Seed: 1, Pieces: pieces, Lengths: lengths}, job, 16) {
			// The rollout ends within its last piece.
			n, end := len(r.Tokens), len(want[i].Tokens)*pieces
			if (n-1)*longest >= end || n*longest < end {
				t.Fatalf("job %d: row %d of %d tokens, where the longest has %d, has %d of %d pieces", job, i, len(want[i].Tokens), longest, n, pieces)
			}
			if r.Versions[0] != 10 || r.Versions[n-1] != rollout.Version(9+n) {
				t.Fatalf("job %d: row %d has versions %v", job, i, r.Versions)
			}
		}
	}
	for i, r := range sparse(t, sim.Sparse{Lengths: lengths}, 0, 4) {
		if len(r.Tokens) != 1 {
			t.Errorf("row %d has %d tokens, want 1", i, len(r.Tokens))
		}
	}
}

func TestSparseGroupsOfNobodyAreRefused(t *testing.T) {
	if _, err := (sim.Sparse{}).Start(pipeline.Job{}); err == nil {
		t.Error("an empty group was started")
	}
	if _, err := (sim.Sparse{Pieces: -1}).Start(pipeline.Job{Size: 1}); err == nil {
		t.Error("a group in -1 pieces was started")
	}
}

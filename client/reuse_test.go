package client

import (
	"context"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// streamTwin draws batches of a stream beside those of the embedded twin, and returns them and where their tokens lay.
func streamTwin(t *testing.T, reuse bool, check func(got, want *rollout.Batch)) (batches []*rollout.Batch, places map[*int32]bool) {
	t.Helper()
	f, table, local := twins(t, replay.Options{Sampler: replay.Uniform, Seed: 7, Capacity: 9})
	f.failing(func(m string, n int) error {
		if m == "after sample" && n == 30 { // the connection breaks in the middle
			return broken()
		}
		return nil
	})
	none := 0
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 3, Prefetch: &none})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if reuse {
		s.ReuseMemory()
	}
	places = make(map[*int32]bool)
	for range 60 {
		got, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.Sample(context.Background(), rollout.Request{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		check(got, want)
		batches = append(batches, got)
		places[&got.Draws[0].Rollout.Tokens[0]] = true
	}
	return batches, places
}

// rollouts returns copies of what a batch drew.
func rollouts(b *rollout.Batch) []rollout.Rollout {
	var list []rollout.Rollout
	for _, d := range b.Draws {
		r := *d.Rollout
		r.Tokens = append([]int32(nil), r.Tokens...)
		r.Logprobs = append([]float32(nil), r.Logprobs...)
		list = append(list, r)
	}
	return list
}

func TestBatchesThatShareTheirMemoryAreGoodUntilTheNext(t *testing.T) {
	batches, places := streamTwin(t, true, func(got, want *rollout.Batch) {
		for _, d := range got.Draws {
			if len(d.Rollout.Tokens) != 3 || d.Rollout.Tokens[0] != 1 || d.Rollout.Tokens[1] != 2 || d.Rollout.Logprobs[2] != -0.25 || d.Rollout.Text != "so" {
				t.Fatalf("rollout %d came as %+v", d.ID, *d.Rollout)
			}
		}
		if len(got.Draws) != len(want.Draws) {
			t.Fatalf("%d draws: want %d", len(got.Draws), len(want.Draws))
		}
	})
	if len(places) == len(batches) {
		t.Errorf("%d batches had memory of their own each", len(batches))
	}
}

func TestBatchesKeepTheirMemoryUnlessTheyAreToldToShareIt(t *testing.T) {
	var before [][]rollout.Rollout
	batches, places := streamTwin(t, false, func(got, _ *rollout.Batch) { before = append(before, rollouts(got)) })
	if len(places) != len(batches) {
		t.Errorf("%d batches lay at %d places", len(batches), len(places))
	}
	for i, b := range batches {
		if !reflect.DeepEqual(rollouts(b), before[i]) {
			t.Errorf("batch %d was changed by later ones", i)
		}
	}
}

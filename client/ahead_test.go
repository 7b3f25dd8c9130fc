package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// reading returns a stream that reads ahead in batches of two, of a new table with eight rollouts.
func reading(t *testing.T, slack int) (*client.Table, *client.Stream) {
	t.Helper()
	address, stop := serve()
	t.Cleanup(stop)
	ctx := t.Context()
	c, err := client.Dial(ctx, address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Create(ctx, wire.Table{Name: "ahead", Capacity: 64}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("ahead")
	if _, err := table.Insert(ctx, long(8, 4)); err != nil {
		t.Fatal(err)
	}
	none := 0
	s, err := table.Stream(ctx, wire.SampleRequest{Size: 2, PrefetchSlack: slack, Prefetch: &none})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.ReadAhead()
	return table, s
}

func take(t *testing.T, next func(context.Context) (*rollout.Batch, error)) *rollout.Batch {
	t.Helper()
	b, err := next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counted waits until so many draws were acknowledged and so many are on lease: what a stream sends and nobody answers to
// reaches the service when it does.
func counted(t *testing.T, table *client.Table, acknowledged, onLease int) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := table.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if int(st.Acknowledged) == acknowledged && int(st.OnLease) == onLease {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d draws were acknowledged and %d are on lease: want %d and %d", st.Acknowledged, st.OnLease, acknowledged, onLease)
		}
	}
}

func TestAStreamThatReadsAheadSettlesWhatWasTakenAndNothingElse(t *testing.T) {
	table, s := reading(t, 0)
	seen := make(map[rollout.BatchID]bool)
	for range 10 {
		b := take(t, s.Next)
		if seen[b.ID] {
			t.Fatalf("batch %d came twice", b.ID)
		}
		seen[b.ID] = true
	}
	take(t, s.Exchange) // releases the tenth
	take(t, s.Next)     // acknowledges the eleventh, and is acknowledged itself
	if err := s.Acknowledge(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(t, s.Next) // is not acknowledged
	_ = s.Close()
	counted(t, table, 2*(9+1+1), 0)
}

func TestABatchReadAheadIsDrawnAnewAfterAnAdvance(t *testing.T) {
	for slack, want := range []rollout.Version{1, 0} {
		table, s := reading(t, slack)
		take(t, s.Next)
		counted(t, table, 0, 4) // the next one was drawn
		if err := table.Advance(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		b := take(t, s.Next)
		if b.Version != want {
			t.Errorf("with a slack of %d a batch of version %d came: want %d", slack, b.Version, want)
		}
		take(t, s.Next)
		counted(t, table, 4, 4) // the last one is with us, the next drawn
		_ = s.Close()
		counted(t, table, 4, 0)
	}
}

func TestAStreamThatReadsAheadGoesOnAfterTooFewRollouts(t *testing.T) {
	table, s := reading(t, 0)
	many, err := table.Stream(t.Context(), wire.SampleRequest{Size: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer many.Close()
	many.ReadAhead()
	for range 2 {
		if _, err := many.Next(t.Context()); err == nil {
			t.Fatal("a batch of 16 came from 8 rollouts")
		}
	}
	if _, err := table.Insert(t.Context(), long(8, 4)); err != nil {
		t.Fatal(err)
	}
	take(t, many.Next)
	take(t, s.Next)
}

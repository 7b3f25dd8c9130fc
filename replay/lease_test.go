package replay

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func mustLease(t testing.TB, table *Table, req rollout.Request) *rollout.Batch {
	t.Helper()
	b, err := table.Lease(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAQueueDeliversReleasedRolloutsAgainInTheirOrder(t *testing.T) {
	for kind, want := range map[Sampler][]rollout.ID{FIFO: {1, 2, 3, 5, 6}, LIFO: {6, 5, 4, 3, 1}} {
		table := mustNew(t, Options{Capacity: 6, Sampler: kind})
		mustInsert(t, table, group(0, 1, 1, 1, 1, 1, 1))
		// Leave one batch out: rollouts 4 (fifo) or 2 (lifo) stay on lease.
		a := mustLease(t, table, rollout.Request{Size: 3})
		b := mustLease(t, table, rollout.Request{Size: 1})
		if kind == LIFO {
			_ = table.Release(ctx, b.ID)
			c := mustLease(t, table, rollout.Request{Size: 2}) // 3, 2
			_ = table.Release(ctx, c.ID)
			b = mustLease(t, table, rollout.Request{Size: 1}) // 3
			d := mustLease(t, table, rollout.Request{Size: 1})
			_ = table.Release(ctx, b.ID)
			b = d
		}
		if err := table.Release(ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		got := mustSample(t, table, rollout.Request{Size: 5})
		if !reflect.DeepEqual(drawnIDs(got), want) {
			t.Errorf("%s gave %v, want %v", kind, drawnIDs(got), want)
		}
		if err := table.Acknowledge(ctx, b.ID); err != nil {
			t.Error(err)
		}
		s := statsOf(table)
		balance(t, s, 0)
		if s.Evicted[rollout.EvictedByConsume] != 6 || s.UsesAtEviction.Sum() != 6 {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

func TestWhatIsOnLeaseStillTakesRoomInAQueue(t *testing.T) {
	table := mustNew(t, Options{Capacity: 2, Sampler: FIFO})
	mustInsert(t, table, group(0, 1, 1))
	b := mustLease(t, table, rollout.Request{Size: 2})
	if _, err := table.Insert(ctx, group(0, 1)); !errors.Is(err, rollout.ErrFull) {
		t.Errorf("got %v", err)
	}
	if err := table.Acknowledge(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, table, group(0, 1))
}

func TestALeaseExpires(t *testing.T) {
	clock := &fakeClock{time.Unix(0, 0)}
	table := mustNew(t, Options{Capacity: 4, MaxUses: 1, LeaseSeconds: 1, Clock: clock.time})
	mustInsert(t, table, group(0, 1, 1))
	b := mustLease(t, table, rollout.Request{Size: 2, ID: "x"})
	if _, err := table.Sample(ctx, rollout.Request{Size: 1}); !errors.Is(err, rollout.ErrStarved) {
		t.Errorf("draws on lease do not count against max_uses: %v", err)
	}
	clock.now = clock.now.Add(time.Second)
	again := mustLease(t, table, rollout.Request{Size: 2, ID: "x"})
	if again.ID == b.ID {
		t.Error("an expired batch was given again")
	}
	if err := table.Acknowledge(ctx, b.ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("acknowledging an expired batch gave %v", err)
	}
	if err := table.Acknowledge(ctx, again.ID); err != nil {
		t.Fatal(err)
	}
	s := statsOf(table)
	balance(t, s, 0)
	if s.Returned != 2 || s.Acknowledged != 2 {
		t.Errorf("%+v", s)
	}
}

func TestARepeatedRequestGetsTheSameBatch(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	mustInsert(t, table, group(0, 1, 1, 1, 1))
	req := rollout.Request{Size: 2, ID: "step 1"}
	a := mustLease(t, table, req)
	if b := mustLease(t, table, req); b != a {
		t.Error("a repeat while on lease got another batch")
	}
	if err := table.Acknowledge(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	if b := mustLease(t, table, req); b != a {
		t.Error("a repeat after the acknowledgement got another batch")
	}
	if b := mustSample(t, table, req); b != a {
		t.Error("a repeat by Sample got another batch")
	}
	req.Size = 3
	if _, err := table.Sample(ctx, req); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("the same id for another size gave %v", err)
	}
	// A batch on lease that Sample repeats is acknowledged.
	next := rollout.Request{Size: 2, ID: "step 2"}
	c := mustLease(t, table, next)
	if b := mustSample(t, table, next); b != c {
		t.Error("Sample did not repeat the batch on lease")
	}
	s := statsOf(table)
	balance(t, s, 0)
	if s.Drawn != 4 || s.Acknowledged != 4 {
		t.Errorf("%+v", s)
	}
	for i := range remembered {
		mustSample(t, table, rollout.Request{Size: 1, ID: fmt.Sprint(i)})
	}
	if b := mustSample(t, table, next); b == c {
		t.Error("a batch was remembered beyond the limit")
	}
}

func TestUsesAreCountedAtTheVersionOfTheDrawInWhateverOrderTheyAreAcknowledged(t *testing.T) {
	table := mustNew(t, Options{Capacity: 1})
	mustInsert(t, table, group(0, 1))
	var batches []*rollout.Batch
	for _, v := range []rollout.Version{1, 3, 4} {
		if err := table.Advance(ctx, v); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, mustLease(t, table, rollout.Request{Size: 1}))
	}
	for _, i := range []int{1, 0, 2} {
		if err := table.Acknowledge(ctx, batches[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	s := statsOf(table)
	// Used at 3 (first), at 1 (no time since: it was drawn before), at 4 (1 since 3).
	if want := []rollout.Bin{{Value: 0, Count: 1}, {Value: 1, Count: 1}}; !reflect.DeepEqual(s.SinceLastUse.Bins(), want) {
		t.Errorf("since last use %v", s.SinceLastUse.Bins())
	}
	if s.Staleness.Sum() != 8 || s.UsesPresent.Sum() != 3 {
		t.Errorf("%+v", s)
	}
}

func TestARewindForgetsWhatWasDrawnSince(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	mustInsert(t, table, group(0, 1, 1))
	old := mustSample(t, table, rollout.Request{Size: 1, ID: "old"})
	for v := rollout.Version(1); v <= 3; v++ {
		if err := table.Advance(ctx, v); err != nil {
			t.Fatal(err)
		}
		mustInsert(t, table, group(v, 1))
	}
	newer := mustSample(t, table, rollout.Request{Size: 4, ID: "newer"})
	leased := mustLease(t, table, rollout.Request{Size: 1})
	if err := table.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := table.Acknowledge(ctx, leased.ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("a batch drawn after the rewound version is still on lease: %v", err)
	}
	if s := statsOf(table); s.Version != 1 || s.Present != 3 || s.Evicted[rollout.EvictedByRewind] != 2 {
		t.Errorf("%+v", s)
	}
	if b := mustSample(t, table, rollout.Request{Size: 1, ID: "old"}); b != old {
		t.Error("a batch drawn before was forgotten")
	}
	b := mustSample(t, table, rollout.Request{Size: 3, ID: "newer"})
	if b.ID == newer.ID {
		t.Error("a batch drawn after is remembered")
	}
	for _, d := range b.Draws {
		if d.Staleness < 0 {
			t.Errorf("staleness %d", d.Staleness)
		}
	}
}

func TestSettlingWhatWasNeverDrawnIsRefused(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Shards: 2})
	for _, id := range []rollout.BatchID{0, 1, 2, 99} {
		if err := table.Acknowledge(ctx, id); !errors.Is(err, rollout.ErrNoLease) {
			t.Errorf("acknowledging %d gave %v", id, err)
		}
		if err := table.Release(ctx, id); !errors.Is(err, rollout.ErrNoLease) {
			t.Errorf("releasing %d gave %v", id, err)
		}
	}
}

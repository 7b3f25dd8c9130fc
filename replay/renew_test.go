package replay

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// leased returns a queue of six with a lease of two at each of the seconds 0, 1 and 2, of ten seconds each.
func leased(t *testing.T, shards int) (*Table, *fakeClock, []*rollout.Batch) {
	t.Helper()
	clock := &fakeClock{time.Unix(100, 0)}
	table := mustNew(t, Options{Capacity: 12, Shards: shards, Sampler: FIFO, LeaseSeconds: 10, Clock: clock.time})
	for range 6 * shards {
		mustInsert(t, table, group(0, 1))
	}
	var batches []*rollout.Batch
	for range 3 {
		batches = append(batches, mustLease(t, table, rollout.Request{Size: 2, Shard: shards - 1}))
		clock.now = clock.now.Add(time.Second)
	}
	return table, clock, batches
}

func TestARenewedLeaseRunsAnewAndTheOthersDoNot(t *testing.T) {
	for _, shards := range []int{1, 2} {
		for renewed := range 3 {
			table, clock, batches := leased(t, shards)
			if err := table.Server().Renew(batches[renewed].ID); err != nil { // at second 3, of 103
				t.Fatal(err)
			}
			clock.now = time.Unix(112, 0) // when the last of the three would end
			for i, b := range batches {
				err := table.Acknowledge(ctx, b.ID)
				if i == renewed && err != nil {
					t.Errorf("the renewed batch %d: %v", i, err)
				}
				if i != renewed && !errors.Is(err, rollout.ErrNoLease) {
					t.Errorf("batch %d was not renewed: %v", i, err)
				}
			}
			balance(t, statsOf(table), 0)
			if s := statsOf(table); s.Returned != 4 || s.Acknowledged != 2 {
				t.Errorf("with batch %d renewed %d draws went back, %d count", renewed, s.Returned, s.Acknowledged)
			}
		}
	}
}

func TestARenewedLeaseEndsAfterAWholeTimeout(t *testing.T) {
	table, clock, batches := leased(t, 1)
	if err := table.Server().Renew(batches[0].ID); err != nil {
		t.Fatal(err)
	}
	clock.now = time.Unix(113, 0) // ten seconds after it was renewed
	if err := table.Server().Renew(batches[0].ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("renewing a lease that is over: %v", err)
	}
	if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 6})); !slices.Equal(got, []rollout.ID{1, 2, 3, 4, 5, 6}) {
		t.Errorf("the queue gives %v", got)
	}
}

func TestWhatIsNotOnLeaseCannotBeRenewed(t *testing.T) {
	table, _, batches := leased(t, 2)
	if err := table.Acknowledge(ctx, batches[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := table.Release(ctx, batches[1].ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []rollout.BatchID{0, batches[0].ID, batches[1].ID, 99, 1 << 63} {
		if err := table.Server().Renew(id); !errors.Is(err, rollout.ErrNoLease) {
			t.Errorf("renewing batch %d: %v", id, err)
		}
	}
}

func TestTheNextExpiryIsThatOfTheFirstLeaseThatStands(t *testing.T) {
	table, clock, batches := leased(t, 2)
	check := func(what string, want int64) {
		t.Helper()
		if at, ok := table.Server().NextExpiry(1); ok != (want != 0) || ok && !at.Equal(time.Unix(want, 0)) {
			t.Errorf("%s the next lease of shard 1 ends at %v, %v; want %d", what, at.Unix(), ok, want)
		}
	}
	if at, ok := table.Server().NextExpiry(0); ok {
		t.Errorf("shard 0 has no lease, and one that ends at %v", at)
	}
	check("at first", 110)
	if err := table.Server().Renew(batches[0].ID); err != nil { // until 113
		t.Fatal(err)
	}
	check("once the first was renewed", 111)
	if err := table.Acknowledge(ctx, batches[1].ID); err != nil {
		t.Fatal(err)
	}
	check("once the second was settled", 112)
	clock.now = time.Unix(112, 0)
	check("at the end of the third", 113)
	clock.now = time.Unix(113, 0)
	check("at the end of all", 0)
}

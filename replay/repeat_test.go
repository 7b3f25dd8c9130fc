package replay

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func TestInsertedKnowsWhatABatchIDGot(t *testing.T) {
	table := mustNew(t, Options{Capacity: 2})
	for i := range 3 {
		if _, err := table.Server().InsertOnce(ctx, fmt.Sprint("batch ", i), group(0, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	mustInsert(t, table, group(0, 1)) // without an id
	if _, err := table.Server().InsertOnce(ctx, "ahead", group(9, 1)); err == nil {
		t.Fatal("a token newer than the table came in")
	}
	if _, err := table.Server().InsertOnce(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]rollout.ID{"batch 0": {1, 2}, "batch 2": {5, 6}, "none": {}} { // evicted or not
		if ids, ok := table.Server().Inserted(id); !ok || !slices.Equal(ids, want) {
			t.Errorf("%q got %v, %v; want %v", id, ids, ok, want)
		}
	}
	for _, id := range []string{"", "batch 3", "ahead"} {
		if ids, ok := table.Server().Inserted(id); ok {
			t.Errorf("%q got %v, and was never inserted", id, ids)
		}
	}
}

func TestRepeatsKnowsWhetherARequestWouldDraw(t *testing.T) {
	clock := &fakeClock{time.Unix(0, 0)}
	table := mustNew(t, Options{Capacity: 16, Shards: 2, LeaseSeconds: 1, Clock: clock.time})
	for range 8 {
		mustInsert(t, table, group(0, 1))
	}
	a, b := rollout.Request{Size: 2, ID: "a"}, rollout.Request{Size: 2, ID: "b", Shard: 1}
	check := func(what string, req rollout.Request, want bool) {
		t.Helper()
		drawn := statsOf(table).Drawn
		if got := table.Server().Repeats(req); got != want || statsOf(table).Drawn != drawn {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("before", a, false)
	first := mustLease(t, table, a)
	check("on lease", a, true)
	check("the id in another shard", rollout.Request{Size: 2, ID: "a", Shard: 1}, false)
	check("no id", rollout.Request{Size: 2}, false)
	check("no such shard", rollout.Request{Size: 2, ID: "a", Shard: 2}, false)
	check("no such shard", rollout.Request{Size: 2, ID: "a", Shard: -1}, false)
	clock.now = clock.now.Add(time.Second)
	check("when the lease is over", a, false)
	mustSample(t, table, b)
	check("acknowledged", b, true)
	again := mustLease(t, table, a)
	if err := table.Release(ctx, again.ID); err != nil {
		t.Fatal(err)
	}
	check("released", a, false)
	if first.ID == again.ID {
		t.Error("a request whose lease was over got the same batch")
	}
	if second := mustSample(t, table, b); !reflect.DeepEqual(second, mustSample(t, table, b)) {
		t.Error("a request that repeats drew again")
	}
}

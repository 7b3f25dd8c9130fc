package replay

import (
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// same checks a table's flow against its statistics.
func sameFlow(t *testing.T, table *Table) Flow {
	t.Helper()
	f := table.Server().Flow()
	s := statsOf(table)
	want := Flow{
		Inserted: s.Inserted, Drawn: s.Drawn, Acknowledged: s.Acknowledged, Returned: s.Returned,
		Rewound: s.Evicted[rollout.EvictedByRewind], Present: s.Present, Bytes: s.PresentBytes,
	}
	if f != want {
		t.Fatalf("flow is %+v, the statistics say %+v", f, want)
	}
	return f
}

func TestTheFlowIsThatOfAllShardsAsOfNow(t *testing.T) {
	clock := &fakeClock{time.Unix(0, 0)}
	table := mustNew(t, Options{Capacity: 6, Shards: 3, LeaseSeconds: 1, Clock: clock.time})
	if f := sameFlow(t, table); f != (Flow{}) {
		t.Errorf("of an empty table: %+v", f)
	}
	mustAdvance := func(v rollout.Version) {
		t.Helper()
		if err := table.Advance(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	mustAdvance(4)
	for i := range 9 { // three of them evict others
		mustInsert(t, table, group(rollout.Version(i%5), 1))
		sameFlow(t, table)
	}
	for shard := range 3 {
		mustLease(t, table, rollout.Request{Size: 1, Shard: shard})
		mustSample(t, table, rollout.Request{Size: 2, Shard: shard})
		sameFlow(t, table)
	}
	clock.now = clock.now.Add(time.Second)
	if f := table.Server().Flow(); f.Drawn != 9 || f.Returned != 3 || f.Acknowledged != 6 { // the look itself ends the leases
		t.Errorf("when the leases are over: %+v", f)
	}
	if err := table.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	// Of rollouts 3 to 8, numbered from 0, those of versions 3, 4, 0, 1, 2, 3 were there.
	if f := sameFlow(t, table); f.Rewound != 4 || f.Present != 2 || f.Inserted != 9 || f.Bytes == 0 {
		t.Errorf("after the rewinding: %+v", f)
	}
}

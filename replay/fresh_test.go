package replay

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestFreshDrawsAreTheOldestNeverHandedOutAsSuch(t *testing.T) {
	for _, kind := range Samplers() {
		if kind.Consumes() {
			continue
		}
		table := mustNew(t, Options{Capacity: 8, Sampler: kind})
		mustInsert(t, table, group(0, 1, 0, 1, 0, 1, 0))
		mustSample(t, table, rollout.Request{Size: 4}) // as replay, which does not count
		b := mustLease(t, table, rollout.Request{Size: 4, Fresh: 3})
		if got := drawnIDs(b)[:3]; !reflect.DeepEqual(got, []rollout.ID{1, 2, 3}) {
			t.Errorf("%s: fresh were %v", kind, got)
		}
		for i, d := range b.Draws {
			if d.Fresh != (i < 3) || d.Fresh && (d.Probability != 1 || d.Weight != 1) {
				t.Errorf("%s: draw %d is %+v", kind, i, d)
			}
			if !kind.Replaces() && !d.Fresh && d.ID < 4 {
				t.Errorf("%s: rollout %d came twice in a batch", kind, d.ID)
			}
		}
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 1, Fresh: 1})); got[0] != 4 {
			t.Errorf("%s: next fresh was %v", kind, got)
		}
		if err := table.Release(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		for _, h := range table.Inspect().Held() {
			if h.Fresh != (h.ID != 4) {
				t.Errorf("%s: rollout %d is held as %+v", kind, h.ID, h)
			}
		}
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 5, Fresh: 5})); !reflect.DeepEqual(got, []rollout.ID{1, 2, 3, 5, 6}) {
			t.Errorf("%s: after a release fresh were %v", kind, got)
		}
		if _, err := table.Sample(ctx, rollout.Request{Size: 2, Fresh: 1}); !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("%s: none is fresh, and sampling one gave %v", kind, err)
		}
		mustInsert(t, table, group(0, 1))
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 1, Fresh: 1})); got[0] != 7 {
			t.Errorf("%s: fresh was %v", kind, got)
		}
	}
}

func TestAQueueGivesEachRolloutOnceWhateverIsAskedAsFresh(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Sampler: FIFO})
	mustInsert(t, table, group(0, 1, 0, 1))
	b := mustSample(t, table, rollout.Request{Size: 3, Fresh: 2})
	if !reflect.DeepEqual(drawnIDs(b), []rollout.ID{1, 2, 3}) || b.Draws[0].Fresh {
		t.Errorf("drew %+v", b)
	}
}

func TestImpossibleFreshRequestsAreRefusedForGood(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	grouped := mustNew(t, Options{Capacity: 4, Unit: UnitGroup, GroupSize: 2})
	mustInsert(t, table, group(0, 1, 1, 1, 1))
	mustInsert(t, grouped, group(0, 1, 1), group(0, 1, 1))
	for name, f := range map[string]func() error{
		"negative":     func() error { _, err := table.Sample(ctx, rollout.Request{Size: 2, Fresh: -1}); return err },
		"above size":   func() error { _, err := table.Lease(ctx, rollout.Request{Size: 2, Fresh: 3}); return err },
		"half a group": func() error { _, err := grouped.Sample(ctx, rollout.Request{Size: 4, Fresh: 1}); return err },
		"an odd size":  func() error { _, err := grouped.Sample(ctx, rollout.Request{Size: 3}); return err },
		"too many":     func() error { _, err := table.Sample(ctx, rollout.Request{Size: 5, Fresh: 5}); return err },
	} {
		if err := f(); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if s := statsOf(table); s.Drawn != 0 {
		t.Errorf("%+v", s)
	}
}

// Fresh draws may exhaust what the others of the batch would have fallen on.
func TestFreshAndOtherDrawsTogetherRespectMaxUses(t *testing.T) {
	for _, kind := range Samplers() {
		if kind.Consumes() {
			continue
		}
		table := mustNew(t, Options{Capacity: 4, Sampler: kind, MaxUses: 2})
		mustInsert(t, table, group(0, 1, 0))
		mustLease(t, table, rollout.Request{Size: 2, Fresh: 2})
		mustInsert(t, table, group(0, 1))
		// Two have one draw left, and the fresh one two.
		_, err := table.Lease(ctx, rollout.Request{Size: 5, Fresh: 1})
		if want := rollout.ErrStarved; kind.Replaces() && !errors.Is(err, want) || !kind.Replaces() && err == nil {
			t.Errorf("%s: five of four draws gave %v", kind, err)
		}
		n := 3
		if kind.Replaces() {
			n = 4
		}
		b := mustLease(t, table, rollout.Request{Size: n, Fresh: 1})
		if b.Draws[0].ID != 3 {
			t.Errorf("%s: drew %v", kind, drawnIDs(b))
		}
		balance(t, statsOf(table), 2+n)
	}
}

// What other draws on lease exhausted was not handed out as fresh, and still is when they go back.
func TestWhatGoesBackIsAsFreshAsItWas(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, MaxUses: 1})
	mustInsert(t, table, group(0, 1, 0))
	b := mustLease(t, table, rollout.Request{Size: 2})
	if _, err := table.Sample(ctx, rollout.Request{Size: 1, Fresh: 1}); !errors.Is(err, rollout.ErrStarved) {
		t.Errorf("all are on lease, and a fresh draw gave %v", err)
	}
	for _, h := range table.Inspect().Held() {
		if !h.Fresh || h.Probability != 0 {
			t.Errorf("held is %+v", h)
		}
	}
	restored := mustNew(t, table.Options())
	if err := restored.Restore(snapshotReader(t, table)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*Table{table, restored} {
		if err := table.Release(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 2, Fresh: 2})); !reflect.DeepEqual(got, []rollout.ID{1, 2}) {
			t.Errorf("fresh were %v", got)
		}
	}
}

// The queue of the fresh forgets what has left, whatever comes and goes.
func TestTheQueueOfTheFreshHoldsWhatIsThere(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	for i := range 10_000 {
		mustInsert(t, table, group(0, 1))
		if i%3 == 0 {
			mustSample(t, table, rollout.Request{Size: 1, Fresh: 1})
		}
		if n := table.shards[0].fresh.Waiting.Len; n > 8 {
			t.Fatalf("after %d insertions it has %d entries", i, n)
		}
	}
	b := mustSample(t, table, rollout.Request{Size: 8, Fresh: 7})
	if b.Draws[0].ID < 9993 {
		t.Errorf("drew %v", drawnIDs(b))
	}
}

// An epoch that ends within a batch gives nothing twice in it, fresh draws included.
func TestNothingComesTwiceInABatchWithFreshDraws(t *testing.T) {
	for _, kind := range []Sampler{Distinct, Epoch, Unseen, LeastUsed} {
		table := mustNew(t, Options{Capacity: 5, Sampler: kind})
		for i := range 200 {
			mustInsert(t, table, group(0, 1))
			if i < 5 {
				continue
			}
			req := rollout.Request{Size: 1 + i%5}
			req.Fresh = min(req.Size, i%3, table.shards[0].fresh.Waiting.Len)
			seen := map[rollout.ID]bool{}
			for _, d := range mustSample(t, table, req).Draws {
				if seen[d.ID] {
					t.Fatalf("%s: batch %d: rollout %d came twice", kind, i, d.ID)
				}
				seen[d.ID] = true
			}
		}
	}
}

func TestARepeatedRequestForFreshDrawsGetsThemOnce(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	mustInsert(t, table, group(0, 1, 0, 1, 0))
	for i := range 3 {
		b := mustSample(t, table, rollout.Request{Size: 2, Fresh: 2, ID: fmt.Sprint("step", i/2)})
		if want := []rollout.ID{1, 1, 3}[i]; b.Draws[0].ID != want {
			t.Errorf("request %d got %v", i, drawnIDs(b))
		}
	}
}

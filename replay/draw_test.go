package replay

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
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

func TestALeaseGoesByNoDate(t *testing.T) {
	table := mustNew(t, Options{Capacity: 1})
	mustInsert(t, table, group(0, 1))
	mustLease(t, table, rollout.Request{Size: 1})
	deadline := table.shards[0].leases[0].Deadline
	if deadline == deadline.Round(0) { // which strips the reading of the clock that nobody sets
		t.Error("the end of a lease is a date only, which may be set")
	}
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
	if want := []rollout.Bin{{Value: 0, Count: 1}, {Value: 1, Count: 1}}; !reflect.DeepEqual(s.SinceLastUse.Bins(),
		want) {
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
			if err := table.ServiceView().Renew(batches[renewed].ID); err != nil { // at second 3, of 103
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
	if err := table.ServiceView().Renew(batches[0].ID); err != nil {
		t.Fatal(err)
	}
	clock.now = time.Unix(113, 0) // ten seconds after it was renewed
	if err := table.ServiceView().Renew(batches[0].ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("renewing a lease that is over: %v", err)
	}
	if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 6})); !slices.Equal(got,
		[]rollout.ID{1, 2, 3, 4, 5, 6}) {
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
		if err := table.ServiceView().Renew(id); !errors.Is(err, rollout.ErrNoLease) {
			t.Errorf("renewing batch %d: %v", id, err)
		}
	}
}

func TestTheNextExpiryIsThatOfTheFirstLeaseThatStands(t *testing.T) {
	table, clock, batches := leased(t, 2)
	check := func(what string, want int64) {
		t.Helper()
		if at, ok := table.ServiceView().NextExpiry(1); ok != (want != 0) || ok && !at.Equal(time.Unix(want, 0)) {
			t.Errorf("%s the next lease of shard 1 ends at %v, %v; want %d", what, at.Unix(), ok, want)
		}
	}
	if at, ok := table.ServiceView().NextExpiry(0); ok {
		t.Errorf("shard 0 has no lease, and one that ends at %v", at)
	}
	check("at first", 110)
	if err := table.ServiceView().Renew(batches[0].ID); err != nil { // until 113
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

func TestInsertedKnowsWhatABatchIDGot(t *testing.T) {
	table := mustNew(t, Options{Capacity: 2})
	for i := range 3 {
		if _, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint("batch ", i), group(0, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	mustInsert(t, table, group(0, 1)) // without an id
	if _, err := table.ServiceView().InsertOnce(ctx, "ahead", group(9, 1)); err == nil {
		t.Fatal("a token newer than the table came in")
	}
	if _, err := table.ServiceView().InsertOnce(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]rollout.ID{"batch 0": {1, 2}, "batch 2": {5, 6}, "none": {}} { // evicted or not
		var groups []rollout.Group
		if len(want) > 0 {
			groups = append(groups, group(0, 1, 1))
		}
		if ids, ok, err := table.ServiceView().Inserted(id, groups...); !ok || err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q got %v, %v, %v; want %v", id, ids, ok, err, want)
		}
	}
	for _, id := range []string{"", "batch 3", "ahead"} {
		if ids, ok, _ := table.ServiceView().Inserted(id); ok {
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
		if got := table.ServiceView().Repeats(req); got != want || statsOf(table).Drawn != drawn {
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
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 5, Fresh: 5})); !reflect.DeepEqual(got,
			[]rollout.ID{1, 2, 3, 5, 6}) {
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
		if got := drawnIDs(mustSample(t, table, rollout.Request{Size: 2, Fresh: 2})); !reflect.DeepEqual(got,
			[]rollout.ID{1, 2}) {
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

// answer is one answer of a naive memory.
type answer struct {
	id     string
	weight int64
}

func TestTheLatestAnswersAreRememberedWithinTheirWeight(t *testing.T) {
	for seed := range uint64(50) {
		random := rollout.Stream(seed, "memory", 0)
		limit, least, most := 1+random.IntN(12), random.IntN(4), int64(random.IntN(60))
		m := newAnswers[int64](limit)
		m.bound = bound[int64]{func(v int64) int64 { return v }, most, least}
		var want []answer
		var earlier, then []answerOf[int64] // what list returned, and a copy
		for i := range 300 {
			if random.IntN(20) == 0 {
				odd := func(v int64) bool { return v%2 == 1 }
				m.forget(odd)
				want = slices.DeleteFunc(want, func(a answer) bool { return odd(a.weight) })
			}
			a := answer{fmt.Sprint("id-", i), random.Int64N(20)}
			m.put(a.id, a.weight)
			want = append(want, a)
			if len(want) > limit {
				want = want[1:]
			}
			for total := sumOf(want); total > most && len(want) > least; want = want[1:] {
				total -= want[0].weight
			}
			var got []answer
			m.each(func(id string, v int64) { got = append(got, answer{id, v}) })
			if !slices.Equal(got, want) || len(m.answers) != len(want) || m.weight != sumOf(want) ||
				m.ids != idsOf(want) {
				t.Fatalf("seed %d, step %d: %v (%d answers, weight %d), want %v", seed, i, got, len(m.answers),
					m.weight, want)
			}
			if !slices.Equal(earlier, then) {
				t.Fatalf("seed %d, step %d: the list changed to %v, was %v", seed, i, earlier, then)
			}
			earlier = m.list()
			then = slices.Clone(earlier)
			for at, w := range want {
				if earlier[at] != (answerOf[int64]{w.id, w.weight}) {
					t.Fatalf("seed %d, step %d: the list is %v, want %v", seed, i, earlier, want)
				}
				if v, ok := m.get(w.id); !ok || v != w.weight {
					t.Fatalf("seed %d, step %d: %s is %d, %v, want %d", seed, i, w.id, v, ok, w.weight)
				}
			}
		}
	}
}

func idsOf(answers []answer) (total int64) {
	for _, a := range answers {
		total += idBytes(a.id)
	}
	return total
}

func sumOf(answers []answer) (total int64) {
	for _, a := range answers {
		total += a.weight
	}
	return total
}

func TestLargeBatchesThatWereConsumedAreNotHeldForTheirRequests(t *testing.T) {
	tests.Long(t)
	const tokens = 4 << 20 // 52 MB of payload in each batch
	table, err := New(Options{Sampler: FIFO, Capacity: 64})
	if err != nil {
		t.Fatal(err)
	}
	big := &rollout.Rollout{
		PromptID: "p", Temperature: 1, TopP: 1, Tokens: make([]int32, tokens), Mask: make([]uint8, tokens),
		Logprobs: make([]float32, tokens), Versions: make([]rollout.Version, tokens),
	}
	for i := range big.Mask {
		big.Mask[i] = 1
	}
	for i := range 20 {
		if _, err := table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{big}}); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Sample(t.Context(), rollout.Request{Size: 1, ID: fmt.Sprint("request-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(table.shards[0].answered.answers); n != rememberedAlways {
		t.Errorf("%d batches are remembered, want %d", n, rememberedAlways)
	}
	for i, a := range table.shards[0].answered.ring[:20-rememberedAlways] {
		if a.Answer != nil {
			t.Errorf("batch %d was forgotten and is still held", i)
		}
	}
	again, err := table.Sample(t.Context(), rollout.Request{Size: 1, ID: "request-19"})
	if err != nil || len(again.Draws) != 1 || again.Draws[0].ID != 20 {
		t.Errorf("the last request repeated got %v, %v", again, err)
	}
}

func snapshotReader(t testing.TB, table *Table) *bytes.Reader {
	t.Helper()
	return bytes.NewReader(snapshotOf(t, table))
}

// threeTurns is a rollout of three turns whose rewards are 1, 2 and 3 and whose policy's tokens are of these versions.
func threeTurns(versions ...rollout.Version) *rollout.Rollout {
	r := &rollout.Rollout{PromptID: "p", Temperature: 1, TopP: 1, Reward: 9}
	for i, v := range versions {
		r.Tokens, r.Mask = append(r.Tokens, 1, 2), append(r.Mask, 0, 1)
		r.Logprobs, r.Versions = append(r.Logprobs, 0, -1), append(r.Versions, rollout.NoVersion, v)
		r.Turns = append(r.Turns, rollout.Turn{Start: int32(2 * i), End: int32(2*i + 2), Reward: float32(i + 1)})
	}
	return r
}

func TestATableOfStepsKeepsEachTurnByItself(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, Sampler: FIFO})
	if err := table.Advance(ctx, 5); err != nil {
		t.Fatal(err)
	}
	ids := mustInsert(t, table,
		rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(3, 4, 5), group(2, 5).Rollouts[0]}})
	if !reflect.DeepEqual(ids, []rollout.ID{1, 2, 3, 4}) {
		t.Errorf("the ids are %v", ids)
	}
	b := mustSample(t, table, rollout.Request{Size: 4})
	for i, d := range b.Draws {
		want := []struct {
			reward    float32
			tokens    int
			staleness int32
		}{{1, 2, 2}, {2, 4, 1}, {3, 6, 0}, {5, 2, 3}}[i]
		if d.Rollout.Reward != want.reward || len(d.Rollout.Tokens) != want.tokens || d.Staleness != want.staleness {
			t.Errorf("step %d is %+v of staleness %d", i, d.Rollout, d.Staleness)
		}
		// The advantage is of the whole: rewards 9 and 5.
		if d.Group != 1 || d.GroupMean != 7 || d.GroupStd != 2 || (d.Advantage > 0) != (i < 3) {
			t.Errorf("step %d is drawn as %+v", i, d)
		}
	}
	if s := statsOf(table); s.Inserted != 4 || s.InsertedGroups != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRolloutsThatMakeNoStepsAreRefusedWhole(t *testing.T) {
	table := mustNew(t, Options{Capacity: 5, Unit: UnitStep})
	outside, silent := threeTurns(0, 0, 0), threeTurns(0, 0, 0)
	outside.Turns = outside.Turns[1:]
	silent.Turns[1] = rollout.Turn{Start: 2, End: 3}
	silent.Turns[2].Start = 3
	for want, g := range map[string]rollout.Group{
		"row 2: turns is none around token 1 of the policy": {Rollouts: []*rollout.Rollout{group(0,
			1).Rollouts[0], outside}},
		"row 1: turns is turn 1 without a token of the policy": {Rollouts: []*rollout.Rollout{silent}},
		"row 1: group is 6 steps: insert groups of no more steps": {Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0),
			threeTurns(0, 0, 0)}},
	} {
		_, err := table.Insert(ctx, group(0, 1), g)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if s := statsOf(table); s.Inserted != 0 || s.Refused != 3+2+3 {
		t.Errorf("%+v", s)
	}
	_, err := table.Insert(ctx, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 1, 0)}})
	if !errors.Is(err, rollout.ErrAhead) {
		t.Errorf("a step ahead of the table gave %v", err)
	}
}

func TestATableOfGroupsTakesGroupsOfOneSize(t *testing.T) {
	size := group(0, 1).Rollouts[0].Bytes()
	table := mustNew(t, Options{Capacity: 8, Unit: UnitGroup, GroupSize: 2, CapacityBytes: 5 * size})
	heavy := group(0, 1, 1)
	heavy.Rollouts[1].Text = string(make([]byte, 4*size))
	for want, g := range map[string]rollout.Group{
		"row 2: group is 3 rollouts: insert groups of group_size 2": group(0, 1, 1, 1),
		"row 2: group is 1 rollouts: insert groups of group_size 2": group(0, 1),
		"row 2: group is ": heavy,
	} {
		_, err := table.Insert(ctx, group(0, 1, 0), g)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// Two groups fit the bytes; the oldest leaves whole.
	for range 3 {
		mustInsert(t, table, group(0, 1, 0))
	}
	var ids []rollout.ID
	for _, h := range table.Inspect().Held() {
		ids = append(ids, h.ID)
	}
	if !reflect.DeepEqual(ids, []rollout.ID{3, 4, 5, 6}) || statsOf(table).Evicted[rollout.EvictedByCapacity] != 2 {
		t.Errorf("held are %v", ids)
	}
}

// The age of a group is that of its oldest rollout, in its weight and in its expiry.
func TestAGroupIsAsOldAsItsOldest(t *testing.T) {
	p := prioritizedOptions()
	p.PriorityBase, p.PriorityExponent, p.AgeDecay = BaseRecency, 1, 10
	table := mustNew(t, withPriorities(p, Options{Capacity: 4, Unit: UnitGroup, GroupSize: 2, MaxStaleness: 25}))
	if err := table.Advance(ctx, 20); err != nil {
		t.Fatal(err)
	}
	mixed := rollout.Group{Rollouts: []*rollout.Rollout{group(20, 1).Rollouts[0], group(10, 0).Rollouts[0]}}
	mustInsert(t, table, mixed, group(20, 1, 0))
	// exp(-1) and 1.
	const young = 0.7310585786300049
	if got := probabilities(table); !alike(got, 1-young, 1-young, young, young) {
		t.Errorf("the probabilities are %v", got)
	}
	if a := table.Inspect().ByAge(); len(a) != 2 || a[0].Age != 0 || a[1].Age != 10 || a[1].Units != 1 {
		t.Errorf("by age they are %v", a)
	}
	if err := table.Advance(ctx, 36); err != nil {
		t.Fatal(err)
	}
	if h := table.Inspect().Held(); len(h) != 2 || h[0].ID != 3 {
		t.Errorf("held are %+v", h)
	}
}

// A group's base is the mean of its rollouts', and a report of one changes it.
func TestTheBaseOfAGroupIsTheMean(t *testing.T) {
	table := rewarded(t, func(o *Options) { o.Unit, o.GroupSize, o.Capacity = UnitGroup, 2, 4 }, 1, 2)
	mustInsert(t, table, group(0, 3, 6))
	if got := probabilities(table); !alike(got, 0.25, 0.25, 0.75, 0.75) {
		t.Errorf("the probabilities are %v", got)
	}
	if err := updateOf(table, Priority{2, 8}); err != nil {
		t.Fatal(err)
	}
	if got := probabilities(table); !alike(got, 0.5, 0.5, 0.5, 0.5) {
		t.Errorf("the probabilities are %v", got)
	}
}

func TestAQueueOfGroupsGivesWholeGroupsInOrder(t *testing.T) {
	for kind, want := range map[Sampler][]rollout.ID{FIFO: {1, 2, 3, 4, 5, 6}, LIFO: {7, 8, 9, 4, 5, 6}} {
		table := mustNew(t, Options{Capacity: 9, Sampler: kind, Unit: UnitGroup, GroupSize: 3})
		for range 3 {
			mustInsert(t, table, group(0, 1, 0, 1))
		}
		if _, err := table.Insert(ctx, group(0, 1, 0, 1)); !errors.Is(err, rollout.ErrFull) {
			t.Errorf("%s: a full queue: %v", kind, err)
		}
		if _, err := table.Sample(ctx, rollout.Request{Size: 4}); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: a part of a group: %v", kind, err)
		}
		for range 2 { // released, they are drawn again
			b := mustLease(t, table, rollout.Request{Size: 6})
			if got := drawnIDs(b); !slices.Equal(got, want) {
				t.Errorf("%s: drew %v, want %v", kind, got, want)
			}
			if err := table.Release(ctx, b.ID); err != nil {
				t.Fatal(err)
			}
		}
		mustSample(t, table, rollout.Request{Size: 6})
		if s := statsOf(table); s.Present != 3 || s.Evicted[rollout.EvictedByConsume] != 6 || s.NeverUsed != 0 {
			t.Errorf("%s: %+v", kind, s)
		}
		if _, err := table.Sample(ctx, rollout.Request{Size: 6}); !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("%s: too few: %v", kind, err)
		}
	}
}

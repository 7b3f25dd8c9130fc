package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// group makes n rollouts of one prompt at version v with these rewards.
func group(v rollout.Version, rewards ...float32) rollout.Group {
	g := rollout.Group{Size: len(rewards)}
	for _, reward := range rewards {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: "p", Tokens: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1},
			Versions: []rollout.Version{rollout.NoVersion, v}, Temperature: 1, TopP: 1, Reward: reward,
		})
	}
	return g
}

func mustInsert(t testing.TB, table *Table, groups ...rollout.Group) []rollout.ID {
	t.Helper()
	ids, err := table.Insert(ctx, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func mustSample(t testing.TB, table *Table, req rollout.Request) *rollout.Batch {
	t.Helper()
	b, err := table.Sample(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func drawnIDs(b *rollout.Batch) (ids []rollout.ID) {
	for _, d := range b.Draws {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestQueuesGiveEachRolloutOnceInOrder(t *testing.T) {
	for kind, want := range map[Sampler][]rollout.ID{FIFO: {1, 2, 3, 4}, LIFO: {4, 3, 2, 1}} {
		table := mustNew(t, Options{Capacity: 4, Sampler: kind})
		mustInsert(t, table, group(0, 1, 0), group(0, 1, 0))
		b := mustSample(t, table, rollout.Request{Size: 4})
		if !reflect.DeepEqual(drawnIDs(b), want) {
			t.Errorf("%s gave %v", kind, drawnIDs(b))
		}
		if _, err := table.Sample(ctx, rollout.Request{Size: 1}); !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("%s: an empty queue gave %v", kind, err)
		}
		if s := statsOf(table); s.Present != 0 || s.Evicted[rollout.EvictedByConsume] != 4 {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

func TestAFullQueueRefusesWholeInsertionsUntilSampled(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Sampler: FIFO, Shards: 2})
	mustInsert(t, table, group(0, 1))
	// The next goes to shard 1 and fits; the one after to shard 0, where one place is left.
	_, err := table.Insert(ctx, group(0, 1), group(0, 1, 0))
	if !errors.Is(err, rollout.ErrFull) {
		t.Fatalf("got %v", err)
	}
	if s := statsOf(table); s.Present != 1 || s.Inserted != 1 || s.Refused != 0 || s.InsertedGroups != 1 {
		t.Errorf("after the refusal: %+v", s)
	}
	mustSample(t, table, rollout.Request{Size: 1})
	mustInsert(t, table, group(0, 1), group(0, 1, 0))
	// What never fits is not retryable.
	if _, err := table.Insert(ctx, group(0, 1, 1, 1)); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a group larger than a shard gave %v", err)
	}
	if _, err := table.Insert(ctx, group(0, 1, 1), group(0, 1), group(0, 1, 1)); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("an insertion larger than a shard gave %v", err)
	}
	if s := statsOf(table); s.Refused != 8 {
		t.Errorf("%d rollouts refused", s.Refused)
	}
}

func TestBytesBoundQueuesAndRetention(t *testing.T) {
	g := group(0, 1, 0, 1)
	size := g.Rollouts[0].Bytes()
	queue := mustNew(t, Options{Sampler: FIFO, CapacityBytes: 4 * size})
	mustInsert(t, queue, g)
	if _, err := queue.Insert(ctx, group(0, 1, 0)); !errors.Is(err, rollout.ErrFull) {
		t.Errorf("a queue out of bytes gave %v", err)
	}
	for _, o := range []Options{{}, {Retention: KeepPositive, PositiveFraction: 0.5}} {
		o.CapacityBytes = 4*size + 1
		table := mustNew(t, o)
		for range 10 {
			mustInsert(t, table, g)
			if s := statsOf(table); s.PresentBytes > o.CapacityBytes {
				t.Fatalf("%s: %d bytes of %d", o.Retention, s.PresentBytes, o.CapacityBytes)
			}
		}
		if s := statsOf(table); s.Present != 4 {
			t.Errorf("%s: %d present", o.Retention, s.Present)
		}
		huge := group(0, 1)
		huge.Rollouts[0].Text = string(make([]byte, 4*size))
		if _, err := table.Insert(ctx, huge); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: an oversize rollout gave %v", o.Retention, err)
		}
	}
}

func TestPositiveRetentionKeepsTheNewestAndTheNewestCorrect(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Retention: KeepPositive, PositiveFraction: 0.5})
	for _, reward := range []float32{1, 1, 1, 0, 0, 0} {
		mustInsert(t, table, group(0, reward))
	}
	// The newest two are 5 and 6; of the others, 2 and 3 are the newest correct ones, and 4 is wrong.
	present := []rollout.ID{}
	for id := rollout.ID(1); id <= 6; id++ {
		if table.shards[0].index.find(id) != none {
			present = append(present, id)
		}
	}
	if want := []rollout.ID{2, 3, 5, 6}; !reflect.DeepEqual(present, want) {
		t.Errorf("present are %v, want %v", present, want)
	}
}

func TestARolloutThatReachesMaxUsesWithinABatchLeavesBeforeTheNextDraw(t *testing.T) {
	table := mustNew(t, Options{Capacity: 2, Sampler: Uniform, MaxUses: 2})
	mustInsert(t, table, group(0, 1, 0))
	b := mustSample(t, table, rollout.Request{Size: 4})
	uses := map[rollout.ID]int{}
	for i, d := range b.Draws {
		want := 0.5
		for _, n := range uses {
			if n == 2 {
				want = 1
			}
		}
		if d.Probability != want {
			t.Errorf("draw %d of %v: probability %v, want %v", i, drawnIDs(b), d.Probability, want)
		}
		uses[d.ID]++
	}
	if s := statsOf(table); s.Present != 0 || s.Evicted[rollout.EvictedByUses] != 2 || uses[1] != 2 || uses[2] != 2 {
		t.Errorf("uses %v, %+v", uses, s)
	}
}

func TestEpochsGiveEachRolloutOnceBeforeAnyTwice(t *testing.T) {
	table := mustNew(t, Options{Capacity: 10, Sampler: Epoch})
	for range 7 {
		mustInsert(t, table, group(0, 1))
	}
	seen := map[rollout.ID]int{}
	for i := range 70 {
		b := mustSample(t, table, rollout.Request{Size: 3})
		inBatch := map[rollout.ID]bool{}
		for _, d := range b.Draws {
			if seen[d.ID]++; seen[d.ID] > 3*i/7+2 {
				t.Fatalf("batch %d: rollout %d came %d times", i, d.ID, seen[d.ID])
			}
			if inBatch[d.ID] {
				t.Fatalf("batch %d: rollout %d came twice", i, d.ID)
			}
			inBatch[d.ID] = true
		}
	}
	for id, n := range seen {
		if n != 30 {
			t.Errorf("rollout %d came %d times in 30 epochs", id, n)
		}
	}
}

func TestUnseenRolloutsComeFirst(t *testing.T) {
	table := mustNew(t, Options{Capacity: 10, Sampler: Unseen})
	mustInsert(t, table, group(0, 1, 0, 1, 0))
	mustSample(t, table, rollout.Request{Size: 4})
	mustInsert(t, table, group(0, 1, 0))
	b := mustSample(t, table, rollout.Request{Size: 3})
	for i, d := range b.Draws {
		if (d.ID > 4) != (i < 2) {
			t.Errorf("got %v", drawnIDs(b))
		}
	}
}

func TestAdvantagesAreComputedOnceAtInsertion(t *testing.T) {
	given := float32(7)
	for kind, want := range map[advantage.Kind][]float32{
		// Mean 1/4, variance 3/16: see package advantage.
		advantage.Group:       {1.7320508, -0.57735026, -0.57735026, 7},
		advantage.NoStd:       {0.75, -0.25, -0.25, 7},
		advantage.LeaveOneOut: {1, -1.0 / 3, -1.0 / 3, 7},
		advantage.Batch:       {0, 0, 0, 7},
	} {
		table := mustNew(t, Options{Capacity: 4, Sampler: FIFO, Advantage: kind})
		g := group(0, 1, 0, 0, 0)
		g.Rollouts[3].Advantage = &given
		mustInsert(t, table, g)
		for i, d := range mustSample(t, table, rollout.Request{Size: 4}).Draws {
			if math.Abs(float64(d.Advantage-want[i])) > 1e-6 || d.GroupMean != 0.25 ||
				math.Abs(float64(d.GroupStd)-math.Sqrt(3)/4) > 1e-6 {
				t.Errorf("%s: draw %d: advantage %v of mean %v and std %v, want %v", kind, i, d.Advantage, d.GroupMean,
					d.GroupStd, want[i])
			}
			if d.Weight != 1 || d.Group != 1 || d.Rollout != g.Rollouts[i] {
				t.Errorf("%s: draw %d is %+v", kind, i, d)
			}
		}
	}
}

// Invariants 8 and 9: nothing of a bad request is kept, and the row is counted over the request.
func TestABadInsertionIsRefusedWhole(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Vocab: 4})
	bad := group(0, 1, 0)
	bad.Rollouts[1].Tokens[1] = 4
	partial := group(0, 1, 0)
	partial.Size = 3
	huge := group(0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	for want, g := range map[string]rollout.Group{
		"row 3: tokens[1] is 4: give token ids less than the vocabulary's size 4": bad,
		"row 2: group_size is 3: declare the 2 rollouts given":                    partial,
		"row 2: group is 9 rollouts: insert groups no larger than":                huge,
	} {
		refused := statsOf(table).Refused
		_, err := table.Insert(ctx, group(0, 1, 0), g)
		if !errors.Is(err, rollout.ErrInvalid) || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if s := statsOf(table); s.Inserted != 0 || s.Present != 0 || s.Refused != refused+2+uint64(len(g.Rollouts)) {
			t.Errorf("after %q: %+v", want, s)
		}
	}
}

func TestBadRequestsAreRefusedForGood(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Shards: 2})
	uniform := mustNew(t, Options{Capacity: 4, Sampler: Uniform, MaxUses: 2})
	mustInsert(t, table, group(0, 1))
	for name, f := range map[string]func() error{
		"size 0": func() error { _, err := table.Sample(ctx, rollout.Request{}); return err },
		"size":   func() error { _, err := table.Sample(ctx, rollout.Request{Size: 3}); return err },
		"uses":   func() error { _, err := uniform.Sample(ctx, rollout.Request{Size: 12}); return err },
		"shard":  func() error { _, err := table.Lease(ctx, rollout.Request{Size: 1, Shard: 2}); return err },
		"negative shard": func() error {
			_,
				err := table.Sample(ctx, rollout.Request{Size: 1, Shard: -1})
			return err
		},
		"version":         func() error { return table.Advance(ctx, -1) },
		"rewind":          func() error { return table.Rewind(ctx, 1) },
		"priority NaN":    func() error { return updateOf(table, Priority{1, math.NaN()}) },
		"priority -1":     func() error { return updateOf(table, Priority{1, -1}) },
		"id 0":            func() error { return updateOf(table, Priority{0, 1}) },
		"id never given":  func() error { return updateOf(table, Priority{2, 1}) },
		"priority of Inf": func() error { return updateOf(table, Priority{1, math.Inf(1)}) },
	} {
		if err := f(); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Invariant 1: an advance is absolute, monotone and idempotent.
func TestAdvanceIsMonotone(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	for _, step := range [][2]rollout.Version{{3, 3}, {3, 3}, {1, 3}, {5, 5}} {
		if err := table.Advance(ctx, step[0]); err != nil || table.Version() != step[1] {
			t.Errorf("advance to %d: version %d, %v", step[0], table.Version(), err)
		}
	}
}

func TestRolloutsLeaveWhenTheyAreOlderThanMaxStaleness(t *testing.T) {
	for _, jump := range []rollout.Version{1, 20} {
		table := mustNew(t, Options{Capacity: 4, MaxStaleness: 20})
		mustInsert(t, table, group(0, 1))
		for v := jump; v <= 20; v += jump {
			if err := table.Advance(ctx, v); err != nil {
				t.Fatal(err)
			}
		}
		if b := mustSample(t, table, rollout.Request{Size: 1}); b.Draws[0].Staleness != 20 {
			t.Errorf("staleness %d", b.Draws[0].Staleness)
		}
		if err := table.Advance(ctx, 20+jump); err != nil {
			t.Fatal(err)
		}
		// One that comes too late is counted in and out.
		mustInsert(t, table, group(0, 1))
		if s := statsOf(table); s.Present != 0 || s.Evicted[rollout.EvictedByStaleness] != 2 || s.Inserted != 2 {
			t.Errorf("jumps of %d: %+v", jump, s)
		}
	}
}

func TestAnInsertionAheadOfTheTableMayBeRetriedAfterAnAdvance(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	g := group(1, 1)
	if _, err := table.Insert(ctx, g); !errors.Is(err, rollout.ErrAhead) {
		t.Fatalf("got %v", err)
	}
	// One newer token among older ones is ahead too.
	mixed := group(0, 1, 1)
	x := mixed.Rollouts[1]
	x.Tokens, x.Mask, x.Logprobs = append(x.Tokens, 3), append(x.Mask, 1), append(x.Logprobs, -1)
	x.Versions = append(x.Versions, 1)
	if _, err := table.Insert(ctx, mixed); !errors.Is(err, rollout.ErrAhead) {
		t.Fatalf("got %v", err)
	}
	if err := table.Advance(ctx, 1); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, table, g)
	if s := statsOf(table); s.Refused != 0 || s.Present != 1 {
		t.Errorf("%+v", s)
	}
}

func TestInsertionsWithOneIdEnterOnce(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	first, err := table.ServiceView().InsertOnce(ctx, "a", group(0, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	again, err := table.ServiceView().InsertOnce(ctx, "a", group(0, 1, 0))
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("a repeat gave %v, %v, the first %v", again, err, first)
	}
	for _, changed := range [][]rollout.Group{{group(0, 1, 1)}, {group(0, 1), group(0, 0)}, {group(0, 1)}, {}} {
		_, err := table.ServiceView().InsertOnce(ctx, "a", changed...)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), `batch_id: "a": it was used`) {
			t.Errorf("other contents under a known id: %v", err)
		}
	}
	other, err := table.ServiceView().InsertOnce(ctx, "b", group(0, 1, 0))
	if err != nil || other[0] != 3 || statsOf(table).Inserted != 4 {
		t.Errorf("another gave %v, %v", other, err)
	}
}

func TestARequestMemoryForgetsTheOldest(t *testing.T) {
	m := newAnswers[int](3)
	for i := range 5 {
		m.put(fmt.Sprint(i), i)
	}
	var got []int
	m.each(func(id string, v int) { got = append(got, v) })
	if _, ok := m.get("1"); ok || !reflect.DeepEqual(got, []int{2, 3, 4}) || len(m.answers) != 3 {
		t.Errorf("remembered are %v", got)
	}
	m.forget(func(v int) bool { return v == 3 })
	m.put("5", 5)
	m.put("6", 6)
	got = nil
	m.each(func(id string, v int) { got = append(got, v) })
	if !reflect.DeepEqual(got, []int{4, 5, 6}) {
		t.Errorf("remembered are %v", got)
	}
}

func TestACancelledContextStopsEveryOperation(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	done, cancel := context.WithCancel(ctx)
	cancel()
	for name, f := range map[string]func() error{
		"insert":  func() error { _, err := table.Insert(done, group(0, 1)); return err },
		"sample":  func() error { _, err := table.Sample(done, rollout.Request{Size: 1}); return err },
		"lease":   func() error { _, err := table.Lease(done, rollout.Request{Size: 1}); return err },
		"advance": func() error { return table.Advance(done, 1) },
		"rewind":  func() error { return table.Rewind(done, 0) },
		"update":  func() error { return table.Update(done, nil, nil) },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// same checks a table's flow against its statistics.
func sameFlow(t *testing.T, table *Table) Flow {
	t.Helper()
	f := table.ServiceView().Flow()
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
	// the look itself ends the leases
	if f := table.ServiceView().Flow(); f.Drawn != 9 || f.Returned != 3 || f.Acknowledged != 6 {
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

// drawnSteps returns what a table of steps, a queue, gives of a group of threeTurns (rewards 1, 2, 3, in all 9) and a
// rollout without turns of reward 5.
func drawnSteps(t *testing.T, o Options) []rollout.Draw {
	t.Helper()
	o.Capacity, o.Unit, o.Sampler = 8, UnitStep, FIFO
	table := mustNew(t, o)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0), group(0, 5).Rollouts[0]}})
	return mustSample(t, table, rollout.Request{Size: 4}).Draws
}

func TestTheRewardOfAStepIsItsReturn(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		rewards []float32
		mean    float64
		std     float64
	}{
		// Without step returns the moments are of the whole rollouts, 9 and 5.
		"own":                    {Options{}, []float32{1, 2, 3, 5}, 7, 2},
		"own, compared as steps": {Options{StepReturns: 1}, []float32{1, 2, 3, 5}, 2.75, math.Sqrt(2.1875)},
		"two turns":              {Options{StepReturns: 2}, []float32{3, 5, 3, 5}, 4, 1},
		"two turns, discounted": {Options{StepReturns: 2, StepDiscount: 0.5}, []float32{2, 3.5, 3, 5}, 3.375,
			math.Sqrt(1.171875)},
		"to the end": {Options{StepReturns: ToTheEnd}, []float32{6, 5, 3, 5}, 4.75, math.Sqrt(1.1875)},
		"to the end, discounted": {Options{StepReturns: ToTheEnd, StepDiscount: 0.5}, []float32{2.75, 3.5, 3, 5},
			3.5625, math.Sqrt(0.76171875)},
		"more turns than there are": {Options{StepReturns: 9}, []float32{6, 5, 3, 5}, 4.75, math.Sqrt(1.1875)},
	} {
		c.options.Advantage = advantage.NoStd
		for i, d := range drawnSteps(t, c.options) {
			r := d.Rollout
			if r.Reward != c.rewards[i] || i < 3 && r.Turns[0].Reward != c.rewards[i] {
				t.Errorf("%s: step %d has reward %v and turns %v, want %v", name, i, r.Reward, r.Turns, c.rewards[i])
			}
			if !near(float64(d.GroupMean), float64(float32(c.mean))) ||
				!near(float64(d.GroupStd), float64(float32(c.std))) {
				t.Errorf("%s: step %d is of a group of mean %v and std %v, want %v and %v", name, i, d.GroupMean,
					d.GroupStd, c.mean, c.std)
			}
			want := c.rewards[i] - float32(c.mean)
			if c.options.StepReturns == 0 {
				want = []float32{2, 2, 2, -2}[i]
			}
			if math.Abs(float64(d.Advantage-want)) > 1e-6 {
				t.Errorf("%s: step %d has advantage %v, want %v", name, i, d.Advantage, want)
			}
		}
	}
}

func TestARolloutKeepsItsRewardsWhenItsStepsGetReturns(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: ToTheEnd})
	whole := threeTurns(0, 0, 0)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{whole}})
	if whole.Reward != 9 || whole.Turns[0].Reward != 1 || whole.Turns[1].Reward != 2 {
		t.Errorf("the rollout became %+v", whole)
	}
}

func TestAnAdvantageThatIsGivenIsThatOfEveryStep(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: 2, Sampler: FIFO})
	r, given := threeTurns(0, 0, 0), float32(0.25)
	r.Advantage = &given
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{r, threeTurns(0, 0, 0)}})
	for i, d := range mustSample(t, table, rollout.Request{Size: 6}).Draws {
		if (d.Advantage == given) != (i < 3) {
			t.Errorf("step %d has advantage %v", i, d.Advantage)
		}
	}
}

// What is correct is the rollout's affair: the return of a step may be below the threshold, or above it.
func TestRetentionKeepsTheStepsOfCorrectRollouts(t *testing.T) {
	table := mustNew(t, Options{Capacity: 6, Unit: UnitStep, StepReturns: 1, Retention: KeepPositive,
		PositiveFraction: 0.5, PositiveThreshold: new(float32(8))})
	wrong := threeTurns(0, 0, 0)
	wrong.Reward, wrong.Turns[2].Reward = 1, 50
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0)}})
	for range 3 {
		mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{wrong}})
	}
	ids := ""
	for _, h := range table.Inspect().Held() {
		ids += string('0' + rune(h.ID))
	}
	if want := "123:;<"; ids != want { // the first three, and 10 to 12
		t.Errorf("held are %q, want %q", ids, want)
	}
}

func TestAttackReturnsThatAreOutOfBoundsAreRefused(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Unit: UnitStep, StepReturns: 2})
	r := threeTurns(0, 0, 0)
	r.Turns[1].Reward, r.Turns[2].Reward = 9e8, 9e8
	_, err := table.Insert(ctx, group(0, 1), rollout.Group{Rollouts: []*rollout.Rollout{r}})
	if !errors.Is(err, rollout.ErrInvalid) || !strings.HasPrefix(err.Error(), "row 1: turns is rewards whose return "+
		"from turn 1 on is 1.8e+09") || table.present() != 0 {
		t.Errorf("got %v", err)
	}
}

func TestStepReturnsAreOfSteps(t *testing.T) {
	for want, o := range map[string]Options{
		"step_returns: 2: want 0 with unit rollout": {StepReturns: 2},
		"step_returns: -2: want -1 to 2147483647": {StepReturns: -2,
			Unit: UnitStep},
		"step_discount: 1.5: want above 0, at most 1": {StepReturns: 1,
			StepDiscount: 1.5, Unit: UnitStep},
		"step_discount: NaN: want above 0, at most 1": {StepReturns: 1,
			StepDiscount: math.NaN(), Unit: UnitStep},
		"step_discount: 0.5: want 1 with step_returns 0": {StepDiscount: 0.5, Unit: UnitStep},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestASnapshotOfOtherReturnsIsRefused(t *testing.T) {
	o := Options{Capacity: 8, Unit: UnitStep, StepReturns: 2, StepDiscount: 0.5}
	table := mustNew(t, o)
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0), threeTurns(0, 0, 0)}})
	whole := snapshotOf(t, table)
	again := mustNew(t, o)
	if err := again.Restore(bytes.NewReader(whole)); err != nil || !bytes.Equal(snapshotOf(t, again), whole) {
		t.Errorf("restored with %v, and the snapshot may differ", err)
	}
	for _, other := range []Options{{StepReturns: 3, StepDiscount: 0.5}, {StepReturns: 2}, {}} {
		other.Capacity, other.Unit = 8, UnitStep
		if err := mustNew(t, other).Restore(bytes.NewReader(whole)); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("with returns over %d turns discounted by %v: got %v", other.StepReturns, other.StepDiscount, err)
		}
	}
}

// Places keep no rollout: those that leave the table, and slots that others took, are left out.
func TestPlacesLeaveOutWhatHasLeft(t *testing.T) {
	t.Parallel()
	table := mustNew(t, Options{Capacity: 4, Shards: 2, Sampler: Uniform})
	for range 4 {
		mustInsert(t, table, group(0, 1))
	}
	places := table.Inspect().Places()
	if held := table.Inspect().At(places); len(held) != 4 || held[0].ID != 1 || held[3].ID != 4 {
		t.Fatalf("at %v the table holds %v", places, held)
	}
	mustInsert(t, table, group(0, 1)) // in the slot of rollout 1
	if held := table.Inspect().At(places); len(held) != 3 || held[0].ID != 2 {
		t.Errorf("after an eviction the places hold %v", held)
	}
	if held := table.Inspect().At(table.Inspect().Places()); len(held) != 4 || held[3].ID != 5 {
		t.Errorf("the new places hold %v", held)
	}
}

// Two insertions differ by a multiple of the polynomial of CRC-32, so that the length and the CRC-32 of their binary
// forms are the same.
func TestOtherContentsUnderABatchIDAreRefusedWhateverTheirChecksum(t *testing.T) {
	table, random := mustNew(t, Options{}), rollout.Stream(1, "test", 0)
	first := someGroup(random, 1, 0)
	changed := *first.Rollouts[0]
	changed.Tokens = slices.Clone(changed.Tokens)
	const polynomial = (crc32.IEEE<<1 | 1) << 2 // over two tokens, and no sign bit
	changed.Tokens[0] ^= polynomial & math.MaxUint32
	changed.Tokens[1] ^= polynomial >> 32
	other := rollout.Group{Rollouts: []*rollout.Rollout{&changed}}
	a, errA := first.Rollouts[0].MarshalBinary()
	b, errB := changed.MarshalBinary()
	if err := errors.Join(errA, errB); err != nil || len(a) != len(b) || crc32.ChecksumIEEE(a) != crc32.ChecksumIEEE(b) {
		t.Fatalf("the test needs the same checksum of both: %v", err)
	}
	if _, err := table.ServiceView().InsertOnce(ctx, "id", first); err != nil {
		t.Fatal(err)
	}
	if ids, err := table.ServiceView().InsertOnce(ctx, "id", other); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("other contents under the same id got %v, %v", ids, err)
	}
	if _, err := table.ServiceView().InsertOnce(ctx, "id", first); err != nil {
		t.Errorf("the same contents again got %v", err)
	}
}

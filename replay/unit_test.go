package replay

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

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
	ids := mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{threeTurns(3, 4, 5), group(2, 5).Rollouts[0]}})
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
		"row 2: turns is none around token 1 of the policy":       {Rollouts: []*rollout.Rollout{group(0, 1).Rollouts[0], outside}},
		"row 1: turns is turn 1 without a token of the policy":    {Rollouts: []*rollout.Rollout{silent}},
		"row 1: group is 6 steps: insert groups of no more steps": {Rollouts: []*rollout.Rollout{threeTurns(0, 0, 0), threeTurns(0, 0, 0)}},
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

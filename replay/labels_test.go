package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

var unknown = float32(math.NaN())

func mustReward(t testing.TB, table *Table, r rollout.Rewards) rollout.Rewarded {
	t.Helper()
	done, err := table.Reward(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestAGroupIsDrawnOnceAllOfItsRewardsAreKnown(t *testing.T) {
	table := mustNew(t, Options{Capacity: 16, PendingRewards: 60})
	ids := mustInsert(t, table, group(0, 1, unknown, unknown), group(0, 0, 1))
	if b := mustSample(t, table, rollout.Request{Size: 2}); slices.Contains(drawnIDs(b), 1) {
		t.Errorf("rollout 1, whose group waits, is among %v", drawnIDs(b))
	}
	if _, err := table.Sample(ctx, rollout.Request{Size: 3}); !errors.Is(err, rollout.ErrStarved) ||
		!strings.Contains(err.Error(), "3 wait for the rewards of their groups") {
		t.Errorf("sampling more than the others gave %v", err)
	}
	if s := statsOf(table); s.Waiting != 3 || s.Present != 5 {
		t.Errorf("the statistics are %+v", s)
	}
	if done := mustReward(t, table, rollout.Rewards{IDs: ids[1:2], Values: []float32{0}}); done.Entered != 0 {
		t.Errorf("a group with a pending reward entered: %+v", done)
	}
	if done := mustReward(t, table, rollout.Rewards{IDs: ids[2:3], Values: []float32{1}}); done.Entered != 3 {
		t.Errorf("the last reward gave %+v", done)
	}
	b := mustSample(t, table, rollout.Request{Size: 5})
	for _, d := range b.Draws { // 1, 0, 1: mean 2/3, std sqrt(2)/3
		if want := map[rollout.ID]float64{1: math.Sqrt(0.5), 2: -math.Sqrt2, 3: math.Sqrt(0.5)}[d.ID]; want != 0 &&
			math.Abs(float64(d.Advantage)-want) > 1e-6 {
			t.Errorf("rollout %d has advantage %v, want %v", d.ID, d.Advantage, want)
		}
	}
}

// Draws keep the reward that they had, uses stay, and the priorities of the whole group follow.
func TestAnotherRewardChangesWhatFollowsAndNotWhatWas(t *testing.T) {
	table := mustNew(t, Options{Capacity: 16, Sampler: Prioritized, History: 16})
	ids := mustInsert(t, table, group(0, 1, 0), group(0, 0.5, 0.5))
	b := mustSample(t, table, rollout.Request{Size: 32})
	first := slices.IndexFunc(b.Draws, func(d rollout.Draw) bool { return d.ID == 1 })
	mustReward(t, table, rollout.Rewards{IDs: []rollout.ID{ids[0], ids[2]}, Values: []float32{0, 1}, By: "alice"})
	if d := b.Draws[first]; d.Rollout.Reward != 1 || d.Advantage <= 0 {
		t.Errorf("a draw of before has reward %v and advantage %v", d.Rollout.Reward, d.Advantage)
	}
	held := table.Inspect().Held()
	for i, want := range []struct{ reward, advantage, base float32 }{{0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {0.5, -1, 1}} {
		h := held[i]
		if h.Rollout.Reward != want.reward || math.Abs(float64(h.Advantage-want.advantage)) > 1e-5 ||
			math.Abs(h.Base-float64(want.base)) > 1e-5 {
			t.Errorf("rollout %d is held with reward %v, advantage %v, base %v", h.ID, h.Rollout.Reward, h.Advantage, h.Base)
		}
	}
	if held[0].Uses == 0 {
		t.Error("uses of before are forgotten")
	}
	life, _ := table.Inspect().Life(1)
	last := life.Events[len(life.Events)-1]
	if last.Kind != WasRewarded || last.Caller != "alice" || *last.Reward != 0 || life.Reward != 0 {
		t.Errorf("the life of rollout 1 is %+v", life)
	}
}

func TestRewardsThatNoTableTakesAreRefused(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8})
	mustInsert(t, table, group(0, 1, 0))
	many := make([]rollout.ID, rollout.MostRewards+1)
	for i := range many {
		many[i] = rollout.ID(i + 1)
	}
	for want, r := range map[string]rollout.Rewards{
		"rewards is 1 for 2 ids: give one for each id":         {IDs: []rollout.ID{1, 2}, Values: []float32{1}},
		"ids is 0 of them: give 1 to 1024":                     {},
		"ids is 1025 of them":                                  {IDs: many, Values: make([]float32, len(many))},
		"reward is NaN: give a number within -1e9 to 1e9":      {IDs: []rollout.ID{1}, Values: []float32{unknown}},
		"row 1: id is 1: give each rollout one reward at once": {IDs: []rollout.ID{1, 1}, Values: []float32{1, 1}},
		"id is 3: use an id that the table returned, 1 to 2":   {IDs: []rollout.ID{3}, Values: []float32{1}},
		"id is 0":       {IDs: []rollout.ID{0}, Values: []float32{1}},
		`by is "a\`:     {By: "a\n", IDs: []rollout.ID{1}, Values: []float32{1}},
		"request_id is": {RequestID: strings.Repeat("x", 200), IDs: []rollout.ID{1}, Values: []float32{1}},
	} {
		if _, err := table.Reward(ctx, r); !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if len(table.Inspect().Labels(0)) != 0 {
		t.Error("something of it is remembered")
	}
	_, err := mustNew(t, Options{Capacity: 8}).Reward(ctx, rollout.Rewards{IDs: []rollout.ID{1}, Values: []float32{1}})
	if err == nil || !strings.Contains(err.Error(), "id is 1: use an id that the table returned: it has returned none yet") {
		t.Errorf("of an empty table it says %v", err)
	}
	steps := mustNew(t, Options{Capacity: 8, Unit: UnitStep})
	if _, err := steps.Reward(ctx, rollout.Rewards{IDs: []rollout.ID{1}, Values: []float32{1}}); !errors.Is(err,
		rollout.ErrInvalid) || !strings.Contains(err.Error(), "use unit rollout or group") {
		t.Errorf("rewards of steps gave %v", err)
	}
}

func TestPendingRewardsAreRefusedWhereTheyCannotWork(t *testing.T) {
	for want, o := range map[string]Options{
		"pending_rewards: 5: want 0 with unit step":       {PendingRewards: 5, Unit: UnitStep},
		"pending_rewards: 5: want 0 with select":          {PendingRewards: 5, Select: 2},
		"pending_rewards: 5: want 0 with kept_per_prompt": {PendingRewards: 5, KeptPerPrompt: 2},
		"pending_rewards: -1: want 0 (off) to 31622400":   {PendingRewards: -1},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, o := range map[string]Options{
		"reward is NaN: give a reward": {Capacity: 8},
		"group is 3 rollouts of":       {Capacity: 4, Retention: KeepPositive, PositiveFraction: 0.5, PendingRewards: 5},
	} {
		_, err := mustNew(t, o).Insert(ctx, group(0, 1, 0, unknown))
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The memory for labels is bounded, and what was forgotten is told to the journal.
func TestATableRemembersTheLatestRewards(t *testing.T) {
	table := mustNew(t, Options{Capacity: rollout.MostRewards})
	for range rollout.MostRewards / 8 {
		mustInsert(t, table, group(0, 1, 0, 1, 0, 1, 0, 1, 0))
	}
	table.JournalView().Track()
	table.JournalView().Cut().OnDisk()
	r := rollout.Rewards{By: "judge", Values: make([]float32, rollout.MostRewards)}
	for i := range rollout.MostRewards {
		r.IDs = append(r.IDs, rollout.ID(i+1))
	}
	forgotten := 0
	for call := range 40 {
		r.RequestID = fmt.Sprint("call-", call)
		mustReward(t, table, r)
		for _, l := range table.JournalView().Cut().Labelled {
			if len(l.Labels) == 0 {
				forgotten++
			}
		}
	}
	calls := table.Inspect().Labels(0)
	if len(calls) != 16 || calls[0].Request != "call-24" || forgotten != 24 {
		t.Errorf("%d calls are remembered, the first %s, and %d forgotten", len(calls), calls[0].Request, forgotten)
	}
	if got := table.ServiceView().Flow().IDs; got != 16*RewardBytes(rollout.MostRewards) {
		t.Errorf("they are counted as %d bytes", got)
	}
	if got := table.Inspect().Labels(7); len(got) != 16 || len(got[0].Labels) != 1 || got[0].Labels[0].ID != 7 {
		t.Errorf("those of rollout 7 are %+v", got)
	}
}

func TestASnapshotKeepsGroupsThatWaitWithTheirDeadlines(t *testing.T) {
	clock := &fakeClock{time.Unix(1000, 0)}
	o := Options{Capacity: 16, PendingRewards: 60, Clock: clock.time}
	table := mustNew(t, o)
	ids := mustInsert(t, table, group(0, unknown, unknown))
	mustReward(t, table, rollout.Rewards{RequestID: "r", IDs: ids[:1], Values: []float32{1}})
	var b bytes.Buffer
	if err := table.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	saved := bytes.Clone(b.Bytes())
	restored := mustNew(t, o)
	if err := restored.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if done := mustReward(t, restored, rollout.Rewards{RequestID: "r", IDs: ids[:1], Values: []float32{1}}); done.Rewarded != 1 {
		t.Errorf("a repeated call gave %+v", done)
	}
	if n := len(restored.Inspect().Labels(0)); n != 1 {
		t.Errorf("%d calls are remembered, want 1", n)
	}
	again := bytes.Buffer{}
	if err := restored.Snapshot(&again); err != nil || !bytes.Equal(again.Bytes(), saved) {
		t.Errorf("the snapshot of a restored table differs, error %v", err)
	}
	clock.now = clock.now.Add(59 * time.Second)
	if s := statsOf(restored); s.Waiting != 2 {
		t.Errorf("before the deadline the statistics are %+v", s)
	}
	clock.now = clock.now.Add(time.Second)
	if s := statsOf(restored); s.Waiting != 0 || s.Evicted[rollout.EvictedUnrewarded] != 2 {
		t.Errorf("after the deadline the statistics are %+v", s)
	}
	if done := mustReward(t, restored, rollout.Rewards{IDs: ids, Values: []float32{1, 1}}); done.Left != 2 {
		t.Errorf("rewards of those that left gave %+v", done)
	}
}

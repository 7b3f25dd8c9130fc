package service_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// judged is what is known of a table whose rewards come late, from what its service answered.
type judged struct {
	*world
	batches int
	groups  [][]rollout.ID
	rewards map[rollout.ID]float32
	calls   []judgement
}

type judgement struct {
	given  rollout.Rewards
	answer rollout.Rewarded
}

// Whatever the power does, an acknowledged reward is in the table, once, with who gave it; a repeated request gets the
// same answer; and a group can be drawn if and only if all of its rewards were given.
func TestLateRewardsSurviveALossOfPower(t *testing.T) {
	for seed := range tests.Count(*seeds, *seeds/4) {
		w := newWorld(t, uint64(*firstSeed+seed), none)
		w.definition.Options = replay.Options{Capacity: 4096, Sampler: replay.Prioritized, PendingRewards: 1e6}
		if seed%2 == 0 {
			w.definition.Options = replay.Options{Capacity: 4096, Sampler: replay.Unseen, PendingRewards: 1e6, Shards: 2}
		}
		j := &judged{world: w, rewards: make(map[rollout.ID]float32)}
		if broken := w.run(j.run); broken != nil {
			t.Fatalf("seed %d: %v", *firstSeed+seed, broken)
		}
	}
}

func (j *judged) run() error {
	for range 10 + j.random.IntN(30) {
		var err error
		switch k := j.random.IntN(10); {
		case k < 3:
			err = j.insertPending()
		case k < 7:
			err = j.judge()
		case k < 8:
			j.disk.LosePower(1 + j.random.IntN(6))
			j.note("the power will go")
		default:
			j.note("the power goes")
			if err = j.restart(); err == nil {
				err = j.checkRewards()
			}
		}
		if err != nil {
			return err
		}
	}
	if err := j.restart(); err != nil {
		return err
	}
	return j.checkRewards()
}

// insist repeats a call, with the service started again, until it is answered.
func (j *judged) insist(what string, call func(t *client.Table) error) error {
	for {
		err := call(j.table())
		if err == nil && j.lost() { // the answer
			err = call(j.table())
		}
		j.note("%s: %v", what, err)
		if err == nil || errors.Is(err, rollout.ErrInvalid) {
			return err
		}
		if err := j.restart(); err != nil {
			return err
		}
	}
}

func (j *judged) insertPending() error {
	id := fmt.Sprint("batch-", j.batches)
	j.batches++
	groups := j.world.groups(id)
	for _, g := range groups {
		for _, r := range g.Rollouts {
			if j.random.IntN(3) > 0 {
				r.Reward = float32(math.NaN())
			}
		}
	}
	var ids []rollout.ID
	err := j.insist("insert "+id, func(t *client.Table) (err error) {
		ids, err = t.InsertOnce(j.t.Context(), id, groups...)
		return err
	})
	for _, g := range groups {
		if err == nil {
			j.groups = append(j.groups, ids[:len(g.Rollouts)])
			for i, r := range g.Rollouts {
				j.rewards[ids[i]] = r.Reward
			}
			ids = ids[len(g.Rollouts):]
		}
	}
	return err
}

// judge gives a few rollouts rewards, pending or not, or repeats an earlier call.
func (j *judged) judge() error {
	if n := len(j.calls); n > 0 && j.random.IntN(4) == 0 {
		again := j.calls[j.random.IntN(n)]
		return j.insist("repeat "+again.given.RequestID, func(t *client.Table) error {
			got, err := t.Reward(j.t.Context(), again.given)
			if err == nil && got != again.answer {
				err = fmt.Errorf("%+v was answered with %+v, and repeated with %+v: %w", again.given, again.answer, got,
					rollout.ErrInvalid)
			}
			return err
		})
	}
	if len(j.groups) == 0 {
		return nil
	}
	given := rollout.Rewards{RequestID: fmt.Sprint("judge-", len(j.calls)), By: "somebody"}
	for _, id := range j.groups[j.random.IntN(len(j.groups))] {
		if j.random.IntN(3) > 0 {
			given.IDs, given.Values = append(given.IDs, id), append(given.Values, float32(j.random.IntN(5))/4)
		}
	}
	if len(given.IDs) == 0 {
		return nil
	}
	var answer rollout.Rewarded
	err := j.insist(given.RequestID, func(t *client.Table) (err error) {
		answer, err = t.Reward(j.t.Context(), given)
		return err
	})
	for i, id := range given.IDs {
		j.rewards[id] = given.Values[i]
	}
	j.calls = append(j.calls, judgement{given, answer})
	return err
}

// checkRewards compares what the service shows with what it answered.
func (j *judged) checkRewards() error {
	for _, group := range j.groups {
		waits := slices.ContainsFunc(group, func(id rollout.ID) bool { return math.IsNaN(float64(j.rewards[id])) })
		for _, id := range group {
			shown, err := j.table().Rollout(j.t.Context(), id)
			if err != nil {
				return err
			}
			if got, want := float64(shown.Reward), float64(j.rewards[id]); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				return fmt.Errorf("rollout %d has reward %v, want %v", id, got, want)
			}
			if shown.Waiting != waits || (shown.Probability == 0) != waits && j.definition.Sampler == replay.Prioritized {
				return fmt.Errorf("rollout %d waits: %v, and is drawn with probability %v; want that it waits: %v", id,
					shown.Waiting, shown.Probability, waits)
			}
			var told, want []string
			for _, l := range shown.Labels {
				told = append(told, fmt.Sprint(l.Request, l.By, l.Labels[0].Reward))
			}
			for _, c := range j.calls {
				if i := slices.Index(c.given.IDs, id); i >= 0 {
					want = append(want, fmt.Sprint(c.given.RequestID, c.given.By, c.given.Values[i]))
				}
			}
			if want = want[max(0, len(want)-len(told)):]; len(told) != min(len(want), 16) || !slices.Equal(told, want) {
				return fmt.Errorf("rollout %d was judged %q, want %q", id, told, want)
			}
		}
	}
	return nil
}

// What was inserted before a restart and waited leaves after it too, if nobody gives a reward, and makes room.
func TestGroupsThatWaitTooLongLeaveAndMakeRoom(t *testing.T) {
	w := newWorld(t, 1, none)
	w.definition.Options = replay.Options{Capacity: 4, Sampler: replay.FIFO, PendingRewards: 100}
	broken := w.run(func() error {
		pending := w.groups("a")[0]
		pending.Rollouts = slices.Repeat(pending.Rollouts[:1], 4)
		for _, r := range pending.Rollouts {
			r.Reward = float32(math.NaN())
		}
		if _, err := w.table().Insert(t.Context(), pending); err != nil {
			return err
		}
		if _, err := w.table().Insert(t.Context(), w.groups("b")[0]); !errors.Is(err, rollout.ErrFull) {
			return fmt.Errorf("an insertion into a queue full of waiting rollouts gave %v", err)
		}
		if err := w.restart(); err != nil {
			return err
		}
		w.now.Add(101)
		if _, err := w.client.Table(simulatedTable).Waiting(time.Minute).Insert(t.Context(), w.groups("b")[0]); err != nil {
			return err
		}
		s, err := w.table().Statistics(t.Context())
		if err == nil && (s.Evicted[rollout.EvictedUnrewarded] != 4 || s.WaitingRewards != 0) {
			err = fmt.Errorf("the statistics are %+v", s)
		}
		return err
	})
	if broken != nil {
		t.Fatal(broken)
	}
}

// Where callers have tokens, the name of the token comes before what they say.
func TestWhoGaveARewardIsTheTokenFirst(t *testing.T) {
	w := newWorld(t, 1, none)
	w.definition.Options = replay.Options{Capacity: 16}
	w.caller = "judges"
	broken := w.run(func() error {
		ids, err := w.table().Insert(t.Context(), w.groups("a")[0])
		if err != nil {
			return err
		}
		if _, err := w.table().Reward(t.Context(), rollout.Rewards{By: "alice", IDs: ids[:1], Values: []float32{1}}); err != nil {
			return err
		}
		shown, err := w.table().Rollout(t.Context(), ids[0])
		if err == nil && shown.Labels[0].By != "judges: alice" {
			err = fmt.Errorf("the rewards are %+v", shown.Labels)
		}
		return err
	})
	if broken != nil {
		t.Fatal(broken)
	}
}

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func TestContendersTakeTurnsInEveryRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		slow := func(name string, each time.Duration) contender {
			return repeated(name, func(context.Context) error {
				if len(order) == 0 || order[len(order)-1] != name {
					order = append(order, name)
				}
				time.Sleep(each)
				return nil
			})
		}
		all, err := takeTurns(t.Context(), []contender{slow("a", time.Millisecond), slow("b", 4*time.Millisecond)}, 3,
			40*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, ""); got != "abababab" { // the first two are not counted
			t.Errorf("the contenders went in the order %s", got)
		}
		if got := []int{len(all[0]), len(all[1])}; !slices.Equal(got, []int{3, 3}) {
			t.Errorf("rounds: %v", got)
		}
		if a, b := all[0].rate(), all[1].rate(); a != 1000 || b != 250 {
			t.Errorf("rates %g and %g a second: want 1000 and 250", a, b)
		}
		if got := all[1].over(all[0], turn.rate); got != 0.25 {
			t.Errorf("b in a's rate: %g", got)
		}
		if got := all[1].over(all[0], turn.p50); got != 4 {
			t.Errorf("b's latency in a's: %g", got)
		}
		if p50, p99 := all[1].latency(0.5), all[1].latency(0.99); p50 != 4000 || p99 != 4000 {
			t.Errorf("latencies %g and %g microseconds: want 4000", p50, p99)
		}
	})
}

func TestATurnHasAtLeastOneOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := repeated("long",
			func(context.Context) error { time.Sleep(time.Second); return nil }).run(t.Context(), time.Millisecond)
		if err != nil || got.operations != 1 || got.seconds != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestTheFirstErrorEndsAMeasurementAndNamesTheContender(t *testing.T) {
	broken := errors.New("broken")
	_, err := takeTurns(t.Context(), []contender{repeated("raw socket", func(context.Context) error { return broken })},
		1, time.Millisecond)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "raw socket: ") {
		t.Error(err)
	}
}

func TestAMeasurementEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := takeTurns(ctx, []contender{repeated("a", func(context.Context) error { cancel(); return nil })}, 5,
		time.Nanosecond)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRatiosAreMediansWithinRounds(t *testing.T) {
	// In the second round the machine was busy: both were ten times as slow.
	base := series{{operations: 100, seconds: 1}, {operations: 10, seconds: 1}, {operations: 100, seconds: 1}}
	s := series{{operations: 50, seconds: 1}, {operations: 5, seconds: 1}, {operations: 60, seconds: 1}}
	if got := s.over(base, turn.rate); got != 0.5 {
		t.Errorf("the ratio is %g: want 0.5", got)
	}
	if got := s.rate(); got != 50 {
		t.Errorf("the rate is %g: want 50", got)
	}
}

func TestNewGroupsAreValidAndDiffer(t *testing.T) {
	groups := newGroups(40, 64, 3)
	rollouts := 0
	for _, g := range groups {
		rollouts += len(g.Rollouts)
	}
	if got := []int{len(groups), rollouts, len(groups[2].Rollouts)}; got[0] != 3 || got[1] != 40 || got[2] != 8 {
		t.Errorf("groups, rollouts, rollouts of the last: %v", got)
	}
	for _, g := range groups {
		if err := g.Validate(rollout.Limits{Vocab: 32000}); err != nil {
			t.Error(err)
		}
	}
	if want := 40 * (64*13 + 13 + int64(len("bench-0003-000000"))); payload(groups) != want {
		t.Errorf("%d bytes: want %d", payload(groups), want)
	}
	if a, b := groups[0].Rollouts[0], newGroups(40, 64, 4)[0].Rollouts[0]; a.Tokens[1] == b.Tokens[1] &&
		a.Tokens[2] == b.Tokens[2] {
		t.Error("rollouts of two numbers are alike")
	}
}

package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		all, err := take(t.Context(), []contender{slow("a", time.Millisecond), slow("b", 4*time.Millisecond)}, 3, 40*time.Millisecond)
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
		got, err := repeated("long", func(context.Context) error { time.Sleep(time.Second); return nil }).run(t.Context(), time.Millisecond)
		if err != nil || got.operations != 1 || got.seconds != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestTheFirstErrorEndsAMeasurementAndNamesTheContender(t *testing.T) {
	broken := errors.New("broken")
	_, err := take(t.Context(), []contender{repeated("raw socket", func(context.Context) error { return broken })}, 1, time.Millisecond)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "raw socket: ") {
		t.Error(err)
	}
}

func TestAMeasurementEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := take(ctx, []contender{repeated("a", func(context.Context) error { cancel(); return nil })}, 5, time.Nanosecond)
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

func TestMediansAndQuantiles(t *testing.T) {
	for _, c := range []struct {
		list          []float64
		median, upper float64
	}{
		{nil, 0, 0},
		{[]float64{3}, 3, 3},
		{[]float64{4, 1}, 2.5, 4},
		{[]float64{9, 1, 5}, 5, 9},
	} {
		before := slices.Clone(c.list)
		if got := median(c.list); got != c.median {
			t.Errorf("the median of %v is %g: want %g", c.list, got, c.median)
		}
		if got := quantile(c.list, 0.99); got != c.upper {
			t.Errorf("the 0.99 quantile of %v is %g: want %g", c.list, got, c.upper)
		}
		if !slices.Equal(before, c.list) {
			t.Errorf("%v was changed to %v", before, c.list)
		}
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	if got := quantile(hundred, 0.99); got != 100 {
		t.Errorf("the 0.99 quantile of 1 to 100 is %g", got)
	}
}

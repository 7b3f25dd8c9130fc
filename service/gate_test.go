package service

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

const noBound = math.MaxInt64

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func mustStart(t *testing.T, g *gate, now time.Time, groups, size int, v rollout.Version, room int64) (uint64, int) {
	t.Helper()
	number, n, err := g.Start(now, groups, size, v, room)
	if err != nil {
		t.Fatal(err)
	}
	if (number != 0) != (n > 0) {
		t.Fatalf("grant %d of %d groups", number, n)
	}
	return number, n
}

// At version v at most (v - v0 + MaxStaleness + 1) x RolloutsPerUpdate rollouts may have been started.
func TestTheGateKeepsToItsFormula(t *testing.T) {
	g := newGate(&wire.Gate{RolloutsPerUpdate: 16, MaxStaleness: 2}, gateCount{}, 1)
	grant, n := mustStart(t, g, at(0), 100, 8, 5, noBound) // the first start: v0 = 5
	if n != 6 {
		t.Errorf("at v0 %d groups of 8 may start, want 6: 3 x 16 rollouts", n)
	}
	if _, n := mustStart(t, g, at(0), 1, 8, 5, noBound); n != 0 {
		t.Errorf("%d more", n)
	}
	g.Insert(at(1), grant, 8, 5)
	if _, n := mustStart(t, g, at(1), 1, 8, 5, noBound); n != 0 {
		t.Errorf("an insertion under a grant let %d more start", n)
	}
	if _, n := mustStart(t, g, at(1), 100, 8, 7, noBound); n != 4 {
		t.Errorf("two versions later %d groups may start, want 4", n)
	}
	if s := g.State(at(1),
		7); s.Allowed != 80 || s.Started != 80 || s.Outstanding != 72 || s.Grants != 2 || s.Granted != 80 {
		t.Errorf("state %+v", s)
	}
}

func TestRolloutsInsertedWithoutAGrantCountAsStarted(t *testing.T) {
	g := newGate(&wire.Gate{RolloutsPerUpdate: 16, MaxStaleness: 0}, gateCount{}, 1)
	g.Insert(at(0), 0, 10, 0)
	if _, n := mustStart(t, g, at(0), 10, 1, 0, noBound); n != 6 {
		t.Errorf("with 10 inserted %d may start, want 6", n)
	}
}

func TestAbandonedAndExpiredGroupsMayBeStartedAgain(t *testing.T) {
	g := newGate(&wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 0, GrantSeconds: 10}, gateCount{}, 7)
	first, n := mustStart(t, g, at(0), 2, 4, 0, noBound)
	if first != 7 || n != 2 {
		t.Fatalf("grant %d of %d", first, n)
	}
	g.Abandon(at(1), first, 1)
	second, n := mustStart(t, g, at(5), 2, 4, 0, noBound)
	if n != 1 {
		t.Errorf("after one was abandoned %d may start", n)
	}
	if until, ok := g.NextExpiry(at(5)); !ok || !until.Equal(at(10)) {
		t.Errorf("the next grant goes back at %v, %v", until, ok)
	}
	if _, n := mustStart(t, g, at(9.999), 1, 4, 0, noBound); n != 0 {
		t.Errorf("before the first grant expires %d may start", n)
	}
	if _, n := mustStart(t, g, at(10), 2, 4, 0, noBound); n != 1 {
		t.Errorf("after the first grant expired %d may start, want the one it still held", n)
	}
	g.Insert(at(11), first, 4, 0) // late: it counts, but takes nothing from other grants
	g.Abandon(at(11), first, 100)
	g.Abandon(at(11), 12345, 1)
	if s := g.State(at(11), 0); s.Started != 12 || s.Outstanding != 8 || s.Abandoned != 4 || s.Expired != 4 {
		t.Errorf("state %+v", s)
	}
	g.Abandon(at(12), second, 100) // no more than it has
	if s := g.State(at(12), 0); s.Outstanding != 4 || s.Abandoned != 8 {
		t.Errorf("state %+v", s)
	}
}

func TestAQueuesRoomBoundsTheGate(t *testing.T) {
	for _, limit := range []*wire.Gate{nil, {RolloutsPerUpdate: 1000}} {
		g := newGate(limit, gateCount{}, 1)
		if _, n := mustStart(t, g, at(0), 100, 4, 0, 10); n != 2 {
			t.Errorf("with room for 10, %d groups of 4 may start", n)
		}
		if _, n := mustStart(t, g, at(0), 100, 4, 0, 12); n != 1 {
			t.Errorf("with room for 12, of which 8 are promised, %d groups of 4 may start", n)
		}
	}
}

func TestAGateIsTheSameAfterARestartButForItsGrants(t *testing.T) {
	limit := &wire.Gate{RolloutsPerUpdate: 16, MaxStaleness: 1}
	g := newGate(limit, gateCount{}, 1)
	grant, _ := mustStart(t, g, at(0), 4, 8, 3, noBound)
	g.Insert(at(0), grant, 16, 3)
	again := newGate(limit, g.Count(), g.Next())
	if s := again.State(at(0), 3); s.Allowed != 32 || s.Started != 16 || s.Outstanding != 0 {
		t.Errorf("state %+v", s)
	}
	if next, n := mustStart(t, again, at(0), 100, 8, 3, noBound); n != 2 || next <= grant {
		t.Errorf("grant %d of %d groups", next, n)
	}
}

// A trainer that goes back k versions needs their rollouts again, and those that left the table thereby.
func TestRewindingLetsStartAgainWhatItUndid(t *testing.T) {
	g := newGate(&wire.Gate{RolloutsPerUpdate: 10, MaxStaleness: 1}, gateCount{}, 1)
	for v := range rollout.Version(5) {
		mustStart(t, g, at(0), 1000, 1, v, noBound)
	}
	if s := g.State(at(0), 4); s.Started != 60 || s.Allowed != 60 {
		t.Fatalf("state %+v", s)
	}
	g.Rewind(3, 7)
	if _, n := mustStart(t, g, at(0), 1000, 1, 1, noBound); n != 7 {
		t.Errorf("after rewinding by 3 versions, which evicted 7, %d may start, want 7", n)
	}
}

func TestTheGateRefusesWhatItCanNeverGrant(t *testing.T) {
	g := newGate(&wire.Gate{RolloutsPerUpdate: 4, MaxStaleness: 1}, gateCount{}, 1)
	for _, c := range []struct {
		groups, size int
		want         string
	}{{0, 1, "groups"}, {1, 0, "group_size"}, {1, 9, "group_size: 9"}, {-1, 1, "groups: -1"}} {
		_, _, err := g.Start(at(0), c.groups, c.size, 0, noBound)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d groups of %d: %v", c.groups, c.size, err)
		}
	}
	for _, c := range []struct {
		gate wire.Gate
		want string
	}{
		{wire.Gate{}, "gate.rollouts_per_update: 0"},
		{wire.Gate{RolloutsPerUpdate: 1, MaxStaleness: -1}, "gate.max_staleness: -1"},
		{wire.Gate{RolloutsPerUpdate: 1, GrantSeconds: -1}, "gate.grant_seconds: -1"},
		{wire.Gate{RolloutsPerUpdate: math.Inf(1)}, "gate.rollouts_per_update: +Inf"},
	} {
		var problems option.Problems
		checkKept(&problems, wire.Table{Name: "a", Gate: &c.gate})
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%+v: %v", c.gate, problems)
		}
	}
}

// A gate and its definition by lists of grants, at random.
func TestTheGateMatchesANaiveModel(t *testing.T) {
	type naive struct {
		left, size int
		until      time.Time
	}
	for seed := range uint64(100) {
		random := rollout.Stream(seed, "service/gate_test", 0)
		limit := &wire.Gate{RolloutsPerUpdate: float64(2+random.IntN(40)) / 2, MaxStaleness: random.IntN(4),
			GrantSeconds: 5}
		size := 1 + random.IntN(max(int(limit.RolloutsPerUpdate), 1))
		g := newGate(limit, gateCount{}, 1)
		grants := map[uint64]*naive{}
		inserted, v, now := 0, rollout.Version(0), 0.0
		held := func() (sum int) {
			for _, x := range grants {
				if at(now).Before(x.until) {
					sum += x.left
				} else {
					x.left = 0
				}
			}
			return sum
		}
		mustStart(t, g, at(0), 1, size, 0, 0) // nothing: no room
		g.Insert(at(0), 0, 0, 0)              // v0 is 0
		for range 500 {
			now += random.Float64()
			number := uint64(1 + random.IntN(len(grants)+1))
			switch random.IntN(6) {
			case 0:
				v++
			case 1, 2:
				room := int64(random.IntN(100))
				allowed := int(math.Floor((float64(v)+float64(limit.MaxStaleness)+1)*limit.RolloutsPerUpdate)) - inserted - held()
				want := max(min(5, min(allowed, int(room)-held())/size), 0)
				got, n := mustStart(t, g, at(now), 5, size, v, room)
				if n != want {
					t.Fatalf("seed %d: %d groups may start, by definition %d", seed, n, want)
				}
				if n > 0 {
					grants[got] = &naive{n * size, size, at(now).Add(5 * time.Second)}
				}
			case 3, 4:
				held()
				g.Insert(at(now), number, size, v)
				inserted += size
				if x := grants[number]; x != nil {
					x.left = max(x.left-size, 0)
				}
			case 5:
				held()
				g.Abandon(at(now), number, 1)
				if x := grants[number]; x != nil {
					x.left = max(x.left-size, 0)
				}
			}
			if s := g.State(at(now), v); s.Outstanding != int64(held()) || s.Started != int64(inserted+held()) {
				t.Fatalf("seed %d: state %+v, by definition %d inserted and %d outstanding", seed, s, inserted, held())
			}
		}
	}
}

func TestAbandoningMoreThanWasGrantedFreesWhatWasGranted(t *testing.T) {
	g := newGate(nil, gateCount{}, 1)
	grant, n := mustStart(t, g, at(0), math.MaxInt32, math.MaxInt32, 0, noBound)
	g.Abandon(at(0), grant, math.MaxInt)
	if s := g.State(at(0), 0); s.Outstanding != 0 || s.Grants != 0 || s.Abandoned == 0 {
		t.Errorf("of %d groups abandoned: %+v", n, s)
	}
}

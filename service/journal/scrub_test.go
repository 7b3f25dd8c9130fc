package journal

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// unbounded is a rate of scrubs.
const unbounded = 1 << 40

// scrubbed is a journal of several segments that works.
func scrubbed(t *testing.T) (Options, *replay.Table, *Journal, func(groups int)) {
	o := in(t)
	o.segment = 50_000
	table, random := newTable(t, replay.Options{Capacity: 2000}), rollout.Stream(1, "scrub", 0)
	j := create(t, o, table)
	insert := func(groups int) {
		for range groups {
			_, err := table.Insert(ctx, aGroup(random, 4, 300, 0))
			must(t, err)
		}
		must(t, j.Commit(ctx))
	}
	for range 20 {
		insert(10)
	}
	return o, table, j, insert
}

// A byte that changes in a part of the log that nobody writes any more is found while the journal works.
func TestAttackAFlippedByteIsFoundByTheScrub(t *testing.T) {
	o, table, j, insert := scrubbed(t)
	must(t, j.Scrub(ctx, unbounded))
	before := j.Stats()
	if before.Verified.IsZero() || len(before.Damage) > 0 {
		t.Fatalf("of an intact log: %+v", before)
	}
	paths := segmentsIn(t, o)
	if len(paths) < 5 {
		t.Fatalf("there are %d segments", len(paths))
	}
	simulated(o).Content(paths[2])[20_000] ^= 1
	insert(1)
	must(t, j.Scrub(ctx, unbounded))
	st := j.Stats()
	if len(st.Damage) != 1 || !strings.Contains(paths[2], st.Damage[0].Segment) || st.Damage[0].Offset == 0 ||
		!st.Verified.After(before.Verified) || st.Err != nil {
		t.Errorf("after a flip: %+v", st)
	}
	must(t, j.Rewrite(table)) // the remedy
	if st := j.Stats(); len(st.Damage) > 0 {
		t.Errorf("written anew: %+v", st)
	}
	must(t, j.Scrub(ctx, unbounded))
	if st := j.Stats(); len(st.Damage) > 0 {
		t.Errorf("scrubbed anew: %+v", st)
	}
	must(t, j.Close())
	j, again, _ := reopen(t, o, replay.Options{Capacity: 2000})
	sameTables(t, table, again)
	must(t, j.Close())
}

// A scrub finds what the verification finds, whichever byte changes, and segments that are gone or cut short.
func TestAScrubFindsWhatVerifyFinds(t *testing.T) {
	o, _, j, _ := scrubbed(t)
	must(t, j.log.Sync()) // the log states that all is on disk, as it does every interval
	random := rollout.Stream(1, "damage", 0)
	paths := segmentsIn(t, o)
	check := func(what string, whole bool) {
		t.Helper()
		report := must2(verify(killed(o).withDefaults()))(t)
		must(t, j.Scrub(ctx, unbounded))
		if got := j.Stats().Damage; len(got) == 0 != whole || report.Whole() != whole {
			t.Fatalf("%s: the scrub found %v, verifying %s", what, got, report)
		}
	}
	for range 100 {
		b := simulated(o).Content(paths[random.IntN(len(paths)-1)])
		at := random.IntN(len(b))
		b[at] ^= 4
		check("a flip", false)
		b[at] ^= 4
	}
	check("nothing", true)
	path := paths[1]
	content := simulated(o).Content(path)
	for what, left := range map[string][]byte{"emptied": nil, "cut short": content[:1000], "within its header": content[:3]} {
		simulated(o).SetContent(path, left)
		check(what, false)
	}
	must(t, simulated(o).Remove(path))
	check("removed", false)
	must(t, j.Close())
}

// While cuts are written and the log is trimmed and written anew, a scrub finds nothing wrong, and ends.
func TestAScrubBesideWritersFindsNothing(t *testing.T) {
	o := in(t)
	o.Sync, o.Interval, o.slack, o.segment = Interval, time.Millisecond, 100_000, 20_000
	table := newTable(t, replay.Options{Capacity: 200})
	j := create(t, o, table)
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for random := rollout.Stream(1, "scrub", 0); running.Err() == nil; {
			_, err := table.Insert(ctx, aGroup(random, 4, 50+random.IntN(600), table.Version()))
			if err == nil {
				_, err = table.Sample(ctx, rollout.Request{Size: 4})
			}
			if err == nil {
				err = j.Commit(ctx)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range tests.Rounds(40, 20, 10) {
		must(t, j.Scrub(ctx, 1<<30))
		if i%10 == 0 {
			must(t, j.Rewrite(table))
		}
		if st := j.Stats(); len(st.Damage) > 0 {
			t.Errorf("found %v", st.Damage)
		}
	}
	stop()
	wg.Wait()
	must(t, j.Close())
	if err := j.Scrub(ctx, 1); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), o.Path) {
		t.Errorf("of a closed journal: %v", err)
	}
}

// A scrub keeps to its rate, and ends with its context.
func TestAScrubIsBoundedByItsRate(t *testing.T) {
	o := in(t)
	table := newTable(t, replay.Options{})
	j := create(t, o, table)
	_, err := table.Insert(ctx, aGroup(rollout.Stream(1, "scrub", 0), 4, 500, 0))
	must(t, err)
	must(t, j.Commit(ctx))
	began := time.Now()
	must(t, j.Scrub(ctx, 100_000))
	if took, least := time.Since(began), float64(j.Stats().Bytes)/100_000; took.Seconds() < least {
		t.Errorf("it took %v, %v seconds at least were due", took, least)
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if err := j.Scrub(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	must(t, j.Close())
}

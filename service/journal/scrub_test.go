package journal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// unbounded is a rate of scrubs.
const unbounded = 1 << 40

// A byte that changes in a part of the file that nobody writes any more is found while the journal works.
func TestAttackAFlippedByteIsFoundByTheScrub(t *testing.T) {
	o := in(t)
	kind := replay.Options{Capacity: 2000}
	table, random := newTable(t, kind), rollout.Stream(1, "scrub", 0)
	j := create(t, o, table)
	old := rollout.Group{Rollouts: []*rollout.Rollout{aRollout(random, 300, 0)}}
	old.Rollouts[0].Text = "the oldest of all rollouts"
	id, err := table.Insert(ctx, old)
	must(t, err)
	insert := func(groups int) {
		for range groups {
			_, err := table.Insert(ctx, aGroup(random, 4, 300, 0))
			must(t, err)
		}
		must(t, j.Commit(ctx))
	}
	insert(100)
	insert(100)
	must(t, j.Scrub(ctx, unbounded))
	before := j.Stats()
	if before.Verified.IsZero() || len(before.Damage) > 0 {
		t.Fatalf("of an intact file: %+v", before)
	}
	f := must2(os.OpenFile(o.Path, os.O_RDWR, 0))(t)
	content := must2(os.ReadFile(o.Path))(t)
	flips := 0
	for at := 0; ; flips++ { // its copies on free pages too
		found := bytes.Index(content[at:], []byte(old.Rollouts[0].Text))
		if found < 0 {
			break
		}
		at += found + 1
		_, err := f.WriteAt([]byte{content[at] ^ 1}, int64(at))
		must(t, err)
	}
	must(t, f.Close())
	insert(1) // in other pages
	must(t, j.Scrub(ctx, unbounded))
	st := j.Stats()
	if flips == 0 || len(st.Damage) != 1 || st.Damage[0].ID != id[0] || st.Damage[0].Bucket != rolloutsBucket ||
		!st.Verified.After(before.Verified) || st.Err != nil {
		t.Errorf("after %d flips: %+v", flips, st)
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
	j, again, _ := reopen(t, o, kind)
	sameTables(t, table, again)
	must(t, j.Close())
}

// A scrub in parts finds what the verification of the whole file finds in pages and records.
func TestAScrubFindsWhatVerifyFinds(t *testing.T) {
	file, kind, _ := sample(t, 1)
	random := rollout.Stream(1, "damage", 0)
	found := 0
	for range 150 {
		o := in(t)
		must(t, os.WriteFile(o.Path, file, 0o600))
		j, _, _ := reopen(t, o, kind)
		damaged := bytes.Clone(file)
		size := j.store.pageSize
		at := 2*size + random.Int64N(int64(len(file))-2*size)
		damaged[at] ^= 1 << random.IntN(8)
		f := must2(os.OpenFile(o.Path, os.O_RDWR, 0))(t)
		_, err := f.WriteAt(damaged[at:at+1], at)
		must(t, errors.Join(err, f.Close()))
		want := verifyBytes(t, damaged)
		must(t, j.scrub(ctx, unbounded, 1+random.Int64N(20_000)))
		if got := j.Stats().Damage; (len(got) == 0) != want.Whole() {
			t.Fatalf("byte %d: the scrub found %v, verifying %s", at, got, want)
		}
		if !want.Whole() {
			found++
		}
		_ = j.Close() // fails if a last commit meets the damage
	}
	if found < 30 {
		t.Errorf("only %d of the changes were to something in use", found)
	}
}

// A file that lost both meta pages, or its end, ends neither the scrub nor the process.
func TestAttackAScrubOutlivesAFileCutShort(t *testing.T) {
	for _, length := range []int64{0, 100, 3 << 12} {
		file, kind, _ := sample(t, 1)
		o := in(t)
		must(t, os.WriteFile(o.Path, file, 0o600))
		j, _, _ := reopen(t, o, kind)
		must(t, os.Truncate(o.Path, length))
		must(t, j.Scrub(ctx, unbounded))
		if len(j.Stats().Damage) == 0 {
			t.Errorf("nothing is wrong with a file of %d bytes", length)
		}
		must(t, os.WriteFile(o.Path, file, 0o600)) // for the end
		must(t, j.Close())
	}
}

// While transactions replace pages and the file grows a scrub finds nothing wrong, and ends.
func TestAScrubBesideWritersFindsNothing(t *testing.T) {
	o := in(t)
	o.Sync, o.Interval = Off, time.Millisecond
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
	for range 30 {
		must(t, j.scrub(ctx, unbounded, 10_000))
	}
	must(t, j.Rewrite(table))
	must(t, j.scrub(ctx, unbounded, 10_000))
	if st := j.Stats(); len(st.Damage) > 0 {
		t.Errorf("found %v", st.Damage)
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

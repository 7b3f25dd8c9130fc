package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Whatever goes on beside it, the file holds the table as of one moment: every copy taken under load opens, its books balance,
// and it has all that was committed before it was begun.
func TestEveryCopyUnderLoadIsATableOfOneMoment(t *testing.T) {
	o := in(t)
	o.Sync, o.Interval = Off, time.Millisecond
	kind := replay.Options{Capacity: 64, MaxUses: 3, Shards: 2}
	table := newTable(t, kind)
	j := create(t, o, table)
	stop, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	var mu sync.Mutex
	committed := rollout.ID(0)
	for client := range 4 {
		random := rollout.Stream(uint64(client), "client", 0)
		work.Go(func() {
			for i := 0; stop.Err() == nil; i++ {
				ids, err := table.Server().InsertOnce(ctx, fmt.Sprint(client, " ", i), aGroup(random, 4, 10, 0))
				if err == nil {
					err = j.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				committed = max(committed, ids[len(ids)-1])
				mu.Unlock()
			}
		})
	}
	work.Go(func() {
		for i := 0; stop.Err() == nil; i++ {
			b, err := table.Lease(ctx, rollout.Request{Size: 3, Shard: i % 2})
			if errors.Is(err, rollout.ErrStarved) {
				continue
			}
			if err == nil && i%3 > 0 {
				err = table.Acknowledge(context.Background(), b.ID)
			}
			if err == nil && i%50 == 0 {
				err = table.Advance(ctx, rollout.Version(i/50))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 12 {
		mu.Lock()
		before := committed
		mu.Unlock()
		at := fmt.Sprintf("%s.%d", o.Path, i)
		backup(t, j, at)
		copied, again, recovery := reopen(t, Options{Path: at, Sync: Off}, kind)
		balanced(t, again)
		if last := rollout.ID(statsOf(again).Inserted); last < before {
			t.Errorf("a copy knows of %d rollouts, %d were committed before: %s", last, before, recovery)
		}
		must(t, copied.Close())
		must(t, os.Remove(at))
	}
	cancel()
	work.Wait()
	must(t, j.Close())
	_, again, _ := reopenAndClose(t, o, kind)
	if a, b := statsOf(table).Inserted, statsOf(again).Inserted; a != b {
		t.Errorf("%d rollouts were inserted, the closed journal knows %d", a, b)
	}
}

func reopenAndClose(t testing.TB, o Options, kind replay.Options) (*Journal, *replay.Table, *Recovery) {
	t.Helper()
	j, table, recovery := reopen(t, o, kind)
	must(t, j.Close())
	return j, table, recovery
}

func TestThoseWhoWaitTogetherShareTransactions(t *testing.T) {
	o := in(t)
	table := newTable(t, replay.Options{Capacity: 100_000})
	j := create(t, o, table)
	const clients, each = 16, 20
	var work sync.WaitGroup
	for client := range clients {
		random := rollout.Stream(uint64(client), "client", 0)
		work.Go(func() {
			for range each {
				if _, err := table.Insert(ctx, aGroup(random, 2, 10, 0)); err != nil {
					t.Error(err)
				}
				if err := j.Commit(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	st := j.Stats()
	if st.Commits >= clients*each || st.Rollouts != 2*clients*each || st.Bytes == 0 || st.FileBytes == 0 || st.FreeBytes < st.FileBytes/2 || st.FreeBytes >= st.FileBytes || st.Pending != 0 || st.LastWrite.IsZero() {
		t.Errorf("%d calls: %+v", clients*each, st)
	}
	var n uint64
	for _, l := range st.Writes {
		n += l.Count
	}
	if n != st.Commits || st.WriteTime <= 0 {
		t.Errorf("%d transactions took %v in all, their latencies count %d", st.Commits, st.WriteTime, n)
	}
	must(t, j.Close())
}

func TestACallThatGivesUpLeavesTheOthersAlone(t *testing.T) {
	o := in(t)
	table := newTable(t, replay.Options{Capacity: 8})
	j := create(t, o, table)
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := j.Commit(over); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose time was over gave %v", err)
	}
	must(t, j.Commit(ctx))
	must(t, j.Flush(ctx))
	must(t, j.Close())
}

// A table can be restored while others insert and wait.
func TestRewritingUnderLoadKeepsWhatCameAfter(t *testing.T) {
	o := in(t)
	o.Sync, o.Interval = Off, time.Millisecond
	kind := replay.Options{Capacity: 64}
	table, random := newTable(t, kind), rollout.Stream(9, "test", 0)
	j := create(t, o, table)
	var snapshot bytes.Buffer
	must(t, table.Snapshot(&snapshot))
	stop, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for stop.Err() == nil {
			if _, err := table.Insert(ctx, aGroup(random, 2, 10, 0)); err != nil {
				t.Error(err)
			}
			if err := j.Commit(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for range 10 {
		must(t, table.Restore(bytes.NewReader(snapshot.Bytes())))
		must(t, j.Rewrite(table))
	}
	cancel()
	work.Wait()
	must(t, j.Close())
	_, again, _ := reopenAndClose(t, o, kind)
	sameTables(t, table, again)
}

// statsOf returns a table's statistics.
func statsOf(table *replay.Table) rollout.Stats {
	stats, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats
}

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// While the disk is full nothing is acknowledged; once it has space everything is written, in order, and memory and
// file agree. At any moment the file holds what was acknowledged.
func TestAttackAFullDiskPassesBySpaceReturning(t *testing.T) {
	folder := disktest.Tiny(t, "8m")
	if folder == "" {
		return
	}
	for _, mode := range []Sync{Always, Off, Interval} {
		for _, kind := range []replay.Options{
			{Sampler: replay.Uniform, Capacity: 64}, {Sampler: replay.FIFO, Capacity: 4000},
			{Sampler: replay.Prioritized, Capacity: 48, Unit: replay.UnitGroup, GroupSize: 4, MaxUses: 3},
		} {
			t.Run(string(mode)+"/"+string(kind.Sampler), func(t *testing.T) { fillAndFree(t, folder, mode, kind) })
		}
	}
}

func fillAndFree(t *testing.T, folder string, mode Sync, kind replay.Options) {
	o := Options{Path: filepath.Join(folder, "table.journal"), Sync: mode, Interval: time.Hour}
	ballast := filepath.Join(folder, "ballast")
	table, random := newTable(t, kind), rollout.Stream(1, "full", 0)
	j := create(t, o, table)
	tokens := 300
	change := func() {
		_, err := table.Insert(ctx, aGroup(random, 4, tokens, table.Version()))
		must(t, err)
		if random.IntN(3) > 0 {
			return
		}
		must(t, table.Advance(ctx, table.Version()+1))
		b, err := table.Lease(ctx, rollout.Request{Size: 4})
		must(t, err)
		must(t, table.Acknowledge(ctx, b.ID))
	}
	for range 3 {
		for range 10 {
			change()
			must(t, j.Flush(ctx))
		}
		acknowledged := statsOf(table)
		disktest.Fill(t, ballast)
		var full error
		for i := 0; full == nil; i++ {
			if i == 10_000 {
				t.Fatal("the disk is never full")
			}
			tokens += 100
			change()
			if full = j.Flush(ctx); full == nil {
				acknowledged = statsOf(table)
			}
		}
		for _, part := range []string{o.Path, "the disk is full", "bytes left"} {
			if !errors.Is(full, ErrNoSpace) || !strings.Contains(full.Error(), part) {
				t.Fatalf("%v does not say %q", full, part)
			}
		}
		for range 10 { // and more is neither acknowledged nor lost
			change()
			if err := j.Commit(ctx); !errors.Is(err, ErrNoSpace) {
				t.Fatalf("a commit on the full disk: %v", err)
			}
		}
		if st := j.Stats(); st.Err != nil || st.Full == nil {
			t.Fatalf("the statistics tell of %v, %v", st.Err, st.Full)
		}
		crashed := o // as a crash now leaves it
		crashed.Path = filepath.Join(t.TempDir(), "crashed.journal")
		must(t, os.CopyFS(crashed.Path, os.DirFS(o.Path)))
		_, recovered, _ := reopenAndClose(t, crashed, kind)
		balanced(t, recovered)
		if s := statsOf(recovered); s.Inserted < acknowledged.Inserted || s.Acknowledged < acknowledged.Acknowledged {
			t.Fatalf("a crash leaves %+v; acknowledged was %+v", s, acknowledged)
		}
		must(t, os.Remove(ballast))
		for err := error(ErrNoSpace); err != nil; err = j.Flush(ctx) {
			if !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			runtime.Gosched() // it is tried again a moment later
		}
		tokens = 300
		if err := j.Full(); err != nil {
			t.Errorf("it is written, and not known to be: %v", err)
		}
	}
	balanced(t, table)
	must(t, j.Close())
	j, again, _ := reopen(t, o, kind)
	sameTables(t, table, again)
	must(t, j.Close())
	must(t, Remove(o))
}

// Callers that ask again while the disk fills and empties are acknowledged in the end, and nothing of theirs is lost. A
// table restored meanwhile is written too.
func TestAttackCallersOutlastAFullDisk(t *testing.T) {
	folder := disktest.Tiny(t, "64m")
	if folder == "" {
		return
	}
	const clients, batches = 4, 60
	kind := replay.Options{Capacity: 10_000}
	table := newTable(t, kind)
	o := Options{Path: filepath.Join(folder, "table.journal"), Interval: time.Millisecond}
	ballast := filepath.Join(folder, "ballast")
	j := create(t, o, table)
	var ended atomic.Int32
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			defer ended.Add(1)
			for i := range batches {
				name := fmt.Sprint(client, "-", i)
				_, err := table.ServiceView().InsertOnce(ctx, name, aGroup(rollout.Stream(1, name, 0), 4, 500, 0))
				if err != nil {
					t.Error(err)
				}
				for err = j.Commit(ctx); errors.Is(err, ErrNoSpace); err = j.Commit(ctx) {
					runtime.Gosched()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for ended.Load() < clients {
		disktest.Fill(t, ballast)
		for j.Full() == nil && ended.Load() < clients {
			runtime.Gosched()
		}
		must(t, os.Remove(ballast))
		for j.Full() != nil {
			runtime.Gosched()
		}
	}
	wg.Wait()
	disktest.Fill(t, ballast)
	if err := j.Rewrite(table); !errors.Is(err, ErrNoSpace) {
		t.Errorf("rewritten on a full disk: %v", err)
	}
	must(t, os.Remove(ballast))
	for err := error(ErrNoSpace); err != nil; err = j.Flush(ctx) {
		if !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	must(t, j.Close())
	j, again, _ := reopen(t, o, kind)
	sameTables(t, table, again)
	if n := statsOf(again).Inserted; n != clients*batches*4 {
		t.Errorf("%d rollouts are there, want %d", n, clients*batches*4)
	}
	must(t, j.Close())
}

// A journal that is closed while the disk is full tells that what it had is lost.
func TestAttackClosingOnAFullDiskIsAnError(t *testing.T) {
	folder := disktest.Tiny(t, "4m")
	if folder == "" {
		return
	}
	o := Options{Path: filepath.Join(folder, "table.journal"), Interval: time.Hour}
	table, random := newTable(t, replay.Options{}), rollout.Stream(1, "full", 0)
	j := create(t, o, table)
	disktest.Fill(t, filepath.Join(folder, "ballast"))
	var err error
	for err == nil {
		_, inserting := table.Insert(ctx, aGroup(random, 4, 3000, 0))
		must(t, inserting)
		err = j.Commit(ctx)
	}
	if err := j.Close(); !errors.Is(err, ErrNoSpace) {
		t.Errorf("closing it: %v", err)
	}
	if report := must2(Verify(o.Path))(t); !report.Whole() {
		t.Error(report)
	}
}

// NoSpace makes space, and the callers notice nothing.
func TestSpaceMadeByNoSpaceIsUsedAtOnce(t *testing.T) {
	folder := disktest.Tiny(t, "4m")
	if folder == "" {
		return
	}
	ballast := filepath.Join(folder, "ballast")
	calls := 0
	o := Options{Path: filepath.Join(folder, "table.journal"), Interval: time.Hour, NoSpace: func(err error) {
		calls++
		if !errors.Is(err, ErrNoSpace) {
			t.Errorf("called with %v", err)
		}
		must(t, os.Remove(ballast))
	}}
	table, random := newTable(t, replay.Options{}), rollout.Stream(1, "full", 0)
	j := create(t, o, table)
	disktest.Fill(t, ballast)
	for calls == 0 {
		_, err := table.Insert(ctx, aGroup(random, 4, 3000, 0))
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Close())
	j, again, _ := reopen(t, o, replay.Options{})
	sameTables(t, table, again)
	must(t, j.Close())
}

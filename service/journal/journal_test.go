package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// For every sampler, retention and unit, a table is recovered after random calls and several crashes.
func TestRecoveryRestoresTheCommittedTable(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(fmt.Sprintf("%s,%s,%s", kind.Sampler, kind.Unit, kind.Retention), func(t *testing.T) {
			o := in(t)
			o.Sync = Off // a crash of the process loses nothing in any mode
			u := newUser(t, kind, 7)
			for range 10 {
				u.step() // before there is a journal
			}
			j := create(t, o, u.table)
			for range 3 {
				for range 30 + u.random.IntN(40) {
					u.step()
					if u.random.IntN(4) == 0 {
						must(t, j.Commit(ctx))
					}
				}
				must(t, j.Commit(ctx))
				want, leases, at := u.released(), len(u.leases), killed(o)
				u.step() // lost with the process
				must(t, j.Close())
				o = at
				var recovery *Recovery
				j, u.table, recovery = reopen(t, o, u.o)
				sameTables(t, want, u.table)
				if recovery.Rollouts != want.ServiceView().Flow().Present || int(recovery.Returned) < leases {
					t.Fatalf("recovery says %s, with %d leases, of %d rollouts", recovery, leases,
						want.ServiceView().Flow().Present)
				}
				u.leases = nil
			}
			must(t, j.Close())
		})
	}
}

func TestInsertionsAreRememberedAcrossAClose(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 8}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	g := aGroup(u.random, 3, 4, 0)
	ids, err := u.table.ServiceView().InsertOnce(ctx, "one", g)
	must(t, err)
	must(t, j.Close())
	j, table, recovery := reopen(t, o, kind)
	again, err := table.ServiceView().InsertOnce(ctx, "one", g)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) || table.ServiceView().Flow().Present != 3 ||
		recovery.Requests != 1 {
		t.Errorf("the same insertion got %v and then %v, %v; the table holds %d; %s", ids, again, err,
			table.ServiceView().Flow().Present, recovery)
	}
	_, err = table.ServiceView().InsertOnce(ctx, "one", aGroup(u.random, 3, 4, 0))
	if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), `batch_id: "one": it was used`) {
		t.Errorf("other contents under the id of before the close: %v", err)
	}
	must(t, j.Close())
}

// What a queue consumed by request id is known after kill -9, in the cut that removed the rollouts, and the
// oldest is forgotten.
func TestAttackConsumedRequestsAreRememberedAcrossACrash(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 8, Sampler: replay.FIFO, Shards: 8}
	o.Sync = Off
	table, random := newTable(t, kind), rollout.Stream(1, "test", 0)
	j := create(t, o, table)
	const batches = 2_100 // a shard of eight remembers 2,048
	for i := range batches {
		_, err := table.Insert(ctx, aGroup(random, 1, 2, 0))
		must(t, err)
		_, err = table.Sample(ctx, rollout.Request{Size: 1, Shard: i % 8, ID: fmt.Sprint(i)})
		must(t, err)
		if i%100 == 0 {
			must(t, j.Commit(ctx))
		}
	}
	_, err := table.Insert(ctx, aGroup(random, 1, 2, 0), aGroup(random, 1, 2, 0), aGroup(random, 1, 2, 0))
	must(t, err)
	must(t, j.Flush(ctx))
	crashed := killed(o)
	must(t, j.Close())
	for _, at := range []Options{crashed, o} {
		j, table, _ := reopen(t, at, kind)
		for _, i := range []int{0, batches - 1} {
			b, err := table.Sample(ctx, rollout.Request{Size: 1, Shard: i % 8, ID: fmt.Sprint(i)})
			if !errors.Is(err, rollout.ErrNoLease) {
				t.Errorf("request %d again got %v, %v", i, b, err)
			}
		}
		must(t, j.Close())
	}
}

func TestOnlyTheLatestInsertionsAreRemembered(t *testing.T) {
	o := in(t)
	o.Sync = Off
	table, random := newTable(t, replay.Options{Capacity: 4}), rollout.Stream(1, "test", 0)
	j := create(t, o, table)
	g := aGroup(random, 1, 2, 0)
	for i := range 100_500 {
		_, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint(i), g)
		must(t, err)
		if i%10_000 == 0 {
			must(t, j.Commit(ctx))
		}
	}
	must(t, j.Close())
	j, table, recovery := reopen(t, o, replay.Options{Capacity: 4})
	if recovery.Requests != 100_000 {
		t.Errorf("%d insertions are remembered", recovery.Requests)
	}
	before := statsOf(table).Inserted
	for _, i := range []int{500, 100_499} {
		_, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint(i), g)
		must(t, err)
	}
	if n := statsOf(table).Inserted; n != before {
		t.Errorf("%d of what is remembered was inserted again", n-before)
	}
	for i := range 10 {
		_, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint("later ", i), g)
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Close())
	_, _, recovery = reopenAndClose(t, o, replay.Options{Capacity: 4})
	if recovery.Requests != 100_000 {
		t.Errorf("%d insertions are remembered after more came", recovery.Requests)
	}
}

func TestDefinitionAndBlobsAreRecovered(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 8}
	j := create(t, o, newTable(t, kind))
	content := []byte("first")
	j.Attach("prompts", func() ([]byte, error) { return content, nil })
	must(t, j.Flush(ctx))
	content = []byte("second")
	must(t, j.Close())
	var given []byte
	j, _, recovery, err := Open(o, builder(kind, &given))
	must(t, err)
	if string(given) != "a definition" || string(recovery.Blobs["prompts"]) != "second" || len(recovery.Blobs) != 1 {
		t.Errorf("the definition is %q, the blobs are %q", given, recovery.Blobs)
	}
	must(t, j.Close())
}

func TestABlobThatCannotBeSavedFailsTheFlush(t *testing.T) {
	j := create(t, in(t), newTable(t, replay.Options{Capacity: 8}))
	broken := errors.New("no prompts today")
	j.Attach("prompts", func() ([]byte, error) { return nil, broken })
	if err := j.Flush(ctx); !errors.Is(err, broken) || !strings.Contains(err.Error(), "prompts") {
		t.Errorf("flushing gave %v", err)
	}
	if err := j.Commit(ctx); !errors.Is(err, broken) {
		t.Errorf("a commit after that gave %v", err)
	}
	if err := j.Close(); !errors.Is(err, broken) {
		t.Errorf("closing gave %v", err)
	}
}

func TestRewriteReplacesTheContent(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 16}
	u := newUser(t, kind, 3)
	j := create(t, o, u.table)
	u.insert()
	var b bytes.Buffer
	must(t, u.table.Snapshot(&b))
	for range 40 {
		u.step()
	}
	must(t, j.Commit(ctx))
	u.leases = nil
	must(t, u.table.Restore(&b))
	u.insert()
	must(t, j.Rewrite(u.table))
	u.insert()
	must(t, j.Close())
	j, table, _ := reopen(t, o, kind)
	sameTables(t, u.table, table)

	other := newUser(t, kind, 4) // another table altogether
	other.insert()
	must(t, j.Rewrite(other.table))
	other.insert()
	must(t, j.Commit(ctx))
	must(t, j.Close())
	j, table, _ = reopen(t, o, kind)
	sameTables(t, other.table, table)
	must(t, j.Close())
}

func TestNothingIsWrittenWithoutChanges(t *testing.T) {
	o := in(t)
	o.Interval = time.Millisecond
	u := newUser(t, replay.Options{Capacity: 16}, 3)
	j := create(t, o, u.table)
	u.insert()
	for range 5 {
		must(t, j.Commit(ctx))
	}
	must(t, j.Flush(ctx))
	if n := j.Stats().Commits; n != 1 {
		t.Errorf("one change took %d writes", n)
	}
	must(t, j.Close())
}

func TestAJournalHasOneProcessAtATime(t *testing.T) {
	o, kind := onDisk(t), replay.Options{Capacity: 8}
	o.LockTimeout = 50 * time.Millisecond
	j := create(t, o, newTable(t, kind))
	if _, _, _, err := Open(o, builder(kind, nil)); err == nil ||
		!strings.Contains(err.Error(), "another process has had it open") {
		t.Errorf("opening it twice gave %v", err)
	}
	if _, err := Verify(o.Path); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("verifying it meanwhile gave %v", err)
	}
	if _, err := Create(o, nil, newTable(t, kind)); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating it again gave %v", err)
	}
	must(t, j.Close())
	j, _, _ = reopen(t, o, kind)
	must(t, j.Close())
	if err := j.Close(); err != nil {
		t.Errorf("closing it twice gave %v", err)
	}
	if err := j.Commit(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a commit after closing gave %v", err)
	}
}

func TestOpenDoesNotCreateAJournal(t *testing.T) {
	o := onDisk(t)
	if _, _, _, err := Open(o, builder(replay.Options{}, nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening it gave %v", err)
	}
	if _, err := os.Stat(o.Path); err == nil {
		t.Error("there is a file")
	}
}

func TestATableOfOtherOptionsIsRefused(t *testing.T) {
	o := in(t)
	must(t, create(t, o, newTable(t, replay.Options{Capacity: 8})).Close())
	if _, _, _, err := Open(o, builder(replay.Options{Capacity: 9}, nil)); err == nil ||
		!strings.Contains(err.Error(), "capacity is 8 in the snapshot and 9") {
		t.Errorf("opening gave %v", err)
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	err := Options{Sync: "sometimes", Interval: -1, LockTimeout: -1}.Validate()
	for _, want := range []string{"path", "sync: sometimes: want always, interval or off", "interval: -1ns",
		"lock_timeout: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// The log of a table that was filled many times over stays near twice the size of its content.
func TestTheLogIsTrimmed(t *testing.T) {
	tests.Long(t)
	for _, mode := range []Sync{Always, Interval, Off} {
		o := in(t)
		o.Sync, o.slack, o.segment = mode, 1<<20, 1<<18
		const capacity, tokens = 200, 1000
		table, random := newTable(t, replay.Options{Capacity: capacity}), rollout.Stream(1, "test", 0)
		j := create(t, o, table)
		content := int64(capacity) * aRollout(random, tokens, 0).Bytes()
		for range 20 * capacity / 16 {
			_, err := table.Insert(ctx, aGroup(random, 16, tokens/2+random.IntN(tokens), 0))
			must(t, err)
			must(t, j.Commit(ctx))
			if size := j.Stats().LogBytes; size > 4*content+4*o.slack {
				t.Fatalf("%s: the log has %d bytes, its content %d", mode, size, content)
			}
		}
		must(t, j.Close())
		report := must2(verify(o.withDefaults()))(t)
		if !report.Whole() || report.Rollouts != capacity || report.Segments < 3 {
			t.Errorf("%s", report)
		}
	}
}

// Under load the log always holds the table as of one moment: every copy opens, its counts balance, and it has
// everything that was committed before the copy began.
func TestEveryCopyUnderLoadIsAConsistentTable(t *testing.T) {
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
				ids, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint(client, " ", i), aGroup(random, 4, 10, 0))
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
	for range 12 {
		mu.Lock()
		before := committed
		mu.Unlock()
		copied, again, recovery := reopen(t, killed(o), kind)
		balanced(t, again)
		if last := rollout.ID(statsOf(again).Inserted); last < before {
			t.Errorf("a copy knows of %d rollouts, %d were committed before: %s", last, before, recovery)
		}
		must(t, copied.Close())
	}
	cancel()
	work.Wait()
	must(t, j.Close())
	_, again, _ := reopenAndClose(t, o, kind)
	if a, b := statsOf(table).Inserted, statsOf(again).Inserted; a != b {
		t.Errorf("%d rollouts were inserted, the closed journal knows %d", a, b)
	}
}

func TestConcurrentCommitsShareWrites(t *testing.T) {
	o := onDisk(t)
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
	if st.Commits >= clients*each || st.Rollouts != 2*clients*each || st.Bytes == 0 ||
		st.LogBytes < int64(st.Bytes) || st.Pending != 0 {
		t.Errorf("%d calls: %+v", clients*each, st)
	}
	var n uint64
	for _, l := range st.Writes {
		n += l.Count
	}
	if n != st.Commits || st.WriteTime <= 0 {
		t.Errorf("%d writes took %v in all, their latencies count %d", st.Commits, st.WriteTime, n)
	}
	must(t, j.Close())
}

// watched is a context that tells when somebody waits for its end.
type watched struct {
	context.Context
	waits chan struct{}
	once  sync.Once
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// held is a journal whose next cut is taken and not written until release.
type held struct {
	*Journal
	table   *replay.Table
	release func()
	flushed chan error
}

// hold inserts a rollout, and has a cut with it wait.
func hold(t *testing.T) *held {
	table := newTable(t, replay.Options{})
	h := &held{Journal: create(t, in(t), table), table: table, flushed: make(chan error, 1)}
	t.Cleanup(func() { _ = h.Close() }) // a test may make it fail
	h.insert(t)
	cutting, released := make(chan struct{}), make(chan struct{})
	h.release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(h.release) // before Close
	h.Attach("waits", sync.OnceValues(func() ([]byte, error) {
		close(cutting)
		<-released
		return []byte("x"), nil
	}))
	go func() { h.flushed <- h.Flush(ctx) }()
	<-cutting
	return h
}

func (h *held) insert(t *testing.T) {
	t.Helper()
	must2(h.table.Insert(ctx, aGroup(rollout.Stream(1, "test", 0), 1, 4, 0)))(t)
}

// commitUpTo calls CommitUpTo, and returns once it waits.
func (h *held) commitUpTo(last rollout.ID) <-chan error {
	w := &watched{Context: ctx, waits: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- h.CommitUpTo(w, last) }()
	<-w.waits
	return done
}

// waitsForACut reports whether somebody waits for a cut to be taken.
func (h *held) waitsForACut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting != nil
}

func TestRolloutsAreCommittedByTheFirstWriteThatHasThem(t *testing.T) {
	h := hold(t)
	first := h.commitUpTo(1)
	if h.waitsForACut() {
		t.Error("a rollout that was cut waits for another cut")
	}
	h.insert(t)
	second := h.commitUpTo(2)
	if !h.waitsForACut() {
		t.Error("a rollout that came after the cut does not wait for the next")
	}
	h.release()
	must(t, errors.Join(<-h.flushed, <-first, <-second))
	wrote := h.Stats().Commits
	must(t, h.CommitUpTo(ctx, 2))
	h.insert(t)
	must(t, h.CommitUpTo(ctx, 2))
	if n := h.Stats().Commits; n != wrote {
		t.Errorf("%d writes for rollouts that were committed", n-wrote)
	}
	must(t, h.CommitUpTo(ctx, 3))
	if n := h.Stats().Commits; n != wrote+1 {
		t.Errorf("%d writes for a rollout that was not committed", n-wrote)
	}
}

// A cut from before a restore says nothing of the rollouts that the restored table has, though their ids are smaller.
func TestACommitInFlightDoesNotOutliveARestore(t *testing.T) {
	h := hold(t)
	h.Restored()
	h.release()
	must(t, <-h.flushed)
	h.mu.Lock()
	committed := h.committed
	h.mu.Unlock()
	if committed != 0 {
		t.Errorf("rollouts up to %d count as committed, and the restored table was not written", committed)
	}
	h.insert(t)
	must(t, h.Rewrite(h.table))
	wrote := h.Stats().Commits
	must(t, h.CommitUpTo(ctx, 2))
	if n := h.Stats().Commits; n != wrote {
		t.Errorf("%d writes for rollouts that were rewritten", n-wrote)
	}
}

// A full disk, or a failure, ends the wait for a write that will not come.
func TestAWriteThatFailsEndsTheWaitForIt(t *testing.T) {
	h := hold(t)
	done := h.commitUpTo(1)
	d := simulated(h.options)
	d.Fill(true)
	h.release()
	if err := errors.Join(<-h.flushed, <-done); !errors.Is(err, ErrNoSpace) {
		t.Errorf("on a full disk: %v", err)
	}
	d.Fill(false)
	for h.Full() != nil {
		if err := h.CommitUpTo(ctx, 1); err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	h.insert(t)
	d.Fail(1)
	if err := h.CommitUpTo(ctx, 2); err == nil || errors.Is(err, ErrNoSpace) {
		t.Errorf("on a disk that fails: %v", err)
	}
	must(t, h.CommitUpTo(ctx, 1)) // that is on disk all the same
}

func TestACancelledCommitDoesNotAffectOthers(t *testing.T) {
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
func TestRewriteUnderLoadKeepsLaterChanges(t *testing.T) {
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

func TestAWriteWaitsBrieflyForTheLastOnesCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Path: filepath.Join(t.TempDir(), "j")}.withDefaults()
		j := newJournal(o, new(memoryLog), nil, newTable(t, replay.Options{Capacity: 16}))
		waited := func(waiting, company int64, meanwhile func()) time.Duration {
			j.counters.waiting.Store(waiting)
			began := time.Now()
			if meanwhile != nil {
				go meanwhile()
			}
			j.gather(company, maxGathering)
			return time.Since(began)
		}
		if d := waited(1, 1, nil); d != 0 {
			t.Errorf("a single caller waited %v", d)
		}
		if d := waited(1, 2, nil); d != maxGathering {
			t.Errorf("with one caller missing it waited %v: want %v", d, maxGathering)
		}
		back := func() {
			time.Sleep(maxGathering / 4)
			j.counters.waiting.Add(1)
			j.arrived <- struct{}{}
		}
		if d := waited(1, 2, back); d != maxGathering/4 {
			t.Errorf("with one caller coming back it waited %v: want %v", d, maxGathering/4)
		}
		close(j.stop)
		if d := waited(0, 2, nil); d != 0 {
			t.Errorf("of a closing journal it waited %v", d)
		}
	})
}

// slowDisk tells of each write, with the functions that led to it, and waits until it may happen.
type slowDisk struct {
	disk.Files
	writes chan string
	pass   chan struct{}
}

type slowFile struct {
	disk.File
	of *slowDisk
}

func (d *slowDisk) Open(path string, flags int) (disk.File, error) {
	f, err := d.Files.Open(path, flags)
	return slowFile{f, d}, err
}

func (f slowFile) WriteAt(b []byte, at int64) (int, error) {
	if f.of.writes != nil {
		f.of.writes <- string(debug.Stack())
		<-f.of.pass
	}
	return f.File.WriteAt(b, at)
}

// With interval a commit that nothing is written for is written by its caller. One that comes meanwhile is cut, and
// written with all others that come before the disk is free. With always one goroutine writes for all.
func TestACallerWritesForThoseThatWait(t *testing.T) {
	for _, mode := range []Sync{Interval, Off, Always} {
		o, kind := in(t), replay.Options{Capacity: 64}
		d := &slowDisk{Files: o.Disk}
		o.Disk, o.Sync = d, mode
		table, random := newTable(t, kind), rollout.Stream(1, "callers", 0)
		j := create(t, o, table)
		d.writes, d.pass = make(chan string), make(chan struct{})
		var wg sync.WaitGroup
		commit := func() {
			_, err := table.Insert(ctx, aGroup(random, 2, 8, 0))
			must(t, err)
			wg.Go(func() {
				if err := j.Commit(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		commit()
		if by, stack := "commitHere", <-d.writes; strings.Contains(stack, by) != (mode != Always) {
			t.Errorf("%s: the write is by %s", mode, stack)
		}
		for n := range 3 {
			commit()
			tests.Until(t, "it is queued", func() bool {
				j.queue.mu.Lock()
				defer j.queue.mu.Unlock()
				return len(j.queue.batches) == n+1
			})
		}
		d.pass <- struct{}{}
		writes := 1
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		for over := false; !over; {
			select {
			case stack := <-d.writes:
				if writes++; strings.Contains(stack, "commitHere") {
					t.Errorf("%s: what was queued is written by %s", mode, stack)
				}
				d.pass <- struct{}{}
			case <-ended:
				over = true
			}
		}
		if writes > 4 || j.Stats().Rollouts < 8 {
			t.Errorf("%s: %d writes of %d rollouts", mode, writes, j.Stats().Rollouts)
		}
		go func() {
			for range d.writes {
				d.pass <- struct{}{}
			}
		}()
		must(t, j.Close())
		close(d.writes)
		o.Disk = d.Files
		_, again, _ := reopenAndClose(t, o, kind)
		sameTables(t, table, again)
	}
}

// Batches queued behind a rewrite are written too.
func TestBatchesAroundARewriteAreWrittenInOrder(t *testing.T) {
	kind := replay.Options{Capacity: 16}
	u, log := newUser(t, kind, 1), new(memoryLog)
	j := newJournal(Options{}.in(log), log, nil, u.table)
	cut := func() *batch { return must2(j.cut(nil))(t) }
	must(t, j.writeAll(nil))
	u.insert()
	before := cut()
	u.table.JournalView().Track()
	anew := cut()
	u.insert()
	after := cut()
	if wrote := must2(j.write([]*batch{before, anew, after}))(t); !wrote {
		t.Error("nothing was written")
	}
	_, again, _ := openIn(t, log, kind, Options{})
	sameTables(t, u.table, again)
}

func TestRewriteWithoutChangesLosesNothing(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 16}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	j.Attach("prompts", func() ([]byte, error) { return []byte("content"), nil })
	u.insert()
	must(t, j.Flush(ctx))
	must(t, j.Rewrite(u.table))
	must(t, j.Rewrite(u.table))
	must(t, j.Close())
	_, again, recovery := reopenAndClose(t, o, kind)
	sameTables(t, u.table, again)
	if string(recovery.Blobs["prompts"]) != "content" {
		t.Errorf("the blobs are %q", recovery.Blobs)
	}
}

// A caller that cuts while the goroutines end must not leave its batch in a queue that nobody takes from.
func TestAQueueThatHasEndedTakesNothing(t *testing.T) {
	var q queue
	q.work.L, q.changed.L = &q.mu, &q.mu
	q.end()
	if ok, _ := q.push(&batch{}); ok || len(q.batches) > 0 {
		t.Errorf("%d batches are queued behind the end", len(q.batches))
	}
}

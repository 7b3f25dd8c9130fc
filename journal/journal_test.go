package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// What was committed is found again: every sampler, retention and unit, at random points of a random life, through several
// crashes.
func TestARecoveredTableIsTheOneThatWasCommitted(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(fmt.Sprintf("%s,%s,%s", kind.Sampler, kind.Unit, kind.Retention), func(t *testing.T) {
			o := in(t)
			o.Sync = Off // what is promised of a crash of the process holds in every mode
			u := newUser(t, kind, 7)
			for range 10 {
				u.step() // before there is a journal
			}
			j := create(t, o, u.table)
			for life := range 3 {
				for range 30 + u.random.IntN(40) {
					u.step()
					if u.random.IntN(4) == 0 {
						must(t, j.Commit(ctx))
					}
				}
				must(t, j.Commit(ctx))
				want, at := u.released(), fmt.Sprintf("%s.%d", o.Path, life)
				backup(t, j, at)
				leases := len(u.leases)
				u.step() // lost with the process
				must(t, j.Close())
				o.Path = at
				var recovery *Recovery
				j, u.table, recovery = reopen(t, o, u.o)
				sameTables(t, want, u.table)
				if recovery.Rollouts != want.Server().Flow().Present || int(recovery.Returned) < leases {
					t.Fatalf("recovery says %s, with %d leases, of %d rollouts", recovery, leases, want.Server().Flow().Present)
				}
				u.leases = nil
			}
			must(t, j.Close())
		})
	}
}

// backup copies the file as of the last transaction: what kill -9 would leave.
func backup(t testing.TB, j *Journal, to string) {
	t.Helper()
	j.file.RLock()
	defer j.file.RUnlock()
	must(t, j.store.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(to, 0o600) }))
}

func TestInsertionsAreRememberedAcrossAClose(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 8}
	u := newUser(t, kind, 1)
	j := create(t, o, u.table)
	ids, err := u.table.Server().InsertOnce(ctx, "one", aGroup(u.random, 3, 4, 0))
	must(t, err)
	must(t, j.Close())
	j, table, recovery := reopen(t, o, kind)
	again, err := table.Server().InsertOnce(ctx, "one", aGroup(u.random, 3, 4, 0))
	if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) || table.Server().Flow().Present != 3 || recovery.Requests != 1 {
		t.Errorf("the same insertion got %v and then %v, %v; the table holds %d; %s", ids, again, err, table.Server().Flow().Present, recovery)
	}
	must(t, j.Close())
}

func TestOnlyTheLatestInsertionsAreKept(t *testing.T) {
	o := in(t)
	o.Sync = Off
	table, random := newTable(t, replay.Options{Capacity: 4}), rollout.Stream(1, "test", 0)
	j := create(t, o, table)
	g := aGroup(random, 1, 2, 0)
	for i := range 100_500 {
		_, err := table.Server().InsertOnce(ctx, fmt.Sprint(i), g)
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
		_, err := table.Server().InsertOnce(ctx, fmt.Sprint(i), g)
		must(t, err)
	}
	if n := statsOf(table).Inserted; n != before {
		t.Errorf("%d of what is remembered was inserted again", n-before)
	}
	for i := range 10 {
		_, err := table.Server().InsertOnce(ctx, fmt.Sprint("later ", i), g)
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Close())
	_, _, recovery = reopenAndClose(t, o, replay.Options{Capacity: 4})
	if recovery.Requests != 100_000 {
		t.Errorf("%d insertions are remembered after more came", recovery.Requests)
	}
}

func TestTheDefinitionAndBlobsComeBack(t *testing.T) {
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

func TestARestoredTableIsWrittenAnew(t *testing.T) {
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

func TestWithIntervalACommitReturnsAtOnceAndTheIntervalWrites(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 16}
	o.Sync = Interval
	u := newUser(t, kind, 3)
	j := create(t, o, u.table)
	u.insert()
	must(t, j.Commit(ctx))
	if n := j.Stats().Commits; n != 0 {
		t.Errorf("%d transactions were written before the interval was over", n)
	}
	want := u.table.Server().Flow().Present
	backup(t, j, o.Path+".copy")
	must(t, j.Flush(ctx))
	backup(t, j, o.Path+".flushed")
	must(t, j.Close())
	for path, n := range map[string]int{o.Path + ".copy": 0, o.Path + ".flushed": want} {
		j, table, _ := reopen(t, Options{Path: path}, kind)
		if table.Server().Flow().Present != n {
			t.Errorf("%s holds %d rollouts, want %d", path, table.Server().Flow().Present, n)
		}
		must(t, j.Close())
	}

	o.Path, o.Interval = o.Path+".fast", time.Millisecond
	fast := newUser(t, kind, 4)
	j = create(t, o, fast.table)
	fast.insert()
	deadline := time.Now().Add(10 * time.Second)
	for j.Stats().Commits == 0 {
		if time.Now().After(deadline) {
			t.Fatal("an interval passed and nothing was written")
		}
		time.Sleep(time.Millisecond)
	}
	must(t, j.Close())
}

func TestNothingIsWrittenWhereNothingChanged(t *testing.T) {
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
		t.Errorf("one change took %d transactions", n)
	}
	must(t, j.Close())
}

func TestOneProcessAtATimeHasAJournal(t *testing.T) {
	o, kind := in(t), replay.Options{Capacity: 8}
	o.LockTimeout = 50 * time.Millisecond
	j := create(t, o, newTable(t, kind))
	if _, _, _, err := Open(o, builder(kind, nil)); err == nil || !strings.Contains(err.Error(), "another process has had it open") {
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

func TestAJournalThatIsNotThereIsNotMade(t *testing.T) {
	o := in(t)
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
	if _, _, _, err := Open(o, builder(replay.Options{Capacity: 9}, nil)); err == nil || !strings.Contains(err.Error(), "capacity is 8 in the snapshot and 9") {
		t.Errorf("opening gave %v", err)
	}
}

func TestOptionsNameEveryProblem(t *testing.T) {
	err := Options{Sync: "sometimes", Interval: -1, LockTimeout: -1}.Validate()
	for _, want := range []string{"path", "sync: sometimes: want always, interval or off", "interval: -1ns", "lock_timeout: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// Space of what was removed is used again: the file of a table that was filled many times over stays near its content.
func TestSpaceIsUsedAgain(t *testing.T) {
	o := in(t)
	o.Sync = Off
	const capacity, tokens = 200, 1000
	table, random := newTable(t, replay.Options{Capacity: capacity}), rollout.Stream(1, "test", 0)
	j := create(t, o, table)
	content := int64(capacity) * aRollout(random, tokens, 0).Bytes()
	for range 40 * capacity / 16 {
		_, err := table.Insert(ctx, aGroup(random, 16, tokens/2+random.IntN(tokens), 0))
		must(t, err)
		must(t, j.Commit(ctx))
		if size := j.Stats().FileBytes; size > 2*growth+4*content {
			t.Fatalf("the file has %d bytes, its content %d", size, content)
		}
	}
	must(t, j.Close())
	report, err := Verify(o.Path)
	must(t, err)
	if !report.Whole() || report.Rollouts != capacity {
		t.Errorf("%s", report)
	}
	if used := int64(report.Pages) * int64(report.PageSize); used > 4*content {
		t.Errorf("%d bytes of pages were ever in use, for content of %d", used, content)
	}
}

package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// copyFiles copies a journal and its log, as a crash now would leave them.
func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	for _, s := range append(must2(segmentsOf(from))(t), segment{path: from}) {
		must(t, os.WriteFile(to+strings.TrimPrefix(s.path, from), must2(os.ReadFile(s.path))(t), 0o600))
	}
}

func openAgain(t *testing.T, o Options, kind replay.Options) (*replay.Table, *Recovery) {
	t.Helper()
	j, table, recovery := reopen(t, o, kind)
	must(t, j.Close())
	if left := must2(segmentsOf(o.Path))(t); len(left) > 0 {
		t.Fatalf("a journal that was closed left %v", left)
	}
	return table, recovery
}

// logging creates a journal with a log, and a user of its table.
func logging(t *testing.T, kind replay.Options) (Options, *user, *Journal) {
	t.Helper()
	o := in(t)
	o.Sync = Interval
	u := newUser(t, kind, 3)
	return o, u, create(t, o, u.table)
}

// With interval a commit is in the log at once, and in the file when the interval is over. A table that is opened from
// both is the one that was.
func TestIntervalLogsAtOnceAndWritesLater(t *testing.T) {
	for _, kind := range []replay.Options{{Capacity: 64}, {Sampler: replay.FIFO, Capacity: 4000}} {
		o, u, j := logging(t, kind)
		for range 40 {
			u.step()
			must(t, j.Commit(ctx))
			if n := j.Stats().Commits; n != 0 {
				t.Fatalf("%d transactions were written before the interval was over", n)
			}
		}
		if report := must2(Verify(copyOf(t, o.Path)))(t); !report.Whole() || report.Logged == 0 ||
			!strings.Contains(report.String(), "later changes in its log") {
			t.Errorf("verify says %s", report)
		}
		c := o
		c.Path = copyOf(t, o.Path)
		table, recovery := openAgain(t, c, kind)
		sameTables(t, u.released(), table)
		if recovery.Logged == 0 || recovery.Torn != 0 || !strings.Contains(recovery.String(), "came from its log") {
			t.Errorf("recovered: %s", recovery)
		}
		must(t, j.Flush(ctx))
		if left := must2(segmentsOf(o.Path))(t); len(left) > 0 {
			t.Errorf("a flush left %v", left)
		}
		must(t, j.Close())
		table, _ = openAgain(t, o, kind)
		sameTables(t, u.released(), table)
	}

	o := in(t)
	o.Sync, o.Interval = Interval, time.Millisecond
	u := newUser(t, replay.Options{Capacity: 16}, 4)
	j := create(t, o, u.table)
	u.insert()
	deadline := time.Now().Add(10 * time.Second)
	for j.Stats().Commits == 0 {
		if time.Now().After(deadline) {
			t.Fatal("an interval passed and nothing was written")
		}
		time.Sleep(time.Millisecond)
	}
	must(t, j.Close())
}

func copyOf(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.journal")
	copyFiles(t, path, to)
	return to
}

// However much of the log a loss of power takes, whichever segments it brings back, and wherever it tears them, the
// table is one that was: as of the last transaction or of a commit after it.
func TestATornLogIsCutOffWhereItTears(t *testing.T) {
	kind := replay.Options{Capacity: 64}
	o, u, j := logging(t, kind)
	inserted := make(map[uint64]bool) // statistics of the moments since the last transaction
	var stale []segment               // what a transaction removed
	stored := make(map[string][]byte)
	for i := range 60 {
		if i == 30 {
			stale = must2(segmentsOf(o.Path))(t)
			for _, s := range stale {
				stored[filepath.Base(s.path)] = must2(os.ReadFile(s.path))(t)
			}
			must(t, j.Flush(ctx))
		}
		u.insert()
		must(t, j.Commit(ctx))
		if i >= 29 {
			inserted[statsOf(u.table).Inserted] = true
		}
	}
	random := rollout.Stream(1, "torn", 0)
	whole := 0
	for range 60 {
		path := copyOf(t, o.Path)
		for _, s := range must2(segmentsOf(path))(t) {
			b := must2(os.ReadFile(s.path))(t)
			switch random.IntN(4) {
			case 0:
				b = b[:random.IntN(len(b)+1)]
			case 1:
				from := random.IntN(len(b)) / sector * sector
				clear(b[from:min(from+sector, len(b))])
			case 2:
				b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			}
			must(t, os.WriteFile(s.path, b, 0o600))
		}
		if random.IntN(2) == 0 {
			for _, s := range stale {
				name := strings.Replace(filepath.Base(s.path), filepath.Base(o.Path), filepath.Base(path), 1)
				must(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), stored[filepath.Base(s.path)], 0o600))
			}
		}
		table, recovery := openAgain(t, Options{Path: path, Sync: Interval}, kind)
		balanced(t, table)
		n := statsOf(table).Inserted
		if !inserted[n] {
			t.Fatalf("the table has had %d rollouts, which it never had after a commit: %s", n, recovery)
		}
		if n == statsOf(u.table).Inserted {
			whole++
		} else if recovery.Torn == 0 && recovery.Skipped == 0 {
			t.Errorf("changes are missing and nothing is said: %s", recovery)
		}
	}
	if whole == 0 || whole == 60 {
		t.Errorf("%d of 60 logs were whole", whole)
	}
	must(t, j.Close())
}

// A log beside a journal that it does not belong to is an error, by open, create, verify and salvage.
func TestAForeignLogIsRefused(t *testing.T) {
	kind := replay.Options{Capacity: 16}
	o, u, j := logging(t, kind)
	u.insert()
	must(t, j.Commit(ctx))
	other := Options{Path: filepath.Join(t.TempDir(), "other.journal"), Sync: Interval}
	must(t, create(t, other, newTable(t, kind)).Close())
	s := must2(segmentsOf(o.Path))(t)[0]
	foreign := other.Path + logInfix + "1"
	must(t, os.WriteFile(foreign, must2(os.ReadFile(s.path))(t), 0o600))
	must(t, j.Close())
	_, _, _, err := Open(other, builder(kind, nil))
	report := must2(Verify(other.Path))(t)
	if err == nil || !strings.Contains(err.Error(), foreign) || !strings.Contains(err.Error(), "another journal") ||
		report.Whole() {
		t.Errorf("open says %v, verify %s", err, report)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("the log is gone: %v", err)
	}
	must(t, os.Remove(other.Path))
	if _, err := Create(other, nil, newTable(t, kind)); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("create says %v", err)
	}
}

// What the log has is salvaged with a damaged file.
func TestSalvageTakesTheLog(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	o, u, j := logging(t, kind)
	for range 20 {
		u.insert()
	}
	must(t, j.Flush(ctx))
	before := u.table.ServiceView().Flow().Present
	for range 5 {
		u.insert()
	}
	must(t, j.Commit(ctx))
	after := u.table.ServiceView().Flow().Present
	path := copyOf(t, o.Path)
	must(t, j.Close())
	file := must2(os.ReadFile(path))(t)
	i := bytes.LastIndex(file, []byte(magic+string([]byte{recordFormat, byte(kindRollout)})))
	file[i+headerLength+storedLength] ^= 1
	must(t, os.WriteFile(path, file, 0o600))
	if _, _, _, err := Open(Options{Path: path}, builder(kind, nil)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a damaged file was opened: %v", err)
	}
	report := must2(Salvage(path, path+".saved"))(t)
	table, recovery := openAgain(t, Options{Path: path + ".saved"}, kind)
	if n := table.ServiceView().Flow().Present; n != after-recovery.Lost-recovery.Dropped || n <= before ||
		recovery.Lost == 0 || report.Logged == 0 {
		t.Errorf("salvaged %d of %d rollouts: %s, %s", n, after, report, recovery)
	}
}

// A cut that the log cannot take is acknowledged once it is in the file, and those after it are logged again.
func TestACutThatCannotBeLoggedWaitsForTheFile(t *testing.T) {
	kind := replay.Options{Capacity: 64}
	o, u, j := logging(t, kind)
	must(t, os.Mkdir(o.Path+logInfix+"1", 0o700)) // where its first segment would be
	u.insert()
	must(t, j.Commit(ctx))
	if n := j.Stats().Commits; n != 1 {
		t.Errorf("%d transactions were written for the cut that is not in the log", n)
	}
	must(t, os.Remove(o.Path+logInfix+"1"))
	u.insert()
	must(t, j.Commit(ctx))
	if n := j.Stats().Commits; n != 1 {
		t.Errorf("%d transactions were written, with a log that works again", n)
	}
	table, recovery := openAgain(t, Options{Path: copyOf(t, o.Path)}, kind)
	sameTables(t, u.table, table)
	if recovery.Logged != 1 {
		t.Errorf("recovered: %s", recovery)
	}
	must(t, j.Close())
}

// FuzzFrames decodes arbitrary segments: what is decoded is what appendFrame makes of it.
func FuzzFrames(f *testing.F) {
	header := append([]byte(logMagic), 1, 0, 0, 0, 0, 0, 0, 0)
	cut := &batch{position: position{1, 7}, keep: 2, removed: []rollout.ID{1, 300},
		requests: []replay.Insertion{{BatchID: "a", First: 4, Count: 2, Digest: 9}}, rollouts: []entry{{[]byte("k"), nil}},
		state: []entry{{[]byte("books"), []byte("x")}}}
	f.Add(must2(appendFrame(slices.Clone(header), cut))(f))
	f.Add(header)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, at := range []int{4, 0} { // once with the right checksum
			if len(b) >= logHeader+frameHeader && at == 4 {
				frame := b[logHeader:]
				if n := uint64(frame[0]) | uint64(frame[1])<<8; frame[2] == 0 && frame[3] == 0 &&
					n <= uint64(len(frame)-frameHeader) {
					sum := frameChecksum(1, frame[:frameHeader+n])
					frame[4], frame[5], frame[6], frame[7] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
				}
			}
			cuts, torn := frames(b, 1)
			if torn > len(b) {
				t.Fatalf("%d of %d bytes are torn", torn, len(b))
			}
			for _, cut := range cuts {
				again := must2(appendFrame(slices.Clone(header), cut))(t)
				same, rest := frames(again, 1)
				if len(same) != 1 || rest != 0 || !slices.Equal(appendBatch(nil, same[0]), appendBatch(nil, cut)) {
					t.Fatalf("%+v became %+v", cut, same)
				}
			}
		}
	})
}

// A large cut behind others that are not due has them written: nothing waits for ever.
func TestALargeCutBehindSmallOnesIsWritten(t *testing.T) {
	_, u, j := logging(t, replay.Options{Capacity: 1000})
	for _, tokens := range []int{900_000, 1_900_000} { // 23 MB, then 49 MB
		_, err := u.table.Insert(ctx, aGroup(u.random, 2, tokens, 0))
		must(t, err)
		must(t, j.Commit(ctx))
	}
	must(t, j.Commit(ctx))
	must(t, j.Close())
}

// After a disk error a commit that waits gets the error, once.
func TestACommitBehindABrokenDiskGetsItsError(t *testing.T) {
	o, u, j := logging(t, replay.Options{Capacity: 1000})
	must(t, os.Remove(o.Path)) // the next transaction fails
	for i := 0; ; i++ {
		_, err := u.table.Insert(ctx, aGroup(u.random, 2, 600_000, 0))
		must(t, err)
		if err = j.Commit(ctx); err != nil {
			break
		}
		if i == 50 {
			t.Fatal("commits go on although the file is gone")
		}
	}
	if j.Close() == nil {
		t.Error("closing it gave no error")
	}
}

// Two processes that open a journal after a crash apply its log once.
func TestConcurrentOpensApplyTheLogOnce(t *testing.T) {
	kind := replay.Options{Capacity: 1000}
	o, u, j := logging(t, kind)
	for range 10 {
		u.insert()
		must(t, j.Commit(ctx))
	}
	path := copyOf(t, o.Path)
	must(t, j.Close())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			j, table, _, err := Open(Options{Path: path, Sync: Interval, LockTimeout: time.Minute}, builder(kind, nil))
			if err != nil {
				t.Error(err)
				return
			}
			if n := statsOf(table).Inserted; n != statsOf(u.table).Inserted {
				t.Errorf("%d rollouts were inserted, want %d", n, statsOf(u.table).Inserted)
			}
			must(t, j.Close())
		})
	}
	all.Wait()
}

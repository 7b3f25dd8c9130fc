package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// memoryLog is a log in memory, which may fail in the middle of an Append.
type memoryLog struct {
	mu       sync.Mutex
	first    uint64
	messages [][]byte
	trims    int
	failAt   int // messages that Append takes before it fails once; 0: it does not
	failure  error
}

func (l *memoryLog) Append(messages [][]byte, _ bool) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range messages {
		if l.failAt > 0 && i == l.failAt-1 {
			l.failAt = 0
			return 0, l.failure
		}
		if len(m) > MessageBytes {
			return 0, fmt.Errorf("a message of %d bytes", len(m))
		}
		l.messages = append(l.messages, bytes.Clone(m))
	}
	return l.first + uint64(len(l.messages)), nil
}

func (l *memoryLog) Sync() error { return nil }

func (l *memoryLog) Read(yield func([]Message) error) error {
	for i, m := range l.messages {
		if err := yield([]Message{{Position: l.first + uint64(i) + 1, Data: m}}); err != nil {
			return err
		}
	}
	return nil
}

func (l *memoryLog) Trim(before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before > l.first+1 {
		l.messages = slices.Clone(l.messages[before-l.first-1:])
		l.first = before - 1
		l.trims++
	}
	return nil
}

func (l *memoryLog) String() string { return "a log in memory" }

// copy is what another machine reads: the log as of now.
func (l *memoryLog) copy() *memoryLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &memoryLog{first: l.first, messages: slices.Clone(l.messages)}
}

func (l *memoryLog) size() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		n += int64(len(m))
	}
	return n
}

// createIn begins the journal of a table in an empty log.
func createIn(t testing.TB, l Log, o Options, table *replay.Table) *Journal {
	t.Helper()
	j := newJournal(o.in(l), l, nil, table)
	must(t, j.writeAll(nil))
	j.start()
	return j
}

func openIn(t testing.TB, l Log, kind replay.Options, o Options) (*Journal, *replay.Table, *Recovery) {
	t.Helper()
	j, table, recovery, err := OpenIn(l, o, func() (*replay.Table, error) { return replay.New(kind) })
	must(t, err)
	t.Cleanup(func() { must(t, j.Close()) })
	return j, table, recovery
}

// For every sampler, retention and unit, a table is recovered from its log after random calls and several losses of its
// owner, while the log is trimmed all the time.
func TestALogRestoresTheCommittedTable(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(fmt.Sprintf("%s,%s,%s", kind.Sampler, kind.Unit, kind.Retention), func(t *testing.T) {
			o := Options{slack: 4 << 10, Experts: t.TempDir()}
			u := newUser(t, kind, 7)
			for range 10 {
				u.step() // before there is a journal
			}
			log := new(memoryLog)
			j := createIn(t, log, o, u.table)
			trims := 0
			for range tests.Count(4, 2) {
				for range 60 + u.random.IntN(60) {
					u.step()
					if u.random.IntN(4) == 0 {
						must(t, j.Commit(ctx))
					}
				}
				must(t, j.Commit(ctx))
				want, leases, left, experts := u.released(), len(u.leases), log.copy(), t.TempDir()
				must(t, os.CopyFS(experts, os.DirFS(o.Experts)))
				u.step() // lost with the owner
				must(t, j.Close())
				trims += log.trims
				log, o.Experts = left, experts
				var recovery *Recovery
				j, u.table, recovery = openIn(t, log, u.o, o)
				sameTables(t, want, u.table)
				if recovery.Rollouts != want.ServiceView().Flow().Present || int(recovery.Returned) < leases {
					t.Fatalf("recovery says %s, with %d leases, of %d rollouts", recovery, leases,
						want.ServiceView().Flow().Present)
				}
				u.leases = nil
			}
			must(t, j.Close())
			if trims == 0 {
				t.Error("the log was never trimmed")
			}
		})
	}
}

// Routed experts are not in the log: another machine has the rollouts without them, and says so. Those of rollouts that
// left the table are removed, and a torn file costs only what is torn.
func TestRoutedExpertsStayOnTheirMachine(t *testing.T) {
	kind, here := replay.Options{Capacity: 64}, t.TempDir()
	// Nothing but Commit may write: the test looks into the writer between two.
	o := Options{slack: 64 << 10, Experts: here, Interval: time.Hour}
	table, random, log := newTable(t, kind), rollout.Stream(9, "test", 0), new(memoryLog)
	j := createIn(t, log, o, table)
	for range 500 {
		g := aGroup(random, 2, 20, 0)
		for _, r := range g.Rollouts {
			r.RoutedExperts = make([]uint16, 200*len(r.Tokens))
			for i := range r.RoutedExperts {
				r.RoutedExperts[i] = uint16(random.Uint32())
			}
		}
		_, err := table.Insert(ctx, g)
		must(t, err)
		must(t, j.Commit(ctx))
		size, present := j.writer.experts.bytes, table.ServiceView().Flow().Bytes
		if files, err := os.ReadDir(here); err != nil || size > 3*present+64<<10 || len(files) > 1+int(size/(8<<10)) {
			t.Fatalf("%d bytes of experts in %d files, with %d in the table: %v", size, len(files), present, err)
		}
	}
	must(t, j.Close())
	if all := table.ServiceView().Flow().Bytes; log.size() > all {
		t.Errorf("the log has %d bytes, the table %d", log.size(), all)
	}
	j, same, recovery := openIn(t, log, kind, o)
	sameTables(t, table, same)
	if recovery.WithoutExperts != 0 {
		t.Error(recovery)
	}
	must(t, j.Close())

	j, other, recovery := openIn(t, log.copy(), kind, Options{Experts: t.TempDir()})
	if !strings.Contains(recovery.String(), "64 rollouts are without their routed_experts") {
		t.Error(recovery)
	}
	must(t, j.Close())
	for i, k := range other.Inspect().Held() {
		want := *table.Inspect().Held()[i].Rollout
		want.RoutedExperts = nil
		if !reflect.DeepEqual(k.Rollout, &want) {
			t.Fatalf("rollout %d is %+v, not %+v", k.ID, k.Rollout, &want)
		}
	}

	files, err := os.ReadDir(here)
	must(t, err)
	last := filepath.Join(here, files[len(files)-1].Name())
	info, err := os.Stat(last)
	must(t, err)
	must(t, os.Truncate(last, info.Size()-1))
	_, _, recovery = openIn(t, log, kind, o)
	if recovery.WithoutExperts != 1 {
		t.Errorf("with one record torn: %s", recovery)
	}
}

// A log stays within twice its table and the slack, with what is remembered besides, although nothing is removed in
// order with retention positive.
func TestALogIsBounded(t *testing.T) {
	for _, retention := range []replay.Retention{replay.KeepNewest, replay.KeepPositive} {
		kind := replay.Options{Capacity: 64, Retention: retention}
		if retention == replay.KeepPositive {
			kind.PositiveFraction = 0.5
		}
		table, random, log := newTable(t, kind), rollout.Stream(3, "test", 0), new(memoryLog)
		j := createIn(t, log, Options{slack: 16 << 10}, table)
		for range 2_000 {
			_, err := table.Insert(ctx, aGroup(random, 2, 20, 0))
			must(t, err)
			must(t, j.Commit(ctx))
			if most := 3*table.ServiceView().Flow().Bytes + 64<<10; log.size() > most {
				t.Fatalf("%s: the log has %d bytes, with %d in the table", retention, log.size(),
					table.ServiceView().Flow().Bytes)
			}
		}
		must(t, j.Close())
		_, again, _ := openIn(t, log, kind, Options{})
		sameTables(t, table, again)
	}
}

func TestALargeCutTravelsInPieces(t *testing.T) {
	kind := replay.Options{Capacity: 8}
	table, random, log := newTable(t, kind), rollout.Stream(4, "test", 0), new(memoryLog)
	j := createIn(t, log, Options{}, table)
	g := aGroup(random, 4, 60_000, 0)
	_, err := table.ServiceView().InsertOnce(ctx, "large", g)
	must(t, err)
	must(t, j.Commit(ctx))
	must(t, j.Close())
	if n := len(log.messages); n < 6 {
		t.Fatalf("%d messages", n)
	}
	_, again, _ := openIn(t, log.copy(), kind, Options{})
	sameTables(t, table, again)

	// Without its last piece the cut never happened, and what another owner writes comes after that.
	log.messages = log.messages[:len(log.messages)-1]
	j, other, recovery := openIn(t, log, kind, Options{})
	if recovery.Rollouts != 0 {
		t.Errorf("recovered %s of a cut without its end", recovery)
	}
	_, err = other.ServiceView().InsertOnce(ctx, "large", g)
	must(t, err)
	must(t, j.Close())
	_, again, _ = openIn(t, log, kind, Options{})
	sameTables(t, other, again)
}

func TestAFullLogIsWrittenOnceThereIsSpace(t *testing.T) {
	kind := replay.Options{Capacity: 8}
	table, random, log := newTable(t, kind), rollout.Stream(5, "test", 0), new(memoryLog)
	j := createIn(t, log, Options{}, table)
	log.mu.Lock()
	log.failAt, log.failure = 2, fmt.Errorf("the stores: %w", ErrNoSpace)
	log.mu.Unlock()
	_, err := table.ServiceView().InsertOnce(ctx, "a", aGroup(random, 4, 60_000, 0))
	must(t, err)
	if err := j.Commit(ctx); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("a commit into a full log: %v", err)
	}
	for errors.Is(j.Commit(ctx), ErrNoSpace) { // it is tried again after a pause
	}
	must(t, j.Err())
	must(t, j.Close())
	_, again, recovery := openIn(t, log, kind, Options{})
	sameTables(t, table, again)
	if recovery.Requests != 1 {
		t.Errorf("%d insertions are remembered", recovery.Requests)
	}
}

func TestARestoreReplacesTheLog(t *testing.T) {
	kind := replay.Options{Capacity: 8}
	table, random, log := newTable(t, kind), rollout.Stream(6, "test", 0), new(memoryLog)
	j := createIn(t, log, Options{}, table)
	j.Attach("gate", func() ([]byte, error) { return []byte("open"), nil })
	_, err := table.Insert(ctx, aGroup(random, 4, 10, 0))
	must(t, err)
	must(t, j.Commit(ctx))
	other := newTable(t, kind)
	_, err = other.Insert(ctx, aGroup(random, 2, 10, 0))
	must(t, err)
	must(t, j.Rewrite(other))
	if len(log.messages) != 2 { // the rollouts and the state
		t.Errorf("%d messages are left", len(log.messages))
	}
	must(t, j.Close())
	_, again, recovery := openIn(t, log, kind, Options{})
	sameTables(t, other, again)
	if string(recovery.Blobs["gate"]) != "open" {
		t.Errorf("the gate is %q", recovery.Blobs["gate"])
	}
}

func FuzzRoutedExperts(f *testing.F) {
	g := aGroup(rollout.Stream(10, "test", 0), 2, 10, 0)
	var list []replay.Stored
	for i, r := range g.Rollouts {
		r.RoutedExperts = make([]uint16, 3*len(r.Tokens))
		list = append(list, replay.Stored{Usage: replay.Usage{ID: rollout.ID(i)}, Rollout: r})
	}
	written := &expertsFolder{files: disk.Machine(), path: f.TempDir(), largest: 1, log: slog.New(slog.DiscardHandler)}
	written.put(7, 1, list)
	content, err := os.ReadFile(written.name(7))
	must(f, err)
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := &expertsFolder{files: disk.Machine(), path: t.TempDir(), log: slog.New(slog.DiscardHandler)}
		must(t, os.WriteFile(folder.name(7), content, 0o600))
		n, err := folder.read(7, func(_ uint64, _ rollout.ID, experts []uint16) {
			if 2*len(experts) > len(content) {
				t.Errorf("%d experts in %d bytes", len(experts), len(content))
			}
		})
		if n > int64(len(content)) || (n < int64(len(content))) != (err != nil) {
			t.Errorf("read %d bytes of %d: %v", n, len(content), err)
		}
	})
}

func FuzzALog(f *testing.F) {
	kind := replay.Options{Capacity: 8}
	table, log := newTable(f, kind), new(memoryLog)
	j := createIn(f, log, Options{}, table)
	_, err := table.Insert(ctx, aGroup(rollout.Stream(8, "test", 0), 4, 10, 0))
	must(f, err)
	must(f, j.Close())
	f.Add(log.messages[0], log.messages[1])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		log := &memoryLog{messages: [][]byte{a, b}}
		j, _, _, err := OpenIn(log, Options{}, func() (*replay.Table, error) { return replay.New(kind) })
		if err == nil {
			must(t, j.Close())
		}
	})
}

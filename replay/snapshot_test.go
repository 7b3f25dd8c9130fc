package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func snapshotOf(t testing.TB, table *Table) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := table.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestASnapshotKeepsLeasesAndRememberedRequests(t *testing.T) {
	o := Options{Capacity: 4, Shards: 2, MaxUses: 3}
	table := mustNew(t, o)
	zero := float32(0)
	g := group(0, 1, 0)
	g.Rollouts[0].Advantage = &zero
	ids, err := table.ServiceView().InsertOnce(ctx, "insert", g)
	if err != nil {
		t.Fatal(err)
	}
	leased := mustLease(t, table, rollout.Request{Size: 2, ID: "lease"})
	used := mustSample(t, table, rollout.Request{Size: 1, ID: "use"})
	for range 4 { // the drawn ones are evicted and live on in their batches
		mustInsert(t, table, group(0, 1, 0))
	}
	fresh := mustNew(t, o)
	if err := fresh.Restore(bytes.NewReader(snapshotOf(t, table))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, fresh), snapshotOf(t, table)) {
		t.Error("the restored table's snapshot differs")
	}
	if again, err := fresh.ServiceView().InsertOnce(ctx, "insert", g); err != nil || !reflect.DeepEqual(again, ids) {
		t.Errorf("the insertion's id was forgotten: %v, %v", again, err)
	}
	if b := mustSample(t, fresh, rollout.Request{Size: 1, ID: "use"}); !reflect.DeepEqual(b, used) {
		t.Errorf("the acknowledged batch is %+v, was %+v", b, used)
	}
	if b := mustLease(t, fresh, rollout.Request{Size: 2, ID: "lease"}); !reflect.DeepEqual(b, leased) {
		t.Errorf("the batch on lease is %+v, was %+v", b, leased)
	}
	if err := fresh.Acknowledge(ctx, leased.ID); err != nil {
		t.Error(err)
	}
	balance(t, statsOf(fresh), 0)
}

// A table that is restored gives no id that it gave before, and otherwise does what it did after the snapshot.
func TestARestoredTableGivesNoIDTwice(t *testing.T) {
	for _, o := range []Options{{Capacity: 63, Shards: 3}, {Capacity: 64, Sampler: FIFO, Shards: 2}} {
		table, random := mustNew(t, o), rollout.Stream(1, "test", 0)
		use := func() (ids []rollout.ID, batches []*rollout.Batch) {
			for i := range 7 {
				got, err := table.Insert(ctx, someGroup(random, 2, 0))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, got...)
				if b, err := table.Sample(ctx, rollout.Request{Size: 1, Shard: i % o.Shards}); err == nil {
					batches = append(batches, b)
				} else if !errors.Is(err, rollout.ErrStarved) {
					t.Fatal(err)
				}
			}
			return ids, batches
		}
		use()
		saved := snapshotOf(t, table)
		random = rollout.Stream(2, "test", 0)
		ids, batches := use()
		last, given := table.lastGroup, make(map[rollout.BatchID]bool)
		for range 2 {
			if err := table.Restore(bytes.NewReader(saved)); err != nil {
				t.Fatal(err)
			}
			random = rollout.Stream(2, "test", 0)
			again, others := use()
			if again[0] <= ids[len(ids)-1] || table.lastGroup-7 < last {
				t.Errorf("%s: the ids up to %d in %d groups were given, and again %v up to group %d", o.Sampler,
					ids[len(ids)-1], last, again, table.lastGroup)
			}
			if len(others) != len(batches) {
				t.Fatalf("%s: %d batches, and before the restore %d", o.Sampler, len(others), len(batches))
			}
			for _, b := range batches {
				given[b.ID] = true
			}
			for i, b := range others {
				if given[b.ID] {
					t.Errorf("%s: batch %d is given twice", o.Sampler, b.ID)
				}
				if r, was := b.Draws[0].Rollout, batches[i].Draws[0].Rollout; !slices.Equal(r.Tokens, was.Tokens) ||
					!slices.Equal(r.Logprobs, was.Logprobs) {
					t.Errorf("%s: batch %d has another rollout than before the restore", o.Sampler, i)
				}
			}
			ids, batches, last = again, others, table.lastGroup
		}
	}
}

func TestADamagedOrForeignSnapshotIsRefusedAndChangesNothing(t *testing.T) {
	o := Options{Capacity: 4, Seed: 1}
	table := mustNew(t, o)
	mustInsert(t, table, group(0, 1, 0))
	whole := snapshotOf(t, table)
	spoilt := func(at int, x byte) []byte {
		b := bytes.Clone(whole)
		b[at] ^= x
		return b
	}
	other := mustNew(t, Options{Capacity: 8, Seed: 2, Sampler: Epoch})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":       {nil, "reading the header"},
		"foreign":     {[]byte("this is not a snapshot of any table"), "it begins with"},
		"newer":       {spoilt(len("reprtab"), 5^6), "its format is 6, only 5 is known"},
		"older":       {spoilt(len("reprtab"), 5^4), "its format is 4, only 5 is known: use the build that wrote it"},
		"cut off":     {whole[:len(whole)-1], "it is cut off"},
		"damaged":     {spoilt(len(whole)-1, 1), "it is damaged"},
		"other table": {snapshotOf(t, other), "capacity is 8 in the snapshot and 4 in the table"},
	} {
		err := table.Restore(bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	err := table.Restore(bytes.NewReader(snapshotOf(t, other)))
	for _, key := range []string{"capacity", "seed", "sampler"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is missing from %v", key, err)
		}
	}
	if !bytes.Equal(snapshotOf(t, table), whole) {
		t.Error("a refused snapshot changed the table")
	}
}

// FuzzRestore looks for input that makes restoring panic or change the table without an error.
func FuzzRestore(f *testing.F) {
	table := mustNew(f, Options{Capacity: 4})
	if _, err := table.Insert(ctx, group(0, 1, 0)); err != nil {
		f.Fatal(err)
	}
	f.Add(snapshotOf(f, table))
	for i := range snapshotOptions() {
		f.Add(saved(f, i))
	}
	for _, o := range snapshotOptions() {
		f.Add(snapshotOf(f, busy(f, o)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range append(snapshotOptions(), Options{Capacity: 4}) {
			fresh := mustNew(t, o)
			if fresh.Restore(bytes.NewReader(b)) != nil && statsOf(fresh).Present != 0 {
				t.Fatal("a refused snapshot changed the table")
			}
		}
	})
}

// snapshotOptions are of tables with as much state as there is.
func snapshotOptions() []Options {
	weights := prioritizedOptions()
	weights.PriorityBase, weights.Entry, weights.ImportanceNorm, weights.TargetESS = BaseGradNorm,
		EnterMax, ByTable, 0.9
	weights.EntryUntil = UntilReport // the only end when the saved one was written
	return []Options{
		withPriorities(weights, Options{Capacity: 8, MaxUses: 3, MaxStaleness: 20, Unit: UnitGroup, GroupSize: 2}),
		{Capacity: 8, Sampler: LeastUsed, Shards: 2, MaxUses: 3, Unit: UnitStep},
		{Capacity: 8, Sampler: Unseen, CapacityBytes: 10_000, Retention: KeepPositive, PositiveFraction: 0.5},
	}
}

// busy is a table to which everything has happened, with leases and reports.
func busy(t testing.TB, o Options) *Table {
	t.Helper()
	table, random := mustNew(t, o), rollout.Stream(1, "busy", 0)
	var problems error
	for v := range rollout.Version(12) {
		_, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint("insert ", v), someGroup(random, 2, v))
		problems = errors.Join(problems, err)
		_, err = table.Lease(ctx, rollout.Request{Size: 2, Fresh: int(v % 2 * 2), ID: fmt.Sprint(v),
			Shard: int(v) % table.options.Shards})
		if v > 4 {
			problems = errors.Join(problems, err)
		}
		problems = errors.Join(problems,
			table.Report(ctx, rollout.Feedback{ID: table.lastID, Staleness: int32(v), GradNorm: rollout.Measured(2),
				Tokens: 9, RatioSum: 9, RatioSquares: 10}),
			updateOf(table, Priority{table.lastID, float64(v)}),
			table.Advance(ctx, v+1))
	}
	if problems != nil {
		t.Fatal(problems)
	}
	return table
}

// Whatever is damaged, a snapshot is refused.
func TestASnapshotWithAnyByteDamagedIsRefused(t *testing.T) {
	for _, o := range snapshotOptions() {
		whole, fresh := snapshotOf(t, busy(t, o)), mustNew(t, o)
		empty := snapshotOf(t, fresh)
		for at := range whole {
			if at > 40 && at%37 > 0 {
				continue
			}
			b := bytes.Clone(whole)
			b[at] ^= 0x10
			if err := fresh.Restore(bytes.NewReader(b)); err == nil {
				t.Fatalf("%s: a change of byte %d of %d went unseen", o.Sampler, at, len(whole))
			}
		}
		if !bytes.Equal(snapshotOf(t, fresh), empty) {
			t.Fatalf("%s: a refused snapshot changed the table", o.Sampler)
		}
		if err := fresh.Restore(bytes.NewReader(whole)); err != nil || !bytes.Equal(snapshotOf(t, fresh), whole) {
			t.Fatalf("%s: restored with %v, and the snapshot differs", o.Sampler, err)
		}
	}
}

func TestASnapshotOfOtherPrioritiesIsRefused(t *testing.T) {
	o := snapshotOptions()[0]
	whole := snapshotOf(t, busy(t, o))
	for name, change := range map[string]func(o *Options){
		"exponent":      func(p *Options) { p.PriorityExponent = 1 },
		"decay":         func(p *Options) { p.DecayOrder = AfterExponent },
		"draws":         func(p *Options) { p.Draws = Independent },
		"normalisation": func(p *Options) { p.ImportanceNorm = ByBatch },
		"target":        func(p *Options) { p.TargetESS = 0 },
		"beta":          func(p *Options) { p.ImportanceAnneal = new(5) },
		"group size":    func(o *Options) { o.GroupSize = 4 },
		"step returns":  func(o *Options) { o.Unit, o.GroupSize, o.StepReturns = UnitStep, 0, 2 },
		"unit":          func(o *Options) { o.Unit, o.GroupSize = UnitStep, 0 },
	} {
		other := o
		change(&other)
		if err := mustNew(t, other).Restore(bytes.NewReader(whole)); !errors.Is(err, rollout.ErrInvalid) ||
			!strings.Contains(err.Error(), "in the snapshot and") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestASnapshotReportsThatItWasNotWritten(t *testing.T) {
	if err := mustNew(t, Options{}).Snapshot(brokenWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

var writeGolden = flag.Bool("write-golden", false, "write testdata of the snapshot format anew")

// saved is a snapshot in testdata: of busy(snapshotOptions()[i]) at stoppedClock, as the build that introduced the
// format wrote it.
func saved(t testing.TB, i int) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("testdata/table-format5-%d.snapshot", i))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func stoppedClock() time.Time { return time.Unix(1000, 0).UTC() }

func TestTheSnapshotFormatHasNotChanged(t *testing.T) {
	for i, o := range snapshotOptions() {
		o.Clock = stoppedClock
		if *writeGolden {
			if err := os.WriteFile(fmt.Sprintf("testdata/table-format5-%d.snapshot", i), snapshotOf(t, busy(t, o)),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
		table := mustNew(t, o)
		if err := table.Restore(bytes.NewReader(saved(t, i))); err != nil {
			t.Fatal(err)
		}
		// gob numbers types in the order a process meets them, so files of two processes differ in more than their
		// content.
		now := busy(t, o)
		if !bytes.Equal(snapshotOf(t, now), snapshotOf(t, table)) {
			t.Errorf("%s: the golden file's table differs from the one it was written of: give the format a new "+
				"version", o.Sampler)
		}
		if !bytes.Equal(saved(t, i)[:8], snapshotOf(t, table)[:8]) {
			t.Errorf("%s: the format has changed: write testdata for it", o.Sampler)
		}
		if s := statsOf(table); s.Present == 0 || s.Drawn == 0 || len(table.shards[0].leases) == 0 ||
			len(table.insertedBefore.answers) != 12 {
			t.Errorf("%s: %+v came back", o.Sampler, s)
		}
	}
}

func TestNothingIsReadBeyondASnapshotOfATable(t *testing.T) {
	for _, o := range snapshotOptions() {
		r := strings.NewReader(string(snapshotOf(t, busy(t, o))) + "rest")
		if err := mustNew(t, o).Restore(r); err != nil {
			t.Fatal(err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "rest" {
			t.Errorf("%q is left", rest)
		}
	}
}

// Columns of a table that has more slots than a piece, and a rollout that is larger than a chunk.
func TestALargeTableComesBackWhole(t *testing.T) {
	for _, n := range []int{slotPiece - 1, slotPiece, 2*slotPiece + 1} {
		weights := prioritizedOptions()
		weights.ImportanceNorm = ByTable
		o := withPriorities(weights, Options{Capacity: n, MaxStaleness: 3})
		table := mustNew(t, o)
		for i := range n {
			g := group(0, float32(i%2))
			if i == n/2 {
				g.Rollouts[0].Extra = bytes.Repeat([]byte("0123456789"), 30_000)
			}
			mustInsert(t, table, g)
		}
		for i := range batchPiece + 1 {
			mustLease(t, table, rollout.Request{Size: 3, ID: fmt.Sprint("lease ", i)})
			mustSample(t, table, rollout.Request{Size: 3, ID: fmt.Sprint("use ", i)})
		}
		whole, fresh := snapshotOf(t, table), mustNew(t, o)
		if err := fresh.Restore(bytes.NewReader(whole)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snapshotOf(t, fresh), whole) {
			t.Errorf("%d rollouts: the restored table's snapshot differs", n)
		}
		if got, want := statsOf(fresh), statsOf(table); got.Present != n || got.PresentBytes != want.PresentBytes {
			t.Errorf("%d rollouts of %d bytes came back as %d of %d", n, want.PresentBytes, got.Present,
				got.PresentBytes)
		}
	}
}

// gate lets nothing be written until it is opened.
type gate struct {
	reached chan struct{} // closed at the first Write
	open    chan struct{}
	bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	if g.Len() == 0 {
		close(g.reached)
		<-g.open
	}
	return g.Buffer.Write(b)
}

func TestATableWorksOnWhileItsSnapshotIsWritten(t *testing.T) {
	table := busy(t, snapshotOptions()[2])
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	written := make(chan error)
	go func() { written <- table.Snapshot(g) }()
	<-g.reached
	want := snapshotOf(t, table) // which waits for no lock
	mustInsert(t, table, group(0, 1, 0))
	mustSample(t, table, rollout.Request{Size: 1})
	close(g.open)
	if err := <-written; err != nil || !bytes.Equal(g.Bytes(), want) {
		t.Errorf("%v, and the snapshot is not of the moment at which it was asked for", err)
	}
}

// Nothing of what comes after the locks were let go shows in a snapshot.
func TestASnapshotIsOfOneMoment(t *testing.T) {
	for i, o := range append(snapshotOptions(), Options{Capacity: 16, Sampler: Epoch, Shards: 2, MaxStaleness: 2}) {
		o.Clock = stoppedClock
		table := busy(t, o)
		if o.MaxStaleness == 2 {
			for range 4 { // which frees slots of what was evicted
				if err := table.Release(ctx, table.shards[0].leases[0].Batch.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, held := snapshotOf(t, table), table.hold()
		random := rollout.Stream(2, "meanwhile", 0)
		for v := rollout.Version(12); v < 40; v++ {
			mustInsert(t, table, someGroup(random, 2, table.version))
			if v%3 > 0 {
				mustSettle(t, table, v)
			}
		}
		var got bytes.Buffer
		if err := held.image().write(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("options %d: the snapshot has something of what came after it", i)
		}
		if bytes.Equal(snapshotOf(t, table), want) || o.MaxStaleness == 2 && len(held.im.Shards[0].Free) < 2 {
			t.Errorf("options %d: nothing came after it, or slots %v are too few free ones", i, held.im.Shards[0].Free)
		}
	}
}

// mustSettle settles the oldest lease of each shard and one drawn now, reports and goes on to the next version.
func mustSettle(t *testing.T, table *Table, v rollout.Version) {
	t.Helper()
	b := mustLease(t, table, rollout.Request{Size: 2, ID: fmt.Sprint(v), Shard: int(v) % table.options.Shards})
	problems := table.Acknowledge(ctx, b.ID)
	for _, s := range table.shards {
		if len(s.leases) > 0 {
			problems = errors.Join(problems, table.Release(ctx, s.leases[0].Batch.ID))
		}
	}
	problems = errors.Join(problems,
		table.Report(ctx, rollout.Feedback{ID: table.lastID, Staleness: 1, GradNorm: rollout.Measured(2), Tokens: 9,
			RatioSum: 9, RatioSquares: 10}),
		updateOf(table, Priority{table.lastID, float64(v)}),
		table.Advance(ctx, table.version+1))
	if problems != nil {
		t.Fatal(problems)
	}
}

// sealedStream is any bytes with sums that are right.
func sealedStream(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := snapshotFormat().NewWriter(&b)
	_, err := w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// contentOf is what a snapshot's envelope holds.
func contentOf(t testing.TB, snapshot []byte) []byte {
	t.Helper()
	in, err := snapshotFormat().NewReader(bytes.NewReader(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestASnapshotWhoseContentIsCutOrGoesOnIsRefused(t *testing.T) {
	o := snapshotOptions()[1]
	content, fresh := contentOf(t, snapshotOf(t, busy(t, o))), mustNew(t, o)
	for n := 0; n < len(content); n += 1 + n/60 {
		if err := fresh.Restore(bytes.NewReader(sealedStream(t, content[:n]))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut off after %d of %d bytes: got %v", n, len(content), err)
		}
	}
	longer := append(bytes.Clone(content), 0)
	if err := fresh.Restore(bytes.NewReader(sealedStream(t, longer))); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("with a byte more: got %v", err)
	}
	if err := fresh.Restore(bytes.NewReader(sealedStream(t, content[:len(content)-1]))); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("without the rollouts' end: got %v", err)
	}
	if statsOf(fresh).Present != 0 {
		t.Error("a refused snapshot changed the table")
	}
}

func TestARolloutThatClaimsMuchGetsNoRoomForIt(t *testing.T) {
	for _, claimed := range []uint64{1 << 40, 1<<64 - 1} {
		in, err := snapshotFormat().NewReader(bytes.NewReader(sealedStream(t,
			append(binary.AppendUvarint(nil, claimed), "only this"...))))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = readRollouts(in)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes claimed: got %v", claimed, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d bytes claimed: %d were allocated", claimed, n)
		}
	}
}

// FuzzImage looks for content that makes reading panic though its sums are right.
func FuzzImage(f *testing.F) {
	for _, o := range snapshotOptions() {
		f.Add(contentOf(f, snapshotOf(f, busy(f, o))))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		im, err := readImage(bytes.NewReader(sealedStream(t, content)), func(*image) error { return nil })
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := im.write(&b); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := readImage(&b, func(*image) error { return nil }); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

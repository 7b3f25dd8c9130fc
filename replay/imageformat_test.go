package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata of the snapshot format anew")

// saved is a snapshot in testdata: of busy(snapshotOptions()[i]) at stoppedClock, as the build that introduced the format wrote it.
func saved(t testing.TB, i int) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("testdata/table-format4-%d.snapshot", i))
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
			if err := os.WriteFile(fmt.Sprintf("testdata/table-format4-%d.snapshot", i), snapshotOf(t, busy(t, o)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		table := mustNew(t, o)
		if err := table.Restore(bytes.NewReader(saved(t, i))); err != nil {
			t.Fatal(err)
		}
		// gob numbers types in the order a process meets them, so files of two processes differ in more than their content.
		if !bytes.Equal(snapshotOf(t, busy(t, o)), snapshotOf(t, table)) {
			t.Errorf("%s: the golden file's table differs from the one it was written of: give the format a new version", o.Sampler)
		}
		if !bytes.Equal(saved(t, i)[:8], snapshotOf(t, table)[:8]) {
			t.Errorf("%s: the format has changed: write testdata for it", o.Sampler)
		}
		if s := statsOf(table); s.Present == 0 || s.Drawn == 0 || len(table.shards[0].leases) == 0 || len(table.insertedBefore.answers) != 12 {
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
			t.Errorf("%d rollouts of %d bytes came back as %d of %d", n, want.PresentBytes, got.Present, got.PresentBytes)
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
		table.Report(ctx, rollout.Feedback{ID: table.lastID, Staleness: 1, GradNorm: rollout.Measured(2), Tokens: 9, RatioSum: 9, RatioSquares: 10}),
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
	if err := fresh.Restore(bytes.NewReader(sealedStream(t, content[:len(content)-1]))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without the rollouts' end: got %v", err)
	}
	if statsOf(fresh).Present != 0 {
		t.Error("a refused snapshot changed the table")
	}
}

func TestARolloutThatClaimsMuchGetsNoRoomForIt(t *testing.T) {
	for _, claimed := range []uint64{1 << 40, 1<<64 - 1} {
		in, err := snapshotFormat().NewReader(bytes.NewReader(sealedStream(t, append(binary.AppendUvarint(nil, claimed), "only this"...))))
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

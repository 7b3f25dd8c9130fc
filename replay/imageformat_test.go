package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// saved is a snapshot in testdata: of busy(snapshotOptions()[i]) at stoppedClock, as the build wrote it that had the format.
func saved(t testing.TB, format, i int) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("testdata/table-format%d-%d.snapshot", format, i))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func stoppedClock() time.Time { return time.Unix(1000, 0).UTC() }

func TestSnapshotsOfEveryFormatBringTheSameTableBack(t *testing.T) {
	for i, o := range snapshotOptions() {
		o.Clock = stoppedClock
		old, now := mustNew(t, o), mustNew(t, o)
		if err := errors.Join(old.Restore(bytes.NewReader(saved(t, 2, i))), now.Restore(bytes.NewReader(saved(t, 3, i)))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snapshotOf(t, old), snapshotOf(t, now)) {
			t.Errorf("%s: formats 2 and 3 of one table give different ones", o.Sampler)
		}
		if !bytes.Equal(saved(t, 3, i)[:8], snapshotOf(t, now)[:8]) {
			t.Errorf("%s: the format has changed, and no file of testdata has the one that is written", o.Sampler)
		}
		if s := old.Stats(); s.Present == 0 || s.Drawn == 0 || len(old.shards[0].leases) == 0 || len(old.inserted.answers) != 12 {
			t.Errorf("%s: %+v came back", o.Sampler, s)
		}
	}
}

func TestOldSnapshotsThatAreDamagedOrOfAnotherTableAreRefused(t *testing.T) {
	for i, o := range snapshotOptions() {
		whole, fresh := saved(t, 2, i), mustNew(t, o)
		for at := 0; at < len(whole); at += 1 + at/40*36 {
			b := bytes.Clone(whole)
			b[at] ^= 0x10
			if fresh.Restore(bytes.NewReader(b)) == nil || fresh.Restore(bytes.NewReader(whole[:at])) == nil {
				t.Fatalf("%s: damage at byte %d of %d went unseen", o.Sampler, at, len(whole))
			}
		}
		o.Seed = 5
		if err := mustNew(t, o).Restore(bytes.NewReader(whole)); err == nil || !strings.Contains(err.Error(), "Seed is 0 in the snapshot and 5") {
			t.Errorf("%s: for another table got %v", o.Sampler, err)
		}
		if fresh.Stats().Present != 0 {
			t.Errorf("%s: a refused snapshot changed the table", o.Sampler)
		}
	}
}

func TestNothingIsReadBeyondASnapshotOfATable(t *testing.T) {
	for i, o := range snapshotOptions() {
		for format, b := range map[int][]byte{2: saved(t, 2, i), 3: snapshotOf(t, busy(t, o))} {
			r := strings.NewReader(string(b) + "rest")
			if err := mustNew(t, o).Restore(r); err != nil {
				t.Fatal(err)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "rest" {
				t.Errorf("format %d: %q is left", format, rest)
			}
		}
	}
}

// Columns of a table that has more slots than a piece, and a rollout that is larger than a chunk.
func TestALargeTableComesBackWhole(t *testing.T) {
	for _, n := range []int{slotPiece - 1, slotPiece, 2*slotPiece + 1} {
		weights := DefaultPrioritization()
		weights.Normalisation = ByTable
		o := Options{Capacity: n, Sampler: Prioritized, Prioritization: &weights, MaxStaleness: 3}
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
		if got, want := fresh.Stats(), table.Stats(); got.Present != n || got.PresentBytes != want.PresentBytes {
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
				if err := table.Release(table.shards[0].leases[0].Batch.ID); err != nil {
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
	problems := table.Acknowledge(b.ID)
	for _, s := range table.shards {
		if len(s.leases) > 0 {
			problems = errors.Join(problems, table.Release(s.leases[0].Batch.ID))
		}
	}
	problems = errors.Join(problems,
		table.Report(ctx, rollout.Feedback{ID: table.lastID, Staleness: 1, GradNorm: rollout.Measured(2), Tokens: 9, RatioSum: 9, RatioSquares: 10}),
		table.Update(ctx, Priority{table.lastID, float64(v)}),
		table.Advance(ctx, table.version+1))
	if problems != nil {
		t.Fatal(problems)
	}
}

// sealedStream is any bytes with sums that are right.
func sealedStream(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := format3().NewWriter(&b)
	_, err := w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// contentOf is what a snapshot's envelope holds.
func contentOf(t testing.TB, snapshot []byte) []byte {
	t.Helper()
	in, err := format3().NewReader(bytes.NewReader(snapshot))
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
	if fresh.Stats().Present != 0 {
		t.Error("a refused snapshot changed the table")
	}
}

func TestARolloutThatClaimsMuchGetsNoRoomForIt(t *testing.T) {
	for _, claimed := range []uint64{1 << 40, 1<<64 - 1} {
		in, err := format3().NewReader(bytes.NewReader(sealedStream(t, append(binary.AppendUvarint(nil, claimed), "only this"...))))
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

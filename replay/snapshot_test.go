package replay

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

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
	ids, err := table.InsertOnce(ctx, "insert", g)
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
	if again, err := fresh.InsertOnce(ctx, "insert", g); err != nil || !reflect.DeepEqual(again, ids) {
		t.Errorf("the insertion's id was forgotten: %v, %v", again, err)
	}
	if b := mustSample(t, fresh, rollout.Request{Size: 1, ID: "use"}); !reflect.DeepEqual(b, used) {
		t.Errorf("the acknowledged batch is %+v, was %+v", b, used)
	}
	if b := mustLease(t, fresh, rollout.Request{Size: 2, ID: "lease"}); !reflect.DeepEqual(b, leased) {
		t.Errorf("the batch on lease is %+v, was %+v", b, leased)
	}
	if err := fresh.Acknowledge(leased.ID); err != nil {
		t.Error(err)
	}
	balance(t, fresh.Stats(), 0)
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
		"newer":       {spoilt(len(snapshotMagic), 1), "its format is 3, only 2 is known"},
		"older":       {spoilt(len(snapshotMagic), 3), "its format is 1, only 2 is known"},
		"cut off":     {whole[:len(whole)-1], "it is cut off"},
		"damaged":     {spoilt(len(whole)-1, 1), "it is damaged"},
		"other table": {snapshotOf(t, other), "Capacity is 8 in the snapshot and 4 in the table"},
	} {
		err := table.Restore(bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	err := table.Restore(bytes.NewReader(snapshotOf(t, other)))
	for _, key := range []string{"Capacity", "Seed", "Sampler"} {
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
	f.Fuzz(func(t *testing.T, b []byte) {
		fresh := mustNew(t, Options{Capacity: 4})
		if fresh.Restore(bytes.NewReader(b)) != nil && fresh.Stats().Present != 0 {
			t.Fatal("a refused snapshot changed the table")
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestASnapshotReportsThatItWasNotWritten(t *testing.T) {
	if err := mustNew(t, Options{}).Snapshot(brokenWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

package replay

import (
	"bytes"
	"errors"
	"fmt"
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
	ids, err := table.Server().InsertOnce(ctx, "insert", g)
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
	if again, err := fresh.Server().InsertOnce(ctx, "insert", g); err != nil || !reflect.DeepEqual(again, ids) {
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
		"newer":       {spoilt(len("reprtab"), 4^5), "its format is 5, only 4 is known"},
		"older":       {spoilt(len("reprtab"), 4^3), "its format is 3, only 4 is known"},
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
	weights.PriorityBase, weights.Entry, weights.ImportanceNorm, weights.TargetESS = BaseGradNorm, EnterMax, ByTable, 0.9
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
		_, err := table.Server().InsertOnce(ctx, fmt.Sprint("insert ", v), someGroup(random, 2, v))
		problems = errors.Join(problems, err)
		_, err = table.Lease(ctx, rollout.Request{Size: 2, Fresh: int(v % 2 * 2), ID: fmt.Sprint(v), Shard: int(v) % table.options.Shards})
		if v > 4 {
			problems = errors.Join(problems, err)
		}
		problems = errors.Join(problems,
			table.Report(ctx, rollout.Feedback{ID: table.lastID, Staleness: int32(v), GradNorm: rollout.Measured(2), Tokens: 9, RatioSum: 9, RatioSquares: 10}),
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
		"decay":         func(p *Options) { p.Decay = AfterExponent },
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
		if err := mustNew(t, other).Restore(bytes.NewReader(whole)); !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), "in the snapshot and") {
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

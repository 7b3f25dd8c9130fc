package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

var ctx = context.Background()

// TestMain also runs the child process that crash tests kill.
func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		runChild(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// aRollout returns a rollout of the given tokens, generated at version v.
func aRollout(r *rand.Rand, tokens int, v rollout.Version) *rollout.Rollout {
	x := &rollout.Rollout{
		PromptID: fmt.Sprint("p", r.IntN(1000)), Temperature: 1, TopP: 1, Reward: float32(r.IntN(2)),
		Tokens: make([]int32, tokens), Mask: make([]uint8, tokens), Logprobs: make([]float32, tokens),
		Versions: make([]rollout.Version, tokens),
	}
	for i := range x.Tokens {
		x.Tokens[i] = r.Int32N(100)
		if i == 0 {
			x.Versions[i] = rollout.NoVersion
			continue
		}
		x.Mask[i], x.Versions[i], x.Logprobs[i] = 1, v, -r.Float32()
	}
	for range r.IntN(2) * 3 * tokens {
		x.RoutedExperts = append(x.RoutedExperts, uint16(r.IntN(64)))
	}
	return x
}

func aGroup(r *rand.Rand, n, tokens int, v rollout.Version) rollout.Group {
	g := rollout.Group{}
	for range n {
		x := aRollout(r, tokens, v)
		x.PromptID = "p"
		g.Rollouts = append(g.Rollouts, x)
	}
	return g
}

func newTable(t testing.TB, o replay.Options) *replay.Table {
	t.Helper()
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// builder returns a function that makes tables, and records the definition that it was given.
func builder(o replay.Options, given *[]byte) func([]byte) (*replay.Table, error) {
	return func(definition []byte) (*replay.Table, error) {
		if given != nil {
			*given = definition
		}
		return replay.New(o)
	}
}

// in returns options on a disk in memory; onDisk of one on the machine's.
func in(t testing.TB) Options {
	t.Helper()
	d := new(disktest.Simulated)
	must(t, d.MakeFolder("/data"))
	return Options{Path: "/data/table.journal", Interval: time.Hour, Disk: d}
}

func onDisk(t testing.TB) Options {
	return Options{Path: filepath.Join(t.TempDir(), "table.journal"), Interval: time.Hour}
}

// simulated is the disk of options that in returned.
func simulated(o Options) *disktest.Simulated { return o.Disk.(*disktest.Simulated) }

// killed returns options with what kill -9 would leave now.
func killed(o Options) Options {
	o.Disk = simulated(o).Clone()
	return o
}

// segmentsIn returns the paths of a journal's segments, in order.
func segmentsIn(t testing.TB, o Options) (paths []string) {
	t.Helper()
	for _, name := range must2(o.withDefaults().Disk.List(o.Path))(t) {
		if filepath.Ext(name) == ".seg" {
			paths = append(paths, filepath.Join(o.Path, name))
		}
	}
	return paths
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, o Options, table *replay.Table) *Journal {
	t.Helper()
	j, err := Create(o, []byte("a definition"), table)
	must(t, err)
	return j
}

func reopen(t testing.TB, o Options, kind replay.Options) (*Journal, *replay.Table, *Recovery) {
	t.Helper()
	j, table, recovery, err := Open(o, builder(kind, nil))
	must(t, err)
	return j, table, recovery
}

// sameTables compares everything visible of two tables.
func sameTables(t testing.TB, want, got *replay.Table) {
	t.Helper()
	x, _ := json.Marshal(statsOf(want))
	y, _ := json.Marshal(statsOf(got))
	if string(x) != string(y) {
		t.Fatalf("statistics\n%s, recovered\n%s", x, y)
	}
	if p, q := fmt.Sprint(want.Inspect().AgeDecay(), want.Inspect().ESSByAge(), want.Version()),
		fmt.Sprint(got.Inspect().AgeDecay(), got.Inspect().ESSByAge(), got.Version()); p != q {
		t.Fatalf("the table has %s, recovered %s", p, q)
	}
	one, other := want.Inspect().Held(), got.Inspect().Held()
	if len(one) != len(other) {
		t.Fatalf("the table holds %d, recovered %d", len(one), len(other))
	}
	for i := range one {
		p, q := one[i].Probability, other[i].Probability
		if !(math.Abs(p-q) <= 1e-9*p) && !(math.IsNaN(p) && math.IsNaN(q)) {
			t.Fatalf("rollout %d has probability %g, recovered %g", one[i].ID, p, q)
		}
		a, _ := one[i].Rollout.MarshalBinary()
		b, _ := other[i].Rollout.MarshalBinary()
		if !bytes.Equal(a, b) {
			t.Fatalf("rollout %d is %+v, recovered %+v", one[i].ID, one[i].Rollout, other[i].Rollout)
		}
		one[i].Probability, other[i].Probability = 0, 0
		one[i].Rollout, other[i].Rollout = nil, nil
		if p, q := fmt.Sprint(one[i]), fmt.Sprint(other[i]); p != q {
			t.Fatalf("the table holds %s, recovered %s", p, q)
		}
	}
}

// user calls random methods of a table, and tracks its leases.
type user struct {
	t      testing.TB
	random *rand.Rand
	table  *replay.Table
	o      replay.Options
	leases []rollout.BatchID
	next   int

	ids     map[rollout.ID]bool // that insertions got
	batches map[rollout.BatchID]bool
	twice   error // an id that was given twice
}

func newUser(t testing.TB, o replay.Options, seed uint64) *user {
	o.LeaseSeconds = 3600
	return &user{t: t, random: rollout.Stream(seed, "user", 0), table: newTable(t, o), o: newTable(t, o).Options(),
		ids: make(map[rollout.ID]bool), batches: make(map[rollout.BatchID]bool)}
}

func (u *user) step() {
	switch k := u.random.IntN(20); {
	case k < 8:
		u.insert()
	case k < 12:
		b, err := u.table.Sample(ctx, u.request())
		if err == nil {
			u.drew(b)
		} else if !errors.Is(err, rollout.ErrStarved) && !errors.Is(err, replay.ErrUnrecorded) {
			u.t.Fatal(err)
		}
	case k < 14:
		if b, err := u.table.Lease(ctx, u.request()); err == nil {
			u.drew(b)
			u.leases = append(u.leases, b.ID)
		}
	case k < 16:
		u.settle()
	case k < 18:
		must(u.t, u.table.Advance(ctx, u.table.Version()+rollout.Version(u.random.IntN(3))))
	case k < 19:
		if n := statsOf(u.table).Inserted; n > 0 {
			id := rollout.ID(1 + u.random.Uint64N(n))
			must(u.t, u.table.Update(ctx, []rollout.ID{id}, []float64{u.random.Float64()}))
			must(u.t, u.table.Report(ctx, rollout.Feedback{ID: id, Staleness: 2, Advantage: rollout.Measured(3),
				Tokens: 4, RatioSum: 4, RatioSquares: 5}))
		}
	default:
		u.rewind()
	}
}

// drew notes a batch, whose id no other has.
func (u *user) drew(b *rollout.Batch) {
	if u.batches[b.ID] {
		u.twice = fmt.Errorf("batch %d was drawn before", b.ID)
	}
	u.batches[b.ID] = true
}

func (u *user) request() rollout.Request {
	each := max(1, u.o.GroupSize)
	return rollout.Request{Size: each * (1 + u.random.IntN(3)), Shard: u.random.IntN(u.o.Shards),
		Fresh: each * u.random.IntN(2)}
}

func (u *user) insert() {
	n := 1 + u.random.IntN(4)
	if u.o.GroupSize > 0 {
		n = u.o.GroupSize
	}
	u.next++
	g := aGroup(u.random, n, 2+u.random.IntN(40), max(0, u.table.Version()-rollout.Version(u.random.IntN(2))))
	ids, err := u.table.ServiceView().InsertOnce(ctx, strconv.Itoa(u.next), g)
	if err != nil && !errors.Is(err, rollout.ErrFull) && !errors.Is(err, replay.ErrUnrecorded) {
		u.t.Fatal(err)
	}
	for _, id := range ids {
		if u.ids[id] {
			u.twice = fmt.Errorf("insertion %d got the id %d, which another rollout had", u.next, id)
		}
		u.ids[id] = true
	}
}

func (u *user) settle() {
	if len(u.leases) == 0 {
		return
	}
	id := u.leases[0]
	u.leases = u.leases[1:]
	if u.random.IntN(2) == 0 {
		must(u.t, u.table.Acknowledge(context.Background(), id))
	} else {
		must(u.t, u.table.Release(context.Background(), id))
	}
}

func (u *user) rewind() {
	for len(u.leases) > 0 {
		u.settle()
	}
	must(u.t, u.table.Rewind(ctx, max(0, u.table.Version()-1)))
}

// released returns a copy of the table with its leases released, as after a crash.
func (u *user) released() *replay.Table {
	u.t.Helper()
	var b bytes.Buffer
	must(u.t, u.table.Snapshot(&b))
	copied := newTable(u.t, u.o)
	must(u.t, copied.Restore(&b))
	for _, id := range u.leases {
		must(u.t, copied.Release(ctx, id))
	}
	return copied
}

// kinds returns tables with every sampler, retention and unit.
func kinds() (list []replay.Options) {
	for _, s := range replay.Samplers() {
		o := replay.Options{Sampler: s, Capacity: 24, Shards: 2}
		if !s.Consumes() {
			list = append(list,
				replay.Options{Sampler: s, Capacity: 18, Unit: replay.UnitGroup, GroupSize: 3, MaxUses: 3},
				replay.Options{Sampler: s, Capacity: 20, Retention: replay.KeepPositive, PositiveFraction: 0.25,
					MaxStaleness: 5},
				replay.Options{Sampler: s, Capacity: 20, Unit: replay.UnitStep, CapacityBytes: 6000},
			)
			o.MaxUses = 2
		}
		list = append(list, o)
	}
	return list
}

func reopenAndClose(t testing.TB, o Options, kind replay.Options) (*Journal, *replay.Table, *Recovery) {
	t.Helper()
	j, table, recovery := reopen(t, o, kind)
	must(t, j.Close())
	return j, table, recovery
}

// statsOf returns a table's statistics.
func statsOf(table *replay.Table) rollout.Stats {
	stats, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats
}

func must2[T any](x T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return x
	}
}

func sameStored(t testing.TB, a, b replay.Stored) bool {
	x, err := a.Rollout.MarshalBinary()
	must(t, err)
	y, err := b.Rollout.MarshalBinary()
	must(t, err)
	return a.Group == b.Group && a.Shard == b.Shard && cmp.Compare(a.Advantage, b.Advantage) == 0 && bytes.Equal(x, y)
}

func storedOf(h replay.Held) replay.Stored {
	return replay.Stored{Usage: replay.Usage{ID: h.ID}, Group: h.Group, Shard: h.Shard, Advantage: h.Advantage,
		Rollout: h.Rollout}
}

// balanced checks invariant 11.
func balanced(t testing.TB, table *replay.Table) {
	t.Helper()
	s := statsOf(table)
	var evicted uint64
	for _, n := range s.Evicted {
		evicted += n
	}
	if s.Inserted != uint64(s.Present)+evicted ||
		float64(s.Acknowledged) != s.UsesPresent.Sum()+s.UsesAtEviction.Sum() ||
		s.Drawn != s.Acknowledged+s.Returned || s.UsesPresent.Count() != uint64(s.Present) ||
		s.UsesAtEviction.Count() != evicted {
		t.Fatalf("the counts do not add up: %+v", s)
	}
}

package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

var ctx = context.Background()

// fakeClock is a clock that moves when told to.
type fakeClock struct{ now time.Time }

func (c *fakeClock) time() time.Time { return c.now }

// someRollout makes a rollout of a few tokens, whose versions lie in [v-spread, v].
func someRollout(r *rand.Rand, prompt string, v rollout.Version) *rollout.Rollout {
	x := &rollout.Rollout{PromptID: prompt, Temperature: 1, TopP: 1, Reward: float32(r.IntN(2))}
	for i := range 2 + r.IntN(4) {
		if i == 0 {
			x.Tokens, x.Mask = append(x.Tokens, 1), append(x.Mask, 0)
			x.Logprobs, x.Versions = append(x.Logprobs, 0), append(x.Versions, rollout.NoVersion)
			continue
		}
		x.Tokens, x.Mask = append(x.Tokens, int32(r.IntN(8))), append(x.Mask, 1)
		x.Logprobs = append(x.Logprobs, -r.Float32())
		x.Versions = append(x.Versions, max(0, v-rollout.Version(r.IntN(3))))
	}
	return x
}

func someGroup(r *rand.Rand, n int, v rollout.Version) rollout.Group {
	g := rollout.Group{Size: n}
	prompt := fmt.Sprint("p", r.IntN(1000))
	for range n {
		g.Rollouts = append(g.Rollouts, someRollout(r, prompt, v))
	}
	return g
}

// trial runs random operations on a table, on the model, and on a twin of the table that is now and
// then replaced by one restored from its snapshot (invariant 5).
type trial struct {
	t           *testing.T
	random      *rand.Rand
	clock       *fakeClock
	table, twin *Table
	model       *model
}

func newTrial(t *testing.T, o Options, seed uint64) *trial {
	tr := &trial{t: t, random: rollout.Stream(seed, "trial", 0), clock: &fakeClock{time.Unix(1000, 0)}}
	o.Clock, o.LeaseTimeout, o.Seed = tr.clock.time, 10*time.Second, seed
	tr.table, tr.twin = mustNew(t, o), mustNew(t, o)
	tr.model = newModel(tr.table.Options())
	return tr
}

func mustNew(t testing.TB, o Options) *Table {
	t.Helper()
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (tr *trial) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

// same demands equal answers of the table and its twin.
func (tr *trial) same(a, b any, errA, errB error) {
	tr.t.Helper()
	if fmt.Sprint(errA) != fmt.Sprint(errB) || !reflect.DeepEqual(a, b) {
		tr.t.Fatalf("the table answered %v, %v, its twin %v, %v", a, errA, b, errB)
	}
}

func (tr *trial) step() {
	switch k := tr.random.IntN(100); {
	case k < 35:
		tr.insert()
	case k < 60:
		tr.sample()
	case k < 70:
		tr.lease()
	case k < 80:
		tr.settle()
	case k < 90:
		v := tr.model.version + rollout.Version(tr.random.IntN(3)-1)
		if tr.random.IntN(10) == 0 {
			v += 20
		}
		v = max(v, 0)
		tr.must(tr.table.Advance(ctx, v))
		tr.must(tr.twin.Advance(ctx, v))
		tr.model.advance(v)
	case k < 92:
		v := max(0, tr.model.version-rollout.Version(tr.random.IntN(3)))
		tr.must(tr.table.Rewind(ctx, v))
		tr.must(tr.twin.Rewind(ctx, v))
		tr.model.rewind(v)
	case k < 95:
		tr.tick()
	case k < 97:
		tr.update()
	default:
		tr.restoreTwin()
	}
}

func (tr *trial) insert() {
	g := someGroup(tr.random, 1+tr.random.IntN(4), tr.model.version)
	if tr.random.IntN(20) == 0 {
		g.Rollouts[0].Versions[1] = tr.model.version + 1
		_, err := tr.table.Insert(ctx, g)
		_, err2 := tr.twin.Insert(ctx, g)
		tr.same(nil, nil, err, err2)
		if !errors.Is(err, rollout.ErrAhead) {
			tr.t.Fatalf("an insertion ahead of the table gave %v", err)
		}
		return
	}
	fits := !tr.model.o.Sampler.Consumes() || tr.model.room(g)
	ids, err := tr.table.Insert(ctx, g)
	ids2, err2 := tr.twin.Insert(ctx, g)
	tr.same(ids, ids2, err, err2)
	if fits {
		tr.must(err)
		tr.model.insert(g)
	} else if !errors.Is(err, rollout.ErrFull) {
		tr.t.Fatalf("an insertion into a full queue gave %v", err)
	}
}

func (tr *trial) request() rollout.Request {
	return rollout.Request{Size: 1 + tr.random.IntN(5), Shard: tr.random.IntN(tr.model.o.Shards)}
}

// drawn checks a batch, or the refusal to give one, and tells whether there is a batch.
func (tr *trial) drawn(req rollout.Request, b *rollout.Batch, err error) bool {
	tr.t.Helper()
	if !tr.model.fills(req.Shard, req.Size) {
		if !errors.Is(err, rollout.ErrStarved) {
			tr.t.Fatalf("sampling %d from too few gave %v", req.Size, err)
		}
		return false
	}
	tr.must(err)
	if len(b.Draws) != req.Size || b.Version != tr.model.version || b.Shard != req.Shard {
		tr.t.Fatalf("asked for %+v at version %d, got %d draws of shard %d at version %d", req, tr.model.version, len(b.Draws), b.Shard, b.Version)
	}
	if problem := tr.model.follow(b); problem != "" {
		tr.t.Fatalf("%s: %+v", problem, b)
	}
	return true
}

func (tr *trial) sample() {
	req := tr.request()
	b, err := tr.table.Sample(ctx, req)
	b2, err2 := tr.twin.Sample(ctx, req)
	tr.same(b, b2, err, err2)
	if tr.drawn(req, b, err) {
		tr.model.acknowledge(b.ID)
	}
}

func (tr *trial) lease() {
	req := tr.request()
	b, err := tr.table.Lease(ctx, req)
	b2, err2 := tr.twin.Lease(ctx, req)
	tr.same(b, b2, err, err2)
	tr.drawn(req, b, err)
}

func (tr *trial) settle() {
	if len(tr.model.leases) == 0 {
		return
	}
	id := tr.model.leases[tr.random.IntN(len(tr.model.leases))].batch.ID
	if tr.random.IntN(2) == 0 {
		tr.must(tr.table.Acknowledge(id))
		tr.must(tr.twin.Acknowledge(id))
		tr.model.acknowledge(id)
	} else {
		tr.must(tr.table.Release(id))
		tr.must(tr.twin.Release(id))
		tr.model.release(id)
	}
	if err := tr.table.Acknowledge(id); !errors.Is(err, rollout.ErrNoLease) {
		tr.t.Fatalf("settling a batch twice gave %v", err)
	}
}

// tick lets every lease expire.
func (tr *trial) tick() {
	tr.clock.now = tr.clock.now.Add(10 * time.Second)
	for len(tr.model.leases) > 0 {
		tr.model.release(tr.model.leases[0].batch.ID)
	}
	tr.table.Stats()
	tr.twin.Stats()
}

// update addresses a few IDs and compares the count of those evicted (invariant 7).
func (tr *trial) update() {
	if len(tr.model.all) == 0 {
		return
	}
	gone := uint64(0)
	var p []Priority
	for range 3 {
		it := tr.model.all[tr.random.IntN(len(tr.model.all))]
		p = append(p, Priority{ID: it.id, Value: 1})
		if !it.present {
			gone++
		}
	}
	before := tr.table.Stats().UpdatesIgnored
	tr.must(tr.table.Update(ctx, p...))
	tr.must(tr.twin.Update(ctx, p...))
	if got := tr.table.Stats().UpdatesIgnored - before; got != gone {
		tr.t.Fatalf("%d of 3 updates were ignored, %d rollouts were gone", got, gone)
	}
}

func (tr *trial) restoreTwin() {
	var b bytes.Buffer
	tr.must(tr.twin.Snapshot(&b))
	fresh := mustNew(tr.t, tr.twin.Options())
	tr.must(fresh.Restore(&b))
	tr.twin = fresh
}

// check compares statistics and contents, and that bounds hold and books balance.
func (tr *trial) check() {
	tr.t.Helper()
	got, want := tr.table.Stats(), tr.model.stats()
	want.UpdatesIgnored = got.UpdatesIgnored // compared at each update
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		tr.t.Fatalf("statistics\n%s, by definition\n%s", a, b)
	}
	twin := tr.twin.Stats()
	if c, _ := json.Marshal(twin); string(c) != string(a) {
		tr.t.Fatalf("statistics\n%s, of the restored twin\n%s", a, c)
	}
	if n := tr.table.Len(); n != want.Present {
		tr.t.Fatalf("table holds %d, by definition %d", n, want.Present)
	}
	balance(tr.t, got, onLease(tr.model))
	for i := range tr.table.shards {
		tr.checkShard(i, tr.table.shards[i].shard)
		tr.checkShard(i, tr.twin.shards[i].shard)
	}
}

func onLease(m *model) (n int) {
	for _, l := range m.leases {
		n += len(l.items)
	}
	return n
}

// balance checks invariant 11.
func balance(t testing.TB, s rollout.Stats, leased int) {
	t.Helper()
	var evicted uint64
	for _, n := range s.Evicted {
		evicted += n
	}
	switch {
	case s.Inserted != uint64(s.Present)+evicted:
		t.Fatalf("inserted %d, present %d, evicted %d", s.Inserted, s.Present, evicted)
	case float64(s.Acknowledged) != s.UsesPresent.Sum()+s.UsesAtEviction.Sum():
		t.Fatalf("acknowledged %d, uses %v + %v", s.Acknowledged, s.UsesPresent.Sum(), s.UsesAtEviction.Sum())
	case s.Drawn != s.Acknowledged+s.Returned+uint64(leased):
		t.Fatalf("drawn %d, acknowledged %d, returned %d, on lease %d", s.Drawn, s.Acknowledged, s.Returned, leased)
	case uint64(s.Present) != s.UsesPresent.Count() || evicted != s.UsesAtEviction.Count():
		t.Fatalf("present %d of %d, evicted %d of %d", s.UsesPresent.Count(), s.Present, s.UsesAtEviction.Count(), evicted)
	}
}

func (tr *trial) checkShard(number int, s *shard) {
	held := tr.model.present(number)
	if s.present > s.options.shardCapacity() || s.bytes > s.options.shardBytes() {
		tr.t.Fatalf("shard %d holds %d rollouts of %d bytes", number, s.present, s.bytes)
	}
	if len(held) != s.present || s.index.n != s.present {
		tr.t.Fatalf("shard %d holds %d, indexes %d, by definition %d", number, s.present, s.index.n, len(held))
	}
	if e := tr.model.eligible(number); s.sampler.size() != len(e) {
		tr.t.Fatalf("shard %d can draw %d, by definition %d", number, s.sampler.size(), len(e))
	}
	for _, it := range held {
		slot := s.index.find(it.id)
		if slot == none || int(s.items[slot].Uses) != it.uses || int(s.items[slot].Leased) != it.leased {
			tr.t.Fatalf("shard %d: rollout %d is not what it should be", number, it.id)
		}
	}
	waiting := 0 // slots kept for draws on lease
	for slot, r := range s.rollouts {
		if r != nil && s.items[slot].Gone && s.items[slot].Leased > 0 {
			waiting++
		}
	}
	if len(s.items) != s.present+waiting+len(s.free) {
		tr.t.Fatalf("shard %d: %d slots, %d present, %d waiting, %d free", number, len(s.items), s.present, waiting, len(s.free))
	}
}

// Whatever is done, the table does what the definitions say: invariants 1, 2, 3, 5, 7 and 11, and the
// probabilities of 4.
func TestTableAgreesWithTheModelUnderRandomOperations(t *testing.T) {
	bounds := []Options{
		{Capacity: 12},
		{Capacity: 12, MaxStaleness: 2},
		{Capacity: 12, MaxUses: 2, MinSize: 4},
		{Capacity: 12, CapacityBytes: 400},
		{Capacity: 24, Shards: 2, MaxUses: 3, MaxStaleness: 3},
		{Capacity: 12, Retention: KeepPositive, PositiveFraction: 0.25},
		{Capacity: 24, Shards: 3, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 2, MaxStaleness: 4},
	}
	for _, kind := range Samplers() {
		for _, o := range bounds {
			o.Sampler = kind
			if kind.Consumes() {
				o.MaxUses, o.Retention, o.PositiveFraction = 0, "", 0
			}
			name := fmt.Sprintf("%s/capacity=%d,bytes=%d,staleness=%d,uses=%d,shards=%d,%s", kind, o.Capacity, o.CapacityBytes, o.MaxStaleness, o.MaxUses, o.Shards, o.Retention)
			t.Run(strings.TrimSuffix(name, ","), func(t *testing.T) {
				for seed := range uint64(6) {
					if testing.Short() && seed >= 2 {
						break
					}
					tr := newTrial(t, o, seed)
					defer func() {
						if t.Failed() {
							t.Logf("seed %d", seed)
						}
					}()
					for range 250 {
						tr.step()
						tr.check()
					}
				}
			})
		}
	}
}

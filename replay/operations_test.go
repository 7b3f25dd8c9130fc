package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
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
	o.Clock, o.LeaseSeconds, o.Seed = tr.clock.time, 10, seed+1
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
		tr.advance()
	case k < 92:
		v := max(0, tr.model.version-rollout.Version(tr.random.IntN(3)))
		tr.must(tr.table.Rewind(ctx, v))
		tr.must(tr.twin.Rewind(ctx, v))
		tr.model.rewind(v)
	case k < 93:
		tr.tick()
	case k < 95:
		tr.update()
	case k < 97:
		tr.report()
	case k < 98:
		tr.setAgeDecay()
	default:
		tr.restoreTwin()
	}
}

func (tr *trial) advance() {
	v := tr.model.version + rollout.Version(tr.random.IntN(3)-1)
	switch tr.random.IntN(20) {
	case 0, 1:
		v += 20
	case 2:
		if tr.model.o.Sampler == Prioritized {
			v += rollout.Version(tr.random.IntN(100_000))
		}
	}
	v = max(v, 0)
	tr.must(tr.table.Advance(ctx, v))
	tr.must(tr.twin.Advance(ctx, v))
	tr.model.advance(v)
	tr.followAgeDecay()
}

// followAgeDecay takes over an age decay that moves by itself: other tests say where to.
func (tr *trial) followAgeDecay() {
	if p := &tr.model.o; p != nil && p.TargetESS > 0 {
		tr.model.tau = tr.table.Inspect().AgeDecay()
	}
}

func (tr *trial) insert() {
	g := tr.someGroup()
	if tr.random.IntN(20) == 0 {
		x := g.Rollouts[len(g.Rollouts)-1]
		x.Versions[slices.Index(x.Mask, 1)] = tr.model.version + 1
		_, err := tr.table.Insert(ctx, g)
		_, err2 := tr.twin.Insert(ctx, g)
		tr.same(nil, nil, err, err2)
		if !errors.Is(err, rollout.ErrAhead) {
			tr.t.Fatalf("an insertion ahead of the table gave %v", err)
		}
		return
	}
	fits := !tr.model.o.Sampler.Consumes() || tr.model.room(g)
	was, _ := json.Marshal(g)
	ids, err := tr.table.Insert(ctx, g)
	ids2, err2 := tr.twin.Insert(ctx, g)
	tr.same(ids, ids2, err, err2)
	if fits {
		tr.must(err)
		last := tr.model.items
		if n := tr.model.insert(g); len(ids) != n || ids[0] != rollout.ID(last+1) || ids[n-1] != rollout.ID(last+n) {
			tr.t.Fatalf("%d rollouts after %d got the ids %v", n, last, ids)
		}
		if is, _ := json.Marshal(g); string(is) != string(was) {
			tr.t.Fatalf("insertion changed %s to %s", was, is)
		}
	} else if !errors.Is(err, rollout.ErrFull) {
		tr.t.Fatalf("an insertion into a full queue gave %v", err)
	}
}

// someGroup makes a group with what the table's options need.
func (tr *trial) someGroup() rollout.Group {
	n := 1 + tr.random.IntN(4)
	switch tr.model.o.Unit {
	case UnitGroup:
		n = tr.model.o.GroupSize
	case UnitStep:
		n = 1 + tr.random.IntN(2)
	}
	g := someGroup(tr.random, n, tr.model.version)
	for i, r := range g.Rollouts {
		if tr.random.IntN(6) == 0 { // late
			r = someRollout(tr.random, r.PromptID, max(0, tr.model.version-rollout.Version(tr.random.IntN(40))))
			g.Rollouts[i] = r
		}
		if tr.random.IntN(3) == 0 {
			r.Reward = float32(tr.random.NormFloat64())
		}
		if tr.model.o.Unit == UnitStep && tr.random.IntN(3) > 0 {
			g.Rollouts[i] = someTurns(tr.random, r)
		}
		g.Rollouts[i].Values = someValues(tr.random, len(g.Rollouts[i].Tokens))
	}
	return g
}

func someValues(r *rand.Rand, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	return values
}

// someTurns repeats a rollout's completion in two or three turns, with a token of the environment before each.
func someTurns(random *rand.Rand, r *rollout.Rollout) *rollout.Rollout {
	x := *r
	x.Tokens, x.Mask, x.Logprobs, x.Versions = nil, nil, nil, nil
	for range 2 + random.IntN(2) {
		start := int32(len(x.Tokens))
		x.Tokens, x.Mask = append(x.Tokens, r.Tokens...), append(x.Mask, r.Mask...)
		x.Logprobs, x.Versions = append(x.Logprobs, r.Logprobs...), append(x.Versions, r.Versions...)
		x.Turns = append(x.Turns, rollout.Turn{Start: start + int32(random.IntN(2)), End: int32(len(x.Tokens)), Reward: random.Float32()})
	}
	return &x
}

func (tr *trial) request() rollout.Request {
	each := tr.model.each()
	req := rollout.Request{Size: each * (1 + tr.random.IntN(5)), Shard: tr.random.IntN(tr.model.o.Shards)}
	if tr.random.IntN(3) == 0 {
		req.Fresh = each * tr.random.IntN(req.Size/each+1)
	}
	return req
}

// drawn checks a batch, or the refusal to give one, and tells whether there is a batch.
func (tr *trial) drawn(req rollout.Request, b *rollout.Batch, err error) bool {
	tr.t.Helper()
	if !tr.model.fills(req) {
		if !errors.Is(err, rollout.ErrStarved) {
			tr.t.Fatalf("sampling %+v from too few gave %v", req, err)
		}
		return false
	}
	if len(b.Draws) != req.Size || b.Version != tr.model.version || b.Shard != req.Shard {
		tr.t.Fatalf("asked for %+v at version %d, got %d draws of shard %d at version %d", req, tr.model.version, len(b.Draws), b.Shard, b.Version)
	}
	if problem := tr.model.follow(b, req); problem != "" {
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
		tr.must(tr.table.Acknowledge(ctx, id))
		tr.must(tr.twin.Acknowledge(ctx, id))
		tr.model.acknowledge(id)
	} else {
		tr.must(tr.table.Release(ctx, id))
		tr.must(tr.twin.Release(ctx, id))
		tr.model.release(id)
	}
	if err := tr.table.Acknowledge(ctx, id); !errors.Is(err, rollout.ErrNoLease) {
		tr.t.Fatalf("settling a batch twice gave %v", err)
	}
}

// tick lets every lease expire.
func (tr *trial) tick() {
	tr.clock.now = tr.clock.now.Add(10 * time.Second)
	for len(tr.model.leases) > 0 {
		tr.model.release(tr.model.leases[0].batch.ID)
	}
	statsOf(tr.table)
	statsOf(tr.twin)
}

// someIDs returns a few IDs that were given.
func (tr *trial) someIDs() (ids []rollout.ID) {
	for range min(3, tr.model.items) {
		ids = append(ids, rollout.ID(1+tr.random.IntN(tr.model.items)))
	}
	return ids
}

// update gives a few rollouts bases and compares the count of those evicted (invariant 7).
func (tr *trial) update() {
	before, gone := statsOf(tr.table).UpdatesIgnored, uint64(0)
	var list []Priority
	for _, id := range tr.someIDs() {
		p := Priority{ID: id, Value: math.Exp(10 * tr.random.NormFloat64())}
		list = append(list, p)
		if !tr.model.rebase(id, func(*modelItem) float64 { return p.Value + tr.model.o.PriorityEpsilon }) {
			gone++
		}
	}
	tr.must(updateOf(tr.table, list...))
	tr.must(updateOf(tr.twin, list...))
	if got := statsOf(tr.table).UpdatesIgnored - before; got != gone {
		tr.t.Fatalf("%d of %d updates were ignored, %d rollouts were gone", got, len(list), gone)
	}
}

// report is as update, with feedback.
func (tr *trial) report() {
	before, gone := statsOf(tr.table).UpdatesIgnored, uint64(0)
	var list []rollout.Feedback
	for _, id := range tr.someIDs() {
		f := rollout.Feedback{
			ID: id, Staleness: tr.random.Int32N(40), Advantage: rollout.Measured(tr.random.Float64()),
			TDError: rollout.Measured(tr.random.Float64()), GradNorm: rollout.Measured(tr.random.Float64()),
			Tokens: 10, RatioSum: 10, RatioSquares: 10 + 10*tr.random.Float64(),
		}
		if tr.random.IntN(4) == 0 {
			f.Advantage, f.TDError, f.GradNorm = rollout.Measurement{}, rollout.Measurement{}, rollout.Measurement{}
		}
		list = append(list, f)
		if !tr.model.rebase(id, func(it *modelItem) float64 {
			p := &tr.model.o
			given := map[Base]rollout.Measurement{BaseAdvantage: f.Advantage, BaseTDError: f.TDError, BaseGradNorm: f.GradNorm}
			if x, ok := given[p.PriorityBase]; ok && x.Known {
				return x.Value + p.PriorityEpsilon
			} else if ok {
				return math.NaN()
			} else if it.atMax {
				return tr.model.own(it)
			}
			return it.base
		}) {
			gone++
		}
	}
	tr.must(tr.table.Report(ctx, list...))
	tr.must(tr.twin.Report(ctx, list...))
	if got := statsOf(tr.table).UpdatesIgnored - before; got != gone {
		tr.t.Fatalf("%d of %d reports were ignored, %d rollouts were gone", got, len(list), gone)
	}
}

func (tr *trial) setAgeDecay() {
	tau := []float64{0.5, 3, 500, math.Inf(1)}[tr.random.IntN(4)]
	if tr.model.o.Sampler != Prioritized {
		return
	}
	setTau(tr.table, tau)
	setTau(tr.twin, tau)
	tr.model.tau = tau
}

func (tr *trial) restoreTwin() {
	var b bytes.Buffer
	tr.must(tr.twin.Snapshot(&b))
	fresh := mustNew(tr.t, tr.twin.Options())
	tr.must(fresh.Restore(&b))
	tr.twin = fresh
}

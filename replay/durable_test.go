package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// ledger is what cuts come to when they are applied in order: a journal in the plainest way.
type ledger struct {
	state    []byte
	kept     map[rollout.ID]Stored
	requests []Insertion
	consumed map[uint64]Consumed // by slot
	labelled map[uint64]Labelling
	late     bool // rewards change
}

func (l *ledger) apply(t *testing.T, c *Changes) {
	t.Helper()
	if c.Reset {
		*l = ledger{kept: make(map[rollout.ID]Stored), consumed: make(map[uint64]Consumed),
			labelled: make(map[uint64]Labelling), late: l.late}
	}
	for _, id := range c.Removed {
		if _, ok := l.kept[id]; !ok {
			t.Fatalf("rollout %d is removed, and was never told of", id)
		}
		delete(l.kept, id)
	}
	for _, k := range c.Inserted {
		if _, ok := l.kept[k.ID]; ok && !l.late {
			t.Fatalf("rollout %d is inserted twice", k.ID)
		}
		l.kept[k.ID] = k
	}
	for _, u := range c.Changed {
		k, ok := l.kept[u.ID]
		if !ok {
			t.Fatalf("rollout %d changed, and was never told of", u.ID)
		}
		k.Usage = u
		l.kept[u.ID] = k
	}
	for _, ordered := range []bool{
		slices.IsSortedFunc(c.Inserted, func(a, b Stored) int { return cmp.Compare(a.ID, b.ID) }),
		slices.IsSorted(c.Removed),
		slices.IsSortedFunc(c.Changed, func(a, b Usage) int { return cmp.Compare(a.ID, b.ID) }),
	} {
		if !ordered {
			t.Fatal("a cut is not in order of ids")
		}
	}
	for _, q := range c.Consumed {
		l.consumed[q.Slot] = q
	}
	for _, call := range c.Labelled {
		if l.labelled[call.Number] = call; len(call.Labels) == 0 {
			delete(l.labelled, call.Number)
		}
	}
	l.requests = append(l.requests, c.Requests...)
	l.requests = l.requests[max(0, len(l.requests)-c.State.Requests):]
	var err error
	if l.state, err = new(StateEncoder).Encode(c.State); err != nil {
		t.Fatal(err)
	}
	c.OnDisk()
}

func (l *ledger) recovered(t *testing.T) Recovered {
	t.Helper()
	r := Recovered{State: new(State), Requests: slices.Clone(l.requests)}
	if err := r.State.UnmarshalBinary(l.state); err != nil {
		t.Fatal(err)
	}
	for _, q := range l.consumed {
		if q.Request != "" {
			r.Consumed = append(r.Consumed, q)
		}
	}
	for _, k := range l.kept { // in any order
		r.Stored = append(r.Stored, k)
	}
	r.Labelled = slices.Collect(maps.Values(l.labelled))
	return r
}

// releaseAll does what a crash does to leases.
func (tr *trial) releaseAll() {
	for len(tr.model.leases) > 0 {
		id := tr.model.leases[0].batch.ID
		tr.must(tr.table.Release(ctx, id))
		tr.must(tr.twin.Release(ctx, id))
		tr.model.release(id)
	}
}

// crash puts tables rebuilt from the ledger in place of the table and its twin.
func (tr *trial) crash(l *ledger) {
	tr.t.Helper()
	rebuilt := [2]*Table{}
	for i := range rebuilt {
		rebuilt[i] = mustNew(tr.t, tr.model.o)
		done, err := rebuilt[i].JournalView().Rebuild(l.recovered(tr.t))
		tr.must(err)
		if int(done.Returned) != onLease(tr.model) || done.Lost != 0 || done.Dropped != 0 {
			tr.t.Fatalf("rebuilding said %+v, %d draws were on lease", done, onLease(tr.model))
		}
	}
	tr.releaseAll()
	tr.model.restartDeadlines()
	tr.sameTables(tr.table, rebuilt[0])
	if a, b := tr.table, rebuilt[0]; b.lastID != a.lastID+unrecorded || b.lastGroup < a.lastGroup+unrecorded {
		tr.t.Fatalf("the table gave %d ids to %d groups, and the rebuilt one goes on from %d and %d", a.lastID,
			a.lastGroup, b.lastID, b.lastGroup)
	}
	tr.model.skipped.ids += unrecorded
	tr.model.skipped.groups += int(rebuilt[0].lastGroup - tr.table.lastGroup)
	tr.table, tr.twin = rebuilt[0], rebuilt[1]
	tr.twin.JournalView().Cut().OnDisk()
	for _, u := range tr.model.all {
		u.inEpoch = false
	}
}

// sameTables compares all that one can see of two tables.
func (tr *trial) sameTables(a, b *Table) {
	tr.t.Helper()
	x, _ := json.Marshal(statsOf(a))
	y, _ := json.Marshal(statsOf(b))
	if string(x) != string(y) {
		tr.t.Fatalf("statistics\n%s, rebuilt\n%s", x, y)
	}
	if p, q := fmt.Sprint(a.Inspect().AgeDecay(), a.Inspect().ESSByAge(), a.ageDecayMoved),
		fmt.Sprint(b.Inspect().AgeDecay(), b.Inspect().ESSByAge(), b.ageDecayMoved); p != q {
		tr.t.Fatalf("table has %s, rebuilt %s", p, q)
	}
	if p, q := fmt.Sprint(a.Inspect().Labels(0)), fmt.Sprint(b.Inspect().Labels(0)); p != q {
		tr.t.Fatalf("table remembers %s, rebuilt %s", p, q)
	}
	one, other := a.Inspect().Held(), b.Inspect().Held()
	if len(one) != len(other) {
		tr.t.Fatalf("table holds %d, rebuilt %d", len(one), len(other))
	}
	for i := range one {
		p, q := one[i].Probability, other[i].Probability
		if !(math.Abs(p-q) <= 1e-9*p) && !(math.IsNaN(p) && math.IsNaN(q)) {
			tr.t.Fatalf("rollout %d has probability %g, rebuilt %g", one[i].ID, p, q)
		}
		one[i].Probability, other[i].Probability = 0, 0
		if p, q := fmt.Sprint(one[i]), fmt.Sprint(other[i]); p != q {
			tr.t.Fatalf("table holds %s, rebuilt %s", p, q)
		}
	}
	for i := range a.shards {
		for slot, r := range a.shards[i].rollouts {
			if r == nil {
				continue
			}
			it := a.shards[i].items[slot]
			twin := b.shards[i].items[b.shards[i].index.find(it.ID)]
			if a.shards[i].retention == nil {
				it.set(redelivered) // it may have been on lease
			}
			if fmt.Sprint(it) != fmt.Sprint(twin) { // NaN, where rewards are pending
				tr.t.Fatalf("rollout %d is %+v, rebuilt %+v", it.ID, it, twin)
			}
		}
	}
}

// Each state that an encoder gives can be read by itself, and is what another encoder gives.
func TestAStateIsReadByItself(t *testing.T) {
	var encoder StateEncoder
	for _, o := range snapshotOptions() {
		for _, table := range []*Table{mustNew(t, o), busy(t, o)} {
			table.JournalView().Track()
			st := table.JournalView().Cut().State
			b, err := encoder.Encode(st)
			if err != nil {
				t.Fatal(err)
			}
			other, err := new(StateEncoder).Encode(st)
			if err != nil || !bytes.Equal(b, other) {
				t.Errorf("%s: %x, from another encoder %x, %v", o.Sampler, b, other, err)
			}
			var got State
			if err := got.UnmarshalBinary(b); err != nil || got.Identity != st.Identity || got.LastID != st.LastID ||
				!reflect.DeepEqual(got.Shards, st.Shards) {
				t.Errorf("%s: got %+v of %+v, %v", o.Sampler, got, st, err)
			}
		}
	}
}

// A table that is rebuilt from cuts is the one that was cut, its leases gone back, and does from then on what the
// definitions say, for every sampler, retention and unit.
func TestARebuiltTableIsTheOneThatWasCut(t *testing.T) {
	tests.Long(t)
	for _, o := range everyKind() {
		t.Run(fmt.Sprintf("%s/%+v", o.Sampler, o), func(t *testing.T) {
			for seed := range uint64(tests.Rounds(6, 2, 0)) {
				tr := newTrial(t, o, seed)
				tr.table.JournalView().Track()
				l := ledger{late: o.PendingRewards > 0}
				for range 120 {
					tr.step()
					switch tr.random.IntN(12) {
					case 0, 1, 2:
						l.apply(t, tr.table.JournalView().Cut())
					case 3:
						l.apply(t, tr.table.JournalView().Cut())
						tr.crash(&l)
						c := tr.table.JournalView().Cut()
						if c.Reset ||
							len(c.Inserted)+len(c.Removed)+len(c.Changed)+len(c.Requests)+len(c.Consumed) > 0 {
							t.Fatalf("a table just rebuilt tells %+v", c)
						}
						l.apply(t, c)
						tr.check()
						tr.checkStats()
					case 4:
						if tr.random.IntN(4) == 0 { // what is restored is told anew
							tr.restoreTracked()
						}
					}
				}
			}
		})
	}
}

func (tr *trial) restoreTracked() {
	b := new(writer)
	tr.must(tr.table.Snapshot(b))
	tr.must(tr.table.Restore(b))
	if c := tr.table.JournalView().Cut(); c == nil || !c.Reset || len(c.Inserted) != tr.table.present() {
		tr.t.Fatalf("a restored table of %d tells %+v", tr.table.present(), c)
	}
	tr.table.JournalView().Track()
	for _, u := range tr.model.all { // its rollouts are copies
		for _, it := range u.items {
			for _, s := range tr.table.shards {
				if slot := s.index.find(it.id); slot != none {
					it.r = s.rollouts[slot]
				}
			}
		}
	}
}

// everyKind is options that between them have every sampler, retention, unit and bound.
func everyKind() (list []Options) {
	for _, kind := range Samplers() {
		for _, o := range []Options{
			{Capacity: 12},
			{Capacity: 12, MaxStaleness: 2, Unit: UnitStep},
			{Capacity: 24, Shards: 2, MaxUses: 3, MaxStaleness: 3},
			{Capacity: 24, Shards: 3, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 2, MaxStaleness: 4},
			{Capacity: 12, CapacityBytes: 900},
			{Capacity: 12, Select: 2, MaxStaleness: 9, KeptPerPrompt: 3},
			{Capacity: 12, MaxStaleness: 2, Pin: "reward > 0"},
			{Capacity: 12, Retention: KeepScored, Score: "version - 2 * uses", MaxUses: 3},
			{Capacity: 18, Unit: UnitGroup, GroupSize: 3, Retention: KeepScored, Score: "reward + 1 / (1 + since_use)"},
			{Capacity: 12, Retention: KeepPositive, PositiveFraction: 0.25},
			{Capacity: 16, Retention: KeepPositive, PositiveFraction: 0.5, PositivesPerPrompt: 2, PositiveShare: 0.5},
			{Capacity: 18, Unit: UnitGroup, GroupSize: 3, MaxUses: 2, MaxStaleness: 30},
			{Capacity: 30, Unit: UnitGroup, GroupSize: 3, Shards: 2},
			{Capacity: 24, Shards: 2, MaxUses: 3, Sources: slices.Concat(someSources()[:3], someSources()[4:])},
			{Capacity: 24, MaxUses: 3, Sources: promptSources()},
		} {
			o.Sampler = kind
			if kind == Prioritized || kind.Consumes() {
				o.PositiveShare, o.Sources = 0, nil
			}
			o.PromptIndex = !kind.Consumes() && o.Unit != UnitGroup
			if kind.Consumes() {
				o.MaxUses, o.KeptPerPrompt, o.Pin = min(o.MaxUses, 1), 0, ""
				if o.Retention == KeepPositive || o.Retention == KeepScored {
					continue
				}
			}
			list = append(list, o)
		}
	}
	for _, o := range orderings() {
		o.Capacity, o.MaxUses, o.PromptIndex = 16, 3, true
		list = append(list, o)
		o.Capacity, o.MaxUses, o.PromptIndex, o.Unit, o.GroupSize, o.MaxStaleness = 18, 0, false, UnitGroup, 3, 40
		list = append(list, o)
	}
	for _, kind := range Samplers() {
		for _, o := range lateBounds() {
			if kind.Consumes() {
				o.MaxUses, o.Retention, o.PositiveFraction, o.Score, o.Pin, o.Sources = 0, "", 0, "", "", nil
			} else if kind == Prioritized {
				o.Sources = nil
			}
			o.Sampler, o.PromptIndex = kind, !kind.Consumes() && o.Unit != UnitGroup
			list = append(list, o)
		}
	}
	for _, p := range prioritizations() {
		list = append(list, withPriorities(p, Options{Capacity: 16, MaxUses: 3}),
			withPriorities(p, Options{Capacity: 18, Unit: UnitGroup, GroupSize: 3, MaxStaleness: 40}))
	}
	return list
}

type writer struct{ b []byte }

func (w *writer) Write(b []byte) (int, error) { w.b = append(w.b, b...); return len(b), nil }
func (w *writer) Read(b []byte) (int, error) {
	n := copy(b, w.b)
	w.b = w.b[n:]
	return n, nil
}

func TestATableThatIsNotTrackedTellsNothing(t *testing.T) {
	if c := mustNew(t, Options{}).JournalView().Cut(); c != nil {
		t.Errorf("it told %+v", c)
	}
}

func TestWhatComesAndGoesBetweenTwoCutsIsNotTold(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	random := rollout.Stream(1, "test", 0)
	table.JournalView().Track()
	insert := func(n int) {
		for range n {
			if _, err := table.Insert(ctx, someGroup(random, 1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids := func(c *Changes) (list []rollout.ID) {
		for _, k := range c.Inserted {
			list = append(list, k.ID)
		}
		return list
	}
	insert(10)
	c := table.JournalView().Cut()
	if got := ids(c); !slices.Equal(got, []rollout.ID{7, 8, 9, 10}) || len(c.Removed) != 0 {
		t.Errorf("the first cut told %v, and %v removed", got, c.Removed)
	}
	insert(6)
	c = table.JournalView().Cut()
	if got := ids(c); !slices.Equal(got, []rollout.ID{13, 14, 15, 16}) ||
		!slices.Equal(c.Removed, []rollout.ID{7, 8, 9, 10}) || c.Reset {
		t.Errorf("the second cut told %v, and %v removed", got, c.Removed)
	}
}

func TestInsertionsAreRememberedInATableThatIsRebuilt(t *testing.T) {
	table, random := mustNew(t, Options{Capacity: 64}), rollout.Stream(1, "test", 0)
	table.JournalView().Track()
	var l ledger
	first, groups := make(map[string][]rollout.ID), make(map[string]rollout.Group)
	for i := range 20 {
		name := fmt.Sprint("batch ", i)
		groups[name] = someGroup(random, 2, 0)
		ids, err := table.ServiceView().InsertOnce(ctx, name, groups[name])
		if err != nil {
			t.Fatal(err)
		}
		first[name] = ids
		if i%3 == 0 {
			l.apply(t, table.JournalView().Cut())
		}
	}
	l.apply(t, table.JournalView().Cut())
	rebuilt := mustNew(t, Options{Capacity: 64})
	if _, err := rebuilt.JournalView().Rebuild(l.recovered(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		ids, err := rebuilt.ServiceView().InsertOnce(ctx, name, groups[name])
		if err != nil || !slices.Equal(ids, first[name]) {
			t.Errorf("%s again got %v, %v, at first %v", name, ids, err, first[name])
		}
		_, err = rebuilt.ServiceView().InsertOnce(ctx, name, someGroup(random, 2, 0))
		if !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s with other contents: %v", name, err)
		}
	}
	if n := rebuilt.present(); n != 40 {
		t.Errorf("the table holds %d", n)
	}
}

// A caller may know a batch, a rollout or a group that the journal of a crashed table does not know of. No other has
// its id.
func TestAttackARebuiltTableGivesNoIDTwice(t *testing.T) {
	tests.OneGoroutine(t)
	o := Options{Capacity: 64, Shards: 2, PromptIndex: true}
	table := mustNew(t, o)
	table.JournalView().Track()
	for range 4 {
		if _, err := table.Insert(ctx, someGroup(rollout.Stream(1, "test", 0), 2, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var l ledger
	l.apply(t, table.JournalView().Cut())
	given, inserted := make(map[rollout.BatchID]bool), make(map[rollout.ID]bool)
	groups := make(map[uint64]bool)
	for range 3 {
		ids, err := table.Insert(ctx, someGroup(rollout.Stream(1, "test", 0), 2, 0),
			someGroup(rollout.Stream(1, "test", 0), 2, 0))
		if err != nil || groups[table.lastGroup] || groups[table.lastGroup-1] {
			t.Fatalf("the groups up to %d, %v", table.lastGroup, err)
		}
		groups[table.lastGroup], groups[table.lastGroup-1] = true, true
		for _, id := range ids {
			if inserted[id] {
				t.Fatalf("rollout %d is there twice", id)
			}
			inserted[id] = true
		}
		for i := range 8 {
			b, err := table.Lease(ctx, rollout.Request{Size: 1, Shard: i % 2})
			if err != nil || given[b.ID] {
				t.Fatalf("batch %+v, %v", b, err)
			}
			given[b.ID] = true
		}
		rebuilt := mustNew(t, o)
		if _, err := rebuilt.JournalView().Rebuild(l.recovered(t)); err != nil {
			t.Fatal(err)
		}
		table = rebuilt
		if _, err := table.Insert(ctx, someGroup(rollout.Stream(1, "test", 0), 2, 0)); !errors.Is(err, ErrUnrecorded) {
			t.Errorf("an insertion before anything is on disk gave %v", err)
		}
		for _, req := range []rollout.Request{{Size: 1}, {Prompts: []string{"nobody's"}, PerPrompt: 1}} {
			if _, err := table.Lease(ctx, req); !errors.Is(err, ErrUnrecorded) {
				t.Errorf("a draw before anything is on disk gave %v", err)
			}
		}
		l.apply(t, table.JournalView().Cut())
	}
}

// A table gives no more ids beyond those on disk than a recovered one passes over, and goes on once they are on disk.
func TestATableThatIsAheadOfItsJournalWaits(t *testing.T) {
	table, random := mustNew(t, Options{Shards: 2}), rollout.Stream(1, "test", 0)
	insert := func() error {
		_, err := table.Insert(ctx, someGroup(random, 2, 0))
		return err
	}
	draw := func() error {
		_, err := table.Sample(ctx, rollout.Request{Size: 1, Shard: 1})
		return err
	}
	table.lastID = unrecorded // nobody waits for a journal that there is not
	if err := errors.Join(insert(), insert(), draw()); err != nil {
		t.Fatal(err)
	}
	table.JournalView().Track()
	table.lastID += unrecorded - 3
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	table.shards[1].batches += unrecorded - 1
	if err := draw(); err != nil {
		t.Fatal(err)
	}
	c := table.JournalView().Cut()
	for name, do := range map[string]func() error{"insert": insert, "draw": draw} {
		if err := do(); !errors.Is(err, ErrUnrecorded) {
			t.Errorf("%s beyond the bound gave %v", name, err)
		}
	}
	c.OnDisk()
	if err := errors.Join(insert(), draw()); err != nil {
		t.Errorf("once the cut is on disk: %v", err)
	}
	if err := table.checkRecorded(unrecorded + 1); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("more at once than may ever be ahead gave %v", err)
	}
}

// A queue that is rebuilt refuses the request ids whose batches left it, except those that a rewind undid, and names
// what it may have delivered before.
func TestAttackARebuiltQueueRefusesTheRequestsThatItServed(t *testing.T) {
	o := Options{Capacity: 64, Sampler: FIFO, Shards: 2}
	table, random := mustNew(t, o), rollout.Stream(1, "test", 0)
	table.JournalView().Track()
	var l ledger
	for range 8 {
		if _, err := table.Insert(ctx, someGroup(random, 2, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"a", "b", "undone"} {
		if err := table.Advance(ctx, rollout.Version(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Sample(ctx, rollout.Request{Size: 2, Shard: i % 2, ID: id}); err != nil {
			t.Fatal(err)
		}
		l.apply(t, table.JournalView().Cut())
	}
	if err := table.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	b, err := table.Lease(ctx, rollout.Request{Size: 2, ID: "returned"})
	if err != nil || b.Draws[0].Redelivered {
		t.Fatalf("%+v, %v", b, err)
	}
	if err := table.Release(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if b, err = table.Lease(ctx, rollout.Request{Size: 4, ID: "leased"}); err != nil || !b.Draws[0].Redelivered ||
		b.Draws[2].Redelivered {
		t.Fatalf("after a release %+v, %v", b, err)
	}
	l.apply(t, table.JournalView().Cut())
	rebuilt := mustNew(t, o)
	if _, err := rebuilt.JournalView().Rebuild(l.recovered(t)); err != nil {
		t.Fatal(err)
	}
	rebuilt.JournalView().Cut().OnDisk()
	for i, id := range []string{"a", "b"} {
		req := rollout.Request{Size: 2, Shard: i % 2, ID: id}
		if !rebuilt.ServiceView().Repeats(req) {
			t.Errorf("request %s is forgotten", id)
		}
		for _, draw := range []func(context.Context, rollout.Request) (*rollout.Batch, error){
			rebuilt.Sample, rebuilt.Lease,
		} {
			if b, err := draw(ctx, req); !errors.Is(err, rollout.ErrNoLease) ||
				!strings.Contains(err.Error(), "2 rollouts (of ids") {
				t.Errorf("request %s got %v, %v", id, b, err)
			}
		}
	}
	for _, id := range []string{"undone", "leased"} {
		b, err := rebuilt.Sample(ctx, rollout.Request{Size: 2, ID: id})
		if err != nil || !b.Draws[0].Redelivered {
			t.Errorf("request %s got %+v, %v", id, b, err)
		}
	}
}

// whole is a recovery of a table of eight rollouts, some of them used.
func whole(t *testing.T, o Options) Recovered {
	t.Helper()
	table, random := mustNew(t, o), rollout.Stream(1, "test", 0)
	table.JournalView().Track()
	if err := table.Advance(ctx, 3); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := table.ServiceView().InsertOnce(ctx, fmt.Sprint("batch ", i), someGroup(random, 2, 3)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := table.Sample(ctx, rollout.Request{Size: 4}); err != nil {
			t.Fatal(err)
		}
	}
	var l ledger
	l.apply(t, table.JournalView().Cut())
	return l.recovered(t)
}

// What no table can have held is refused, and the refusal names it.
func TestWhatDoesNotFitTogetherIsRefused(t *testing.T) {
	o := Options{Capacity: 10, MaxUses: 10}
	for want, change := range map[string]func(r *Recovered){
		"its state is missing":               func(r *Recovered) { r.State = nil },
		"seed is 7 in the snapshot and none": func(r *Recovered) { r.State.Identity = Options{Seed: 7}.identity() },
		"its state has 2 shards": func(r *Recovered) {
			r.State.Shards = append(r.State.Shards, shardState{})
		},
		"3 insertions are remembered": func(r *Recovered) { r.Requests = r.Requests[1:] },
		"is remembered, of 8 given":   func(r *Recovered) { r.Requests[0].First = 8 },
		"of ids 5 to 9223372036854775811": func(r *Recovered) {
			r.Requests[1] = Insertion{"batch 1", 5, math.MaxInt64, Digest{}}
		},
		"to 1 is remembered, of 8 given": func(r *Recovered) {
			r.Requests[1] = Insertion{"batch 1", math.MaxUint64, 3, Digest{}}
		},
		"it holds 7 rollouts, its state": func(r *Recovered) { r.Stored = r.Stored[1:] },
		"is recorded twice":              func(r *Recovered) { r.Stored[1] = r.Stored[0] },
		"rollout 99 is none of the 8":    func(r *Recovered) { r.Stored[0].ID = 99 },
		"has no content":                 func(r *Recovered) { r.Stored[0].Rollout = nil },
		"has 10 uses, max_uses is 10":    func(r *Recovered) { r.Stored[0].Uses = 10 },
		"the table is at 1":              func(r *Recovered) { r.State.Version = 1 },
		"was used at version 4":          func(r *Recovered) { r.Stored[0].LastUse = 4 },
		"is of group 9 of 4":             func(r *Recovered) { r.Stored[0].Group = 9 },
		"has marks 11000000":             func(r *Recovered) { r.Stored[0].Marks = 0b11000000 },
		"is reserved as correct with":    func(r *Recovered) { r.Stored[0].Marks |= MarkReserved },
		"come to 13, its state says 12":  func(r *Recovered) { r.Stored[0].Uses++ },
	} {
		r := whole(t, o)
		change(&r)
		table := mustNew(t, o)
		_, err := table.JournalView().Rebuild(r)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("got %v, want %s", err, want)
		}
		if table.present() != 0 || table.Version() != 0 {
			t.Errorf("%s: the table holds %d at version %d", want, table.present(), table.Version())
		}
	}
	r := whole(t, o)
	used := mustNew(t, o)
	if err := used.Advance(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := used.JournalView().Rebuild(r); err == nil {
		t.Error("a table that was used before was rebuilt")
	}
}

// untouched is a recovery of a table at version 5 with eight rollouts of versions 2 to 5, none of them used.
func untouched(t *testing.T, o Options) Recovered {
	t.Helper()
	table := mustNew(t, o)
	table.JournalView().Track()
	if err := table.Advance(ctx, 5); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		mustInsert(t, table, group(rollout.Version(2+i), 0, 1))
	}
	var l ledger
	l.apply(t, table.JournalView().Cut())
	return l.recovered(t)
}

// What depends on the options is checked against the table's, though they are the same by name.
func TestWhatNoTableOfTheseOptionsCanHoldIsRefused(t *testing.T) {
	priority := Options{Sampler: Prioritized}
	positive := Options{Capacity: 16, Retention: KeepPositive, PositiveFraction: 0.25, CapacityBytes: 16 << 10}
	each := func(change func(k *Stored)) func(r *Recovered) {
		return func(r *Recovered) {
			for i := range r.Stored {
				change(&r.Stored[i])
			}
		}
	}
	for _, c := range []struct {
		name   string
		o      Options
		want   string
		change func(r *Recovered)
	}{
		{"a shard of another", Options{Shards: 2}, "in shard 1 of 2", each(func(k *Stored) { k.Shard = 1 })},
		{"a shard that is none", Options{Shards: 2}, "in shard 7 of 2", each(func(k *Stored) { k.Shard = 7 })},
		{"a used one in a queue", Options{Sampler: FIFO}, "has 1 uses", each(func(k *Stored) { k.Uses = 1 })},
		{"uses below 0", Options{}, "has -1 uses", each(func(k *Stored) { k.Uses = -1 })},
		{"a use before all", Options{}, "was used at version -2", each(func(k *Stored) { k.LastUse = -2 })},
		{"a priority of 0", priority, "has priority 0", each(func(k *Stored) { k.Base = 0 })},
		{"a priority that is none", priority, "has priority NaN", each(func(k *Stored) { k.Base = math.NaN() })},
		{"an infinite priority", priority, "has priority +Inf", each(func(k *Stored) { k.Base = math.Inf(1) })},
		{"one that is too old", Options{MaxStaleness: 3}, "is of version 1, max_staleness 3", func(r *Recovered) {
			r.Stored[0].Rollout = group(1, 1).Rollouts[0]
		}},
		{"a version below 0", Options{}, "has tokens of versions -4",
			func(r *Recovered) { r.Stored[0].Rollout = group(-4, 1).Rollouts[0] }},
		{"half a group", Options{Unit: UnitGroup, GroupSize: 2}, "has 1 rollouts, group_size is 2", func(r *Recovered) {
			r.Stored = r.Stored[:0:0]
			r.Stored = append(r.Stored, Stored{Usage: Usage{ID: 1, LastUse: rollout.NoVersion}, Group: 1,
				Rollout: group(2, 1).Rollouts[0]})
		}},
		{"more kept than are set aside", positive, "more than its capacity",
			each(func(k *Stored) { k.Marks |= MarkReserved })},
		{"acknowledgements nobody made", Options{}, "its state says 3",
			func(r *Recovered) { r.State.Shards[0].Counts.Acknowledged = 3 }},
	} {
		r := untouched(t, c.o)
		c.change(&r)
		table := mustNew(t, c.o)
		if _, err := table.JournalView().Rebuild(r); err == nil || !strings.Contains(err.Error(), c.want) ||
			!errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if table.present() != 0 || table.Version() != 0 {
			t.Errorf("%s: the table holds %d at version %d", c.name, table.present(), table.Version())
		}
	}
	for _, o := range []Options{{Shards: 2}, {Sampler: FIFO}, {MaxStaleness: 3}, {Unit: UnitGroup, GroupSize: 2}, priority, positive} { // unchanged they fit
		if _, err := mustNew(t, o).JournalView().Rebuild(untouched(t, o)); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Capacities are checked as what they bound, count and bytes, recent and kept.
func TestMoreThanTheCapacityIsRefused(t *testing.T) {
	bytes := group(2, 1).Rollouts[0].Bytes()
	for name, c := range map[string]struct{ had, has Options }{
		"rollouts":   {Options{Capacity: 8}, Options{Capacity: 7}},
		"in a queue": {Options{Capacity: 8, Sampler: FIFO}, Options{Capacity: 7, Sampler: FIFO}},
		"bytes":      {Options{CapacityBytes: 8 * bytes}, Options{CapacityBytes: 8*bytes - 1}},
		"bytes in queue": {Options{CapacityBytes: 8 * bytes, Sampler: FIFO},
			Options{CapacityBytes: 8*bytes - 1, Sampler: FIFO}},
	} {
		r := untouched(t, c.had)
		r.State.Identity = mustNew(t, c.has).options.identity()
		if _, err := mustNew(t, c.has).JournalView().Rebuild(r); err == nil ||
			!strings.Contains(err.Error(), "more than its capacity") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package replay

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// check compares contents.
func (tr *trial) check() {
	tr.t.Helper()
	for i := range tr.table.shards {
		tr.checkShard(i, tr.table.shards[i].shard)
		tr.checkShard(i, tr.twin.shards[i].shard)
	}
	tr.checkHeld()
	tr.checkByAge()
}

// checkStats compares statistics, and that books balance.
func (tr *trial) checkStats() {
	tr.t.Helper()
	got, want := statsOf(tr.table), tr.model.stats()
	want.UpdatesIgnored = got.UpdatesIgnored // compared at each update
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		tr.t.Fatalf("statistics\n%s, by definition\n%s", a, b)
	}
	twin := statsOf(tr.twin)
	if c, _ := json.Marshal(twin); string(c) != string(a) {
		tr.t.Fatalf("statistics\n%s, of the restored twin\n%s", a, c)
	}
	if n := tr.table.present(); n != want.Present {
		tr.t.Fatalf("table holds %d, by definition %d", n, want.Present)
	}
	balance(tr.t, got, onLease(tr.model))
}

func onLease(m *model) (n int) {
	for _, l := range m.leases {
		n += len(l.units) * m.each()
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
	units := tr.model.present(number)
	held, bytes := count(units)
	if s.present > s.options.shardCapacity() || s.bytes > s.options.shardBytes() {
		tr.t.Fatalf("shard %d holds %d rollouts of %d bytes", number, s.present, s.bytes)
	}
	if held != s.present || bytes != s.bytes || s.index.n != s.present {
		tr.t.Fatalf("shard %d holds %d, indexes %d, by definition %d", number, s.present, s.index.n, held)
	}
	if e := tr.model.eligible(number); s.sampler.size() != len(e) {
		tr.t.Fatalf("shard %d can draw %d, by definition %d", number, s.sampler.size(), len(e))
	}
	if n := len(tr.model.fresh(number)); s.fresh.Waiting.Len != n {
		tr.t.Fatalf("shard %d holds %d fresh, by definition %d", number, s.fresh.Waiting.Len, n)
	}
	for _, u := range units {
		for _, it := range u.items {
			slot := s.index.find(it.id)
			if slot == none || int(s.items[slot].Uses) != u.uses || int(s.items[slot].Leased) != u.leased {
				tr.t.Fatalf("shard %d: rollout %d is not what it should be", number, it.id)
			}
		}
	}
	waiting := 0 // slots kept for draws on lease
	for slot, r := range s.rollouts {
		if r != nil && s.items[slot].is(evicted) && s.items[slot].Leased > 0 {
			waiting++
		}
	}
	if len(s.items) != s.present+waiting+len(s.free) {
		tr.t.Fatalf("shard %d: %d slots, %d present, %d waiting, %d free", number, len(s.items), s.present, waiting, len(s.free))
	}
}

// checkHeld compares what the table shows of its rollouts. The twin is never looked at, and draws the same.
func (tr *trial) checkHeld() {
	tr.t.Helper()
	m, got, i := tr.model, tr.table.Inspect().Held(), 0
	for shard := range m.o.Shards {
		e := m.eligible(shard)
		log := map[*modelUnit]float64{}
		if m.o.Sampler == Prioritized {
			log = m.logProbabilities(e)
		}
		for _, u := range m.present(shard) {
			for _, it := range u.items {
				want := Held{
					ID: it.id, Group: uint64(u.group), Shard: shard, Age: int(m.version - it.r.Version()), Uses: u.uses, Leased: u.leased,
					Advantage: it.advantage, Mean: it.mean, Std: it.std, Fresh: !u.shown && !m.o.Sampler.Consumes(), AtMax: it.atMax, UnitAge: int(m.version - u.least()), Base: math.NaN(), Probability: math.NaN(),
				}
				switch drawable := slices.Contains(e, u); m.o.Sampler {
				case Uniform, Distinct:
					want.Probability = 0
					if drawable {
						want.Probability = 1 / float64(len(e))
					}
				case Prioritized:
					want.Base, want.Probability = 0, 0
					for _, mate := range u.items {
						want.Base += mate.base / float64(len(u.items))
					}
					if drawable {
						want.Probability = math.Exp(log[u])
					}
				}
				if i == len(got) {
					tr.t.Fatalf("the table shows %d rollouts and not %d", i, it.id)
				}
				tr.checkOneHeld(got[i], want, it)
				i++
			}
		}
	}
	if i != len(got) {
		tr.t.Fatalf("the table shows %d rollouts, by definition it holds %d", len(got), i)
	}
}

func (tr *trial) checkOneHeld(got, want Held, it *modelItem) {
	tr.t.Helper()
	same := func(a, b float64) bool { return near(a, b) || math.IsNaN(a) && math.IsNaN(b) }
	ok := same(got.Base, want.Base) && same(got.Probability, want.Probability) &&
		reflect.DeepEqual(got.Rollout, it.r) && (tr.model.o.Unit == UnitStep || got.Rollout == it.r)
	want.Base, want.Probability, want.Rollout = got.Base, got.Probability, got.Rollout
	if math.IsNaN(got.Base) {
		got.Base, want.Base = 0, 0
	}
	if math.IsNaN(got.Probability) {
		got.Probability, want.Probability = 0, 0
	}
	if !ok || got != want {
		tr.t.Fatalf("the table shows %+v, by definition %+v of base %v", got, want, it.base)
	}
}

// checkByAge compares the shares of ages.
func (tr *trial) checkByAge() {
	tr.t.Helper()
	m, want, age := tr.model, map[int]AgeShare{}, -1
	for shard := range m.o.Shards {
		if m.o.Sampler != Prioritized {
			break
		}
		e := m.eligible(shard)
		log := m.logProbabilities(e)
		for _, u := range e {
			a := want[int(m.version-u.least())]
			a.Units++
			a.Probability += math.Exp(log[u]) / float64(m.o.Shards)
			for _, it := range u.items {
				a.Base += it.base / float64(len(u.items))
			}
			want[int(m.version-u.least())] = a
		}
	}
	got := tr.table.Inspect().ByAge()
	if len(got) != len(want) {
		tr.t.Fatalf("the table shows %d ages, by definition %d", len(got), len(want))
	}
	for _, a := range got {
		w := want[a.Age]
		if a.Age <= age || a.Units != w.Units || !near(a.Base, w.Base/float64(w.Units)) || !near(a.Probability, w.Probability) {
			tr.t.Fatalf("the table shows %+v, by definition %+v", a, w)
		}
		age = a.Age
	}
}

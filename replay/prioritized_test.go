package replay

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// rewarded is a table of rollouts of version 0 whose bases are their rewards, with exponent 1.
func rewarded(t *testing.T, change func(o *Options), rewards ...float32) *Table {
	t.Helper()
	p := prioritizedOptions()
	p.PriorityBase, p.PriorityEpsilon, p.PriorityExponent = BaseReward, 1e-300, 1
	o := withPriorities(p, Options{Capacity: max(len(rewards), 4)})
	if change != nil {
		change(&o)
	}
	table := mustNew(t, o)
	mustInsert(t, table, group(0, rewards...))
	return table
}

func probabilities(table *Table) (list []float64) {
	for _, h := range table.Inspect().Held() {
		list = append(list, h.Probability)
	}
	return list
}

func alike(got []float64, want ...float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			return false
		}
	}
	return true
}

func TestImportanceWeightsMatchNumbersWorkedByHand(t *testing.T) {
	for _, c := range []struct {
		beta          float64
		normalisation Norm
		heavy, light  float64 // weights of P 1/2 and 1/4
		alone         float64 // of 1/2, in a batch of no other
	}{
		{1, ByBatch, 0.5, 1, 1},
		{1, ByTable, 0.5, 1, 0.5},
		{0.5, ByBatch, math.Sqrt(0.5), 1, 1},
		{0.5, ByTable, math.Sqrt(0.5), 1, math.Sqrt(0.5)},
		{0, ByTable, 1, 1, 1},
	} {
		table := rewarded(t, func(o *Options) { o.ImportanceBeta, o.ImportanceNorm = &c.beta, c.normalisation }, 2, 1, 1)
		// Of four stratified draws two fall on the first.
		for _, d := range mustSample(t, table, rollout.Request{Size: 4}).Draws {
			want, chance := c.light, 0.25
			if d.ID == 1 {
				want, chance = c.heavy, 0.5
			}
			if math.Abs(float64(d.Weight)-want) > 1e-7 || d.Probability != chance {
				t.Errorf("beta %v, by %s: rollout %d of probability %v has weight %v, want %v", c.beta, c.normalisation, d.ID, d.Probability, d.Weight, want)
			}
		}
		for range 50 {
			if d := mustSample(t, table, rollout.Request{Size: 1}).Draws[0]; d.ID == 1 && math.Abs(float64(d.Weight)-c.alone) > 1e-7 {
				t.Errorf("beta %v, by %s: alone it has weight %v, want %v", c.beta, c.normalisation, d.Weight, c.alone)
			}
		}
	}
}

func TestFreshDrawsHaveWeightOneAndDoNotCountForOthers(t *testing.T) {
	table := rewarded(t, func(o *Options) { o.ImportanceBeta = new(1.0) }, 1, 1000, 1000, 1000)
	b := mustSample(t, table, rollout.Request{Size: 4, Fresh: 1})
	if d := b.Draws[0]; d.ID != 1 || !d.Fresh || d.Weight != 1 || d.Probability != 1 {
		t.Errorf("the fresh draw is %+v", d)
	}
	for _, d := range b.Draws[1:] {
		if d.ID > 1 && d.Weight != 1 { // all equal, unless the rare one came again
			t.Errorf("drew %+v", d)
		}
	}
}

func TestANewBaseChangesTheNextDraw(t *testing.T) {
	table := rewarded(t, nil, 1, 1, 2)
	if p := probabilities(table); !alike(p, 0.25, 0.25, 0.5) {
		t.Errorf("the probabilities are %v", p)
	}
	if err := updateOf(table, Priority{1, 5}, Priority{2, 0}, Priority{1, 6}); err != nil {
		t.Fatal(err)
	}
	if p := probabilities(table); !alike(p, 0.75, 0, 0.25) {
		t.Errorf("the probabilities are %v", p)
	}
	// All or none.
	if err := updateOf(table, Priority{1, 1}, Priority{2, math.NaN()}); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if p := probabilities(table); !alike(p, 0.75, 0, 0.25) {
		t.Errorf("a refused update left the probabilities %v", p)
	}
	// What cannot be added up stays finite, also where epsilon is large.
	for _, epsilon := range []float64{1e-300, 1e300} {
		table := rewarded(t, func(o *Options) { o.PriorityEpsilon = epsilon }, 1, 1, 2)
		if err := updateOf(table, Priority{1, math.MaxFloat64}, Priority{2, math.MaxFloat64}); err != nil {
			t.Fatal(err)
		}
		if p := probabilities(table); math.Abs(p[0]-0.5) > 1e-7 || math.Abs(p[1]-0.5) > 1e-7 || p[2] > 1e-7 {
			t.Errorf("epsilon %g: the probabilities are %v", epsilon, p)
		}
	}
}

func TestATableOfAncientRolloutsDrawsAsAFreshOne(t *testing.T) {
	for _, tau := range []float64{1e-3, 1, 500} {
		table := rewarded(t, func(o *Options) { o.AgeDecay, o.MaxUses = Versions(tau), 1 }, 1, 1, 2)
		if err := table.Advance(ctx, 1_000_000); err != nil {
			t.Fatal(err)
		}
		if p := probabilities(table); !alike(p, 0.25, 0.25, 0.5) {
			t.Errorf("tau %v: the probabilities are %v", tau, p)
		}
		mustInsert(t, table, group(1_000_000, 1))
		if p := probabilities(table); !alike(p, 0, 0, 0, 1) {
			t.Errorf("tau %v: beside a fresh one they are %v", tau, p)
		}
		d := mustSample(t, table, rollout.Request{Size: 2}).Draws
		if want := []float64{0, 0.25, 0.25, 0.5}[d[1].ID%4]; d[0].ID != 4 || d[0].Probability != 1 || math.Abs(d[1].Probability-want) > 1e-12 {
			t.Errorf("tau %v: drew %+v", tau, d)
		}
		for _, h := range table.Inspect().Held() {
			if h.Probability == 0 {
				t.Errorf("tau %v: rollout %d cannot be drawn", tau, h.ID)
			}
		}
	}
}

func TestRolloutsEnterAtTheLargestBaseUntilReported(t *testing.T) {
	p := prioritizedOptions()
	p.PriorityBase, p.Entry, p.PriorityExponent = BaseGradNorm, EnterMax, 1
	table := mustNew(t, withPriorities(p, Options{Capacity: 8}))
	bases := func() (list []float64, atMax []bool) {
		for _, h := range table.Inspect().Held() {
			list, atMax = append(list, h.Base), append(atMax, h.AtMax)
		}
		return list, atMax
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mustInsert(t, table, group(0, 1, 0)) // nothing is known: 1
	must(table.Report(ctx, rollout.Feedback{ID: 1, GradNorm: rollout.Measured(5)}))
	mustInsert(t, table, group(0, 1))
	must(table.Report(ctx, rollout.Feedback{ID: 2, Tokens: 3, RatioSum: 3, RatioSquares: 3})) // not measured: it stays
	must(updateOf(table, Priority{3, 7}))
	must(table.Report(ctx, rollout.Feedback{ID: 1, GradNorm: rollout.Measured(0.5)}))
	mustInsert(t, table, group(0, 1))
	list, atMax := bases()
	if !alike(list, 0.5+1e-6, 1, 7+1e-6, 7+1e-6) || !reflect.DeepEqual(atMax, []bool{false, true, false, true}) {
		t.Errorf("the bases are %v, at the maximum %v", list, atMax)
	}

	// Where a report gives no base it ends the entry at the maximum and leaves what an update gave.
	p.PriorityBase = BaseReward
	table = mustNew(t, withPriorities(p, Options{Capacity: 8}))
	mustInsert(t, table, group(0, 3, 1, 2))
	must(updateOf(table, Priority{2, 9}))
	must(table.Report(ctx, rollout.Feedback{ID: 2}, rollout.Feedback{ID: 3}))
	list, atMax = bases()
	if !alike(list, 3+1e-6, 9+1e-6, 2+1e-6) || !reflect.DeepEqual(atMax, []bool{true, false, false}) {
		t.Errorf("the bases are %v, at the maximum %v", list, atMax)
	}
}

func TestReportsAreCheckedAndThoseOfTheEvictedCounted(t *testing.T) {
	for _, kind := range []Sampler{Prioritized, Distinct} {
		table := mustNew(t, Options{Capacity: 2, Sampler: kind})
		mustInsert(t, table, group(0, 1), group(0, 1), group(0, 1))
		if err := table.Report(ctx, rollout.Feedback{ID: 1}, rollout.Feedback{ID: 2}); err != nil || statsOf(table).UpdatesIgnored != 1 {
			t.Errorf("%s: %v, %d ignored", kind, err, statsOf(table).UpdatesIgnored)
		}
		for name, f := range map[string]rollout.Feedback{
			"id":            {ID: 9},
			"staleness":     {ID: 2, Staleness: -1},
			"advantage":     {ID: 2, Advantage: rollout.Measured(-1)},
			"td_error":      {ID: 2, TDError: rollout.Measured(math.NaN())},
			"grad_norm":     {ID: 2, GradNorm: rollout.Measured(-1)},
			"tokens":        {ID: 2, Tokens: -1},
			"ratio_sum":     {ID: 2, RatioSum: math.Inf(1)},
			"ratio_squares": {ID: 2, RatioSquares: -1},
		} {
			err := table.Report(ctx, rollout.Feedback{ID: 3, Tokens: 5, RatioSum: 5, RatioSquares: 5}, f)
			var field *rollout.FieldError
			if !errors.As(err, &field) || field.Field != name || field.Row != 1 {
				t.Errorf("%s: %s: got %v", kind, name, err)
			}
		}
		if known := table.Inspect().ESSByAge(); len(known) != 0 {
			t.Errorf("%s: refused reports left %v", kind, known)
		}
	}
}

func TestATableWithoutPrioritiesHasNoAgeDecay(t *testing.T) {
	if tau := mustNew(t, Options{}).Inspect().AgeDecay(); !math.IsInf(tau, 1) {
		t.Errorf("of sampler distinct it is %v", tau)
	}
}

func TestLookingChangesNothing(t *testing.T) {
	table := rewarded(t, func(o *Options) { o.AgeDecay, o.MaxUses = 1, 1 }, 1, 1, 2)
	if err := table.Advance(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, table, group(1000, 1))
	mustLease(t, table, rollout.Request{Size: 1}) // leaves only what has underflowed
	before := snapshotOf(t, table)
	if p := probabilities(table); !alike(p, 0.25, 0.25, 0.5, 0) {
		t.Errorf("the probabilities are %v", p)
	}
	if a := table.Inspect().ByAge(); len(a) != 1 || math.Abs(a[0].Probability-1) > 1e-12 || a[0].Units != 3 || a[0].Age != 1000 {
		t.Errorf("by age they are %v", a)
	}
	table.Inspect().ESSByAge()
	statsOf(table)
	if !bytes.Equal(snapshotOf(t, table), before) {
		t.Error("the table changed")
	}
}

// The least weight of a table is known as well after a million versions as at the start, however steep the decay.
func TestWeightsByTableStayExactOverManyVersions(t *testing.T) {
	table := rewarded(t, func(o *Options) {
		o.Capacity, o.PriorityExponent, o.AgeDecay, o.ImportanceNorm, o.ImportanceBeta = 2, 100, 1e-3, ByTable, new(1.0)
	}, 1, 1)
	for v := rollout.Version(1); v < 2_000_000; v += 99_991 {
		if err := table.Advance(ctx, v); err != nil {
			t.Fatal(err)
		}
		mustInsert(t, table, group(v, 1.25, 1.25))
		heavy := table.lastID
		if err := updateOf(table, Priority{heavy, 1.25 * math.Pow(2, 1.0/100)}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if d := mustSample(t, table, rollout.Request{Size: 1}).Draws[0]; d.ID == heavy && math.Abs(float64(d.Weight)-0.5) > 1e-7 {
				t.Fatalf("at version %d the weight is %v", v, d.Weight)
			}
		}
	}
}

// What N was at a draw belongs to its weight: a table drawn to its end has equal weights where bases are equal.
func TestWeightsAllowForUnitsThatTheBatchExhausted(t *testing.T) {
	for _, spread := range []Draws{Stratified, Independent} {
		for _, norm := range []Norm{ByBatch, ByTable} {
			table := rewarded(t, func(o *Options) {
				o.MaxUses, o.Draws, o.ImportanceNorm, o.ImportanceBeta = 1, spread, norm, new(0.4)
			}, 1, 1, 1, 1, 1, 1, 1, 1)
			for _, d := range mustSample(t, table, rollout.Request{Size: 8}).Draws {
				if math.Abs(float64(d.Weight)-1) > 1e-6 {
					t.Errorf("%s, by %s: rollout %d of probability %v has weight %v", spread, norm, d.ID, d.Probability, d.Weight)
				}
			}
		}
	}
}

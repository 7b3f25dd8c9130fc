package replay

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
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
		table := rewarded(t, func(o *Options) { o.ImportanceBeta, o.ImportanceNorm = &c.beta, c.normalisation }, 2, 1,
			1)
		// Of four stratified draws two fall on the first.
		for _, d := range mustSample(t, table, rollout.Request{Size: 4}).Draws {
			want, chance := c.light, 0.25
			if d.ID == 1 {
				want, chance = c.heavy, 0.5
			}
			if math.Abs(float64(d.Weight)-want) > 1e-7 || d.Probability != chance {
				t.Errorf("beta %v, by %s: rollout %d of probability %v has weight %v, want %v", c.beta, c.normalisation,
					d.ID, d.Probability, d.Weight, want)
			}
		}
		for range 50 {
			if d := mustSample(t, table, rollout.Request{Size: 1}).Draws[0]; d.ID == 1 &&
				math.Abs(float64(d.Weight)-c.alone) > 1e-7 {
				t.Errorf("beta %v, by %s: alone it has weight %v, want %v", c.beta, c.normalisation, d.Weight, c.alone)
			}
		}
	}
}

// Eight rollouts of bases 1, 2 and 3 are dealt to 1, 2 and 4 shards of mean base 2, so that 16 stratified draws fall on
// each as often as its base says, twice, however many shards share them.
func TestTheNumberOfTrainersDoesNotChangeImportanceWeights(t *testing.T) {
	for _, norm := range []Norm{ByBatch, ByTable} {
		for _, shards := range []int{1, 2, 4} {
			p := prioritizedOptions()
			p.PriorityBase, p.PriorityEpsilon, p.PriorityExponent = BaseReward, 1e-300, 1
			p.ImportanceBeta, p.ImportanceNorm = new(0.5), norm
			table := mustNew(t, withPriorities(p, Options{Capacity: 8, Shards: shards}))
			for _, base := range []float32{3, 2, 3, 2, 1, 2, 1, 2} {
				mustInsert(t, table, group(0, base))
			}
			var batches []*rollout.Batch
			for shard := range shards {
				batches = append(batches, mustSample(t, table, rollout.Request{Size: 16 / shards, Shard: shard}))
			}
			rollout.NormaliseWeights(batches)
			rollout.NormaliseWeights(batches) // changes nothing
			drawn := make(map[rollout.ID]int)
			for _, b := range batches {
				for _, d := range b.Draws {
					drawn[d.ID]++
					// N P is base/2; the largest weight is that of base 1.
					if want := math.Pow(float64(d.Rollout.Reward), -0.5); math.Abs(float64(d.Weight)-want) > 1e-6 {
						t.Errorf("by %s, %d shards: rollout %d of base %g has weight %v, want %v", norm, shards, d.ID,
							d.Rollout.Reward, d.Weight, want)
					}
				}
				if math.Abs(b.LogWeightScale-0.5*math.Ln2) > 1e-9 {
					t.Errorf("by %s, %d shards: weights are divided by exp %v, want sqrt 2", norm, shards,
						b.LogWeightScale)
				}
			}
			if want := map[rollout.ID]int{1: 3, 2: 2, 3: 3, 4: 2, 5: 1, 6: 2, 7: 1, 8: 2}; !maps.Equal(drawn, want) {
				t.Errorf("by %s, %d shards: drew %v, want %v", norm, shards, drawn, want)
			}
		}
	}
}

func TestFreshDrawsKeepTheirWeightBesideOtherTrainers(t *testing.T) {
	batches := []*rollout.Batch{
		{Draws: []rollout.Draw{{Weight: 1, Fresh: true}}}, // no weight was divided
		{Draws: []rollout.Draw{{Weight: 1, Fresh: true}, {Weight: 1}, {Weight: 0.5}}, LogWeightScale: -math.Ln2},
		{Draws: []rollout.Draw{{Weight: 1}}, LogWeightScale: -2 * math.Ln2},
	}
	rollout.NormaliseWeights(batches)
	var got []float32
	for _, b := range batches {
		for _, d := range b.Draws {
			got = append(got, d.Weight)
		}
	}
	if want := []float32{1, 1, 1, 0.5, 0.5}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
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
		if err := updateOf(table, Priority{1, 1e12}, Priority{2, 1e12}); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, p := range probabilities(table) {
			sum += p
		}
		if math.Abs(sum-1) > 1e-7 {
			t.Errorf("epsilon %g: the probabilities are %v", epsilon, probabilities(table))
		}
	}
}

func TestAttackFiniteReportsDoNotPoisonATable(t *testing.T) {
	table := rewarded(t, nil, 1, 1, 2)
	for want, err := range map[string]error{
		"priority is 1.7e+308: give a number from 0 to 1e+12": updateOf(table, Priority{1, 1.7e308}),
		"ratio_sum is 1e+160: give a number from 0 to 1e+20": table.Report(ctx,
			rollout.Feedback{ID: 1, Tokens: 1, RatioSum: 1e160, RatioSquares: 1}),
		"ratio_squares is 1e+300": table.Report(ctx,
			rollout.Feedback{ID: 1, Tokens: 1, RatioSum: 1, RatioSquares: 1e300}),
		"tokens is 1e+200": table.Report(ctx, rollout.Feedback{ID: 1, Tokens: 1e200, RatioSum: 1, RatioSquares: 1}),
		"td_error is 1e+13: give a number from 0 to 1e+12": table.Report(ctx,
			rollout.Feedback{ID: 1, TDError: rollout.Measured(1e13)}),
	} {
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if p := probabilities(table); !alike(p, 0.25, 0.25, 0.5) {
		t.Errorf("refused reports left the probabilities %v", p)
	}
	// The largest that is accepted leaves everything finite, and a later report undoes it.
	for range 100 {
		err := table.Report(ctx, rollout.Feedback{ID: 1, Tokens: math.MaxInt32, RatioSum: 1e20, RatioSquares: 1e40})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range table.Inspect().ESSByAge() {
		if !(e.ESS > 0 && e.ESS <= 1) {
			t.Errorf("the ESS is %v", e)
		}
	}
	if err := updateOf(table, Priority{1, 1e12}, Priority{1, 1}); err != nil {
		t.Fatal(err)
	}
	if p := probabilities(table); !alike(p, 0.25, 0.25, 0.5) {
		t.Errorf("the probabilities are %v", p)
	}
}

func TestAttackRewardsWhoseAdvantagesOverflowAreRefused(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Advantage: advantage.LeaveOneOut})
	g := group(0, 1, 1)
	g.Rollouts[0].Reward, g.Rollouts[1].Reward = 3e38, -3e38
	_, err := table.Insert(ctx, g)
	if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(),
		"reward is 3e+38: give a reward from -1e9 to 1e9") {
		t.Errorf("got %v", err)
	}
	g.Rollouts[0].Reward, g.Rollouts[1].Reward = 1e9, -1e9
	mustInsert(t, table, g)
	for _, d := range mustSample(t, table, rollout.Request{Size: 2}).Draws {
		if math.Abs(float64(d.Advantage)) != 2e9 {
			t.Errorf("the advantage is %v", d.Advantage)
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
		if want := []float64{0, 0.25, 0.25, 0.5}[d[1].ID%4]; d[0].ID != 4 || d[0].Probability != 1 ||
			math.Abs(d[1].Probability-want) > 1e-12 {
			t.Errorf("tau %v: drew %+v", tau, d)
		}
		for _, h := range table.Inspect().Held() {
			if h.Probability == 0 {
				t.Errorf("tau %v: rollout %d cannot be drawn", tau, h.ID)
			}
		}
	}
}

// FreshPER's code stores rollouts after their fresh update at the largest priority and gives a priority to what replay
// drew only; with age decay it recomputes all priorities at the next fresh update.
func TestAReportOfAFreshDrawLeavesTheEntryAtTheMaximum(t *testing.T) {
	sample := func(table *Table, size, fresh int) {
		t.Helper()
		b := mustSample(t, table, rollout.Request{Size: size, Fresh: fresh})
		for _, d := range b.Draws {
			if err := table.Report(ctx, rollout.Feedback{ID: d.ID, Staleness: d.Staleness}); err != nil {
				t.Fatal(err)
			}
		}
	}
	entered := func(table *Table) (list []bool) {
		for _, h := range table.Inspect().Held() {
			list = append(list, h.AtMax)
		}
		return list
	}
	for _, c := range []struct {
		until                   Until
		fresh, replayed, others bool // at the maximum after the fresh update, and after replay of it and of others
		next                    bool // those never replayed, when the next fresh batch is drawn
	}{
		{until: "", fresh: true, others: true, next: true},
		{until: UntilReplay, fresh: true, others: true, next: true},
		{until: UntilRefresh, fresh: true, others: true},
		{until: UntilReport},
	} {
		p := prioritizedOptions()
		p.PriorityBase, p.Entry, p.EntryUntil = BaseReward, EnterMax, c.until
		table := mustNew(t, withPriorities(p, Options{Capacity: 8, Seed: 2}))
		mustInsert(t, table, group(0, 2, 0))
		sample(table, 2, 2)
		if got := entered(table); !reflect.DeepEqual(got, []bool{c.fresh, c.fresh}) {
			t.Errorf("entry_until %q: after the fresh update %v are at the maximum", c.until, got)
		}
		want := []float64{0.5, 0.5}
		if !c.fresh {
			want = []float64{1 / (1 + math.Pow(1e-6/(2+1e-6), 0.6)), 1 / (1 + math.Pow((2+1e-6)/1e-6, 0.6))}
		}
		if got := probabilities(table); !alike(got, want...) {
			t.Errorf("entry_until %q: after the fresh update the probabilities are %v, want %v", c.until, got, want)
		}
		drawn := mustSample(t, table, rollout.Request{Size: 1}).Draws[0].ID
		if err := table.Report(ctx, rollout.Feedback{ID: 1}, rollout.Feedback{ID: 2}); err != nil {
			t.Fatal(err)
		}
		states := []bool{c.others, c.others}
		states[drawn-1] = c.replayed
		if got := entered(table); !reflect.DeepEqual(got, states) {
			t.Errorf("entry_until %q: after %d was replayed %v are at the maximum", c.until, drawn, got)
		}
		mustInsert(t, table, group(0, 1, 1))
		mustSample(t, table, rollout.Request{Size: 2, Fresh: 2})
		states[2-drawn] = c.next
		if got := entered(table); !reflect.DeepEqual(got, append(states, true, true)) {
			t.Errorf("entry_until %q: at the next fresh batch %v are at the maximum", c.until, got)
		}
	}
}

func TestRolloutsEnterAtTheLargestBaseUntilReported(t *testing.T) {
	p := prioritizedOptions()
	p.PriorityBase, p.Entry, p.EntryUntil, p.PriorityExponent = BaseGradNorm, EnterMax, UntilReport, 1
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

func TestAllRolloutsOfAnInsertionEnterAtTheLargestBaseSeen(t *testing.T) {
	p := prioritizedOptions()
	p.PriorityBase, p.Entry = BaseReward, EnterMax
	for _, c := range []struct {
		name  string
		o     Options
		ahead []rollout.Group // inserted before
		group []rollout.Group
		want  []float64 // bases, less epsilon
	}{
		{"the first of an insertion above the maximum", Options{}, nil,
			[]rollout.Group{group(0, 0.25, 0.5)}, []float64{0.5, 0.5}},
		{"a group before that of the maximum", Options{}, []rollout.Group{group(0, 0.125)},
			[]rollout.Group{group(0, 0.25, 0.375), group(0, 0.5, 0.4375)}, []float64{0.125, 0.5, 0.5, 0.5, 0.5}},
		{"below what was seen before", Options{}, []rollout.Group{group(0, 3)},
			[]rollout.Group{group(0, 0.25, 0.5)}, []float64{3, 3, 3}},
		{"each shard apart", Options{Shards: 2}, nil,
			[]rollout.Group{group(0, 0.25), group(0, 0.5), group(0, 0.4375), group(0, 0.375)},
			[]float64{0.4375, 0.4375, 0.5, 0.5}}, // Held lists shard after shard
		{"one that is too old does not enter", Options{MaxStaleness: 3}, nil,
			[]rollout.Group{group(9, 0.25), group(0, 0.5)}, []float64{0.25}},
		{"a unit of which one is too old does not enter", Options{MaxStaleness: 3, Unit: UnitGroup, GroupSize: 2}, nil,
			[]rollout.Group{group(9, 0.25, 0.375), {Size: 2, Rollouts: []*rollout.Rollout{group(9, 0.75).Rollouts[0],
				group(0, 0.125).Rollouts[0]}}}, []float64{0.375, 0.375}},
	} {
		c.o.Capacity = 16
		table := mustNew(t, withPriorities(p, c.o))
		if err := table.Advance(ctx, 9); err != nil {
			t.Fatal(err)
		}
		for _, insertion := range [][]rollout.Group{c.ahead, c.group} {
			if _, err := table.Insert(ctx, insertion...); err != nil {
				t.Fatal(err)
			}
		}
		var bases []float64
		for _, h := range table.Inspect().Held() {
			bases = append(bases, h.Base-p.PriorityEpsilon)
		}
		if !alike(bases, c.want...) {
			t.Errorf("%s: the bases are %v, want %v", c.name, bases, c.want)
		}
	}
}

func TestReportsAreCheckedAndThoseOfTheEvictedCounted(t *testing.T) {
	for _, kind := range []Sampler{Prioritized, Distinct} {
		table := mustNew(t, Options{Capacity: 2, Sampler: kind})
		mustInsert(t, table, group(0, 1), group(0, 1), group(0, 1))
		if err := table.Report(ctx, rollout.Feedback{ID: 1}, rollout.Feedback{ID: 2}); err != nil ||
			statsOf(table).UpdatesIgnored != 1 {
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
	if a := table.Inspect().ByAge(); len(a) != 1 || math.Abs(a[0].Probability-1) > 1e-12 || a[0].Units != 3 ||
		a[0].Age != 1000 {
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
			if d := mustSample(t, table, rollout.Request{Size: 1}).Draws[0]; d.ID == heavy &&
				math.Abs(float64(d.Weight)-0.5) > 1e-7 {
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
					t.Errorf("%s, by %s: rollout %d of probability %v has weight %v", spread, norm, d.ID,
						d.Probability, d.Weight)
				}
			}
		}
	}
}

// addedBytes is the memory that a prioritized sampler needs besides the rollouts' slots.
func addedBytes(p *prioritized) int {
	bytes := p.tree.Bytes() + 8*cap(p.bases) + 4*cap(p.drawn) + 8*cap(p.chance) + 8*cap(p.buffer)
	if p.least != nil {
		bytes += p.least.Bytes()
	}
	return bytes
}

// The sum of capacities is held against what the runtime measures, so that nothing is left out of it.
func TestPrioritizedSamplerNeedsAtMost40BytesPerRollout(t *testing.T) {
	tests.Long(t)
	for _, normalisation := range []Norm{ByBatch, ByTable} {
		for _, n := range []int{50_000, 200_001} {
			o := prioritizedOptions()
			o.ImportanceNorm = normalisation
			st := &store{}
			for range n {
				st.put(&item{}, nil)
			}
			before := heap()
			p := newPrioritized(&o, st, unitsOf(UnitRollout))
			for s := range int32(n) {
				p.enter(s, 1)
				p.add(s)
			}
			p.begin(rollout.Stream(1, "memory", 0), prioritizedBatch)
			measured := float64(heap()-before) / float64(n)
			counted := float64(addedBytes(p)) / float64(n)
			if measured > 40 || !(math.Abs(measured-counted) < 1) {
				t.Errorf("normalised by %s, %d rollouts: %.1f bytes each, %.1f counted", normalisation, n,
					measured, counted)
			}
			t.Logf("normalised by %s, %d rollouts: %.1f bytes each", normalisation, n, measured)
			runtime.KeepAlive(st)
			runtime.KeepAlive(p)
		}
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first left to be swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestTheESSOfAMixtureMatchesNumbersWorkedByHand(t *testing.T) {
	half := curve{ages: []float64{0, 10}, logs: []float64{0, math.Log(0.5)}}
	quarter := math.Log(0.25)
	for name, c := range map[string]struct {
		masses []ageMass
		rate   float64
		want   float64
	}{
		"nothing":  {nil, 0, 1},
		"the new":  {[]ageMass{{0, 3}}, 1, 1},
		"the old":  {[]ageMass{{10, -50}}, 1, 0.5},
		"in equal": {[]ageMass{{0, 0}, {10, 0}}, 0, 2.0 / 3},
		// A decay to half in 10 versions: 2/3 and 1/3.
		"decaying": {[]ageMass{{0, 700}, {10, 700}}, math.Ln2 / 10, 0.75},
		// 1/2 beside 1/4, e at age 5 is the root of 1/2, at 20 the square.
		"between": {[]ageMass{{5, 2 * quarter}, {20, 3 * quarter}}, 0, 1 / (0.8/math.Sqrt(0.5) + 0.2/0.25)},
		// e is 2^-100000 and its share of the mass e^-1000000: neither is a float64.
		"ancient": {[]ageMass{{0, 0}, {1e6, 0}}, 1, 1},
	} {
		if got := mixtureESS(c.masses, half, c.rate); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := mixtureESS([]ageMass{{0, 0}, {1e6, 0}}, half, 0); got != 0 {
		t.Errorf("half of it ancient: %v", got)
	}
}

func TestTheCurveOfTheESSFallsLogLinearly(t *testing.T) {
	c := newCurve([]AgeESS{
		{First: 0, Last: 0, ESS: 0.9, Tokens: 9}, {First: 2, Last: 2, ESS: 0.25, Tokens: 10},
		{First: 3, Last: 5, ESS: 1, Tokens: 10},
		{First: 8, Last: 8, ESS: 0.125, Tokens: 10},
	})
	for age, want := range map[float64]float64{
		0: 1, 1: math.Sqrt(0.5), 2: 0.5, 3: 0.5, 4: 0.5, // 0.25 and 1 are pooled
		6: 0.25, 8: 0.125, 16: 0.125 * 0.125, // beyond the last at the mean rate up to it
	} {
		if got := math.Exp(c.at(age)); math.Abs(got-want) > 1e-12 {
			t.Errorf("at age %v it is %v, want %v", age, got, want)
		}
	}
	// Three in a row that rise are pooled by their tokens.
	c = newCurve([]AgeESS{
		{First: 1, Last: 1, ESS: 0.5, Tokens: 6}, {First: 2, Last: 2, ESS: math.Exp(-3), Tokens: 1},
		{First: 3, Last: 3, ESS: math.Exp(-1), Tokens: 2},
		{First: 4, Last: 4, ESS: math.Exp(-0.7), Tokens: 1},
	})
	for age, want := range map[float64]float64{1: 0.5, 2: math.Exp(-1.425), 3: math.Exp(-1.425), 4: math.Exp(-1.425)} {
		if got := math.Exp(c.at(age)); math.Abs(got-want) > 1e-12 {
			t.Errorf("at age %v it is %v, want %v", age, got, want)
		}
	}
	if got := newCurve(nil).at(1000); got != 0 {
		t.Errorf("with nothing measured its logarithm is %v", got)
	}
}

func TestAgesHaveOneBinEach(t *testing.T) {
	next := 0
	for bin := range 260 {
		first, last := bounds(bin)
		if first != next || last < first || binOf(first) != bin || binOf(last) != bin {
			t.Fatalf("bin %d is ages %d to %d, in bins %d and %d; the one before ends before %d", bin, first, last,
				binOf(first), binOf(last), next)
		}
		next = last + 1
	}
	if binOf(63) != 63 || binOf(64) != 64 || binOf(128) != 72 || binOf(math.MaxInt32) > 264 {
		t.Errorf("bins are %d, %d, %d, %d", binOf(63), binOf(64), binOf(128), binOf(math.MaxInt32))
	}
}

func TestWhatWasMeasuredLongAgoCountsLess(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	mustInsert(t, table, group(0, 1))
	report := func(tokens, sum, squares float64) {
		t.Helper()
		f := rollout.Feedback{ID: 1, Staleness: 7, Tokens: tokens, RatioSum: sum, RatioSquares: squares}
		if err := table.Report(ctx, f, rollout.Feedback{ID: 1, Staleness: 9}); err != nil {
			t.Fatal(err)
		}
	}
	one := func() AgeESS {
		t.Helper()
		list := table.Inspect().ESSByAge()
		if len(list) != 1 || list[0].First != 7 || list[0].Last != 7 {
			t.Fatalf("known are %v", list)
		}
		return list[0]
	}
	report(100, 100, 200)
	if got := one(); got.ESS != 0.5 || got.Tokens != 100 {
		t.Errorf("measured was %v", got)
	}
	if err := table.Advance(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if got := one(); math.Abs(got.Tokens-100/math.E) > 1e-9 || math.Abs(got.ESS-0.5) > 1e-12 {
		t.Errorf("100 versions later it counts as %v", got)
	}
	report(100/math.E, 100/math.E, 100/math.E)
	// Sums of 200/e, of squares 300/e: 4/(2*3).
	if got := one(); math.Abs(got.ESS-2.0/3) > 1e-12 {
		t.Errorf("together it is %v", got)
	}
	// After a rewind nothing lies ahead, and nothing counts more than it did.
	tokens := one().Tokens
	if err := table.Rewind(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if got := one(); got.Tokens != tokens {
		t.Errorf("a rewind made it %v", got)
	}
	report(1e9, 2e9, 1e9) // as no ratios are
	if got := one(); got.ESS != 1 {
		t.Errorf("it is %v", got)
	}
}

func TestAnAutomaticAgeDecayStaysInItsRange(t *testing.T) {
	tests.OneGoroutine(t)
	p := prioritizedOptions()
	masses := []ageMass{{0, 0}, {1000, 0}}
	for target, want := range map[float64]float64{0.99999999: minAutoDecay, 1e-9: greatestAutoDecay} {
		p.TargetESS = target
		// Falling by 1% a version; by so little that the target is met anyway.
		if got := p.solveAgeDecay(append(masses, ageMass{1, 3}),
			curve{[]float64{0, 1}, []float64{0, -0.01}}); got != want {
			t.Errorf("for a target of %v tau is %v, want %v", target, got, want)
		}
	}
	p.TargetESS = 0.9
	e := curve{[]float64{0, 1000}, []float64{0, math.Log(0.5)}}
	tau := p.solveAgeDecay(masses, e)
	// 1/(1 + q) = 0.9 with q the share of the old; q/(1-q) = exp(-0.6 1000/tau).
	q := 1/0.9 - 1
	if want := -600 / math.Log(q/(1-q)); math.Abs(tau-want) > 1e-6*want {
		t.Errorf("tau is %v, want %v", tau, want)
	}
	p.DecayOrder = AfterExponent
	if got := p.solveAgeDecay(masses, e); math.Abs(got-tau/0.6) > 1e-6*got {
		t.Errorf("with decay after the exponent tau is %v, want %v", got, tau/0.6)
	}
}

// Where the ESS falls as exp(-age/c), the age decay ends where a batch has the target, however bases are spread; from
// above and from below, over shards too.
func TestAnAutomaticAgeDecayHoldsTheTarget(t *testing.T) {
	tests.OneGoroutine(t)
	for _, start := range []float64{5, 1e5} {
		p := prioritizedOptions()
		p.AgeDecay, p.TargetESS = Versions(start), 0.8
		table := mustNew(t, withPriorities(p, Options{Capacity: 4000, Shards: 2}))
		random := rollout.Stream(1, "target", 0)
		const c = 300.0
		tau, moved := table.Inspect().AgeDecay(), rollout.Version(0)
		for v := range rollout.Version(1500) {
			for range 2 { // older ones have the greater bases, so that the exponent matters
				for _, id := range mustInsert(t, table, someGroup(random, 2, v)) {
					if err := updateOf(table, Priority{id, 1 + float64(1500-v)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			// far apart, also those that leave
			if err := updateOf(table, Priority{table.lastID, wide(random)}); err != nil {
				t.Fatal(err)
			}
			if v%10 == 0 {
				if err := updateOf(table, Priority{table.lastID, 1}); err != nil {
					t.Fatal(err)
				}
			}
			age := random.Int32N(min(int32(v), 1000) + 1)
			f := rollout.Feedback{ID: table.lastID, Staleness: age, Advantage: rollout.Measured(1), Tokens: 100,
				RatioSum: 100, RatioSquares: 100 * math.Exp(float64(age)/c)}
			if err := table.Report(ctx, f); err != nil {
				t.Fatal(err)
			}
			if err := table.Advance(ctx, v+1); err != nil {
				t.Fatal(err)
			}
			if now := table.Inspect().AgeDecay(); now != tau {
				if v+1-moved < 100 {
					t.Fatalf("tau moved at versions %d and %d", moved, v+1)
				}
				tau, moved = now, v+1
			}
		}
		if moved != 1500 {
			t.Fatalf("tau moved last at version %d", moved)
		}
		inverse := 0.0
		for _, a := range table.Inspect().ByAge() {
			inverse += a.Probability * math.Exp(float64(a.Age)/c)
		}
		if got := 1 / inverse; math.Abs(got-0.8) > 0.01 {
			t.Errorf("from tau %v the ESS is %v at tau %v", start, got, tau)
		}
	}
}

// Without a target, or with too little known, it stays.
func TestAnAgeDecayStaysWithoutATarget(t *testing.T) {
	for _, target := range []float64{0, 0.8} {
		p := prioritizedOptions()
		p.TargetESS = target
		table := mustNew(t, withPriorities(p, Options{Capacity: 4}))
		mustInsert(t, table, group(0, 1))
		for age := range int32(4) {
			if target > 0 {
				age = 3 // one age alone makes no curve
			}
			if err := table.Report(ctx, rollout.Feedback{ID: 1, Staleness: age, Tokens: 9, RatioSum: 9,
				RatioSquares: 30}); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Advance(ctx, 500); err != nil || table.Inspect().AgeDecay() != 500 {
			t.Errorf("target %v: %v, tau is %v", target, err, table.Inspect().AgeDecay())
		}
	}
}

package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// noted gives the rollouts of a group numbers in their meta, "" for none.
func noted(g rollout.Group, name string, values ...string) rollout.Group {
	for i, v := range values {
		if v != "" {
			g.Rollouts[i].Meta = map[string]string{name: v}
		}
	}
	return g
}

func TestPrioritiesByExpressionMatchNumbersWorkedByHand(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Sampler: Prioritized, PriorityExponent: 1, PriorityEpsilon: 0.5, Seed: 3,
		AgeDecay: Versions(math.Inf(1)), Priority: "reward * meta.gain / (1 + uses) + (age >= 2 ? 10 : 0)"})
	mustInsert(t, table, noted(group(0, 1, 3, 1, -4), "gain", "2", "0.5", "", "1")) // the third's gain is not known
	check := func(late float64) {
		t.Helper()
		held, sum := table.Inspect().Held(), 0.0
		for i, gain := range []float64{2, 1.5, math.NaN(), -4} {
			want := 0.5
			if x := gain/float64(1+held[i].Uses) + late; x > 0 {
				want += x
			}
			if held[i].Base != want {
				t.Errorf("rollout %d has base %g after %d uses, want %g", i, held[i].Base, held[i].Uses, want)
			}
			sum += want
		}
		for i, h := range held {
			if math.Abs(h.Probability-h.Base/sum) > 1e-12 {
				t.Errorf("rollout %d is drawn with probability %g, want %g", i, h.Probability, h.Base/sum)
			}
		}
	}
	check(0)
	for range 6 {
		mustSample(t, table, rollout.Request{Size: 2})
		check(0)
	}
	if err := table.Update(ctx, []rollout.ID{2}, []float64{7}); err != nil {
		t.Fatal(err)
	}
	if err := table.Report(ctx, rollout.Feedback{ID: 1, Advantage: rollout.Measured(9)}); err != nil {
		t.Fatal(err)
	}
	check(0) // what is reported changes nothing
	for version, late := range []float64{1: 0, 2: 10, 3: 10} {
		if err := table.Advance(ctx, rollout.Version(version)); err != nil {
			t.Fatal(err)
		}
		check(late) // by looking
		mustSample(t, table, rollout.Request{Size: 2})
		check(late) // by the draw
	}
	if err := table.Rewind(ctx, 0); err != nil {
		t.Fatal(err)
	}
	check(0)
}

// Of three groups of two, by version less two for each use, with a rest of two versions.
func TestAnOrderedTableDrawsTheFirstThatDoNotRest(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Sampler: Ordered, Order: "version - 2 * uses", Cooldown: 2})
	draw := func(want ...rollout.ID) {
		t.Helper()
		b := mustSample(t, table, rollout.Request{Size: len(want)})
		if got := drawnIDs(b); !slices.Equal(got, want) || b.Draws[0].Probability != 1 || b.Draws[0].Weight != 1 {
			t.Errorf("at version %d it drew %v, want %v: %+v", table.Version(), got, want, b.Draws[0])
		}
	}
	advance := func(v rollout.Version) {
		t.Helper()
		if err := table.Advance(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	_, err := table.Sample(ctx, rollout.Request{Size: 1})
	if !errors.Is(err, rollout.ErrStarved) || strings.Contains(err.Error(), "rest") {
		t.Errorf("of an empty table: %v", err)
	}
	mustInsert(t, table, group(0, 1, 0))
	advance(1)
	mustInsert(t, table, group(1, 1, 0))
	draw(3, 4, 1) // scores 1, 1, 0, and the oldest among equals
	_, err = table.Sample(ctx, rollout.Request{Size: 2})
	if !errors.Is(err, rollout.ErrStarved) || !strings.Contains(err.Error(), "where 1 can be drawn (others rest for a "+
		"cooldown of 2 versions after a use, or are on lease: insert new rollouts, advance the version, or lower") {
		t.Errorf("with one that does not rest: %v", err)
	}
	advance(2)
	mustInsert(t, table, group(2, 1, 0))
	lease := mustLease(t, table, rollout.Request{Size: 1})
	draw(6, 2) // 5 is on lease; 2 has score 0
	if err := table.Release(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	draw(5)
	advance(3) // used at 1, with 1 - 2, 1 - 2 and 0 - 2
	draw(3, 4, 1)
	advance(4) // used at 2
	draw(5, 6, 2)
}

// BenchmarkOrdered compares draws in an order with plain ones.
func BenchmarkOrdered(b *testing.B) {
	for _, n := range []int{50_000, 1_000_000} {
		var baseline float64
		for _, c := range []struct {
			name string
			Options
		}{
			{"baseline=plain", Options{}},
			{"version", Options{Sampler: Ordered, Order: "version - 2 * uses"}},
			{"version,cooldown", Options{Sampler: Ordered, Order: "version - 2 * uses", Cooldown: 100}},
			{"age,each=version", Options{Sampler: Ordered, Order: "-age - 2 * uses"}},
		} {
			c.Capacity = n
			table := mustNew(b, c.Options)
			for _, g := range groupsOf(n/benchGroup, 12, 4, rollout.Stream(1, "bench", 0)) {
				mustInsert(b, table, g)
			}
			b.Run(fmt.Sprintf("rollouts=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if c.Cooldown > 0 || strings.HasSuffix(c.name, "each=version") {
						if err := table.Advance(ctx, table.Version()+1); err != nil {
							b.Fatal(err)
						}
					}
					mustSample(b, table, rollout.Request{Size: benchBatch})
				}
				if ns := perRollout(b, benchBatch, baseline); baseline == 0 {
					baseline = ns
				}
			})
		}
	}
}

// BenchmarkPriorities compares priorities by expression with those of the keys. Each draw ends with an acknowledgement,
// which changes uses.
func BenchmarkPriorities(b *testing.B) {
	for _, n := range []int{50_000, 1_000_000} {
		var baseline float64
		for _, c := range []struct{ name, priority string }{
			{"baseline=advantage", ""},
			{"abs", "abs(advantage)"},
			{"uses", "abs(advantage) * group_std / (1 + uses)"},
			{"age", "reward + 0.999 ** age"},
			{"age,each=version", "reward + 0.999 ** age"},
			{"length,each=version", "length * 0.999 ** age"},
		} {
			table := mustNew(b, Options{Capacity: n, Seed: 1, Sampler: Prioritized, Priority: c.priority})
			for _, g := range groupsOf(n/benchGroup, 12, 4, rollout.Stream(1, "bench", 0)) {
				mustInsert(b, table, g)
			}
			b.Run(fmt.Sprintf("rollouts=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if strings.HasSuffix(c.name, "each=version") {
						if err := table.Advance(ctx, table.Version()+1); err != nil {
							b.Fatal(err)
						}
					}
					mustSample(b, table, rollout.Request{Size: benchBatch})
				}
				if ns := perRollout(b, benchBatch, baseline); baseline == 0 {
					baseline = ns
				}
			})
		}
	}
}

package replay

import (
	"fmt"
	"math"
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

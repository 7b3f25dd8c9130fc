package replay

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// entered returns the rewards of what entered a table of one group.
func entered(t *testing.T, o Options, rewards ...float32) (list []float32) {
	t.Helper()
	table := mustNew(t, o)
	ids, err := table.Insert(ctx, group(0, rewards...))
	if err != nil || len(ids) != len(rewards) {
		t.Fatalf("%d rollouts got the ids %v, %v", len(rewards), ids, err)
	}
	for _, h := range table.Inspect().Held() {
		list = append(list, h.Rollout.Reward)
	}
	if s := statsOf(table); s.Inserted != uint64(len(rewards)) || s.Present != len(list) ||
		s.Evicted[rollout.EvictedBySelection] != uint64(len(rewards)-len(list)) {
		t.Errorf("%+v", s)
	}
	return list
}

func TestTheSubsetOfAGroupThatPODSTakesEnters(t *testing.T) {
	for _, c := range []struct {
		o             Options
		rewards, want []float32
	}{
		{Options{Select: 2}, []float32{0.5, 0, 0.75, 1, 0.25}, []float32{0, 1}},
		{Options{Select: 3}, []float32{0, 5, 5.5, 6}, []float32{0, 5.5, 6}},
		{Options{Select: 2}, []float32{1, 1, 1}, []float32{1, 1}},
		{Options{Select: 9}, []float32{0, 1}, []float32{0, 1}},
		{Options{Select: 2, SelectBy: SelectReward}, []float32{0.5, 0, 0.75, 1, 0.25}, []float32{0.75, 1}},
	} {
		got := entered(t, c.o, c.rewards...)
		if !slices.Equal(got, c.want) {
			t.Errorf("select %d by %s of %v: %v entered, want %v", c.o.Select, c.o.SelectBy, c.rewards, got, c.want)
		}
	}
	if got := entered(t, Options{Select: 4}, 1, 0, 0, 1, 1, 0, 0, 0); len(got) != 4 || got[0]+got[1]+got[2]+got[3] != 2 {
		t.Errorf("of 3 right of 8, %v entered, want two of each", got)
	}
	// Advantages are among those that entered: 0 and 1 have the mean 0.5 and the deviation 0.5.
	table := mustNew(t, Options{Select: 2})
	mustInsert(t, table, group(0, 0.5, 0, 0.75, 1, 0.25))
	for _, h := range table.Inspect().Held() {
		if want := 2*h.Rollout.Reward - 1; math.Abs(float64(h.Advantage-want)) > 1e-6 || h.Mean != 0.5 || h.Std != 0.5 {
			t.Errorf("reward %g has %+v", h.Rollout.Reward, h)
		}
	}
}

// No subset of its size has a larger variance than that which enters, nor a larger sum than that of the largest
// rewards.
func TestNoOtherSubsetOfAGroupIsBetter(t *testing.T) {
	const seed = 4
	t.Log("seed", seed)
	random := rollout.Stream(seed, "test", 0)
	for range 300 {
		rewards := make([]float32, 2+random.IntN(8))
		for i := range rewards {
			if rewards[i] = float32(random.IntN(3)); random.IntN(2) == 0 {
				rewards[i] = float32(random.NormFloat64())
			}
		}
		k := 1 + random.IntN(len(rewards))
		for by, worth := range map[SelectBy]func(rewards []float32, places []int) float64{
			SelectVariance: spread,
			SelectReward: func(rewards []float32, places []int) (sum float64) {
				for _, i := range places {
					sum += float64(rewards[i])
				}
				return sum
			},
		} {
			got := entered(t, Options{Select: k, SelectBy: by}, rewards...)
			all := make([]int, len(got))
			for i := range all {
				all[i] = i
			}
			best := math.Inf(-1)
			for set := range 1 << len(rewards) {
				var places []int
				for i := range rewards {
					if set>>i&1 == 1 {
						places = append(places, i)
					}
				}
				if len(places) == k {
					best = max(best, worth(rewards, places))
				}
			}
			if has := worth(got, all); len(got) != k || has < best-1e-6*(1+math.Abs(best)) {
				t.Fatalf("select %d by %s of %v: %v has %g, the best %g", k, by, rewards, got, has, best)
			}
		}
	}
}

// The choice is the model's, which computes the variance of each split by itself.
func TestALargeGroupIsSplitAsByTheVarianceOfEachSubset(t *testing.T) {
	const seed = 5
	t.Log("seed", seed)
	random := rollout.Stream(seed, "test", 0)
	for _, number := range []func() float32{
		func() float32 { return float32(random.IntN(2)) },
		func() float32 { return 1e6 + float32(random.IntN(5))/4 },
		func() float32 { return float32(random.NormFloat64()) },
		func() float32 { return float32(min(1e9, math.Exp(9*random.NormFloat64()))) },
	} {
		for range 20 {
			rewards := make([]float32, 2+random.IntN(150))
			for i := range rewards {
				rewards[i] = number()
			}
			o := Options{Select: 1 + random.IntN(len(rewards)-1), SelectBy: SelectVariance}
			var want []float32
			for _, i := range (&model{o: o}).selected(rewards) {
				want = append(want, rewards[i])
			}
			if got := entered(t, o, rewards...); !slices.Equal(got, want) {
				t.Fatalf("select %d of %v: %v, want %v", o.Select, rewards, got, want)
			}
		}
	}
}

// A group of n costs n log n, where it cost n times select.
func BenchmarkSelectHalfOfALargeGroup(b *testing.B) {
	const n = 48000
	random := rollout.Stream(6, "test", 0)
	rewards := make([]float32, n)
	for i := range rewards {
		rewards[i] = random.Float32()
	}
	g := group(0, rewards...)
	for b.Loop() {
		table := mustNew(b, Options{Capacity: n, Select: n / 2})
		mustInsert(b, table, g)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/rollout")
}

func BenchmarkSelect(b *testing.B) {
	groups := benchGroups(benchPool)
	var baseline float64
	for _, c := range []struct {
		name string
		Options
	}{{"baseline=all", Options{}}, {"select=4", Options{Select: 4}}, {"select=8", Options{Select: 8}}} {
		b.Run(c.name, func(b *testing.B) {
			c.Capacity = 1 << 16
			table, i := mustNew(b, c.Options), 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Insert(context.Background(), groups[i%len(groups)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			if ns := perRollout(b, benchGroup, baseline); baseline == 0 {
				baseline = ns
			}
		})
	}
}

// What select leaves out takes no place of a queue.
func TestAQueueHasRoomForWhatIsSelectedOfAGroup(t *testing.T) {
	table := mustNew(t, Options{Sampler: FIFO, Capacity: 10, GroupSize: 8, Select: 2})
	for range 2 {
		mustInsert(t, table, group(0, 0, 1, 0, 1, 0, 1, 0, 1))
	}
	if _, err := table.Sample(ctx, rollout.Request{Size: 6}); !errors.Is(err, rollout.ErrStarved) {
		t.Fatalf("4 held and room for 3 groups more: %v, want starved", err)
	}
	mustInsert(t, table, group(0, 0, 1, 0, 1, 0, 1, 0, 1))
	if b := mustSample(t, table, rollout.Request{Size: 6}); len(b.Draws) != 6 {
		t.Errorf("drew %d", len(b.Draws))
	}
	table = mustNew(t, Options{Sampler: FIFO, Capacity: 11, GroupSize: 8, Select: 2})
	for range 5 {
		mustInsert(t, table, group(0, 0, 1, 0, 1, 0, 1, 0, 1))
	}
	_, err := table.Sample(ctx, rollout.Request{Size: 11})
	if want := "holds 10 of 11, with no room for another group of 2"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

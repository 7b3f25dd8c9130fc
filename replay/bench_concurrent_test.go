package replay

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

const (
	concurrentWorkers  = 8 // goroutines that insert, and as many that sample
	concurrentTokens   = 1000
	concurrentRollouts = 1 << 15
	concurrentOps      = 1 << 9 // insertions, and as many batches, of one measurement
)

// BenchmarkConcurrent compares 8 goroutines that insert groups and 8 that draw batches and update them with one goroutine that
// does the same number of both, in turns within one run. x-one is how many times the one's work they get done: the
// median over the run. Two processors are needed for it to exceed 1.
func BenchmarkConcurrent(b *testing.B) {
	pool := longGroups(64)
	for _, shards := range []int{1, concurrentWorkers} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			table, err := New(Options{Capacity: concurrentRollouts, Sampler: Prioritized, Shards: shards, Vocab: 64, Seed: 1})
			if err != nil {
				b.Fatal(err)
			}
			for i := range 2 * concurrentRollouts / benchGroup {
				insertOne(b, table, pool, i)
			}
			var one, all []float64
			for b.Loop() {
				one = append(one, timed(func() { alone(b, table, pool) }))
				all = append(all, timed(func() { together(b, table, pool) }))
			}
			ratios := make([]float64, len(one))
			for i := range one {
				ratios[i] = one[i] / all[i]
			}
			b.ReportMetric(2*concurrentOps/median(one), "ops/s-one")
			b.ReportMetric(2*concurrentOps/median(all), "ops/s-16")
			b.ReportMetric(median(ratios), "x-one")
		})
	}
}

// longGroups makes groups of rollouts of concurrentTokens tokens, all but the first hundred the policy's.
func longGroups(n int) []rollout.Group {
	return groupsOf(n, concurrentTokens, 100, rollout.Stream(1, "bench", 6))
}

// alone does every insertion and batch in one goroutine, in turns.
func alone(tb testing.TB, table *Table, pool []rollout.Group) {
	for i := range concurrentOps {
		insertOne(tb, table, pool, i)
		sampleOne(tb, table, i)
	}
}

// together does as many insertions and batches as alone, in goroutines that take the next one each.
func together(tb testing.TB, table *Table, pool []rollout.Group) {
	var group sync.WaitGroup
	var inserted, sampled atomic.Int64
	each := func(next *atomic.Int64, do func(i int)) {
		for range concurrentWorkers {
			group.Go(func() {
				for i := next.Add(1); i <= concurrentOps; i = next.Add(1) {
					do(int(i))
				}
			})
		}
	}
	each(&inserted, func(i int) { insertOne(tb, table, pool, i) })
	each(&sampled, func(i int) { sampleOne(tb, table, i) })
	group.Wait()
}

func insertOne(tb testing.TB, table *Table, pool []rollout.Group, i int) {
	if _, err := table.Insert(ctx, pool[i%len(pool)]); err != nil {
		tb.Error(err)
	}
}

// sampleOne draws a batch and gives its rollouts new priorities.
func sampleOne(tb testing.TB, table *Table, i int) {
	batch, err := table.Sample(ctx, rollout.Request{Size: prioritizedBatch, Shard: i % len(table.shards)})
	if err != nil {
		tb.Error(err)
		return
	}
	priorities := make([]Priority, len(batch.Draws))
	for k := range batch.Draws {
		priorities[k] = Priority{batch.Draws[k].ID, float64(i%7+k) / 8}
	}
	if err := updateOf(table, priorities...); err != nil {
		tb.Error(err)
	}
}

// timed returns how many seconds something took.
func timed(do func()) float64 {
	start := time.Now()
	do()
	return time.Since(start).Seconds()
}

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	return sorted[len(sorted)/2]
}

package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// prioritizedBatch is the batch that the prioritized sampler's figures are given for.
const prioritizedBatch = 64

// prioritizedSizes are the numbers of rollouts that they are given for.
var prioritizedSizes = []int{50_000, 1_000_000, 10_000_000}

// filled is the version of a prioritizedTable.
const filled = 1000

// prioritizedTable returns a full table at version filled, of rollouts that versions 0 to filled made in equal shares, and its
// newest ID.
func prioritizedTable(b *testing.B, n int, p Options) (*Table, rollout.ID) {
	b.Helper()
	table, err := New(withPriorities(p, Options{Capacity: n, Seed: 1}))
	if err != nil {
		b.Fatal(err)
	}
	random := rollout.Stream(1, "bench", 4)
	last, version, group := rollout.ID(0), rollout.Version(0), made(0, random)
	for i := range n / benchGroup {
		if v := rollout.Version((i + 1) * benchGroup * filled / n); v > version {
			if err := table.Advance(ctx, v); err != nil {
				b.Fatal(err)
			}
			version, group = v, made(v, random)
		}
		ids, err := table.Insert(ctx, group)
		if err != nil {
			b.Fatal(err)
		}
		last = ids[len(ids)-1]
	}
	return table, last
}

// made returns a group of rollouts of 1 token by version v, each with an advantage of its own.
func made(v rollout.Version, random *rand.Rand) rollout.Group {
	g := rollout.Group{Size: benchGroup}
	for range benchGroup {
		advantage := float32(random.NormFloat64())
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: "prompt", Temperature: 1, TopP: 1, Reward: 1, Advantage: &advantage,
			Tokens: []int32{1}, Mask: []uint8{1}, Logprobs: []float32{-1}, Versions: []rollout.Version{v},
		})
	}
	return g
}

// rescan is a prioritized buffer without any of what this package does about age: before each batch it computes all weights and
// their running sum anew, as FreshPER does.
type rescan struct {
	bases, sums []float64
	versions    []rollout.Version
	alpha, tau  float64
}

func newRescan(n int, p Options) *rescan {
	r := &rescan{make([]float64, n), make([]float64, n), make([]rollout.Version, n), p.PriorityExponent, float64(p.AgeDecay)}
	random := rollout.Stream(1, "bench", 2)
	for i := range r.bases {
		r.bases[i] = random.Float64()
	}
	return r
}

func (r *rescan) cycle(v rollout.Version, batch int, random *rand.Rand) {
	sum := 0.0
	for i, base := range r.bases {
		sum += math.Pow(base*math.Exp(-float64(v-r.versions[i])/r.tau), r.alpha)
		r.sums[i] = sum
	}
	drawn := make([]int, batch)
	for i := range drawn {
		drawn[i], _ = slices.BinarySearch(r.sums, random.Float64()*sum)
	}
	for _, i := range drawn {
		r.bases[min(i, len(r.bases)-1)] = random.Float64()
	}
}

// BenchmarkPrioritizedCycle is what a trainer costs the table per step: a batch of 64 with importance weights, 64 new
// priorities and a new version.
func BenchmarkPrioritizedCycle(b *testing.B) {
	random := rollout.Stream(1, "bench", 3)
	for _, n := range prioritizedSizes {
		var baseline float64
		if n <= 1_000_000 { // beyond, it takes a second per step
			b.Run(fmt.Sprintf("N=%d/baseline=rescan", n), func(b *testing.B) {
				r, v := newRescan(n, prioritizedOptions()), rollout.Version(0)
				for b.Loop() {
					v++
					r.cycle(v, prioritizedBatch, random)
				}
				baseline = perCycle(b, 0)
			})
		}
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			table, _ := prioritizedTable(b, n, prioritizedOptions())
			var sampling, updating time.Duration
			for i := 0; b.Loop(); i++ {
				if i%10_000 == 9_999 {
					// No table in use holds rollouts of that age.
					b.StopTimer()
					if err := table.Rewind(ctx, filled); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				s, u := cycle(b, table, random)
				sampling, updating = sampling+s, updating+u
			}
			perCycle(b, baseline)
			b.ReportMetric(float64(sampling.Nanoseconds())/float64(b.N)/1000, "us/sample")
			b.ReportMetric(float64(updating.Nanoseconds())/float64(b.N)/1000, "us/update")
			b.ReportMetric(float64(addedBytes(table.shards[0].prioritized))/float64(n), "B/rollout")
		})
	}
}

// cycle is one step of a trainer. It returns the time that sampling took, and updating.
func cycle(b *testing.B, table *Table, random *rand.Rand) (sampling, updating time.Duration) {
	start := time.Now()
	batch, err := table.Sample(ctx, rollout.Request{Size: prioritizedBatch})
	if err != nil {
		b.Fatal(err)
	}
	sampled := time.Now()
	priorities := make([]Priority, prioritizedBatch)
	for i := range batch.Draws {
		priorities[i] = Priority{batch.Draws[i].ID, random.Float64()}
	}
	if err := updateOf(table, priorities...); err != nil {
		b.Fatal(err)
	}
	updated := time.Now()
	if err := table.Advance(ctx, batch.Version+1); err != nil {
		b.Fatal(err)
	}
	return sampled.Sub(start), updated.Sub(sampled)
}

// perCycle reports what share of the baseline a cycle took, if there is one, and returns its time.
func perCycle(b *testing.B, baseline float64) float64 {
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(ns/1000, "us/cycle")
	if baseline > 0 {
		b.ReportMetric(ns/baseline, "x-baseline")
	}
	return ns
}

// BenchmarkPrioritizedAdvance moves the version on, one at a time. Now and then a group of the newest version comes, or the
// newest rollout gets another priority, and a batch is drawn, so that the weights' scale moves with the versions and
// all are scaled or computed anew when they must be: scalings counts how often.
func BenchmarkPrioritizedAdvance(b *testing.B) {
	for _, c := range []struct {
		n   int
		tau float64
	}{
		{50_000, 500}, {1_000_000, 500}, {10_000_000, 500}, {50_000, 5}, {1_000_000, 5},
	} {
		b.Run(fmt.Sprintf("N=%d,tau=%g", c.n, c.tau), func(b *testing.B) {
			p := prioritizedOptions()
			p.AgeDecay = Versions(c.tau)
			table, last := prioritizedTable(b, c.n, p)
			w := table.shards[0].prioritized
			random := rollout.Stream(1, "bench", 5)
			scalings, ref, v := 0, w.ref, rollout.Version(filled)
			for b.Loop() {
				v++
				if err := table.Advance(ctx, v); err != nil {
					b.Fatal(err)
				}
				if v%1024 != 0 {
					continue
				}
				if v%16384 == 0 {
					ids, err := table.Insert(ctx, made(v, random))
					if err != nil {
						b.Fatal(err)
					}
					last = ids[benchGroup-1]
				} else if err := updateOf(table, Priority{last, random.Float64()}); err != nil {
					b.Fatal(err)
				}
				if _, err := table.Sample(ctx, rollout.Request{Size: 1}); err != nil {
					b.Fatal(err)
				}
				if w.ref != ref {
					scalings, ref = scalings+1, w.ref
				}
			}
			b.ReportMetric(float64(scalings), "scalings")
			if scalings == 0 && b.N > 1_000_000 {
				b.Error("the scale never moved")
			}
		})
	}
}

// BenchmarkPrioritizedRebuild changes the age decay, for which all weights are computed anew.
func BenchmarkPrioritizedRebuild(b *testing.B) {
	for _, n := range []int{50_000, 1_000_000} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			table, _ := prioritizedTable(b, n, prioritizedOptions())
			for i := 0; b.Loop(); i++ {
				setTau(table, float64(400+i%2))
			}
			perRollout(b, n, 0)
		})
	}
}

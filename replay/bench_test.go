package replay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

const (
	benchRollouts = 1_000_000
	benchGroup    = 16
	benchBatch    = 256
	benchPool     = 1 << 13 // groups that insertions cycle through
)

// benchGroups makes groups of rollouts of 12 tokens, 8 of them the policy's.
func benchGroups(n int) []rollout.Group { return groupsOf(n, 12, 4, rollout.Stream(1, "bench", 0)) }

// groupsOf makes groups of rollouts of the given tokens, all but the prompt the policy's.
func groupsOf(n, tokens, prompt int, r *rand.Rand) []rollout.Group {
	groups := make([]rollout.Group, n)
	for g := range groups {
		groups[g].Size = benchGroup
		for range benchGroup {
			x := &rollout.Rollout{PromptID: "prompt", Temperature: 1, TopP: 1, Reward: float32(r.IntN(2))}
			for i := range tokens {
				m := uint8(min(i/prompt, 1))
				x.Tokens = append(x.Tokens, int32(r.IntN(64)))
				x.Mask = append(x.Mask, m)
				x.Logprobs = append(x.Logprobs, -float32(m)*r.Float32())
				x.Versions = append(x.Versions, rollout.Version(m)-1)
			}
			groups[g].Rollouts = append(groups[g].Rollouts, x)
		}
	}
	return groups
}

func benchTable(b *testing.B, o Options, groups []rollout.Group) *Table {
	o.Capacity, o.Vocab, o.Seed = benchRollouts, 64, 1
	t, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	// Twice the capacity, so that what is measured is a table that evicts and has its final size.
	for i := range 2 * benchRollouts / benchGroup {
		if _, err := t.Insert(context.Background(), groups[i%len(groups)]); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// ring is the plainest table: a mutex and a slice, nothing validated, counted or expired.
type ring struct {
	mu    sync.Mutex
	slots []*rollout.Rollout
	next  int
}

func (r *ring) insert(g rollout.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range g.Rollouts {
		r.slots[r.next] = x
		r.next = (r.next + 1) % len(r.slots)
	}
}

func (r *ring) sample(n int, random *rand.Rand) []*rollout.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*rollout.Rollout, n)
	for i := range out {
		out[i] = r.slots[random.IntN(len(r.slots))]
	}
	return out
}

// shuffled is how [ER]'s listing 5 draws without replacement: a permutation of all.
func (r *ring) shuffled(n int, random *rand.Rand) []*rollout.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*rollout.Rollout, n)
	for i, at := range random.Perm(len(r.slots))[:n] {
		out[i] = r.slots[at]
	}
	return out
}

// perRollout reports the time per rollout, its ratio to the baseline's if there is one, and returns it.
func perRollout(b *testing.B, n int, baseline float64) float64 {
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
	b.ReportMetric(ns, "ns/rollout")
	if baseline > 0 {
		b.ReportMetric(ns/baseline, "x-baseline")
	}
	return ns
}

func BenchmarkInsert(b *testing.B) {
	groups := benchGroups(benchPool)
	var baseline float64
	b.Run("baseline=ring", func(b *testing.B) {
		r := &ring{slots: make([]*rollout.Rollout, benchRollouts)}
		i := 0
		for b.Loop() {
			r.insert(groups[i%len(groups)])
			i++
		}
		baseline = perRollout(b, benchGroup, 0)
	})
	for _, c := range []struct {
		name string
		Options
	}{
		{"fifo", Options{}},
		{"fifo,max_staleness", Options{MaxStaleness: 1 << 20}},
		{"fifo,shards=4", Options{Shards: 4}},
		{"positive", Options{Retention: KeepPositive, PositiveFraction: 0.5}},
		{"scored", Options{Retention: KeepScored, Score: "version - 2 * uses"}},
		{"prioritized", Options{Sampler: Prioritized}},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := benchTable(b, c.Options, groups)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Insert(context.Background(), groups[i%len(groups)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			perRollout(b, benchGroup, baseline)
		})
	}
}

func BenchmarkSample(b *testing.B) {
	groups := benchGroups(benchPool)
	r := &ring{slots: make([]*rollout.Rollout, benchRollouts)}
	for i := range benchRollouts / benchGroup {
		r.insert(groups[i%len(groups)])
	}
	random := rollout.Stream(1, "bench", 1)
	var baseline float64
	b.Run("baseline=ring", func(b *testing.B) {
		for b.Loop() {
			r.sample(benchBatch, random)
		}
		baseline = perRollout(b, benchBatch, 0)
	})
	b.Run("baseline=shuffle", func(b *testing.B) {
		for b.Loop() {
			r.shuffled(benchBatch, random)
		}
		perRollout(b, benchBatch, baseline)
	})
	for _, c := range []struct {
		name string
		Options
	}{
		{"uniform", Options{Sampler: Uniform}},
		{"uniform,max_uses", Options{Sampler: Uniform, MaxUses: 1 << 20}},
		{"distinct", Options{Sampler: Distinct}},
		{"epoch", Options{Sampler: Epoch}},
		{"unseen", Options{Sampler: Unseen}},
		{"least_used", Options{Sampler: LeastUsed}},
		{"prioritized", Options{Sampler: Prioritized}},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := benchTable(b, c.Options, groups)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Sample(context.Background(), rollout.Request{Size: benchBatch}); err != nil {
					b.Fatal(err)
				}
			}
			perRollout(b, benchBatch, baseline)
		})
	}
}

// prioritizedBatch is the batch that the prioritized sampler's figures are given for.
const prioritizedBatch = 64

// prioritizedSizes are the numbers of rollouts that they are given for.
var prioritizedSizes = []int{50_000, 1_000_000, 10_000_000}

// filled is the version of a prioritizedTable.
const filled = 1000

// prioritizedTable returns a full table at version filled, of rollouts that versions 0 to filled made in equal shares,
// and its newest ID.
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

// rescan is a prioritized buffer without any of what this package does about age: before each batch it computes all
// weights and their running sum anew, as FreshPER does.
type rescan struct {
	bases, sums []float64
	versions    []rollout.Version
	alpha, tau  float64
}

func newRescan(n int, p Options) *rescan {
	r := &rescan{make([]float64, n), make([]float64, n), make([]rollout.Version, n), p.PriorityExponent,
		float64(p.AgeDecay)}
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

// BenchmarkPrioritizedAdvance moves the version on, one at a time. Now and then a group of the newest version comes, or
// the newest rollout gets another priority, and a batch is drawn, so that the weights' scale moves with the versions
// and all are scaled or computed anew when they must be: scalings counts how often.
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

const (
	concurrentWorkers  = 8 // goroutines that insert, and as many that sample
	concurrentTokens   = 1000
	concurrentRollouts = 1 << 15
	concurrentOps      = 1 << 9 // insertions, and as many batches, of one measurement
)

// BenchmarkConcurrent compares 8 goroutines that insert groups and 8 that draw batches and update them with one
// goroutine that does the same number of both, in turns within one run. x-one is how many times the one's work they get
// done: the median over the run. Two processors are needed for it to exceed 1.
func BenchmarkConcurrent(b *testing.B) {
	pool := longGroups(64)
	for _, shards := range []int{1, concurrentWorkers} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			table, err := New(Options{Capacity: concurrentRollouts, Sampler: Prioritized, Shards: shards,
				Vocab: 64, Seed: 1})
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

// savedTable holds n rollouts of 1,000 tokens, which lie in the arrays of a few, and remembers the insertions.
func savedTable(b *testing.B, rollouts int) *Table {
	some := groupsOf(4, 1000, 100, rollout.Stream(1, "bench", 0))
	o := Options{Capacity: rollouts, Vocab: 64, MaxStaleness: 10, Seed: 1}
	t, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	for i := range rollouts / benchGroup {
		g := rollout.Group{Size: benchGroup}
		for _, r := range some[i%len(some)].Rollouts {
			own := *r
			g.Rollouts = append(g.Rollouts, &own)
		}
		if _, err := t.ServiceView().InsertOnce(context.Background(), fmt.Sprint("insertion ", i), g); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// heapOf runs f and returns by how many bytes the heap's objects, garbage included, were more at the worst, and how
// many were allocated.
func heapOf(f func()) (peak, allocated uint64) {
	runtime.GC()
	read := func() (held, ever uint64) {
		m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(m)
		return m[0].Value.Uint64(), m[1].Value.Uint64()
	}
	held, ever := read()
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				now, _ := read()
				peak = max(peak, now)
			}
		}
	})
	f()
	close(done)
	all.Wait()
	_, now := read()
	return max(peak, held) - held, now - ever
}

// BenchmarkSnapshot saves a table while nothing else happens: the time for which its locks are held; what is allocated,
// and by how much the heap grows at the worst.
func BenchmarkSnapshot(b *testing.B) {
	for _, rollouts := range []int{20_000, 100_000} {
		b.Run(fmt.Sprintf("N=%d,tokens=1000", rollouts), func(b *testing.B) {
			table := savedTable(b, rollouts)
			var held time.Duration
			var peak, allocated uint64
			n := counted(0)
			for b.Loop() {
				n = 0
				b.StopTimer()
				start := time.Now()
				table.hold()
				held += time.Since(start)
				b.StartTimer()
				p, a := heapOf(func() {
					if err := table.Snapshot(&n); err != nil {
						b.Fatal(err)
					}
				})
				peak, allocated = max(peak, p), allocated+a
			}
			b.ReportMetric(held.Seconds()*1000/float64(b.N), "ms-locked")
			b.ReportMetric(float64(allocated)/float64(b.N)/1e6, "MB-allocated")
			b.ReportMetric(float64(peak)/1e6, "MB-peak")
			b.ReportMetric(float64(n)/1e6, "MB-written")
		})
	}
}

// counted counts what is written.
type counted int64

func (c *counted) Write(b []byte) (int, error) {
	*c += counted(len(b))
	return len(b), nil
}

// BenchmarkRestore reads a table of rollouts of 1,000 tokens back from a file.
func BenchmarkRestore(b *testing.B) {
	const rollouts = 20_000
	path := filepath.Join(b.TempDir(), "table")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := savedTable(b, rollouts).Snapshot(f); err != nil {
		b.Fatal(err)
	}
	var peak, allocated, kept uint64
	for b.Loop() {
		fresh, err := New(Options{Capacity: rollouts, Vocab: 64, MaxStaleness: 10, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		p, a := heapOf(func() {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				b.Fatal(err)
			}
			if err := fresh.Restore(bufio.NewReader(f)); err != nil {
				b.Fatal(err)
			}
		})
		peak, allocated, kept = max(peak, p), allocated+a, uint64(statsOf(fresh).PresentBytes)
	}
	b.ReportMetric(float64(allocated)/float64(b.N)/1e6, "MB-allocated")
	b.ReportMetric(float64(peak)/1e6, "MB-peak")
	b.ReportMetric(float64(kept)/1e6, "MB-payload")
}

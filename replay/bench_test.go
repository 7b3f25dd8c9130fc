package replay

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

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

// groupsOf makes groups of rollouts of so many tokens, all but the prompt the policy's.
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

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
func benchGroups(n int) []rollout.Group {
	r := rollout.Stream(1, "bench", 0)
	groups := make([]rollout.Group, n)
	for g := range groups {
		groups[g].Size = benchGroup
		for range benchGroup {
			x := &rollout.Rollout{PromptID: "prompt", Temperature: 1, TopP: 1, Reward: float32(r.IntN(2))}
			for i := range 12 {
				m := uint8(min(i/4, 1))
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
	for i := range benchRollouts / benchGroup {
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

func perRollout(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rollout")
}

func BenchmarkInsert(b *testing.B) {
	groups := benchGroups(benchPool)
	b.Run("baseline=ring", func(b *testing.B) {
		r := &ring{slots: make([]*rollout.Rollout, benchRollouts)}
		i := 0
		for b.Loop() {
			r.insert(groups[i%len(groups)])
			i++
		}
		perRollout(b, benchGroup)
	})
	for name, o := range map[string]Options{
		"fifo":      {},
		"staleness": {MaxStaleness: 1 << 20},
		"positive":  {Retention: KeepPositive, PositiveFraction: 0.5},
		"shards=4":  {Shards: 4},
	} {
		b.Run(name, func(b *testing.B) {
			t := benchTable(b, o, groups)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Insert(context.Background(), groups[i%len(groups)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			perRollout(b, benchGroup)
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
	b.Run("baseline=ring", func(b *testing.B) {
		for b.Loop() {
			r.sample(benchBatch, random)
		}
		perRollout(b, benchBatch)
	})
	b.Run("baseline=shuffle", func(b *testing.B) {
		for b.Loop() {
			r.shuffled(benchBatch, random)
		}
		perRollout(b, benchBatch)
	})
	for _, kind := range []Sampler{Uniform, Distinct, Epoch, Unseen} {
		b.Run(string(kind), func(b *testing.B) {
			t := benchTable(b, Options{Sampler: kind}, groups)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Sample(context.Background(), rollout.Request{Size: benchBatch}); err != nil {
					b.Fatal(err)
				}
			}
			perRollout(b, benchBatch)
		})
	}
}

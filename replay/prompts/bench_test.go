package prompts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// BenchmarkBuffer replays batches of 32 prompts from buffers of 1,000 and 100,000, each asked and reported again: what
// Next and Report cost per prompt, and how many times as long it takes to look at every prompt once per prompt taken.
func BenchmarkBuffer(b *testing.B) {
	const batch = 32
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("prompts=%d", n), func(b *testing.B) {
			buffer := mustNew(b, prompts.Options{Fraction: 1, Band: 0.3, Cooldown: 5, MaxReuse: 1 << 30})
			rng := rollout.Stream(1, "bench", 0)
			for i := range n {
				report(b, buffer, 0, result(fmt.Sprint("prompt ", i), 4+rng.IntN(9), 16))
			}
			now := rollout.Version(5)
			var next, reported time.Duration
			taken := 0
			for b.Loop() {
				begin := time.Now()
				ps := buffer.Next(now, batch)
				next += time.Since(begin)
				results := make([]prompts.Result, len(ps))
				for i, p := range ps {
					results[i] = prompts.Result{Prompt: p, Correct: 4 + rng.IntN(9), Total: 16, Replayed: true}
				}
				begin = time.Now()
				report(b, buffer, now, results...)
				reported += time.Since(begin)
				taken += len(ps)
				now++
			}
			each := float64(next+reported) / float64(taken)
			b.ReportMetric(float64(next)/float64(taken), "ns/prompt-next")
			b.ReportMetric(float64(reported)/float64(taken), "ns/prompt-report")
			b.ReportMetric(scan(n)/each, "x-faster-than-scan")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// scan returns the time in ns of finding the best of n prompts by looking at each.
func scan(n int) float64 {
	known := make([]*prompts.Result, n)
	for i := range known {
		known[i] = &prompts.Result{Correct: 1 + i*7%15, Total: 16}
	}
	best, rounds := 16, 20
	begin := time.Now()
	for range rounds {
		for _, k := range known {
			best = min(best, max(2*k.Correct-k.Total, k.Total-2*k.Correct))
		}
	}
	if best != 0 {
		panic("no prompt is at one half")
	}
	return float64(time.Since(begin)) / float64(rounds)
}

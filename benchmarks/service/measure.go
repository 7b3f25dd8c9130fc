package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
)

// contender is one way of moving a block, measured next to others.
type contender struct {
	name string
	run  func(ctx context.Context, d time.Duration) (turn, error) // goes on for d, and at least once
}

// turn is what a contender did in its share of a round.
type turn struct {
	operations int
	seconds    float64
	latencies  []float64 // microseconds, of each operation
}

func (t turn) rate() float64 { return float64(t.operations) / t.seconds }

func (t turn) p50() float64 { return results.Median(t.latencies) }

// repeated makes a contender of an operation that one goroutine repeats.
func repeated(name string, operation func(ctx context.Context) error) contender {
	return contender{name, func(ctx context.Context, d time.Duration) (turn, error) {
		var t turn
		for begin := time.Now(); t.operations == 0 || time.Since(begin) < d; {
			from := time.Now()
			if err := operation(ctx); err != nil {
				return t, err
			}
			now := time.Now()
			t.operations++
			t.latencies = append(t.latencies, float64(now.Sub(from))/1e3)
			t.seconds = now.Sub(begin).Seconds()
		}
		return t, nil
	}}
}

// takeTurns lets the contenders take turns for a number of rounds, each for d a round, after a short turn that does not
// count. The result is in their order. Garbage is collected before each turn.
func takeTurns(ctx context.Context, contenders []contender, rounds int, d time.Duration) ([]series, error) {
	all := make([]series, len(contenders))
	for round := -1; round < rounds; round++ {
		for i, c := range contenders {
			share := d
			if round < 0 {
				share = d / 10
			}
			runtime.GC()
			t, err := c.run(ctx, share)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if round >= 0 {
				all[i] = append(all[i], t)
			}
		}
	}
	return all, nil
}

// series is the turns of one contender, one for each round.
type series []turn

// rate is the median over rounds of the operations per second.
func (s series) rate() float64 {
	rates := make([]float64, len(s))
	for i, t := range s {
		rates[i] = t.rate()
	}
	return results.Median(rates)
}

// latency is a quantile over all operations of all rounds, in microseconds.
func (s series) latency(q float64) float64 {
	var all []float64
	for _, t := range s {
		all = append(all, t.latencies...)
	}
	return results.Quantile(all, q)
}

// over is the median over rounds of the ratio of a figure to that of another series in the same round.
func (s series) over(base series, f func(turn) float64) float64 {
	ratios := make([]float64, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = f(s[i]) / f(base[i])
	}
	return results.Median(ratios)
}

// groupSize is the number of rollouts in a group, where the batch has as many.
const groupSize = 16

// newGroups makes rollouts in groups, a quarter of each rollout its prompt. Different numbers give different rollouts.
func newGroups(rollouts, tokens, number int) []rollout.Group {
	random := rollout.Stream(1, "bench service", uint64(number))
	var groups []rollout.Group
	for made := 0; made < rollouts; {
		g := rollout.Group{}
		for range min(groupSize, rollouts-made) {
			r := &rollout.Rollout{
				PromptID: fmt.Sprintf("bench-%04d-%06d", number,
					made/groupSize), Temperature: 1, TopP: 1, Reward: float32(random.IntN(2)),
				Tokens: make([]int32, tokens), Mask: make([]uint8, tokens),
				Logprobs: make([]float32, tokens), Versions: make([]rollout.Version, tokens),
			}
			for i := range tokens {
				r.Tokens[i] = random.Int32N(32000)
				r.Versions[i] = rollout.NoVersion
				if i >= tokens/4 {
					r.Mask[i], r.Versions[i], r.Logprobs[i] = 1, 0, -random.Float32()*4
				}
			}
			g.Rollouts = append(g.Rollouts, r)
			made++
		}
		groups = append(groups, g)
	}
	return groups
}

// payload is the bytes of the rollouts in groups.
func payload(groups []rollout.Group) int64 {
	var n int64
	for _, g := range groups {
		for _, r := range g.Rollouts {
			n += r.Bytes()
		}
	}
	return n
}

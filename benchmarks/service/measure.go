package service

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// contender is one way of moving a block, measured beside others.
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

// repeated makes a contender of an operation, repeated by one goroutine.
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

// series is the turns of one contender, a round each.
type series []turn

// take lets the contenders take turns for so many rounds, each for d a round, after a short turn that is not counted. The
// result is in their order. Garbage that one left is collected before the next begins.
func take(ctx context.Context, contenders []contender, rounds int, d time.Duration) ([]series, error) {
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

// rate is the median over rounds of the operations per second.
func (s series) rate() float64 { return median(s.each(turn.rate)) }

func (t turn) rate() float64 { return float64(t.operations) / t.seconds }

func (t turn) p50() float64 { return quantile(t.latencies, 0.5) }

func (s series) each(f func(turn) float64) []float64 {
	list := make([]float64, len(s))
	for i, t := range s {
		list[i] = f(t)
	}
	return list
}

// latency is a quantile over all operations of all rounds, microseconds.
func (s series) latency(q float64) float64 {
	var all []float64
	for _, t := range s {
		all = append(all, t.latencies...)
	}
	return quantile(all, q)
}

// over is the median over rounds of the ratio of a figure to that of another series in the same round.
func (s series) over(base series, f func(turn) float64) float64 {
	ratios := make([]float64, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = f(s[i]) / f(base[i])
	}
	return median(ratios)
}

// median is the mean of the two in the middle where there are two; 0 of an empty list.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// quantile is the least value that a share q of the list does not exceed; 0 of an empty list.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	at := int(q * float64(len(list)))
	return list[min(at, len(list)-1)]
}

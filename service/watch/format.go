package watch

import (
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/service"
)

// ago writes how long ago a time was.
func ago(now, then time.Time) string {
	switch d := now.Sub(then); {
	case d < time.Second:
		return "now"
	case d < time.Minute || d >= time.Hour:
		return words.Span(d) + " ago"
	default:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	}
}

// seconds writes a short duration, given in seconds.
func seconds(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 1e-3:
		return words.Amount(s*1e6) + " µs"
	case s < 1:
		return words.Amount(s*1e3) + " ms"
	case s < 100:
		return words.Amount(s) + " s"
	}
	return words.Span(time.Duration(s * float64(time.Second)))
}

// percent writes a share. It never rounds a share that is not 0 or 1 to one that is.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.001:
		return "< 0.1%"
	case share > 0.999 && share < 1:
		return "> 99.9%"
	case share > 0 && share < 0.1:
		return words.Percent(share, 1)
	}
	return words.Percent(share, 0)
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// quantile estimates the q-quantile of a latency, in seconds, by interpolating within its bucket. It returns the
// largest bound for times beyond it, and 0 if nothing was measured.
func quantile(l *service.Latency, q float64) float64 {
	rank := q * float64(l.Count)
	below, low := 0.0, 0.0
	for i, high := range l.Bounds {
		n := float64(l.Counts[i])
		if n > 0 && below+n >= rank {
			return low + (high-low)*max(0, min(1, (rank-below)/n))
		}
		below, low = below+n, high
	}
	if l.Count == 0 {
		return 0
	}
	return low
}

// medianAndP99 writes two quantiles of a latency.
func medianAndP99(l *service.Latency) string {
	if l.Count == 0 {
		return "–"
	}
	return seconds(quantile(l, 0.5)) + " · " + seconds(quantile(l, 0.99))
}
